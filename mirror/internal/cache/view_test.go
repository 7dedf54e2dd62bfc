package cache

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// still is a cache without watches.
type still struct {
	*Cache
	t *testing.T
}

// newStill returns a cache with these objects in it.
func newStill(t *testing.T, objects ...any) still {
	t.Helper()
	c, err := New(fake.NewClientset(), teamRules(), plan.DefaultLabel)
	if err != nil {
		t.Fatal(err)
	}
	s := still{c, t}
	for _, obj := range objects {
		s.show(obj)
	}
	return s
}

func (s still) show(obj any) {
	s.t.Helper()
	store, strip := s.configMaps.GetIndexer(), s.stripConfigMap
	if _, ok := obj.(*corev1.Namespace); ok {
		store, strip = s.namespaces.GetIndexer(), stripNamespace
	}
	stripped, err := strip(obj)
	if err := errors.Join(err, store.Update(stripped)); err != nil {
		s.t.Fatal(err)
	}
}

func (s still) hide(cm *corev1.ConfigMap) {
	s.t.Helper()
	if err := s.configMaps.GetIndexer().Delete(cm); err != nil {
		s.t.Fatal(err)
	}
}

// teamRules are the rules of a controller that mirrors into team-*.
func teamRules() *plan.Rules {
	o := plan.NewOptions()
	o.NamespacePrefixes = []string{"team-"}
	return plan.NewRules(&o)
}

// sourceIn returns a source of the name settings.
func sourceIn(namespace string, options ...plantest.Option) *corev1.ConfigMap {
	return plantest.Source(namespace, "settings", options...)
}

func withVersion(version string) plantest.Option {
	return func(cm *corev1.ConfigMap) { cm.ResourceVersion = version }
}

// TestViewIsTheSameUntilItChanges: whether anything changed is a comparison of pointers.
func TestViewIsTheSameUntilItChanges(t *testing.T) {
	c := newStill(t)
	last := c.View("settings")
	if last != noSources || c.View("other") != noSources {
		t.Error("got views of their own for names without sources")
	}
	first, second := sourceIn("platform"), sourceIn("base", withVersion("9"))
	for _, step := range []struct {
		what    string
		do      func()
		changes bool
		sources []string // the winner first
	}{
		{"a source", func() { c.show(first) }, true, []string{"platform"}},
		{"the same object", func() { c.show(first) }, false, []string{"platform"}},
		{"a copy", func() { c.show(plantest.Marked("team-a", "settings")) }, false, []string{"platform"}},
		{"a source of another name", func() { c.show(plantest.Source("platform", "other")) }, false, []string{"platform"}},
		{"a second source", func() { c.show(second) }, true, []string{"base", "platform"}},
		{"a new object of equal content", func() { c.show(sourceIn("platform")) }, true, []string{"base", "platform"}},
		{"one source less", func() { c.hide(second) }, true, []string{"platform"}},
		{"no longer a source", func() { c.show(plantest.Marked("platform", "settings")) }, true, nil},
		{"a source again", func() { c.show(first) }, true, []string{"platform"}},
	} {
		step.do()
		v := c.View("settings")
		if (v != last) != step.changes || c.View("settings") != v {
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
	c.hide(first)
	if v := c.View("settings"); v != noSources || len(c.views) > 0 {
		t.Errorf("without sources: got %v, and %d views kept, want none", v, len(c.views))
	}
}

// TestAnOlderViewNeverReplacesANewerOne: a source changes while its former state is being parsed.
func TestAnOlderViewNeverReplacesANewerOne(t *testing.T) {
	older := sourceIn("platform")
	c := newStill(t, older)
	v, unparsed := c.viewOf("settings", nil)
	if v != nil || len(unparsed) != 1 || unparsed[0] != older {
		t.Fatalf("got view %v and %v to parse, want the source", v, unparsed)
	}
	parsedOlder := map[*corev1.ConfigMap]*plan.Source{older: c.rules.ParseSource(older)}
	c.show(sourceIn("platform", plantest.Data("key", "newer")))
	newer := c.View("settings")
	if v, unparsed := c.viewOf("settings", parsedOlder); v != newer || unparsed != nil {
		t.Errorf("got %v, %v, want the newer view", v, unparsed)
	}
}

// TestTargetsComeInRandomOrder: else the first in the alphabet are always the first to wait for.
func TestTargetsComeInRandomOrder(t *testing.T) {
	c := newStill(t, sourceIn("platform"))
	for i := range 50 {
		c.show(plantest.Namespace(fmt.Sprintf("team-%d", i)))
	}
	firsts := map[string]bool{}
	for range 20 {
		firsts[c.Targets("settings", nil)[0].Namespace] = true
	}
	if len(firsts) < 2 {
		t.Errorf("got %v first in 20 fan-outs, want different ones", slices.Collect(maps.Keys(firsts)))
	}
}

// TestNamespacesAreStripped: a thousand of them need no memory for what nobody asks.
func TestNamespacesAreStripped(t *testing.T) {
	ns := plantest.Namespace("team-a", "tier", "gold")
	ns.Annotations = map[string]string{"note": "long"}
	got := newStill(t, ns).Namespace("team-a")
	if got == nil || len(got.Annotations) > 0 || got.Labels["tier"] != "gold" {
		t.Errorf("got %v, want it with its labels alone", got)
	}
}
