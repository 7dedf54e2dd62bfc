package mirror

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// stillController returns a controller that does not run, with these ConfigMaps in its caches, and their namespaces. It
// mirrors into team-*.
func stillController(t testing.TB, edit func(*Options), configMaps ...*corev1.ConfigMap) (*Controller, *diary) {
	t.Helper()
	o, n := teamOptions(), &diary{}
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
	if v != nil || len(unparsed) != 1 || unparsed[0] != older {
		t.Fatalf("got view %v and %v to parse, want the source", v, unparsed)
	}
	parsedOlder := map[*corev1.ConfigMap]*plan.Source{older: c.caches.rules.ParseSource(older)}
	c.show(t, sourceIn("platform", plantest.Data("key", "newer")))
	newer := c.caches.view("settings")
	if v, unparsed := c.caches.viewOf("settings", parsedOlder); v != newer || unparsed != nil {
		t.Errorf("got %v, %v, want the newer view", v, unparsed)
	}
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
