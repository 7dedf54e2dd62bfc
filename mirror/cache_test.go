package mirror

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// stillController returns a controller that does not run, with these ConfigMaps in its caches, and their namespaces. It
// mirrors into team-*.
func stillController(t testing.TB, edit func(*Options), configMaps ...*corev1.ConfigMap) (*Controller, *notes) {
	t.Helper()
	o, n := teamOptions(), &notes{}
	edit(o)
	c, err := New(fake.NewClientset(), n, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.sources.ShutDown)
	t.Cleanup(c.copies.ShutDown)
	for _, cm := range configMaps {
		c.show(t, cm)
		c.showNamespace(t, plantest.Namespace(cm.Namespace))
	}
	return c, n
}

func noEdit(*Options) {}

// show puts a ConfigMap into the cache, as the informer does.
func (c *Controller) show(t testing.TB, cm *corev1.ConfigMap) {
	t.Helper()
	if _, err := c.caches.stripConfigMap(cm); err != nil {
		t.Fatal(err)
	}
	if err := c.caches.configMaps.GetIndexer().Update(cm); err != nil {
		t.Fatal(err)
	}
}

func (c *Controller) showNamespace(t testing.TB, ns *corev1.Namespace) {
	t.Helper()
	if err := c.caches.namespaces.GetIndexer().Update(ns); err != nil {
		t.Fatal(err)
	}
}

// hide removes a ConfigMap from the cache.
func (c *Controller) hide(t testing.TB, cm *corev1.ConfigMap) {
	t.Helper()
	if err := c.caches.configMaps.GetIndexer().Delete(cm); err != nil {
		t.Fatal(err)
	}
}

// TestViewIsTheSameUntilItChanges: whether anything changed is a comparison of pointers.
func TestViewIsTheSameUntilItChanges(t *testing.T) {
	c, _ := stillController(t, noEdit)
	last := c.caches.view("settings")
	if last != noSources || c.caches.view("other") != noSources {
		t.Error("got views of their own for names without sources")
	}
	first, second := sourceIn("platform"), sourceIn("base", withVersion("9"))
	for _, step := range []struct {
		what    string
		do      func()
		changes bool
		sources []string // the winner first
	}{
		{"a source", func() { c.show(t, first) }, true, []string{"platform"}},
		{"the same object", func() { c.show(t, first) }, false, []string{"platform"}},
		{"a copy", func() { c.show(t, plantest.Marked("team-a", "settings")) }, false, []string{"platform"}},
		{"a source of another name", func() { c.show(t, plantest.Source("platform", "other")) }, false, []string{"platform"}},
		{"a second source", func() { c.show(t, second) }, true, []string{"base", "platform"}},
		{"a new object of equal content", func() { c.show(t, sourceIn("platform")) }, true, []string{"base", "platform"}},
		{"one source less", func() { c.hide(t, second) }, true, []string{"platform"}},
		{"no longer a source", func() { c.show(t, plantest.Marked("platform", "settings")) }, true, nil},
		{"a source again", func() { c.show(t, first) }, true, []string{"platform"}},
	} {
		step.do()
		v := c.caches.view("settings")
		if (v != last) != step.changes || c.caches.view("settings") != v {
			t.Errorf("%s: got another view %v, want %v, and the same one twice", step.what, v != last, step.changes)
		}
		var got []string
		for _, s := range v.Sources {
			got = append(got, s.Key.Namespace)
		}
		if !slices.Equal(got, step.sources) {
			t.Errorf("%s: got sources in %v, want %v", step.what, got, step.sources)
		}
		last = v
	}
	c.hide(t, first)
	if v := c.caches.view("settings"); v != noSources || len(c.caches.views) > 0 {
		t.Errorf("without sources: got %v, and %d views kept, want none", v, len(c.caches.views))
	}
}

// TestAnOlderViewNeverReplacesANewerOne: a source changes while its former state is being parsed.
func TestAnOlderViewNeverReplacesANewerOne(t *testing.T) {
	older := sourceIn("platform")
	c, _ := stillController(t, noEdit, older)
	v, unparsed := c.caches.viewOf("settings", nil)
	if v != nil || unparsed != older {
		t.Fatalf("got view %v and %v to parse, want the source", v, unparsed)
	}
	parsedOlder := []*plan.Source{c.caches.rules.ParseSource(unparsed)}
	c.show(t, sourceIn("platform", plantest.Data("key", "newer")))
	newer := c.caches.view("settings")
	if v, unparsed := c.caches.viewOf("settings", parsedOlder); v != newer || unparsed != nil {
		t.Errorf("got %v, %v, want the newer view", v, unparsed)
	}
}

// TestViewsOfManyReaders: readers at the same time get one view.
func TestViewsOfManyReaders(t *testing.T) {
	c, _ := stillController(t, noEdit, sourceIn("platform"), sourceIn("base"), sourceIn("workshop"))
	views := make([]*plan.View, 8)
	var readers sync.WaitGroup
	for i := range views {
		readers.Go(func() { views[i] = c.caches.view("settings") })
	}
	readers.Wait()
	for _, v := range views {
		if v != views[0] || len(v.Sources) != 3 {
			t.Errorf("got view %v, want one view of 3 sources", v)
		}
	}
}

// TestTransform: the cache drops what decisions do not need. It transforms some objects twice.
func TestTransform(t *testing.T) {
	c, _ := stillController(t, noEdit)
	source, have := sourceIn("platform", plantest.Managed), plantest.Marked("team-a", "settings", plantest.Managed, plantest.Data("key", "value"))
	ns := plantest.Namespace("team-a", "mirror", "false")
	ns.Annotations, ns.ManagedFields = map[string]string{"note": "n"}, []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	for range 2 {
		for _, cm := range []*corev1.ConfigMap{source, have} {
			if got, err := c.caches.stripConfigMap(cm); !reflect.DeepEqual(got, cm) || err != nil {
				t.Errorf("got %v, %v, want an equal object", got, err)
			}
		}
		if got, err := stripNamespace(ns); got != ns || err != nil {
			t.Errorf("got %v, %v, want the same object", got, err)
		}
		if source.ManagedFields != nil || source.Data["key"] != "value" {
			t.Errorf("got the source %+v, want it with its data and without managed fields", source)
		}
		if have.ManagedFields != nil || have.Data != nil {
			t.Errorf("got the copy %+v, want it without data and managed fields", have)
		}
		if ns.ManagedFields != nil || ns.Annotations != nil || ns.Name != "team-a" || ns.Labels["mirror"] != "false" {
			t.Errorf("got the namespace %+v, want its name and labels", ns)
		}
	}
	for _, transform := range []func(any) (any, error){c.caches.stripConfigMap, stripNamespace} {
		if got, err := transform("tombstone"); got != "tombstone" || err != nil {
			t.Errorf("of another type: got %v, %v, want it as it is", got, err)
		}
	}
}

// TestTarget: a target has nil for a namespace or ConfigMap that the caches do not show.
func TestTarget(t *testing.T) {
	have := plantest.Marked("team-a", "settings")
	c, _ := stillController(t, noEdit, have)
	c.caches.prunable = map[types.UID]bool{have.UID: true}
	target := c.caches.target(settings("team-a"))
	if target.Have != have || target.Namespace == nil || target.Namespace.Name != "team-a" || !target.Prunable || target.Key != settings("team-a") {
		t.Errorf("got %+v", target)
	}
	if got := c.caches.target(settings("team-b")); got.Have != nil || got.Namespace != nil || got.Prunable {
		t.Errorf("got %+v, want nothing there", got)
	}
	delete(c.caches.prunable, have.UID)
	if c.caches.target(settings("team-a")).Prunable {
		t.Error("got a copy to prune that is not known as such")
	}
}

// TestTargets: a fan-out visits the namespaces that the flags allow, and wherever there is something.
func TestTargets(t *testing.T) {
	source, have := sourceIn("platform"), plantest.Marked("other", "settings")
	c, _ := stillController(t, noEdit, have, plantest.Marked("team-x", "unrelated"))
	for _, namespace := range []string{"team-a", "team-b", "elsewhere"} {
		c.showNamespace(t, plantest.Namespace(namespace))
	}
	check := func(what, name string, also []string, want ...string) {
		t.Helper()
		var got []string
		for _, k := range c.caches.targets(name, also) {
			got = append(got, k.Namespace)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	check("without a source", "settings", []string{"team-b", "gone"}, "gone", "other", "team-b")
	c.show(t, source)
	check("with a source", "settings", []string{"team-b", "gone"}, "gone", "other", "platform", "team-a", "team-b", "team-x")
	check("of an unknown name", "unknown", nil)
}

// TestTargetsComeInRandomOrder: else the first in the alphabet are always the first to wait for.
func TestTargetsComeInRandomOrder(t *testing.T) {
	c, _ := stillController(t, noEdit, sourceIn("platform"))
	for _, namespace := range numbered("team", 50) {
		c.showNamespace(t, plantest.Namespace(namespace))
	}
	firsts := map[string]bool{}
	for range 20 {
		firsts[c.caches.targets("settings", nil)[0].Namespace] = true
	}
	if len(firsts) < 2 {
		t.Errorf("got %v first in 20 fan-outs, want different ones", slices.Collect(maps.Keys(firsts)))
	}
}

func TestNamesInTheCache(t *testing.T) {
	c, _ := stillController(t, noEdit, sourceIn("platform"), plantest.Marked("team-a", "left"), plantest.Marked("team-a", "settings"))
	for what, tc := range map[string]struct{ got, want []string }{
		"names":            {c.caches.names(), []string{"left", "settings"}},
		"names of sources": {c.caches.sourceNames(), []string{"settings"}},
	} {
		if slices.Sort(tc.got); !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s: got %v, want %v", what, tc.got, tc.want)
		}
	}
	if got := c.caches.copiesIn("team-a"); len(got) != 2 {
		t.Errorf("got %d ConfigMaps in team-a, want 2", len(got))
	}
}
