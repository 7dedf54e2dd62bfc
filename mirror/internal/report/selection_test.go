package report_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestSelection: a source is superseded where it selects a namespace that another source has. The message names the
// first of these, and the winner there.
func TestSelection(t *testing.T) {
	owners := map[string]string{"team-a": "base", "team-b": "platform", "team-c": "platform", "team-d": "base",
		"team-e": "base", "other": "base"}
	owner := func(namespace string) (k types.NamespacedName) {
		if o := owners[namespace]; o != "" {
			k = types.NamespacedName{Namespace: o, Name: "settings"}
		}
		return k
	}
	namespaces := []*corev1.Namespace{plantest.Namespace("team-d", "mirror", "false"), plantest.Namespace("other"),
		plantest.Namespace("team-c"), plantest.Terminating("team-e"), plantest.Namespace("team-free"),
		plantest.Namespace("team-b"), plantest.Namespace("team-a", "tier", "gold")}
	named := func(namespace string, options ...plantest.Option) *plan.Source {
		return rules.ParseSource(plantest.Source(namespace, "settings", options...))
	}
	prefix := func(p string) plantest.Option { return plantest.Annotation(plan.PrefixAnnotation, p) }
	for _, tc := range []struct {
		source     *plan.Source
		superseded int
		want       string // the message that follows from the selection: its reason and beginning
	}{
		{named("base", plantest.Annotation(plan.SelectorAnnotation, "tier=gold")), 0, ""},
		{named("platform"), 1, "Superseded: Not copied to namespace team-a: source base/settings of the same name has"},
		{named("team-c"), 2, "Superseded: Not copied to 2 namespaces (team-a, team-b): source base/settings of the"},
		{named("late", prefix("team-b,team-c")), 2,
			"Superseded: Not copied to 2 namespaces (team-b, team-c): source platform/settings of the same name has"},
		{named("shared", prefix("team-x")), 0,
			`NoTargets: Version 7 is not mirrored, because no namespace is a target: each that the flags allow ` +
				"is excluded: the source's annotation mirror-"},
		{named("shared", prefix("Team")), 0, "InvalidAnnotation: "},
		{named("holds", prefix("team-x"), plantest.Annotation(plan.PausedAnnotation, "true")), 0, "Held: "},
	} {
		s := &report.Summary{Source: tc.source, Rules: rules}
		s.Selection = report.Select(rules, slices.Values(namespaces), []*plan.Source{tc.source}, owner)[tc.source.Key]
		if tc.source.HeldBy() != "" {
			s.Counts[plan.StateHeld] = 1
		}
		got := ""
		for _, m := range s.Messages(now) {
			got += m.Reason + ": " + m.Note
		}
		if s.Selection.Superseded != tc.superseded || !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") ||
			strings.LastIndex(got, "NoTargets: ") > 0 {
			t.Errorf("%s: got %d and %q, want %d and %q", tc.source.Key, s.Selection.Superseded, got, tc.superseded, tc.want)
		}
	}
}

// TestC64ManySourcesOfOneName: what is kept of n sources in n targets grows by n.
func TestC64ManySourcesOfOneName(t *testing.T) {
	const n = 300
	var namespaces []*corev1.Namespace
	var sources []*plan.Source
	for i := range n {
		namespace := fmt.Sprintf("team-%03d", i)
		namespaces = append(namespaces, plantest.Namespace(namespace))
		sources = append(sources, rules.ParseSource(plantest.Source(namespace, "settings")))
	}
	owner := func(string) types.NamespacedName { return sources[0].Key }
	kept := keptBytes()
	all := report.Select(rules, slices.Values(namespaces), sources, owner)
	kept = keptBytes() - kept
	if got := all[sources[1].Key].Superseded; got != n-1 || kept > n*1000 {
		t.Errorf("got a source superseded in %d of %d, and %d bytes kept, want all but one, and a kilobyte a source", got, n,
			kept)
	}
}

// keptBytes returns how many bytes are in use.
func keptBytes() int64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}
