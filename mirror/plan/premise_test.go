package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

func TestStillUnwanted(t *testing.T) {
	r, narrow := testRules(), testRules(func(o *Options) { o.SourceNamespaces = []string{"base"} })
	pruning := testRules(func(o *Options) { o.SourceNamespaces, o.Prune = []string{"base"}, true })
	selecting := testRules(func(o *Options) { o.NamespaceSelector = "tier" })
	src := plantest.Source("platform", "settings")
	deletion := Change{CopyOf: KeyOf(src)}
	edited := func(o plantest.Option) *corev1.ConfigMap { return plantest.Source("platform", "settings", o) }
	for name, tc := range map[string]struct {
		rules *Rules
		live  *corev1.ConfigMap
		ns    *corev1.Namespace
		want  bool
	}{
		"source gone":                 {r, nil, plantest.Namespace("team-a"), true},
		"source unlabelled":           {r, edited(plantest.Without(DefaultLabel)), plantest.Namespace("team-a"), true},
		"C16 source being deleted":    {r, edited(plantest.Deleting), plantest.Namespace("team-a"), true},
		"C41 source is there":         {r, src, plantest.Namespace("team-a"), false},
		"C31 source frozen meanwhile": {r, edited(plantest.Annotation(PrefixAnnotation, "")), plantest.Namespace("team-a"), false},
		"source narrowed":             {r, edited(plantest.Annotation(PrefixAnnotation, "team-b")), plantest.Namespace("team-a"), true},
		"C31 opted out":               {r, src, plantest.Namespace("team-a", DefaultLabel, OptOutValue), true},
		"C62 paused meanwhile": {r, edited(plantest.Annotation(PausedAnnotation, PausedValue)),
			plantest.Namespace("team-a", DefaultLabel, OptOutValue), false},
		"C62 held by rollout": {r, edited(plantest.Annotation(RolloutAnnotation, "tier=canary")),
			plantest.Namespace("team-a", DefaultLabel, OptOutValue), false},
		"C62 not held by rollout": {r, edited(plantest.Annotation(RolloutAnnotation, "tier=canary")),
			plantest.Namespace("team-a", DefaultLabel, OptOutValue, "tier", "canary"), true},
		"C47 labels not known":             {r, nil, truncated("team-a"), false},
		"C41 no longer opted out":          {r, src, plantest.Namespace("team-a", DefaultLabel, "x"), false},
		"C17 source out of scope":          {narrow, nil, plantest.Namespace("team-a"), false},
		"C17 source out of scope, --prune": {pruning, nil, plantest.Namespace("team-a"), true},
		"C17 source there, --prune":        {pruning, src, plantest.Namespace("team-a"), true},
		"C50 target out of scope":          {r, nil, plantest.Namespace("other"), false},
		"C17 target out of scope, --prune": {pruning, nil, plantest.Namespace("other"), true},
		"C41 no longer out of scope":       {selecting, src, plantest.Namespace("team-a", "tier", "gold"), false},
		"C51 not selected":                 {selecting, src, plantest.Namespace("team-a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.rules.StillUnwanted(deletion, &View{}, tc.live, tc.ns); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestC41AnotherSourceClaims: the namespace cache may be old. Where only the labels of the namespace keep another source of
// the name from the target, the namespace is read live, and its labels may keep the copy.
func TestC41AnotherSourceClaims(t *testing.T) {
	r := testRules()
	v := viewOf(r, plantest.Source("base", "settings", plantest.Annotation(SelectorAnnotation, "tier=gold")))
	have := plantest.Copy(r, plantest.Source("platform", "settings"), "team-a") // its source is gone
	c := decideAt(r, v, plantest.Namespace("team-a"), have)
	if c.Op != OpDelete || !c.ByLabels {
		t.Fatalf("got %v, by labels %v, want a deletion by labels", c.Op, c.ByLabels)
	}
	if r.StillUnwanted(c, v, nil, plantest.Namespace("team-a", "tier", "gold")) {
		t.Error("got the copy still unwanted, and another source claims the target")
	}
	if !r.StillUnwanted(c, v, nil, plantest.Namespace("team-a")) {
		t.Error("got the copy wanted, and no source claims the target")
	}
}

func TestRepairCause(t *testing.T) {
	r := testRules()
	src := plantest.Source("platform", "settings")
	changed := plantest.Source("platform", "settings", plantest.Data("key", "changed"))
	have := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Copy(r, src, "team-a", o...) }
	for name, tc := range map[string]struct {
		source    *corev1.ConfigMap
		have      *corev1.ConfigMap
		wasSynced bool
		want      string
	}{
		"a new copy":                      {source: src},
		"deleted":                         {source: src, wasSynced: true, want: "deleted"},
		"data edited":                     {source: src, have: have(plantest.Data("key", "edited")), want: "edited"},
		"deleted, then created":           {source: src, have: have(plantest.Data("key", "edited")), wasSynced: true, want: "edited"},
		"C23 made immutable":              {source: src, have: have(plantest.Immutable), want: "edited"},
		"C08 label removed":               {source: src, have: have(plantest.Without(DefaultLabel)), want: "unlabelled"},
		"label removed and data edited":   {source: src, have: have(plantest.Without(DefaultLabel), plantest.Data("key", "edited")), want: "unlabelled"},
		"C02 labelled true":               {source: src, have: have(plantest.Label(DefaultLabel, SourceValue)), want: "unlabelled"},
		"other metadata":                  {source: src, have: have(plantest.Without(ManagedByLabel)), want: "metadata"},
		"the source changed":              {source: changed, have: have()},
		"taken over from another source":  {source: src, have: plantest.Copy(r, plantest.Source("team-b", "settings"), "team-a")},
		"C12 adopted":                     {source: src, have: plantest.ConfigMap("team-a", "settings", plantest.Annotation(AdoptAnnotation, AdoptValue))},
		"C65 checksum edited":             {source: src, have: have(plantest.Annotation(ChecksumAnnotation, "sha256:00")), want: "metadata"},
		"C65 data and checksum edited":    {source: src, have: have(plantest.Data("key", "edited"), plantest.Annotation(ChecksumAnnotation, "sha256:00")), want: "edited"},
		"edited, then the source changed": {source: changed, have: have(plantest.Data("key", "edited")), want: "edited"},
	} {
		t.Run(name, func(t *testing.T) {
			c := decideAt(r, viewOf(r, tc.source), plantest.Namespace("team-a"), stripped(r, tc.have))
			if c.Op == OpNone {
				t.Fatal("got no change, want a write")
			}
			if got := r.RepairCause(c, tc.wasSynced); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := r.RepairCause(Change{Op: OpDelete, Have: have()}, true); got != "" {
		t.Errorf("got %q for a deletion, want no cause", got)
	}
}

// TestC41DependsOnLabels: a live source that the cache does not show may depend on the labels of the namespace.
func TestC41DependsOnLabels(t *testing.T) {
	r, ns := testRules(), plantest.Namespace("team-a")
	elsewhere, rollout := plantest.Annotation(PrefixAnnotation, "team-b"), plantest.Annotation(RolloutAnnotation, "tier=canary")
	for name, tc := range map[string]struct {
		source *corev1.ConfigMap
		want   bool
	}{
		"gone":                    {nil, false},
		"unlabelled":              {plantest.Source("platform", "settings", plantest.Without(DefaultLabel), rollout), false},
		"narrowed by name":        {plantest.Source("platform", "settings", elsewhere), false},
		"narrowed by labels":      {plantest.Source("platform", "settings", plantest.Annotation(SelectorAnnotation, "tier=gold")), true},
		"C62 may be held":         {plantest.Source("platform", "settings", elsewhere, rollout), true},
		"C62 is held in any case": {plantest.Source("platform", "settings", elsewhere, plantest.Annotation(PausedAnnotation, PausedValue)), false},
	} {
		if got := r.DependsOnLabels(tc.source, ns); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
