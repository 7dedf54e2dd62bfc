package e2e

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Copies that lost their label or our annotations: cases C08 and C43.

// TestC08LabelStripped strips the label from a copy, and our annotations from others: the first is restored, the
// others are released, left alone and reported.
func TestC08LabelStripped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c", "d", "e")
	a, b, c, d, e := w.ns("a"), w.ns("b"), w.ns("c"), w.ns("d"), w.ns("e")
	p := w.start("--resync-period=200ms")
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, a, b, c, d, e)
	copies := w.copies("settings", a, e)
	w.edit(a, "settings", withoutLabel(w.label))
	w.waitInSync(source, a)
	w.edit(e, "settings", withoutLabel("app.kubernetes.io/managed-by"), withoutAnnotation(plan.ChecksumAnnotation))
	w.waitInSync(source, e)
	w.sameObjects(copies)

	noAnnotations := func(cm *corev1.ConfigMap) { cm.Annotations = nil }
	released := []*corev1.ConfigMap{
		w.edit(b, "settings", noAnnotations),
		w.edit(c, "settings", noAnnotations, withoutLabel(w.label)),
		w.edit(d, "settings", withoutAnnotation(plan.CopyAnnotation)),
	}
	w.eventually("all three are reported", w.noted("settings", "Foreign", b, c, d))
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInSync(source, a, e)
	w.passes(2, a)
	w.allUntouched(released)
	w.stop(p)
	w.start("--resync-period=200ms")
	w.settle(a, b, c, d, e)
	w.delete(w.home, "settings")
	w.waitGone("settings", a, e)
	w.passes(2, a)
	w.allUntouched(released)
}

// TestC08UnlabelledUnderFullQuota strips the label of a copy in a namespace whose quota is used up, by the copy
// among others. The API server refuses the create there before it says that an object exists; it is restored all
// the same, and a foreign object is reported as foreign.
func TestC08UnlabelledUnderFullQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ours", "foreign")
	ours, foreign := w.ns("ours"), w.ns("foreign")
	mine := w.create(foreign, "settings")
	w.fullQuota(foreign)
	w.start()
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, ours)
	before := w.live(ours, "settings")
	w.fullQuota(ours)
	w.edit(ours, "settings", withoutLabel(w.label))
	w.waitInSync(source, ours)
	if after := w.live(ours, "settings"); after.UID != before.UID {
		t.Error("the copy was made anew")
	}
	w.waitEvent(w.home, "settings", mirror.ReasonForeign)
	w.untouched(mine)
}

// fullQuota gives a namespace that holds its certificate and one more ConfigMap a quota of just these two, and
// returns when it is in force.
func (w *world) fullQuota(namespace string) {
	w.Helper()
	w.eventually("the certificate of "+namespace, func() error {
		if w.seen.ConfigMap(namespace, "kube-root-ca.crt") == nil {
			return errors.New("not yet")
		}
		return nil
	})
	_, err := w.admin.CoreV1().ResourceQuotas(namespace).Create(w.ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": resource.MustParse("2")}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.untilProbesAre(refusedProbes, namespace)
}

// TestC43LabelThenSource strips the label of a copy and, right after, takes its source away: the copy counts as released,
// and nobody touches it. When the source is back, the copy is restored where it is. The process stands still meanwhile, so
// that it learns of the second before it has restored the first.
func TestC43LabelThenSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	p := w.start()
	for i := range 6 {
		name := fmt.Sprintf("settings-%d", i)
		source := w.createSource(w.home, name)
		w.waitInSync(source, a, b)
		w.pause(p)
		released := w.edit(a, name, withoutLabel(w.label))
		if i%2 == 0 {
			w.edit(w.home, name, withoutLabel(w.label))
		} else {
			w.delete(w.home, name)
		}
		w.resume(p)
		w.waitGone(name, b)
		w.settle(b)
		w.untouched(released)
		if i%2 == 0 {
			source = w.edit(w.home, name, withLabel(w.label, plan.SourceValue))
		} else {
			source = w.createSource(w.home, name, withData(map[string]string{"key": "other"}))
		}
		w.waitInSync(source, a, b)
		w.sameObjects([]*corev1.ConfigMap{released})
	}
}

// TestC43WhileDown is C43 for a controller that was away: copies that it cannot see when it takes over are released as well.
func TestC43WhileDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	p := w.start()
	w.waitInSync(w.createSource(w.home, "settings"), a, b)
	w.stop(p)
	released := w.edit(a, "settings", withoutLabel(w.label))
	w.delete(w.home, "settings")
	w.start()
	w.waitGone("settings", b)
	w.settle(b)
	w.untouched(released)
	w.waitInSync(w.createSource(w.home, "settings"), a, b)
	w.sameObjects([]*corev1.ConfigMap{released})
}

// TestC43WithNamesake is C43 where another source of the name, for other namespaces, stays: its fan-outs leave the released
// copy alone, until it claims the namespace.
func TestC43WithNamesake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	second := w.elsewhere("second")
	p := w.start()
	source := w.createSource(w.home, "settings", withAnnotation(plan.PrefixAnnotation, a))
	other := w.createSource(second, "settings", withAnnotation(plan.PrefixAnnotation, b))
	w.waitInSync(source, a)
	w.waitInSync(other, b)
	w.pause(p)
	released := w.edit(a, "settings", withoutLabel(w.label))
	w.delete(w.home, "settings")
	other = w.edit(second, "settings", withData(map[string]string{"key": "two"}))
	w.resume(p)
	w.waitInSync(other, b)
	w.settle(b)
	w.untouched(released)
	other = w.edit(second, "settings", withoutAnnotation(plan.PrefixAnnotation))
	w.waitInSync(other, a, b)
	w.sameObjects([]*corev1.ConfigMap{released})
}
