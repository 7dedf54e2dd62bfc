package e2e

import (
	"errors"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Cases that were found by reading the code, each the meeting of two of the numbered ones.

// TestC08UnlabelledUnderFullQuota strips the label of a copy in a namespace whose quota is used up, by the copy
// among others. The API server refuses the create there before it says that an object exists; it is healed all
// the same, and an object that is not ours is reported as what it is.
func TestC08UnlabelledUnderFullQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ours", "foreign")
	ours, foreign := w.ns("ours"), w.ns("foreign")
	mine := w.create(foreign, "settings")
	w.fullQuota(foreign)
	w.start()
	source := w.createSource(w.home, "settings")
	w.waitInLine(source, ours)
	before := w.live(ours, "settings")
	w.fullQuota(ours)
	w.edit(ours, "settings", withoutLabel(w.label))
	w.waitInLine(source, ours)
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

// TestC30BrokenWebhook puts a webhook before a namespace that cannot be called: the API server answers with an
// error of its own, which is no refusal by name. It is told all the same, and the others are served.
func TestC30BrokenWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "good", "bad")
	good, bad := w.ns("good"), w.ns("bad")
	nobody, none := "https://127.0.0.1:1/", admissionregistrationv1.SideEffectClassNone
	hooks := w.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(w.ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: bad},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    bad + ".broken.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &nobody},
			Rules:                   []admissionregistrationv1.RuleWithOperations{writesOfConfigMaps},
			NamespaceSelector:       onlyNamespace(bad),
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	remove := func() { w.cleanUp(hooks.Delete(w.background(), bad, metav1.DeleteOptions{})) }
	w.Cleanup(remove)
	w.untilProbesAre(refusedProbes, bad)
	w.start()
	source := w.createSource(w.home, "settings")
	w.waitInLine(source, good)
	w.waitEvent(w.home, "settings", mirror.ReasonWriteFailed)
	remove()
	w.waitInLine(source, good, bad)
}

// TestC24UnlabelledOnItsWayOut lets a copy lose its label while it is being deleted and held by a finalizer, so
// that no watch shows its end: it is made again all the same.
func TestC24UnlabelledOnItsWayOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a := w.ns("a")
	p := w.start("--resync-period=0")
	source := w.createSource(w.home, "settings")
	w.waitInLine(source, a)
	const finalizer = "example.com/hold"
	w.pause(p)
	w.edit(a, "settings", withoutLabel(w.label), func(cm *corev1.ConfigMap) { cm.Finalizers = []string{finalizer} })
	w.delete(a, "settings")
	w.resume(p)
	w.waitRequests("it is looked at", 1, func(e cluster.Event) bool {
		return e.Verb == "get" && e.Object.Namespace == a && e.Object.Name == "settings"
	})
	w.settle(w.ns("b"))
	w.edit(a, "settings", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.waitInLine(source, a)
}

// TestC27RecreatedKeepsOthersLabels replaces an immutable source by one with other data: the copy has to be made
// anew, and other people's labels and annotations on it stay.
func TestC27RecreatedKeepsOthersLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.ns("a")
	w.start()
	source := w.createSource(w.home, "settings", setImmutable)
	w.waitInLine(source, a)
	try := 0
	w.inTime(func() bool {
		try++
		w.edit(a, "settings", withLabel("team", "red"), withAnnotation("note", "ours"))
		source, inTime := w.replaceSource("settings", setImmutable, withData(map[string]string{"key": fmt.Sprint(try)}))
		w.waitInLine(source, a)
		if cm := w.live(a, "settings"); inTime && (cm.Labels["team"] != "red" || cm.Annotations["note"] != "ours") {
			t.Errorf("labels %v, annotations %v: other people's are gone", cm.Labels, cm.Annotations)
		}
		return inTime
	})
}

// TestC43WithNamesake is C43 where another source of the name, for other namespaces, stays: its rounds visit the
// target as well, and must not make the lost copy be forgotten.
func TestC43WithNamesake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	second := w.home + "-2"
	w.createNamespace(second, nil)
	p := w.start("--resync-period=0")
	source := w.createSource(w.home, "settings", withAnnotation(plan.PrefixAnnotation, a))
	other := w.createSource(second, "settings", withAnnotation(plan.PrefixAnnotation, b))
	w.waitInLine(source, a)
	w.waitInLine(other, b)
	w.pause(p)
	w.edit(a, "settings", withoutLabel(w.label))
	w.delete(w.home, "settings")
	other = w.edit(second, "settings", withData(map[string]string{"key": "two"}))
	w.resume(p)
	w.waitInLine(other, b)
	w.waitGone("settings", a)
}
