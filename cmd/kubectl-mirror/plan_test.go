package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot/snapshottest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

func TestPlan(t *testing.T) {
	var out golden
	out.print(t, "every state", newPlanned(snapshottest.EveryState().Snapshot(t)), outputFormats...)
	out.print(t, "nothing", newPlanned(snapshottest.New().Snapshot(t)), outputFormats...)
	s := flagsScene()
	s.Options.ExcludeNamespaces = []string{"team-b"}
	out.print(t, "out of scope", newPlanned(s.Snapshot(t)), "table")
	out.compare(t, "plan")
}

// flagsScene has targets team-a to team-c with copies of platform/settings and of dev-a/shared, which is older than
// platform/shared, and a copy of before in dev-a, whose source is gone.
func flagsScene() *snapshottest.Scene {
	s := snapshottest.New()
	s.Namespaces = append(s.Namespaces, plantest.Namespace("dev-a"), plantest.Namespace("team-d", "tier", "gold"))
	settings := s.Add(plantest.Source("platform", "settings"))
	shared := s.Add(plantest.Source("dev-a", "shared", plantest.CreatedAt(500)))
	s.Add(plantest.Source("platform", "shared"))
	for _, namespace := range []string{"team-a", "team-b", "team-c", "team-d"} {
		s.Copy(settings, namespace)
		s.Copy(shared, namespace)
	}
	s.Copy(plantest.Source("platform", "left"), "dev-a")
	return s
}

// TestPlanOfFlags narrows and widens one flag at a time: what is created, which source wins, what comes into scope
// and expires, and what goes out of scope, which --prune deletes.
func TestPlanOfFlags(t *testing.T) {
	const taken = "update team-a/shared, update team-b/shared, update team-c/shared, update team-d/shared"
	for name, test := range map[string]struct {
		change              func(*plan.Options)
		changes, outOfScope string
	}{
		"nothing": {func(*plan.Options) {}, "", "dev-a/left"},
		"a prefix more": {func(o *plan.Options) { o.NamespacePrefixes = []string{"team-", "dev-"} },
			"delete dev-a/left, create dev-a/settings, foreign dev-a/shared, " + taken, ""},
		"a longer prefix": {func(o *plan.Options) { o.NamespacePrefixes = []string{"team-a"} }, "",
			"dev-a/left, team-b/settings, team-b/shared, team-c/settings, team-c/shared, team-d/settings, team-d/shared"},
		"an excluded namespace": {func(o *plan.Options) { o.ExcludeNamespaces = []string{"team-b"} }, "", "dev-a/left, team-b/settings, team-b/shared"},
		"a source namespace":    {func(o *plan.Options) { o.SourceNamespaces = []string{"platform"} }, taken, "dev-a/left"},
		"another source namespace": {func(o *plan.Options) { o.SourceNamespaces = []string{"dev-a"} }, "",
			"dev-a/left, team-a/settings, team-b/settings, team-c/settings, team-d/settings"},
		"a selector": {func(o *plan.Options) { o.NamespaceSelector = "tier=gold" }, "",
			"dev-a/left, team-a/settings, team-a/shared, team-b/settings, team-b/shared, team-c/settings, team-c/shared"},
	} {
		for _, prune := range []bool{false, true} {
			s := flagsScene()
			test.change(&s.Options)
			s.Options.Prune = prune
			p := newPlanned(s.Snapshot(t))
			changes, outOfScope := []string{}, []string{}
			for _, c := range p.Targets {
				key := c.Namespace + "/" + c.Name
				switch want := map[bool]string{false: "out_of_scope", true: "delete"}[prune]; {
				case c.Operation == want && strings.Contains(test.outOfScope, key):
					outOfScope = append(outOfScope, key)
				default:
					changes = append(changes, c.Operation+" "+key)
				}
			}
			if got := strings.Join(changes, ", "); got != test.changes {
				t.Errorf("%s, prune %v: got changes %s, want %s", name, prune, got, test.changes)
			}
			if got := strings.Join(outOfScope, ", "); got != test.outOfScope {
				t.Errorf("%s, prune %v: got out of scope %s, want %s", name, prune, got, test.outOfScope)
			}
		}
	}
}

// TestC69Diff has the content of each operation. Whatever the data holds, it is escaped, and breaks nothing.
func TestC69Diff(t *testing.T) {
	o := plan.NewOptions()
	rules := plan.NewRules(&o)
	source := plantest.Source("platform", "settings", plantest.Data("lines", "one\ntwo\nthree\nfour\nfive\nsix\n"))
	edited := plantest.Copy(rules, source, "team-a", plantest.Data("lines", "one\nTWO\nthree\nfour\nfive\nsix\n"), plantest.Label("theirs", "kept"))
	odd := plantest.Source("platform", "settings", plantest.Data("controls", "\x7f\u0080\u009f\ufffe\u001b[2J"), plantest.Data("bom", "\ufefftext\r\nmore\r\n"),
		plantest.Data("invalid", "\xff\xfe"), plantest.Data("no end", "one\ntwo"), func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"raw": {0, 1, 255}} })
	large := plantest.Copy(rules, source, "team-a", plantest.Label("theirs", "gone"), plantest.Finalizer,
		plantest.Annotation("theirs", strings.Repeat("x", 9<<10)))
	key := types.NamespacedName{Namespace: "team-a", Name: "settings"}
	got, err := diffOf(rules, plan.OpUpdate, key, source, large)
	if err != nil || !strings.Contains(got, "-  theirs: gone\n") {
		t.Errorf("the update of a copy with large metadata keeps that of others: %v, %s", err, got)
	}
	var out golden
	for _, test := range []struct {
		op           plan.Op
		source, have *corev1.ConfigMap
	}{
		{plan.OpCreate, source, nil}, {plan.OpUpdate, source, edited}, {plan.OpRecreate, source, edited}, {plan.OpDelete, nil, edited}, {plan.OpUpdate, odd, edited},
	} {
		got, err := diffOf(rules, test.op, key, test.source, test.have)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("=== " + test.op.String() + "\n" + got)
	}
	out.compare(t, "diff")
}
