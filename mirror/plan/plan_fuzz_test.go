package plan

import (
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// Errors of the API server of a world. Like the real one it refuses a write whose preconditions do not hold.
var (
	errExists   = errors.New("AlreadyExists")
	errConflict = errors.New("Conflict")
	errInvalid  = errors.New("Invalid")
	errAbsent   = errors.New("NotFound")
)

func (w *world) create(cm *corev1.ConfigMap) error {
	ns := w.namespaces[cm.Namespace]
	switch {
	case w.objects[cm.Namespace] != nil:
		return errExists
	case ns == nil || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating:
		return errAbsent
	}
	w.store(cm)
	return nil
}

func (w *world) update(cm *corev1.ConfigMap) error {
	there := w.objects[cm.Namespace]
	switch {
	case there == nil:
		return errAbsent
	case cm.ResourceVersion != there.ResourceVersion || cm.UID != there.UID:
		return errConflict
	case there.Immutable != nil && *there.Immutable && canonical(cm) != canonical(there):
		return errInvalid
	}
	w.store(cm)
	return nil
}

// delete deletes the object, or marks it as being deleted if it has finalizers.
func (w *world) delete(judged *corev1.ConfigMap) error {
	there := w.objects[judged.Namespace]
	switch {
	case there == nil:
		return errAbsent
	case judged.UID != there.UID || judged.ResourceVersion != there.ResourceVersion:
		return errConflict
	case len(there.Finalizers) > 0:
		there = there.DeepCopy()
		plantest.Deleting(there)
		w.store(there)
		return nil
	}
	delete(w.objects, judged.Namespace)
	return nil
}

// apply carries a change out, as the writer of package mirror does.
func (w *world) apply(c Change) error {
	if c.Op == OpNone {
		return nil
	}
	if c.Op == OpDelete {
		return w.delete(c.Have)
	}
	want := w.rules.Desired(c.Source, c.Key.Namespace, c.Have)
	if c.Op == OpUpdate {
		return w.update(want)
	}
	if c.Op == OpRecreate {
		if err := w.delete(c.Have); err != nil {
			return err
		}
	}
	want.UID, want.ResourceVersion, want.Finalizers = "", "", nil
	return w.create(want)
}

// plan plans for all targets. It checks that the arguments stay as they are, and that an object as the API server has
// it leads to the same decision as the object in the cache.
func (w *world) plan(t *testing.T, v *View, targets []Target) []Change {
	t.Helper()
	arguments := func() (all []any) {
		for _, s := range v.All() {
			all = append(all, s.ConfigMap.DeepCopy())
		}
		for _, tgt := range targets {
			all = append(all, tgt.Namespace.DeepCopy(), tgt.Have.DeepCopy())
		}
		return all
	}
	before := arguments()
	changes := w.rules.Plan(v, targets)
	if !reflect.DeepEqual(arguments(), before) {
		t.Error("got an argument of Plan changed")
	}
	for i, c := range changes {
		tgt := targets[i]
		if c.Key != tgt.Key {
			t.Fatalf("got a change of %s for %s", c.Key, tgt.Key)
		}
		if tgt.Have == nil {
			continue
		}
		tgt.Have = w.objects[tgt.Key.Namespace].DeepCopy()
		whole := w.rules.Decide(v, tgt)
		c.Have, whole.Have = nil, nil
		if c != whole {
			t.Errorf("%s: got %+v from the cache, want %+v", tgt.Key.Namespace, c, whole)
		}
	}
	return changes
}

// checkChange checks that a change touches no object but ours, and that live reads confirm a deletion: in a world the
// API server has what the cache shows.
func (w *world) checkChange(t *testing.T, v *View, c Change) {
	t.Helper()
	if c.Op == OpNone {
		return
	}
	home := c.Key.Namespace
	ns, have := w.namespaces[home], w.objects[home]
	if ns == nil || w.name == "kube-root-ca.crt" || (c.Op == OpDelete) != (c.Source == nil) {
		t.Fatalf("%s: got %v for %v", home, c.Op, c.Source)
	}
	said := readMarks(have, w.opts.Instance)
	if c.Op != OpCreate && (said.asks || said.owner == "" && (c.Op == OpDelete || !said.adoptable)) {
		t.Errorf("%s: got %v of an object that is not ours: %v", home, c.Op, have)
	}
	if c.Op == OpDelete && !w.rules.StillUnwanted(c, v, w.objects[c.CopyOf.Namespace], ns) {
		t.Errorf("%s: got a deletion that live reads do not confirm", home)
	}
}

// reconcile brings every target in sync, as the reconciler of package mirror does. It returns how often it planned each
// operation.
func (w *world) reconcile(t *testing.T) (ops [OpDelete + 1]int) {
	t.Helper()
	v, targets := w.view(), w.targets()
	for i, c := range w.plan(t, v, targets) {
		w.checkChange(t, v, c)
		w.checkReleased(t, v, c)
		ops[c.Op]++
		err := w.apply(c)
		if errors.Is(err, errExists) && c.Op == OpCreate { // the live read
			targets[i] = w.liveTarget(c.Key.Namespace)
			c = w.plan(t, v, targets[i:i+1])[0]
			w.checkChange(t, v, c)
			ops[c.Op]++
			err = w.apply(c)
		}
		// A finalizer may hold the object that is to be re-created.
		if held := c.Op == OpRecreate && errors.Is(err, errExists); err != nil && !held {
			t.Errorf("%s: got %v from the %v", c.Key.Namespace, err, c.Op)
		}
		have := w.objects[c.Key.Namespace]
		if c.State == StateSynced && canonical(have) != canonical(c.Source.ConfigMap) {
			t.Errorf("%s: got %v in sync with %v", c.Key.Namespace, have, c.Source.ConfigMap)
		}
	}
	return ops
}

// checkReleased checks, before c is applied, that a live read leads to no change where a copy lost its label and no
// source claims its target (C43).
func (w *world) checkReleased(t *testing.T, v *View, c Change) {
	t.Helper()
	tgt := w.liveTarget(c.Key.Namespace)
	if tgt.Have == nil || w.rules.Visible(tgt.Have) || c.Source != nil {
		return
	}
	if live := w.rules.Decide(v, tgt); live.Op != OpNone {
		t.Errorf("C43: %s: got %v of a copy without its label, want it left alone", c.Key.Namespace, live.Op)
	}
}

// checkWorld plans and applies twice. It returns how often the first plan had each operation.
func checkWorld(t *testing.T, raw []byte) [OpDelete + 1]int {
	t.Helper()
	w := drawWorld(raw)
	ops := w.reconcile(t)
	after := maps.Clone(w.objects)
	if w.reconcile(t); !maps.Equal(w.objects, after) {
		t.Errorf("got writes at the second time")
	}
	return ops
}

// FuzzPlan draws small worlds and carries the plan out on a model of the API server. No change touches a foreign object,
// and a second plan changes nothing.
func FuzzPlan(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte) { checkWorld(t, raw) })
}

// TestPlanOfManyWorlds is FuzzPlan with random worlds, for every run of the tests.
func TestPlanOfManyWorlds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var ops [OpDelete + 1]int
	for range 800 {
		raw := make([]byte, 200)
		for i := range raw {
			raw[i] = byte(random.Uint32())
		}
		for o, n := range checkWorld(t, raw) {
			ops[o] += n
		}
		if t.Failed() {
			t.Fatalf("the world of %q", raw)
		}
	}
	for o, n := range ops {
		if n < 20 {
			t.Errorf("got %v planned %d times, want worlds in which it is planned more often", Op(o), n)
		}
	}
}
