package mirror

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// writing is a writer on a fake API server that has the copy of platform/settings in team-a. The source has other
// content by now.
type writing struct {
	*writer
	client *fake.Clientset
	have   *corev1.ConfigMap // as the cache holds it
	source *plan.Source
	leads  func() bool
}

func newWriting(t *testing.T, options ...plantest.Option) *writing {
	t.Helper()
	rules := teamRules()
	have := plantest.Copy(rules, sourceIn("platform"), "team-a", options...)
	w := &writing{client: fake.NewClientset(have.DeepCopy()), have: have, source: parsed(sourceIn("platform", plantest.Data("key", "new"))), leads: func() bool { return true }}
	rules.Strip(w.have)
	w.writer = &writer{client: w.client, rules: rules, metrics: newControllerMetrics(), valid: func() bool { return w.leads() }}
	return w
}

func (w *writing) change(op plan.Op) plan.Change {
	c := plan.Change{Op: op, Key: settings("team-a"), Source: w.source, Have: w.have}
	if op == plan.OpCreate {
		c.Have = nil
	}
	return c
}

// sent returns the verbs of all requests.
func (w *writing) sent() (verbs []string) {
	for _, a := range w.client.Actions() {
		verbs = append(verbs, a.GetVerb())
	}
	return verbs
}

// TestApply sends each change with what makes it conditional: the object that was judged, or none.
func TestApply(t *testing.T) {
	for op, want := range map[plan.Op][]string{
		plan.OpNone: nil, plan.OpCreate: {"create"}, plan.OpUpdate: {"update"}, plan.OpRecreate: {"delete", "create"}, plan.OpDelete: {"delete"},
	} {
		w := newWriting(t, plantest.Label("theirs", "kept"))
		w.have.ResourceVersion = "7"
		if op == plan.OpCreate {
			_ = w.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "team-a", "settings")
		}
		made, err := w.apply(t.Context(), w.change(op))
		if err != nil || !slices.Equal(w.sent(), want) {
			t.Errorf("%v: got error %v, sent %v, want %v", op, err, w.sent(), want)
		}
		if writes := op != plan.OpNone && op != plan.OpDelete; (made != nil) != writes || writes && made.Data["key"] != "new" {
			t.Errorf("%v: got %v, want what was written", op, made)
		}
		for _, a := range w.client.Actions() {
			switch a := a.(type) {
			case clienttesting.DeleteActionImpl:
				if p := a.DeleteOptions.Preconditions; p == nil || *p.UID != w.have.UID || *p.ResourceVersion != "7" {
					t.Errorf("%v: got preconditions %v, want UID and resourceVersion", op, p)
				}
			case clienttesting.UpdateActionImpl:
				meta := a.Object.(*corev1.ConfigMap).ObjectMeta
				if meta.UID != w.have.UID || meta.ResourceVersion != "7" || meta.Labels["theirs"] != "kept" || a.UpdateOptions.FieldManager != fieldManager {
					t.Errorf("%v: got %+v by %s, want the object that was judged", op, meta, a.UpdateOptions.FieldManager)
				}
			case clienttesting.CreateActionImpl:
				meta := a.Object.(*corev1.ConfigMap).ObjectMeta
				if meta.UID != "" || meta.ResourceVersion != "" || !meta.CreationTimestamp.IsZero() || meta.Labels["theirs"] != "" ||
					a.CreateOptions.FieldManager != fieldManager {
					t.Errorf("%v: got %+v by %s, want a new object", op, meta, a.CreateOptions.FieldManager)
				}
			}
		}
	}
}
