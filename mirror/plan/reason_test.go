package plan

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestReasonOfEachRepair has what may be wrong with a copy, one at a time, and why a copy is re-created.
func TestReasonOfEachRepair(t *testing.T) {
	const immutable = "; it is immutable, so it is deleted and created again"
	src, fixed := plantest.Source("platform", "settings"), plantest.Source("platform", "settings", plantest.Immutable)
	edited, large := plantest.Data("key", "edited"), plantest.Annotation("theirs", strings.Repeat("x", 200<<10))
	unmanaged := plantest.Without(ManagedByLabel)
	before := func(cm *corev1.ConfigMap) {
		*cm = *plantest.Copy(testRules(), plantest.Source("platform", "settings", plantest.Data("key", "before")), "team-a")
	}
	handedOver := func(cm *corev1.ConfigMap) {
		cm.Labels, cm.Annotations, cm.Data = nil, texts{AdoptAnnotation: "true"}, texts{"key": "theirs"}
	}
	for _, tc := range []struct {
		source  *corev1.ConfigMap
		changes []plantest.Option
		want    string
	}{
		{src, nil, ""},
		{src, []plantest.Option{edited}, "the copy was edited"},
		{src, []plantest.Option{plantest.Without("mirror")}, "the copy has lost its label"},
		{src, []plantest.Option{unmanaged}, "labels or annotations of the copy were edited"},
		{src, []plantest.Option{before}, "the source has changed"},
		{src, []plantest.Option{handedOver}, "its owner has handed it over: its data is replaced"},
		{src, []plantest.Option{handedOver, plantest.Immutable},
			"its owner has handed it over: its data is replaced" + immutable},
		{src, []plantest.Option{edited, large}, "the copy was edited"},
		{src, []plantest.Option{plantest.Immutable}, "the copy was edited" + immutable},
		{fixed, []plantest.Option{edited, large}, "the copy was edited" + immutable},
		{fixed, []plantest.Option{unmanaged, large}, "labels or annotations of the copy were edited"},
		{src, []plantest.Option{plantest.Finalizer, plantest.Deleting},
			"a copy is there that is being deleted, and its finalizer example.com/keep keeps it"},
	} {
		r := testRules()
		have := stripped(r, plantest.Copy(r, tc.source, "team-a", tc.changes...))
		v := viewOf(r, tc.source)
		if got := r.Reason(v, decideAt(r, v, plantest.Namespace("team-a"), have)); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// TestC73WithoutTarget: the text names the flags that allow no namespace.
func TestC73WithoutTarget(t *testing.T) {
	namespaces := slices.Values([]*corev1.Namespace{
		plantest.Namespace("team-a"), plantest.Namespace("web-a", "tier", "gold")})
	for want, change := range map[string]func(*Options){
		"": func(*Options) {},
		"No namespace is a target: no namespace begins with teem-": func(o *Options) {
			o.NamespacePrefixes = []string{"teem-"}
		},
		"match --namespace-selector=tier=gold": func(o *Options) { o.NamespaceSelector = "tier=gold" },
	} {
		o := NewOptions()
		o.NamespacePrefixes = []string{"team-"}
		change(&o)
		if got := NewRules(&o).WithoutTarget(namespaces); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("got %q, want in it %q", got, want)
		}
	}
}

// TestC55ExplainExcluded: the text names the rules, each remedy once, and the namespace where the only one that is
// selected is that of the source.
func TestC55ExplainExcluded(t *testing.T) {
	r := testRules()
	prefix := plantest.Annotation(PrefixAnnotation, "team-a")
	selector := plantest.Annotation(SelectorAnnotation, "tier=gold")
	a, b, other := plantest.Namespace("team-a"), plantest.Namespace("team-b"), plantest.Namespace("other")
	out := plantest.Namespace("team-c", DefaultLabel, OptOutValue)
	const own = "the only namespace that is selected, team-a, is that of the source"
	for name, test := range map[string]struct {
		source      *corev1.ConfigMap
		namespaces  []*corev1.Namespace
		why, remedy string
	}{
		"a target": {plantest.Source("platform", "s"), []*corev1.Namespace{a, out}, "", ""},
		"its own by the flags": {plantest.Source("team-a", "s"), []*corev1.Namespace{a, other}, own,
			exclusions[ExcludedOwn].remedy},
		"its own by its prefix": {plantest.Source("team-a", "s", prefix), []*corev1.Namespace{a, b}, own,
			exclusions[ExcludedOwn].remedy},
		"the flags allow none": {plantest.Source("other", "s"), []*corev1.Namespace{other},
			"no namespace begins with team-, apart from those that --exclude-namespace names",
			"create such a namespace, or start the controller with other flags"},
		"its prefix": {plantest.Source("platform", "s", prefix), []*corev1.Namespace{b},
			`each that the flags allow is ruled out by the source's annotation ` +
				`mirror-controller.github.io/namespace-prefix="team-a"`,
			"correct the source's annotations"},
		"an opt-out": {plantest.Source("platform", "s"), []*corev1.Namespace{out},
			"each that the flags allow is ruled out by its label mirror=false", "correct the labels of a namespace"},
		"three rules": {plantest.Source("platform", "s", prefix, selector),
			[]*corev1.Namespace{a, b, plantest.Namespace("team-ab", DefaultLabel, OptOutValue)},
			`each that the flags allow is ruled out by the source's annotation ` +
				`mirror-controller.github.io/namespace-prefix="team-a" or its label mirror=false or ` +
				`the source's annotation mirror-controller.github.io/namespace-selector="tier=gold"`,
			"correct the source's annotations or the labels of a namespace"},
	} {
		s := r.ParseSource(test.source)
		excluded := r.Excluded(s, slices.Values(test.namespaces))
		if (excluded == nil) != (test.why == "") {
			t.Errorf("%s: got excluded by %v", name, excluded)
		}
		why, remedy := r.ExplainExcluded(s, excluded)
		if excluded != nil && (why != test.why || remedy != test.remedy) {
			t.Errorf("%s: got %q, %q, want %q, %q", name, why, remedy, test.why, test.remedy)
		}
	}
}
