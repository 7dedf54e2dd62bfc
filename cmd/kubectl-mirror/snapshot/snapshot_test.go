package snapshot_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot/snapshottest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestIsInSync has what keeps a cluster from being in sync, one at a time.
func TestIsInSync(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*snapshottest.Scene)
		want   bool
	}{
		"no sources":      {func(s *snapshottest.Scene) { s.Objects = nil }, true},
		"all in sync":     {func(*snapshottest.Scene) {}, true},
		"a missing copy":  {func(s *snapshottest.Scene) { s.Objects = s.Objects[:len(s.Objects)-1] }, false},
		"an edited copy":  {func(s *snapshottest.Scene) { plantest.Data("key", "edited")(s.Objects[len(s.Objects)-1]) }, false},
		"a frozen source": {func(s *snapshottest.Scene) { plantest.Annotation(plan.PrefixAnnotation, "-")(s.Objects[0]) }, false},
		"a gone source":   {func(s *snapshottest.Scene) { s.Objects = s.Objects[1:] }, false},
		"no targets":      {func(s *snapshottest.Scene) { s.Objects, s.Namespaces = s.Objects[:1], s.Namespaces[:1] }, false},
		"a source that the flags do not allow, with copies": {func(s *snapshottest.Scene) {
			s.Options.SourceNamespaces = []string{"elsewhere"}
		}, false},
		"a source that the flags do not allow, without": {func(s *snapshottest.Scene) {
			s.Options.SourceNamespaces, s.Objects = []string{"elsewhere"}, s.Objects[:1]
		}, true},
		"a foreign object nobody wants to replace": {func(s *snapshottest.Scene) {
			s.Add(plantest.ConfigMap("team-a", "other", plantest.Label("mirror", "copy")))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshottest.New()
			src := s.Add(plantest.Source("platform", "settings"))
			for _, namespace := range []string{"team-a", "team-b", "team-c"} {
				s.Copy(src, namespace)
			}
			test.change(s)
			got := true
			for _, source := range s.Snapshot(t).Sources(types.NamespacedName{}) {
				got = got && source.IsInSync()
			}
			if got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestLargeMetadata: what the API server returns is stripped before a decision, so that a copy, or a ConfigMap that
// is handed over, with more than 8 KiB of metadata is created again.
func TestLargeMetadata(t *testing.T) {
	s := snapshottest.New()
	large := plantest.Annotation("theirs", strings.Repeat("x", 9<<10))
	s.Copy(s.Add(plantest.Source("platform", "settings")), "team-a", large, plantest.Data("key", "edited"))
	foreign := s.Add(plantest.ConfigMap("team-b", "settings", large, plantest.Data("key", "theirs")))
	snap := s.Snapshot(t)
	for namespace, op := range map[string]plan.Op{
		"team-a": snap.Decision(types.NamespacedName{Namespace: "team-a", Name: "settings"}).Op,
		"team-b": snap.HandedOver(foreign).Op,
	} {
		if op != plan.OpRecreate {
			t.Errorf("%s: got %v, want %v", namespace, op, plan.OpRecreate)
		}
	}
	if len(foreign.Data) != 1 || len(foreign.Annotations) != 1 {
		t.Errorf("what is handed over has changed: data %v, %d annotations", foreign.Data, len(foreign.Annotations))
	}
}

// TestExpiredList: a list that the API server has not kept long enough begins anew.
func TestExpiredList(t *testing.T) {
	s := snapshottest.New()
	s.Add(plantest.Source("platform", "settings"))
	s.Expired = 2
	if got := len(s.Snapshot(t).All()); got != 4 {
		t.Errorf("got %d decisions, want those of the source and its 3 targets", got)
	}
}
