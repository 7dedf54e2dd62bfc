package mirror

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestSelections: a source that selects a namespace and is not its winner loses it. A text names the first of these, and the
// winner there.
func TestSelections(t *testing.T) {
	gold := plantest.Annotation(plan.SelectorAnnotation, "tier=gold")
	first, second := sourceIn("base", gold, plantest.CreatedAt(1)), sourceIn("platform", plantest.CreatedAt(2))
	third := sourceIn("team-c", plantest.CreatedAt(3))
	none := sourceIn("shared", plantest.CreatedAt(4), plantest.Annotation(plan.PrefixAnnotation, "team-x"))
	c, _ := stillController(t, noEdit, first, second, third, none)
	for _, ns := range []*corev1.Namespace{plantest.Namespace("team-a", "tier", "gold"), plantest.Namespace("team-b"),
		plantest.Namespace("team-c"), plantest.Terminating("team-d"), plantest.Namespace("team-e", "mirror", "false"), plantest.Namespace("other")} {
		c.showNamespace(t, ns)
	}
	all := c.fanout.selectAll(c.cache.View("settings"), nil)
	for namespace, want := range map[string]selection{
		"base":     {selected: true},
		"platform": {selected: true, lost: 1, first: []string{"team-a"}, winner: settings("base")},
		"team-c":   {selected: true, lost: 2, first: []string{"team-a", "team-b"}, winner: settings("base")},
		"shared":   {excluded: []plan.Exclusion{plan.ExcludedByPrefix}},
	} {
		got := all[settings(namespace)]
		if got.selected != want.selected || got.lost != want.lost || !slices.Equal(got.first, want.first) || got.winner != want.winner ||
			fmt.Sprint(got.excluded) != fmt.Sprint(want.excluded) {
			t.Errorf("%s: got %+v, want %+v", namespace, got, want)
		}
	}
}

// TestC64ManySourcesOfOneName: an edit of one source that changes no winner derives the selection of that source alone. A
// namespace, a label or a winner that changes derives them anew.
func TestC64ManySourcesOfOneName(t *testing.T) {
	var sources []*corev1.ConfigMap
	for i, namespace := range numbered("team", 50) {
		sources = append(sources, sourceIn(namespace, plantest.CreatedAt(int64(1+i))))
	}
	c, _ := stillController(t, noEdit, sources...)
	derive := func(last map[key]*selection) (all map[key]*selection, anew int) {
		all = c.fanout.selectAll(c.cache.View("settings"), last)
		for k, s := range all {
			if s != last[k] {
				anew++
			}
		}
		return all, anew
	}
	all, _ := derive(nil)
	for _, tc := range []struct {
		what   string
		change func()
		want   int
	}{
		{"nothing", func() {}, 0},
		{"an edit", func() { c.show(t, sourceIn(sources[9].Namespace, plantest.CreatedAt(10), plantest.Data("key", "new"))) }, 1},
		{"a label", func() { c.showNamespace(t, labelled(sources[7].Namespace)) }, 50},
		{"a namespace", func() { c.showNamespace(t, plantest.Namespace("team-new")) }, 50},
		{"the winner is gone", func() { c.hide(t, sources[0]) }, 49},
		{"the winner is back", func() { c.show(t, sources[0]) }, 50},
	} {
		tc.change()
		next, anew := derive(all)
		if anew != tc.want {
			t.Errorf("%s: got %d selections derived anew, want %d", tc.what, anew, tc.want)
		}
		all = next
	}
}

func labelled(name string) *corev1.Namespace {
	ns := plantest.Namespace(name, "tier", "gold")
	ns.ResourceVersion = "new"
	return ns
}

// TestC64CountsOfManySources: each of a hundred sources of one name is superseded everywhere but in its own namespace, and the
// winner is not. So it stays when one of them is edited.
func TestC64CountsOfManySources(t *testing.T) {
	const n = 100
	objects := []runtime.Object{}
	for i := range n {
		namespace := fmt.Sprintf("team-%03d", i)
		objects = append(objects, plantest.Namespace(namespace), sourceIn(namespace, plantest.CreatedAt(int64(1+i))))
	}
	cluster(t, objects, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		check := func(what string) {
			t.Helper()
			// Each but the first selects all but its own namespace, and the second wins that of the first.
			if got, want := s.value("mirror_copies", "superseded"), float64((n-1)*(n-1)-1); got != want {
				t.Errorf("%s: got %v superseded, want %v", what, got, want)
			}
			if got := s.reported(plan.ReasonSuperseded); got != n-1 {
				t.Errorf("%s: got %d events, want one for each but the winner", what, got)
			}
		}
		check("at first")
		s.edit("team-050", plantest.Data("key", "new"))
		time.Sleep(time.Minute)
		check("after an edit")
	})
}
