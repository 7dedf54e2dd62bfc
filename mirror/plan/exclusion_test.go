package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

func TestExclusion(t *testing.T) {
	all := testRules(func(o *Options) { o.NamespacePrefixes, o.AllNamespaces, o.ExcludeNamespaces = nil, true, nil })
	gilded := testRules(func(o *Options) { o.NamespaceSelector = "tier=gold" })
	relabelled := testRules(func(o *Options) { o.Label = "example.com/mirror" })
	prefix := func(p string) plantest.Option { return plantest.Annotation(PrefixAnnotation, p) }
	selector := func(s string) plantest.Option { return plantest.Annotation(SelectorAnnotation, s) }
	source := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Source("platform", "s", o...) }
	a, gold := plantest.Namespace("team-a"), plantest.Namespace("team-a", "tier", "gold")
	optedOut := plantest.Namespace("team-a", "tier", "gold", "mirror", "false")
	unlike := plantest.Namespace("team-a", "mirror", "False")
	bare := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
	for name, tc := range map[string]struct {
		rules *Rules
		src   *corev1.ConfigMap
		ns    *corev1.Namespace
		want  Exclusion
	}{
		"a target":                     {testRules(), source(), a, NotExcluded},
		"C01 its own namespace":        {testRules(), plantest.Source("team-a", "s"), a, ExcludedOwn},
		"C01 its own, all namespaces":  {all, plantest.Source("default", "s"), plantest.Namespace("default"), ExcludedOwn},
		"all namespaces":               {all, plantest.Source("default", "s"), plantest.Namespace("other"), NotExcluded},
		"target out of scope":          {testRules(), source(), plantest.Namespace("other"), ExcludedName},
		"source out of scope":          {fromPlatform(), plantest.Source("base", "s"), a, ExcludedSource},
		"C28 terminating":              {testRules(), source(), plantest.Terminating("team-a"), ExcludedTerminating},
		"C31 opted out":                {testRules(), source(selector("tier=gold")), optedOut, ExcludedByOptOut},
		"C31 label of another value":   {testRules(), source(), unlike, NotExcluded},
		"C31 the default label of old": {relabelled, source(), optedOut, NotExcluded},
		"C05 reserved name":            {testRules(), plantest.Source("platform", "kube-root-ca.crt"), a, ExcludedReserved},
		"C05 by OpenShift": {testRules(), plantest.Source("base", "openshift-service-ca.crt"), a,
			ExcludedReserved},
		"C05 by Istio": {testRules(), plantest.Source("platform", "istio-ca-root-cert"), a,
			ExcludedReserved},
		"C05 much like a reserved name": {testRules(), plantest.Source("platform", "kube-root-ca"), a, NotExcluded},
		"C31 frozen":                    {testRules(), source(prefix("team-a,Team")), a, ExcludedFrozen},
		"C09 narrowed to a whole name":  {testRules(), source(prefix("team-a")), plantest.Namespace("team-ab"), NotExcluded},
		"narrowed to another": {testRules(), source(selector("tier=gold"), prefix("team-b")),
			gold, ExcludedByPrefix},
		"narrowing does not widen": {testRules(), source(prefix("other")), plantest.Namespace("other"), ExcludedName},
		"not selected": {testRules(), source(selector("tier=gold"), prefix("team-a")),
			a, ExcludedBySelector},
		"not selected by the flag": {gilded, source(), a, ExcludedByNamespaceSelector},
		"namespace without labels": {testRules(), source(selector("!tier")), bare, NotExcluded},
		"C47 a selector at its limit": {testRules(), source(selector(strings.Repeat("!a,", 1364) + "!bcd")), bare,
			NotExcluded},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.rules.ParseSource(tc.src)
			if got := tc.rules.Exclusion(s, tc.ns); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// TestStillHolds: the reason why no source claims a copy may have ended, or be
// another one.
func TestStillHolds(t *testing.T) {
	r := testRules()
	ns := plantest.Namespace("team-a")
	const narrow = `mirror-controller.github.io/namespace-prefix="team-b"`
	narrowed := plantest.Source("platform", "settings", plantest.Annotation(PrefixAnnotation, "team-b"))
	whole := plantest.Source("platform", "settings")
	for name, tc := range map[string]struct {
		why    Unclaimed
		source *corev1.ConfigMap
		ns     *corev1.Namespace
		want   bool
	}{
		"the source is gone":          {Unclaimed{Rule: SourceGone}, nil, ns, true},
		"the source is back":          {Unclaimed{Rule: SourceGone}, whole, ns, false},
		"narrowed":                    {Unclaimed{ExcludedByPrefix, narrow}, narrowed, ns, true},
		"narrowed, now gone":          {Unclaimed{ExcludedByPrefix, narrow}, nil, ns, false},
		"narrowed by another value":   {Unclaimed{ExcludedByPrefix, "another"}, narrowed, ns, false},
		"widened":                     {Unclaimed{Rule: ExcludedByPrefix}, whole, ns, false},
		"narrowed, at another target": {Unclaimed{ExcludedByPrefix, narrow}, narrowed, plantest.Namespace("team-b"), false},
		"opted out": {Unclaimed{Rule: ExcludedByOptOut}, narrowed,
			plantest.Namespace("team-a", DefaultLabel, OptOutValue), true},
		"opted in":               {Unclaimed{Rule: ExcludedByOptOut}, narrowed, ns, false},
		"the namespace selector": {Unclaimed{Rule: ExcludedByNamespaceSelector}, narrowed, ns, false},
	} {
		t.Run(name, func(t *testing.T) {
			var s *Source
			if tc.source != nil {
				s = r.ParseSource(tc.source)
			}
			if got := r.StillHolds(tc.why, s, tc.ns); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestEachExclusionHasTexts: a rule that is added has a cause and a remedy.
func TestEachExclusionHasTexts(t *testing.T) {
	r := testRules()
	for e := SourceGone; int(e) < len(exclusions); e++ {
		u := Unclaimed{Rule: e, Annotation: `key="value"`}
		why, remedy := r.Explain(u)
		if why == "" || remedy == "" || strings.Contains(why+remedy, "{") {
			t.Errorf("rule %d: got %q, %q", e, why, remedy)
		}
		if named := strings.Contains(why, u.Annotation); named != (exclusions[e].annotation != "") {
			t.Errorf("rule %d: got in %q the annotation %v", e, why, named)
		}
	}
}
