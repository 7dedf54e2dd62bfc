package cache

import (
	"reflect"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// transformed returns a ConfigMap as the cache holds it.
func transformed(t *testing.T, r *plan.Rules, cm *corev1.ConfigMap) *corev1.ConfigMap {
	t.Helper()
	obj, err := (&Cache{rules: r}).stripConfigMap(cm)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*corev1.ConfigMap)
}

// TestCopiesShareMetadata checks that equal objects share their maps, also after a relist, and that others do not.
func TestCopiesShareMetadata(t *testing.T) {
	r := teamRules()
	src := plantest.Source("platform", "settings")
	strip := func(namespace string, o ...plantest.Option) *corev1.ConfigMap {
		return transformed(t, r, plantest.Copy(r, src, namespace, o...))
	}
	same := func(a, b *corev1.ConfigMap) bool {
		return reflect.ValueOf(a.Annotations).Pointer() == reflect.ValueOf(b.Annotations).Pointer() &&
			reflect.ValueOf(a.Labels).Pointer() == reflect.ValueOf(b.Labels).Pointer()
	}
	one := strip("team-a")
	if two := strip("team-b"); !same(one, two) {
		t.Errorf("got maps of their own for two copies in sync")
	}
	if again := transformed(t, r, one.DeepCopy()); !same(one, again) {
		t.Errorf("got maps of its own for an object that is stripped again")
	}
	for name, forge := range map[string]plantest.Option{
		"another payload":  plantest.Data("key", "x"),
		"another label":    plantest.Label("app", "x"),
		"its copy is of b": plantest.Annotation(plan.CopyAnnotation, "team-b/settings"),
		"released":         plantest.Without(plan.CopyAnnotation),
	} {
		t.Run(name, func(t *testing.T) {
			other := strip("team-a", forge)
			areEqual := reflect.DeepEqual(one.Annotations, other.Annotations) && reflect.DeepEqual(one.Labels, other.Labels)
			if same(one, other) || areEqual {
				t.Error("got the metadata of a copy in sync")
			}
		})
	}
	runtime.KeepAlive(one)
}

// TestSharedMetadataIsForgotten checks that metadata which no object has is not kept.
func TestSharedMetadataIsForgotten(t *testing.T) {
	r := teamRules()
	const note = "TestSharedMetadataIsForgotten"
	held := transformed(t, r, plantest.Copy(r, plantest.Source("platform", "settings"), "team-a",
		plantest.Annotation(plan.ChecksumAnnotation, note)))
	hash := metadata{held.Labels, held.Annotations}.hash()
	entry := func() (live *metadata, found bool) {
		runtime.GC()
		shared.mu.Lock()
		defer shared.mu.Unlock()
		p, found := shared.all[hash]
		return p.Value(), found
	}
	if live, _ := entry(); live == nil {
		t.Errorf("got no entry for an object in the cache")
	}
	runtime.KeepAlive(held)
	for tries := 0; ; tries++ { // the cleanup runs a moment after the collection
		if _, found := entry(); !found {
			break
		} else if tries == 1000 {
			t.Fatal("got an entry for an object that is gone")
		}
		time.Sleep(time.Millisecond)
	}
}
