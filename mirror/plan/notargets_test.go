package plan

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC73WithoutTarget: the text names the flags that allow no namespace.
func TestC73WithoutTarget(t *testing.T) {
	namespaces := slices.Values([]*corev1.Namespace{
		plantest.Namespace("team-a"), plantest.Namespace("web-a", "tier", "gold")})
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string // in the text; empty: there is a target
	}{
		"a target": {func(*Options) {}, ""},
		"a prefix of no namespace": {func(o *Options) { o.NamespacePrefixes = []string{"teem-"} },
			"No namespace is a target: no namespace begins with teem-"},
		"none of all": {func(o *Options) {
			o.AllNamespaces, o.NamespacePrefixes = true, nil
			o.ExcludeNamespaces = []string{"team-*", "web-*"}
		}, "No namespace is a target: there is no namespace, apart from those that --exclude-namespace names"},
		"a selector of no namespace with the prefix": {func(o *Options) { o.NamespaceSelector = "tier=gold" },
			"match --namespace-selector=tier=gold"},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			o.NamespacePrefixes = []string{"team-"}
			tc.change(&o)
			got := NewRules(&o).WithoutTarget(namespaces)
			if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("got %q, want in it %q", got, tc.want)
			}
		})
	}
}

// TestC55ExplainExcluded: the text names the rules, each remedy once, and the namespace where the only one that is
// selected is that of the source.
func TestC55ExplainExcluded(t *testing.T) {
	r := testRules()
	prefix := plantest.Annotation(PrefixAnnotation, "team-a")
	selector := plantest.Annotation(SelectorAnnotation, "tier=gold")
	a, b, other := plantest.Namespace("team-a"), plantest.Namespace("team-b"), plantest.Namespace("other")
	optedOut := plantest.Namespace("team-c", DefaultLabel, OptOutValue)
	ending := plantest.Terminating("team-d")
	const out = "each that the flags allow is excluded: "
	const another = "create it again when it is gone"
	const own = "the only namespace that is selected, team-a, is that of the source"
	for name, test := range map[string]struct {
		source      *corev1.ConfigMap
		namespaces  []*corev1.Namespace
		why, remedy string
	}{
		"a target": {plantest.Source("platform", "s"), []*corev1.Namespace{a, optedOut}, "", ""},
		"its own by the flags": {plantest.Source("team-a", "s"), []*corev1.Namespace{a, other}, own,
			exclusions[ExcludedOwn].remedy},
		"its own by its prefix": {plantest.Source("team-a", "s", prefix), []*corev1.Namespace{a, b}, own,
			exclusions[ExcludedOwn].remedy},
		"the flags allow none": {plantest.Source("other", "s"), []*corev1.Namespace{other},
			"no namespace begins with team-, apart from those that --exclude-namespace names",
			"create such a namespace, or start the controller with other flags"},
		"its prefix": {plantest.Source("platform", "s", prefix), []*corev1.Namespace{b},
			out + `the source's annotation mirror-controller.github.io/namespace-prefix="team-a" rules the namespace out`,
			"correct the annotation namespace-prefix"},
		"an opt-out": {plantest.Source("platform", "s"), []*corev1.Namespace{optedOut},
			out + "the namespace has the label mirror=false", "remove that label"},
		"its end": {plantest.Source("platform", "s"), []*corev1.Namespace{ending, other},
			out + "the namespace is being deleted", another},
		"an opt-out, and its end": {plantest.Source("platform", "s"), []*corev1.Namespace{optedOut, ending},
			out + "the namespace has the label mirror=false", "remove that label"},
		"its end, and an opt-out": {plantest.Source("platform", "s"), []*corev1.Namespace{ending, optedOut},
			out + "the namespace has the label mirror=false", "remove that label"},
		"an opt-out, and its prefix": {plantest.Source("platform", "s", prefix), []*corev1.Namespace{optedOut, b},
			out + `the source's annotation mirror-controller.github.io/namespace-prefix="team-a" rules the namespace out`,
			"correct the annotation namespace-prefix"},
		"C05 a reserved name": {plantest.Source("platform", "kube-root-ca.crt"), []*corev1.Namespace{a, b},
			out + "another controller writes a ConfigMap of this name into every namespace", "give the source another name"},
		"C31 frozen": {plantest.Source("platform", "s", plantest.Annotation(PrefixAnnotation, "Team")),
			[]*corev1.Namespace{a, optedOut},
			out + "an annotation of the source is malformed or not known", "correct the annotation"},
		"three rules": {plantest.Source("platform", "s", prefix, selector),
			[]*corev1.Namespace{a, b, plantest.Namespace("team-ab", DefaultLabel, OptOutValue)},
			out + `the source's annotation mirror-controller.github.io/namespace-prefix="team-a" rules the namespace out, ` +
				"or the namespace has the label mirror=false, " +
				`or the source's annotation mirror-controller.github.io/namespace-selector="tier=gold" ` +
				"does not match the namespace",
			"correct the annotation namespace-prefix, or remove that label, " +
				"or correct the annotation namespace-selector, or the labels of the namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			s := r.ParseSource(test.source)
			excluded := r.Excluded(s, slices.Values(test.namespaces))
			if (excluded == nil) != (test.why == "") {
				t.Errorf("got excluded by %v", excluded)
			}
			why, remedy := r.ExplainExcluded(s, excluded)
			if excluded != nil && (why != test.why || remedy != test.remedy) {
				t.Errorf("got %q, %q, want %q, %q", why, remedy, test.why, test.remedy)
			}
		})
	}
}
