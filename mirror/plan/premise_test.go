package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestStillUnwanted: the live read confirms a deletion, or not. A selector of the flags, or any source of the name,
// also one out of scope, makes labels decide.
func TestStillUnwanted(t *testing.T) {
	r, narrow := testRules(), testRules(func(o *Options) { o.SourceNamespaces = []string{"base"} })
	pruning := testRules(func(o *Options) { o.SourceNamespaces, o.Prune = []string{"base"}, true })
	selecting := testRules(func(o *Options) { o.NamespaceSelector = "tier" })
	src := plantest.Source("platform", "settings")
	deletion := Change{CopyOf: KeyOf(src)}
	edited := func(o plantest.Option) *corev1.ConfigMap { return plantest.Source("platform", "settings", o) }
	a, gold, other := plantest.Namespace("team-a"), plantest.Namespace("team-a", "tier", "gold"),
		plantest.Namespace("other")
	out := plantest.Namespace("team-a", DefaultLabel, OptOutValue)
	canary := plantest.Namespace("team-a", DefaultLabel, OptOutValue, "tier", "canary")
	paused := edited(plantest.Annotation(PausedAnnotation, PausedValue))
	rollout := edited(plantest.Annotation(RolloutAnnotation, "tier=canary"))
	narrowed := cms(edited(plantest.Annotation(PrefixAnnotation, "team-z")))
	another := cms(plantest.Source("base", "settings", plantest.Annotation(SelectorAnnotation, "tier=gold")))
	for name, tc := range map[string]struct {
		rules  *Rules
		cached []*corev1.ConfigMap
		live   *corev1.ConfigMap
		ns     *corev1.Namespace
		want   bool
	}{
		"source gone":                      {r, narrowed, nil, a, true},
		"source unlabelled":                {r, narrowed, edited(plantest.Without(DefaultLabel)), a, true},
		"source narrowed":                  {r, narrowed, edited(plantest.Annotation(PrefixAnnotation, "team-b")), a, true},
		"C16 source being deleted":         {r, narrowed, edited(plantest.Deleting), a, true},
		"C41 source is there":              {r, narrowed, src, a, false},
		"C31 source frozen meanwhile":      {r, narrowed, edited(plantest.Annotation(PrefixAnnotation, "")), a, false},
		"C31 opted out":                    {r, narrowed, src, out, true},
		"C41 no longer opted out":          {r, narrowed, src, plantest.Namespace("team-a", DefaultLabel, "x"), false},
		"C62 paused meanwhile":             {r, narrowed, paused, out, false},
		"C62 held by rollout":              {r, narrowed, rollout, out, false},
		"C62 not held by rollout":          {r, narrowed, rollout, canary, true},
		"C17 source out of scope":          {narrow, narrowed, nil, a, false},
		"C17 source out of scope, --prune": {pruning, narrowed, nil, a, true},
		"C17 source there, --prune":        {pruning, narrowed, src, a, true},
		"C50 target out of scope":          {r, narrowed, nil, other, false},
		"C17 target out of scope, --prune": {pruning, narrowed, nil, other, true},
		"C41 no longer out of scope":       {selecting, narrowed, src, gold, false},
		"C51 not selected":                 {selecting, narrowed, src, a, false},
		"C41 another source claims":        {r, another, nil, gold, false},
		"C41 another source does not":      {r, another, nil, a, true},
		"C41 the cache shows no source":    {r, nil, src, out, false}, // nor perhaps the labels
		"no source, and a selector":        {selecting, nil, nil, gold, true},
	} {
		v := viewOf(tc.rules, tc.cached...)
		if got := tc.rules.StillUnwanted(deletion, v, tc.live, tc.ns); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
		if got, want := tc.rules.DependsOnLabels(v), tc.cached != nil || tc.rules == selecting; got != want {
			t.Errorf("%s: got labels that decide %v, want %v", name, got, want)
		}
	}
}
