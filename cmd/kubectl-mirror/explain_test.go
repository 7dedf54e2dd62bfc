package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot/snapshottest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestExplain explains namespaces, and ConfigMaps in every state. Each answer says in its first line which rule
// decides.
func TestExplain(t *testing.T) {
	s := snapshottest.EveryState()
	s.Options.NamespaceSelector = "!frozen"
	s.Options.SourceNamespaces = []string{"platform", "team-a"}
	s.Namespaces = append(s.Namespaces, plantest.Namespace("team-cold", "frozen", "true"), plantest.Namespace("kube-system"),
		plantest.Namespace("team-odd", "mirror", "False"))
	s.Add(plantest.ConfigMap("team-a", "neither"))
	s.Copy(plantest.Source("platform", "unlabelled"), "team-a")
	s.Add(plantest.ConfigMap("platform", "unlabelled"))
	s.Add(plantest.ConfigMap("team-h", "synced-late", plantest.Immutable, plantest.Data("key", "theirs")), plantest.Source("platform", "synced-late"))
	snap := s.Snapshot(t)
	var out golden
	for _, name := range []string{"team-a", "team-no", "team-over", "team-cold", "kube-system", "team-odd", "nowhere"} {
		out.print(t, name, explainNamespace(snap, name), "table")
	}
	for _, arg := range []string{
		"team-h/mixed", "team-b/mixed", "team-no/mixed", "dev-a/mixed", "team-b/staged", // copies
		"team-d/mixed", "team-e/mixed", "team-f/mixed", "team-h/synced-late", // foreign
		"team-g/mixed", "team-c/staged", "team-g/unknown", "team-no/synced", "team-x/synced", "team-g/nowhere", // missing
		"team-a/neither", "platform/unlabelled", "team-a/unlabelled",
	} {
		namespace, name, _ := strings.Cut(arg, "/")
		x, _, _ := explain(snap, types.NamespacedName{Namespace: namespace, Name: name}, s.Get(namespace, name))
		out.print(t, arg, x, "table")
	}
	x, _, _ := explain(snap, types.NamespacedName{Namespace: "team-no", Name: "mixed"}, s.Get("team-no", "mixed"))
	out.print(t, "team-no/mixed", x, "wide", "name")
	out.compare(t, "explain")
}

// TestC70ExplainAlone has what a tenant is told who sees one namespace only: no command is for another one.
func TestC70ExplainAlone(t *testing.T) {
	o := plan.NewOptions()
	rules, source, key := plan.NewRules(&o), plantest.Source("platform", "settings"), types.NamespacedName{Namespace: "team-a", Name: "settings"}
	var out golden
	out.print(t, "nothing", explainAlone(rules, key, nil), "table")
	out.print(t, "a copy", explainAlone(rules, key, plantest.Copy(rules, source, "team-a")), "table")
	out.print(t, "an edited copy", explainAlone(rules, key, plantest.Copy(rules, source, "team-a", plantest.Data("key", "edited"))), "table")
	out.print(t, "a foreign one", explainAlone(rules, key, plantest.ConfigMap("team-a", "settings")), "table")
	out.print(t, "one with a finalizer", explainAlone(rules, key, plantest.ConfigMap("team-a", "settings", plantest.Finalizer)), "table")
	out.print(t, "a copy of another name", explainAlone(rules, key,
		plantest.Marked("team-a", "settings", plantest.Annotation(plan.SourceAnnotation, "platform/other"))), "table")
	out.compare(t, "alone")
}
