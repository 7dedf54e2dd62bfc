package main

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// plan returns the plan for the scene.
func (s *scene) plan(t *testing.T) *planned {
	t.Helper()
	snap, named := s.snapshot()
	prune := snap.judge()
	all, err := snap.decideAll(!prune.blocked, prune.blocked, named)
	if err != nil {
		t.Fatal(err)
	}
	return newPlanned(snap, all, prune)
}

func TestPlan(t *testing.T) {
	expectPrinted(t, "plan", everyState().plan(t))
	expectPrinted(t, "plan-nothing", newScene().plan(t))
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
		s := newScene()
		s.options.PruneLimit = test.limit
		src := s.add(plantest.Source("platform", "settings"))
		for _, namespace := range []string{"team-a", "team-b", "team-c"} {
			s.copyOf(src, namespace)
		}
		for i := range test.n {
			namespace := fmt.Sprintf("dev-%02d", i)
			s.namespaces = append(s.namespaces, plantest.Namespace(namespace))
			s.copyOf(src, namespace)
		}
		p := s.plan(t)
		if len(p.Changes) != test.deleted || p.Blocked != test.blocked {
			t.Errorf("%+v: got %d deletions, %d blocked", test, len(p.Changes), p.Blocked)
		}
		if test.blocked == 11 {
			expectPrinted(t, "plan-blocked", p)
		}
	}
}

// TestPruneLimitOfSelector has copies that only --namespace-selector rules out: they are blocked as the others are.
func TestPruneLimitOfSelector(t *testing.T) {
	s := newScene()
	s.options.PruneLimit, s.options.NamespaceSelector = 0, "env=dev"
	src := s.add(plantest.Source("platform", "settings"))
	s.copyOf(src, "team-a")
	if p := s.plan(t); len(p.Changes) != 0 || p.Blocked != 1 {
		t.Errorf("got %d changes, %d blocked, want none, 1", len(p.Changes), p.Blocked)
	}
	s.options.PruneLimit = 100
	if p := s.plan(t); len(p.Changes) != 1 || p.Blocked != 0 {
		t.Errorf("got %d changes, %d blocked, want 1, none", len(p.Changes), p.Blocked)
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
