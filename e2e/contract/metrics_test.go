package contract

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestMetrics compares what the controller counts with what was done.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c", "taken")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	w.Create(w.NS("taken"), "settings")
	p := w.Start("--metrics-bind-address=127.0.0.1:0")
	w.WaitMetrics("nothing yet", p, map[string]float64{
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
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, a, b, c)
	w.WaitEvent(w.Home, "settings", "Foreign")
	w.WaitMetrics("a source", p, map[string]float64{
		`mirror_sources`:                                           1,
		`mirror_copies{state="synced"}`:                            3,
		`mirror_copies{state="foreign"}`:                           1,
		`mirror_copies{state="pending"}`:                           0,
		`mirror_writes_total{operation="create",result="success"}`: 3,
		`mirror_propagation_seconds_count`:                         1,
		`mirror_namespace_fill_seconds_count`:                      0,
	})
	w.Edit(a, "settings", suite.WithData(map[string]string{"key": "spoilt"}))
	w.WaitInSync(source, a)
	w.Delete(b, "settings")
	w.WaitInSync(source, b)
	d := w.CreateNamespace(w.NS("d"), nil).Name
	w.WaitInSync(source, d)
	w.WaitMetrics("repairs and a new namespace", p, map[string]float64{
		`mirror_copies{state="synced"}`:                            4,
		`mirror_repairs_total{cause="edited"}`:                     1,
		`mirror_repairs_total{cause="deleted"}`:                    1,
		`mirror_writes_total{operation="create",result="success"}`: 5,
		`mirror_writes_total{operation="update",result="success"}`: 1,
		`mirror_namespace_fill_seconds_count`:                      1,
		`mirror_propagation_seconds_count`:                         1,
	})
	w.Delete(w.Home, "settings")
	w.WaitGone("settings", a, b, c, d)
	w.WaitMetrics("the source is gone", p, map[string]float64{
		`mirror_sources`:                                           0,
		`mirror_copies{state="synced"}`:                            0,
		`mirror_copies{state="foreign"}`:                           0,
		`mirror_writes_total{operation="delete",result="success"}`: 4,
	})
}
