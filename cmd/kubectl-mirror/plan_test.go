package main

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot/snapshottest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

func TestPlan(t *testing.T) {
	expectPrinted(t, "plan", newPlanned(snapshottest.EveryState().Snapshot(t, true)))
	expectPrinted(t, "plan-nothing", newPlanned(snapshottest.New().Snapshot(t, true)))
}

// TestPruneLimit has n copies in namespaces that the prefix no longer allows, and three that it does.
func TestPruneLimit(t *testing.T) {
	for _, test := range []struct {
		n                int
		limit            plan.Percent
		deleted, blocked int
	}{
		{2, 50, 2, 0},
		{3, 50, 0, 3},
		{11, 50, 0, 11},
		{11, 80, 11, 0},
		{11, 100, 11, 0},
		{1, 0, 0, 1},
	} {
		s := snapshottest.New()
		s.Options.PruneLimit = test.limit
		src := s.Add(plantest.Source("platform", "settings"))
		for _, namespace := range []string{"team-a", "team-b", "team-c"} {
			s.Copy(src, namespace)
		}
		for i := range test.n {
			namespace := fmt.Sprintf("dev-%02d", i)
			s.Namespaces = append(s.Namespaces, plantest.Namespace(namespace))
			s.Copy(src, namespace)
		}
		p := newPlanned(s.Snapshot(t, true))
		p.PruneLimit = test.limit.String()
		if len(p.Changes) != test.deleted || p.Blocked != test.blocked {
			t.Errorf("%+v: got %d deletions, %d blocked", test, len(p.Changes), p.Blocked)
		}
		if test.blocked == 11 {
			expectPrinted(t, "plan-blocked", p)
		}
	}
}

func TestDiff(t *testing.T) {
	o := plan.NewOptions()
	rules := plan.NewRules(&o)
	source := plantest.Source("platform", "settings", plantest.Data("lines", "one\ntwo\nthree\nfour\nfive\nsix\n"))
	edited := plantest.Copy(rules, source, "team-a", plantest.Data("lines", "one\nTWO\nthree\nfour\nfive\nsix\n"), plantest.Label("theirs", "kept"))
	for _, test := range []struct {
		op           plan.Op
		source, have *corev1.ConfigMap
	}{
		{plan.OpCreate, source, nil}, {plan.OpUpdate, source, edited}, {plan.OpRecreate, source, edited}, {plan.OpDelete, nil, edited},
	} {
		t.Run(test.op.String(), func(t *testing.T) {
			got, err := diffOf(rules, test.op, types.NamespacedName{Namespace: "team-a", Name: "settings"}, test.source, test.have)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "diff-"+test.op.String(), []byte(printableLines(got)))
		})
	}
}
