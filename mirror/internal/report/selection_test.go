package report

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// settings names the source settings in a namespace.
func settings(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: "settings"}
}

// world are namespaces and sources of the name settings, by namespace.
type world struct {
	namespaces map[string]*corev1.Namespace
	sources    map[string]*plan.Source
}

func newWorld() *world {
	return &world{map[string]*corev1.Namespace{}, map[string]*plan.Source{}}
}

func (w *world) addNamespaces(all ...*corev1.Namespace) {
	for _, ns := range all {
		w.namespaces[ns.Name] = ns
	}
}

func (w *world) addSource(namespace string, created int64, options ...plantest.Option) {
	options = append(options, plantest.CreatedAt(created))
	w.sources[namespace] = rules.ParseSource(plantest.Source(namespace, "settings", options...))
}

func (w *world) selections(last map[types.NamespacedName]*Selection) map[types.NamespacedName]*Selection {
	v := plan.NewView(slices.Collect(maps.Values(w.sources)))
	return Select(rules, maps.Values(w.namespaces), v, last)
}

// TestSourceLosesWhatItSelectsAndDoesNotWin: a source that selects a namespace and is not its winner loses it. A text
// names the first of these, and the winner there.
func TestSourceLosesWhatItSelectsAndDoesNotWin(t *testing.T) {
	w := newWorld()
	w.addSource("base", 1, plantest.Annotation(plan.SelectorAnnotation, "tier=gold"))
	w.addSource("platform", 2)
	w.addSource("team-c", 3)
	w.addSource("shared", 4, plantest.Annotation(plan.PrefixAnnotation, "team-x"))
	w.addNamespaces(plantest.Namespace("team-a", "tier", "gold"), plantest.Namespace("team-b"),
		plantest.Namespace("team-c"),
		plantest.Terminating("team-d"), plantest.Namespace("team-e", "mirror", "false"), plantest.Namespace("other"))
	all := w.selections(nil)
	for namespace, want := range map[string]Selection{
		"base":     {Selected: true},
		"platform": {Selected: true, Lost: 1, first: []string{"team-a"}, winner: settings("base")},
		"team-c":   {Selected: true, Lost: 2, first: []string{"team-a", "team-b"}, winner: settings("base")},
		"shared":   {excluded: []plan.Exclusion{plan.ExcludedByPrefix}},
	} {
		got := *all[settings(namespace)]
		got.source, got.winners = nil, 0
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %+v, want %+v", namespace, got, want)
		}
	}
}

// TestC64ManySourcesOfOneName: an edit of one source that changes no winner derives the selection of that source alone.
// A namespace, a label or a winner that changes derives them anew.
func TestC64ManySourcesOfOneName(t *testing.T) {
	w := newWorld()
	for i := range 50 {
		namespace := fmt.Sprintf("team-%03d", i)
		w.addNamespaces(plantest.Namespace(namespace))
		w.addSource(namespace, int64(1+i))
	}
	last := w.selections(nil)
	first := w.sources["team-000"]
	for _, tc := range []struct {
		what   string
		change func()
		want   int
	}{
		{"nothing", func() {}, 0},
		{"an edit", func() { w.addSource("team-009", 10, plantest.Data("key", "new")) }, 1},
		{"a label", func() { w.addNamespaces(plantest.Namespace("team-007", "tier", "gold")) }, 50},
		{"a namespace", func() { w.addNamespaces(plantest.Namespace("team-new")) }, 50},
		{"the winner is gone", func() { delete(w.sources, "team-000") }, 49},
		{"the winner is back", func() { w.sources["team-000"] = first }, 50},
	} {
		tc.change()
		next, anew := w.selections(last), 0
		for k, s := range next {
			if s != last[k] {
				anew++
			}
		}
		if anew != tc.want {
			t.Errorf("%s: got %d selections derived anew, want %d", tc.what, anew, tc.want)
		}
		last = next
	}
}
