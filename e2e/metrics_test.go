package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// scrape returns the metrics of a controller, by name with labels.
func (w *world) scrape(p *shipped.Process) (map[string]float64, error) {
	code, body, err := w.askFor("metrics", p, "/metrics")
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("%d: %s", code, body)
	}
	out := map[string]float64{}
	for line := range strings.Lines(body) {
		if i := strings.LastIndexByte(line, ' '); line[0] != '#' && i > 0 {
			if out[line[:i]], err = strconv.ParseFloat(strings.TrimSpace(line[i:]), 64); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// waitMetrics waits until the metrics of a controller are these.
func (w *world) waitMetrics(what string, p *shipped.Process, want map[string]float64) {
	w.Helper()
	w.until(what, func() error {
		got, err := w.scrape(p)
		if err != nil {
			return err
		}
		for name, value := range want {
			if have, ok := got[name]; !ok || have != value {
				return fmt.Errorf("got %s %v, want %v", name, have, value)
			}
		}
		return nil
	})
}

// TestMetrics compares what the controller counts with what was done.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c", "taken")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	w.create(w.ns("taken"), "settings")
	p := w.start("--metrics-bind-address=127.0.0.1:0")
	w.waitMetrics("nothing yet", p, map[string]float64{
		`mirror_sources`:                                            0,
		`mirror_copies{state="synced"}`:                             0,
		`mirror_copies{state="foreign"}`:                            0,
		`mirror_prune_blocked`:                                      0,
		`mirror_fights`:                                             0,
		`mirror_invalid_sources`:                                    0,
		`mirror_copies{state="out_of_scope"}`:                       0,
		`mirror_writes_total{operation="create",result="rejected"}`: 0,
		`controller_runtime_reconcile_total{controller="mirror",result="success"}`: 0,
		`workqueue_depth{name="mirror-sources"}`:                                   0,
		`mirror_writes_total{operation="create",result="success"}`:                 0,
		`mirror_propagation_seconds_count`:                                         0,
		`controller_runtime_reconcile_errors_total{controller="mirror"}`:           0,
		`controller_runtime_max_concurrent_reconciles{controller="mirror"}`:        32,
		`workqueue_depth{name="mirror"}`:                                           0,
		`mirror_watch_errors_total{resource="configmaps"}`:                         0,
		`mirror_repairs_total{cause="edited"}`:                                     0,
		`mirror_namespace_fill_seconds_count`:                                      0,
		`mirror_writes_total{operation="delete",result="conflict"}`:                0,
		`controller_runtime_active_workers{controller="mirror"}`:                   0,
	})
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, a, b, c)
	w.waitEvent(w.home, "settings", "Foreign")
	w.waitMetrics("a source", p, map[string]float64{
		`mirror_sources`:                                           1,
		`mirror_copies{state="synced"}`:                            3,
		`mirror_copies{state="foreign"}`:                           1,
		`mirror_copies{state="pending"}`:                           0,
		`mirror_writes_total{operation="create",result="success"}`: 3,
		`mirror_propagation_seconds_count`:                         1,
		`mirror_namespace_fill_seconds_count`:                      0,
	})
	w.edit(a, "settings", withData(map[string]string{"key": "spoilt"}))
	w.waitInSync(source, a)
	w.delete(b, "settings")
	w.waitInSync(source, b)
	d := w.createNamespace(w.ns("d"), nil).Name
	w.waitInSync(source, d)
	w.waitMetrics("repairs and a new namespace", p, map[string]float64{
		`mirror_copies{state="synced"}`:                            4,
		`mirror_repairs_total{cause="edited"}`:                     1,
		`mirror_repairs_total{cause="deleted"}`:                    1,
		`mirror_writes_total{operation="create",result="success"}`: 5,
		`mirror_writes_total{operation="update",result="success"}`: 1,
		`mirror_namespace_fill_seconds_count`:                      1,
		`mirror_propagation_seconds_count`:                         1,
	})
	w.delete(w.home, "settings")
	w.waitGone("settings", a, b, c, d)
	w.waitMetrics("the source is gone", p, map[string]float64{
		`mirror_sources`:                                           0,
		`mirror_copies{state="synced"}`:                            0,
		`mirror_copies{state="foreign"}`:                           0,
		`mirror_writes_total{operation="delete",result="success"}`: 4,
	})
}

// TestMetricsOfReplicas holds what alerts and dashboard rest on: one of two replicas says that it leads, and sums over both
// are what that one counts; then the other takes over.
func TestMetricsOfReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "taken")
	w.create(w.ns("taken"), "settings")
	source := w.createSource(w.home, "settings") // before, so that the standby's caches have it when it is ready
	served := []string{"--metrics-bind-address=127.0.0.1:0"}
	first, second := w.pair(served, served)
	w.waitInSync(source, w.ns("a"))
	leader := map[string]float64{
		`leader_election_master_status{name="mirror-controller"}`: 1,
		`mirror_sources`:                 1,
		`mirror_copies{state="synced"}`:  1,
		`mirror_copies{state="foreign"}`: 1,
	}
	w.waitMetrics("the leader", first.Process, leader)
	w.waitMetrics("the standby", second.Process, map[string]float64{
		`leader_election_master_status{name="mirror-controller"}`: 0,
		`mirror_sources`:                    0,
		`mirror_copies{state="synced"}`:     0,
		`mirror_copies{state="pending"}`:    0,
		`mirror_copies{state="foreign"}`:    0,
		`mirror_copies{state="superseded"}`: 0,
		`mirror_copies{state="failed"}`:     0,
		`mirror_invalid_sources`:            0,
		`mirror_fights`:                     0,
		`mirror_prune_blocked`:              0,
	})
	w.stop(first.Process)
	w.waitMetrics("the standby that took over", second.Process, leader)
}
