package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestReasonOfEachRepair has what may be wrong with a copy, one at a time.
func TestReasonOfEachRepair(t *testing.T) {
	large := plantest.Annotation("theirs", strings.Repeat("x", 9<<10))
	for want, change := range map[string]plantest.Option{
		"":                            func(*corev1.ConfigMap) {},
		"the copy was edited":         plantest.Data("key", "edited"),
		"the copy has lost its label": plantest.Without("mirror"),
		"labels or annotations of the copy were edited": plantest.Without(ManagedByLabel),
		"the source has changed": func(cm *corev1.ConfigMap) {
			*cm = *plantest.Copy(testRules(), plantest.Source("platform", "settings", plantest.Data("key", "before")), "team-a")
		},
		"its owner has handed it over: its data is replaced; it is immutable, so it is deleted and created again": func(cm *corev1.ConfigMap) {
			cm.Labels, cm.Annotations, cm.Data = nil, map[string]string{AdoptAnnotation: "true"}, map[string]string{"key": "theirs"}
			plantest.Immutable(cm)
		},
		"the copy was edited; its metadata takes more than 8 KiB, so it is deleted and created again": func(cm *corev1.ConfigMap) {
			plantest.Data("key", "edited")(cm)
			large(cm)
		},
		"it is being deleted, and held by the finalizer example.com/keep": func(cm *corev1.ConfigMap) {
			plantest.Finalizer(cm)
			plantest.Deleting(cm)
		},
	} {
		r := testRules()
		source := plantest.Source("platform", "settings")
		cm := plantest.Copy(r, source, "team-a", change)
		r.Strip(cm)
		v := NewView([]*Source{r.ParseSource(source)})
		target := Target{types.NamespacedName{Namespace: "team-a", Name: "settings"}, plantest.Namespace("team-a"), cm}
		if got := r.Reason(v, target, r.Decide(v, target)); got != want {
			t.Errorf("got %q, want %q", got, want)
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
