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
	const (
		immutable = "; it is immutable, so it is deleted and created again"
		metadata  = "; its metadata takes more than 8 KiB, so it is deleted and created again"
	)
	src, fixed := plantest.Source("platform", "settings"), plantest.Source("platform", "settings", plantest.Immutable)
	edited, large := plantest.Data("key", "edited"), plantest.Annotation("theirs", strings.Repeat("x", 9<<10))
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
		{src, []plantest.Option{edited, large}, "the copy was edited" + metadata},
		{src, []plantest.Option{plantest.Immutable}, "the copy was edited" + immutable},
		{fixed, []plantest.Option{edited, large}, "the copy was edited" + immutable},
		{fixed, []plantest.Option{unmanaged, large}, "labels or annotations of the copy were edited" + metadata},
		{src, []plantest.Option{plantest.Finalizer, plantest.Deleting},
			"it is being deleted, and held by the finalizer example.com/keep"},
	} {
		r := testRules()
		have := stripped(r, plantest.Copy(r, tc.source, "team-a", tc.changes...))
		v, target := viewOf(r, tc.source), Target{Key: KeyOf(have), Namespace: plantest.Namespace("team-a"), Have: have}
		if got := r.Reason(v, target, r.Decide(v, target)); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// TestPolicyRemedy: the command has the setting that differs, and there is none where the refusal tells of another cause.
func TestPolicyRemedy(t *testing.T) {
	const annotate = "kubectl annotate --overwrite clusterrolebinding b-1.x mirror-controller.github.io/"
	const prefixes = annotate + "namespace-prefix=team-,web-"
	for name, test := range map[string]struct {
		all           bool
		sources       []string
		refusal, want string
	}{
		"another prefix":       {false, nil, `to namespaces starting with "dev-" that are not excluded`, prefixes},
		"no annotation":        {false, nil, "to namespaces by the annotation namespace-prefix, which is missing, that are not excluded", prefixes},
		"the same prefixes":    {false, nil, `to namespaces starting with "team-" or "web-" that are not excluded`, ""},
		"all namespaces":       {true, nil, `to namespaces starting with "team-" that are not excluded`, annotate + "all-namespaces=true"},
		"an excluded one":      {false, nil, "to namespaces that are not excluded", ""},
		"all but the excluded": {true, nil, "to namespaces that are not excluded", ""},
		"another source":       {false, []string{"home"}, `and delete copies of sources in the namespaces "other"`, annotate + "source-namespace=home"},
		"any source":           {false, nil, `and delete copies of sources in the namespaces "other"`, annotate + "source-namespace-"},
		"the same source":      {false, []string{"home"}, `and delete copies of sources in the namespaces "home"`, ""},
		"another rule":         {false, nil, "copies: team-a/x would not be a copy", ""},
	} {
		o := NewOptions()
		o.NamespacePrefixes, o.SourceNamespaces, o.AllNamespaces = []string{"team-", "web-"}, test.sources, test.all
		refusal := "denied request: mirror-controller may only write " + test.refusal +
			": team-a is not one of them (settings: annotations of ClusterRoleBinding b-1.x; prune=true …)"
		if got := NewRules(&o).PolicyRemedy(refusal); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestC73WithoutTarget: the text names the flags that allow no namespace.
func TestC73WithoutTarget(t *testing.T) {
	namespaces := slices.Values([]*corev1.Namespace{plantest.Namespace("team-a"), plantest.Namespace("web-a", "tier", "gold")})
	for want, change := range map[string]func(*Options){
		"": func(*Options) {},
		"No namespace is a target: no namespace begins with teem-": func(o *Options) { o.NamespacePrefixes = []string{"teem-"} },
		"match --namespace-selector=tier=gold":                     func(o *Options) { o.NamespaceSelector = "tier=gold" },
	} {
		o := NewOptions()
		o.NamespacePrefixes = []string{"team-"}
		change(&o)
		if got := NewRules(&o).WithoutTarget(namespaces); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("got %q, want in it %q", got, want)
		}
	}
}
