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
		"C05 reserved name":            {testRules(), plantest.Source("platform", "kube-root-ca.crt"), a, ExcludedSource},
		"C05 by OpenShift": {testRules(), plantest.Source("base", "openshift-service-ca.crt"), a,
			ExcludedSource},
		"C05 by Istio":                  {testRules(), plantest.Source("platform", "istio-ca-root-cert"), a, ExcludedSource},
		"C05 much like a reserved name": {testRules(), plantest.Source("platform", "kube-root-ca"), a, NotExcluded},
		"C31 frozen":                    {testRules(), source(prefix("team-a,Team")), a, ExcludedSource},
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
		s := tc.rules.ParseSource(tc.src)
		if got := tc.rules.Exclusion(s, tc.ns); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}
