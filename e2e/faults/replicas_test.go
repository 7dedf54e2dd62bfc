package faults

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestMetricsOfReplicas holds what alerts and dashboard rest on: one of two replicas says that it leads, and sums over both
// are what that one counts; then the other takes over.
func TestMetricsOfReplicas(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "taken")
	w.Create(w.NS("taken"), "settings")
	source := w.CreateSource(w.Home, "settings") // before, so that the standby's caches have it when it is ready
	served := []string{"--metrics-bind-address=127.0.0.1:0"}
	first, second := pair(w, served, served)
	w.WaitInSync(source, w.NS("a"))
	leader := map[string]float64{
		`leader_election_master_status{name="mirror-controller"}`: 1,
		`mirror_sources`:                 1,
		`mirror_copies{state="synced"}`:  1,
		`mirror_copies{state="foreign"}`: 1,
	}
	w.WaitMetrics("the leader", first.Process, leader)
	w.WaitMetrics("the standby", second.Process, map[string]float64{
		`leader_election_master_status{name="mirror-controller"}`: 0,
		`mirror_sources`:                    0,
		`mirror_copies{state="synced"}`:     0,
		`mirror_copies{state="pending"}`:    0,
		`mirror_copies{state="foreign"}`:    0,
		`mirror_copies{state="superseded"}`: 0,
		`mirror_copies{state="rejected"}`:   0,
		`mirror_copies{state="frozen"}`:     0,
		`mirror_invalid_sources`:            0,
		`mirror_fights`:                     0,
	})
	w.Stop(first.Process)
	w.WaitMetrics("the standby that took over", second.Process, leader)
}
