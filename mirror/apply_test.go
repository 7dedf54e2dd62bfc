package mirror

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// writing is a writer on a fake API server that has the copy of platform/settings in team-a. The source has other content
// by now.
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

// refuse has the API server answer the next requests of this verb with an error.
func (w *writing) refuse(verb string, err error) {
	w.client.PrependReactor(verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
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

// TestNothingIsSentWithoutLeadership: it may also end between the two calls of one change.
func TestNothingIsSentWithoutLeadership(t *testing.T) {
	for _, op := range []plan.Op{plan.OpCreate, plan.OpUpdate, plan.OpRecreate, plan.OpDelete} {
		w := newWriting(t)
		w.leads = func() bool { return false }
		if _, err := w.apply(t.Context(), w.change(op)); !errors.Is(err, errNotLeading) || len(w.sent()) > 0 {
			t.Errorf("%v: got error %v, sent %v, want %v and nothing sent", op, err, w.sent(), errNotLeading)
		}
	}
	w, asked := newWriting(t), 0
	w.leads = func() bool { asked++; return asked == 1 }
	if _, err := w.apply(t.Context(), w.change(plan.OpRecreate)); !errors.Is(err, errNotLeading) || len(w.sent()) != 1 {
		t.Errorf("got error %v, sent %v, want %v after the delete", err, w.sent(), errNotLeading)
	}
}

// TestRefusals: a refused write ends a change, but NotFound counts as deleted.
func TestRefusals(t *testing.T) {
	conflict := apierrors.NewConflict(configMapResource, "settings", errAway)
	gone := apierrors.NewNotFound(configMapResource, "settings")
	for name, tc := range map[string]struct {
		op   plan.Op
		verb string
		err  error
		want error
		sent []string
	}{
		"a create":                     {plan.OpCreate, "create", gone, gone, []string{"create"}},
		"an update":                    {plan.OpUpdate, "update", conflict, conflict, []string{"update"}},
		"a delete":                     {plan.OpDelete, "delete", conflict, conflict, []string{"delete"}},
		"a delete of what is gone":     {plan.OpDelete, "delete", gone, nil, []string{"delete"}},
		"a re-creation of another one": {plan.OpRecreate, "delete", conflict, conflict, []string{"delete"}},
		"a re-creation":                {plan.OpRecreate, "create", conflict, conflict, []string{"delete", "create"}},
	} {
		w := newWriting(t)
		w.refuse(tc.verb, tc.err)
		made, err := w.apply(t.Context(), w.change(tc.op))
		if err != tc.want || made != nil || !slices.Equal(w.sent(), tc.sent) {
			t.Errorf("%s: got %v, error %v, sent %v, want error %v, sent %v", name, made, err, w.sent(), tc.want, tc.sent)
		}
	}
}

// TestAlteredWrites: a write that the API server stores with other content is no success.
func TestAlteredWrites(t *testing.T) {
	for name, alter := range map[string]func(*corev1.ConfigMap){
		"data":       func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"key": "theirs"} },
		"metadata":   func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"mirror": "copy"} },
		"more of it": func(cm *corev1.ConfigMap) { cm.Labels = maps.Clone(cm.Labels); cm.Labels["theirs"] = "kept" },
	} {
		w := newWriting(t)
		w.client.PrependReactor("update", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
			cm := a.(clienttesting.UpdateActionImpl).Object.(*corev1.ConfigMap).DeepCopy()
			alter(cm)
			return true, cm, nil
		})
		made, err := w.apply(t.Context(), w.change(plan.OpUpdate))
		if errors.Is(err, errAltered) == (name == "more of it") || made == nil {
			t.Errorf("%s: got %v, error %v", name, made, err)
		}
	}
}

// TestLiveRead reads an object with all of its metadata. A missing object is no error.
func TestLiveRead(t *testing.T) {
	w := newWriting(t, plantest.Managed)
	live, err := w.read(t.Context(), settings("team-a"))
	if err != nil || live == nil || live.ManagedFields != nil || plan.Truncated(live) {
		t.Errorf("got %v, error %v, want it without managed fields", live, err)
	}
	if live, err := w.read(t.Context(), settings("team-b")); live != nil || err != nil {
		t.Errorf("got %v, error %v, want nothing", live, err)
	}
	w.refuse("get", errAway)
	if live, err := w.read(t.Context(), settings("team-a")); live != nil || err != errAway {
		t.Errorf("got %v, error %v, want %v", live, err, errAway)
	}
}

// TestRequestsEnd after the longest time that an admission webhook may take, and within the API server's own minute.
func TestRequestsEnd(t *testing.T) {
	if requestTimeout <= 30*time.Second || requestTimeout > time.Minute {
		t.Errorf("got %v for a request, want more than 30s and at most a minute", requestTimeout)
	}
}
