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
	a, gold, other := plantest.Namespace("team-a"), plantest.Namespace("team-a", "tier", "gold"),
		plantest.Namespace("other")
	out := plantest.Namespace("team-a", DefaultLabel, OptOutValue)
	canary := plantest.Namespace("team-a", DefaultLabel, OptOutValue, "tier", "canary")
	rollout := edited(plantest.Annotation(RolloutAnnotation, "tier=canary"))
	for name, tc := range map[string]struct {
		rules *Rules
		live  *corev1.ConfigMap
		ns    *corev1.Namespace
		want  bool
	}{
		"source gone":                      {r, nil, a, true},
		"source unlabelled":                {r, edited(plantest.Without(DefaultLabel)), a, true},
		"source narrowed":                  {r, edited(plantest.Annotation(PrefixAnnotation, "team-b")), a, true},
		"C16 source being deleted":         {r, edited(plantest.Deleting), a, true},
		"C41 source is there":              {r, src, a, false},
		"C31 source frozen meanwhile":      {r, edited(plantest.Annotation(PrefixAnnotation, "")), a, false},
		"C31 opted out":                    {r, src, out, true},
		"C41 no longer opted out":          {r, src, plantest.Namespace("team-a", DefaultLabel, "x"), false},
		"C62 paused meanwhile":             {r, edited(plantest.Annotation(PausedAnnotation, PausedValue)), out, false},
		"C62 held by rollout":              {r, rollout, out, false},
		"C62 not held by rollout":          {r, rollout, canary, true},
		"C47 labels not known":             {r, nil, truncated("team-a"), false},
		"C17 source out of scope":          {narrow, nil, a, false},
		"C17 source out of scope, --prune": {pruning, nil, a, true},
		"C17 source there, --prune":        {pruning, src, a, true},
		"C50 target out of scope":          {r, nil, other, false},
		"C17 target out of scope, --prune": {pruning, nil, other, true},
		"C41 no longer out of scope":       {selecting, src, gold, false},
		"C51 not selected":                 {selecting, src, a, false},
	} {
		cached := viewOf(tc.rules, edited(plantest.Annotation(PrefixAnnotation, "team-z")))
		if got := tc.rules.StillUnwanted(deletion, cached, tc.live, tc.ns); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	if r.StillUnwanted(deletion, &View{}, src, out) {
		t.Error("C41 the cache does not show the source, nor perhaps the labels: got the copy unwanted")
	}
}

// TestDependsOnLabels: a selector of the flags, or any source of the name, also one out of scope, makes labels decide.
func TestDependsOnLabels(t *testing.T) {
	r, selecting := testRules(), testRules(func(o *Options) { o.NamespaceSelector = "tier" })
	narrow, src := testRules(func(o *Options) { o.SourceNamespaces = []string{"base"} }), plantest.Source("platform", "settings")
	for name, tc := range map[string]struct {
		rules *Rules
		v     *View
		want  bool
	}{
		"nothing":               {r, &View{}, false},
		"a source":              {r, viewOf(r, src), true},
		"a source out of scope": {narrow, viewOf(narrow, src), true},
		"a selector":            {selecting, &View{}, true},
	} {
		if got := tc.rules.DependsOnLabels(tc.v); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

// TestC41AnotherSourceClaims: the namespace cache may be old, and the labels of the live namespace may keep the copy
// for another source of the name.
func TestC41AnotherSourceClaims(t *testing.T) {
	r := testRules()
	v := viewOf(r, plantest.Source("base", "settings", plantest.Annotation(SelectorAnnotation, "tier=gold")))
	have := plantest.Copy(r, plantest.Source("platform", "settings"), "team-a") // its source is gone
	c := decideAt(r, v, plantest.Namespace("team-a"), have)
	if c.Op != OpDelete {
		t.Fatalf("got %v, want a deletion", c.Op)
	}
	if r.StillUnwanted(c, v, nil, plantest.Namespace("team-a", "tier", "gold")) {
		t.Error("got the copy still unwanted, and another source claims the target")
	}
	if !r.StillUnwanted(c, v, nil, plantest.Namespace("team-a")) {
		t.Error("got the copy wanted, and no source claims the target")
	}
}

// TestRepairCause is the table of what another client may have done to a copy.
func TestRepairCause(t *testing.T) {
	r := testRules()
	src := plantest.Source("platform", "settings")
	changed := plantest.Source("platform", "settings", plantest.Data("key", "changed"))
	have := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Copy(r, src, "team-a", o...) }
	edited, unlabelled := plantest.Data("key", "edited"), plantest.Without(DefaultLabel)
	checksum := plantest.Annotation(ChecksumAnnotation, "sha256:00")
	adoptable := plantest.ConfigMap("team-a", "settings", plantest.Annotation(AdoptAnnotation, AdoptValue))
	theirs := plantest.Copy(r, plantest.Source("team-b", "settings"), "team-a")
	for name, tc := range map[string]struct {
		source, have *corev1.ConfigMap
		wasSynced    bool
		want         string
	}{
		"a new copy":                      {src, nil, false, ""},
		"deleted":                         {src, nil, true, "deleted"},
		"data edited":                     {src, have(edited), false, "edited"},
		"deleted, then created":           {src, have(edited), true, "edited"},
		"C23 made immutable":              {src, have(plantest.Immutable), false, "edited"},
		"C08 label removed":               {src, have(unlabelled), false, "unlabelled"},
		"label removed and data edited":   {src, have(unlabelled, edited), false, "unlabelled"},
		"C02 labelled true":               {src, have(plantest.Label(DefaultLabel, SourceValue)), false, "unlabelled"},
		"other metadata":                  {src, have(plantest.Without(ManagedByLabel)), false, "metadata"},
		"the source changed":              {changed, have(), false, ""},
		"edited, then the source changed": {changed, have(edited), false, "edited"},
		"taken over":                      {src, theirs, false, ""},
		"C12 adopted":                     {src, adoptable, false, ""},
		"C65 checksum edited":             {src, have(checksum), false, "metadata"},
		"C65 data and checksum edited":    {src, have(edited, checksum), false, "edited"},
	} {
		c := decideAt(r, viewOf(r, tc.source), plantest.Namespace("team-a"), stripped(r, tc.have))
		if got := r.RepairCause(c, tc.wasSynced); c.Op == OpNone || got != tc.want {
			t.Errorf("%s: got %v because of %q, want a write because of %q", name, c.Op, got, tc.want)
		}
	}
	if got := r.RepairCause(Change{Op: OpDelete, Have: have()}, true); got != "" {
		t.Errorf("got %q for a deletion, want no cause", got)
	}
}
