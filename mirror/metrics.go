package mirror

import (
	"time"

	"k8s.io/component-base/metrics"

	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Label values of the metrics. Each exists from the start, with zero, so that
// an alert can be set on it.
var (
	writeResults = []string{"success", "conflict", "terminating", "rejected", "error"}
	repairCauses = []string{
		plan.CauseDeleted, plan.CauseEdited, plan.CauseUnlabelled, plan.CauseMetadata,
	}
	// reconcileResults: error means that a write failed, requeue_after that the
	// copy is looked at again later for another reason.
	reconcileResults = []string{"success", "requeue_after", "error"}
)

// queueName is the label of the metrics of the queue of copies and of its
// reconciles.
const queueName = "mirror"

// latencyBuckets, in seconds, reach from a few round trips to where only a
// retry helps.
var latencyBuckets = []float64{
	.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
}

// reconcileBuckets are those of controller-runtime, so that dashboards and
// quantiles are comparable.
var reconcileBuckets = []float64{
	0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
	1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50,
	60,
}

// controllerMetrics are the metrics of a controller. Before they are registered
// they count nothing.
type controllerMetrics struct {
	reconciles, reconcileErrors *metrics.CounterVec
	reconcileSeconds            *metrics.HistogramVec
	maxWorkers, activeWorkers   *metrics.GaugeVec
	writes, repairs             *metrics.CounterVec
	propagation                 *metrics.Histogram
}

func newControllerMetrics() *controllerMetrics {
	const stable = metrics.STABLE
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		opts := &metrics.CounterOpts{Name: name, Help: help, StabilityLevel: stable}
		return metrics.NewCounterVec(opts, labels)
	}
	gauge := func(name, help string) *metrics.GaugeVec {
		opts := &metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: stable}
		return metrics.NewGaugeVec(opts, []string{"controller"})
	}
	histogram := func(name, help string, buckets []float64) *metrics.HistogramOpts {
		return &metrics.HistogramOpts{
			Name: name, Help: help, Buckets: buckets, StabilityLevel: stable,
		}
	}
	return &controllerMetrics{
		reconciles: counter("controller_runtime_reconcile_total",
			"Reconciles. Each is for one copy.", "controller", "result"),
		reconcileErrors: counter("controller_runtime_reconcile_errors_total",
			"Reconciles with a failed write.", "controller"),
		reconcileSeconds: metrics.NewHistogramVec(
			histogram("controller_runtime_reconcile_time_seconds",
				"Duration of a reconcile of one copy.", reconcileBuckets),
			[]string{"controller"}),
		maxWorkers: gauge("controller_runtime_max_concurrent_reconciles",
			"Maximum number of copies that are reconciled at the same time, "+
				"not counting slow namespaces."),
		activeWorkers: gauge("controller_runtime_active_workers",
			"Copies that are being reconciled."),

		writes: counter("mirror_writes_total",
			"Writes of copies that the API server answered. "+
				"Result conflict: the object had changed. "+
				"Result rejected: by quota, admission, authorization or validation.",
			"operation", "result"),
		repairs: counter("mirror_repairs_total",
			"Copies that were restored after another client changed them, by kind of change.",
			"cause"),
		propagation: metrics.NewHistogram(histogram("mirror_propagation_seconds",
			"Time from when the controller sees a change of a source "+
				"until its last copy is in sync.", latencyBuckets)),
	}
}

// register registers the counters, and makes every label value exist.
func (m *controllerMetrics) register(registry metrics.KubeRegistry, workers int) {
	registry.MustRegister(m.reconciles, m.reconcileErrors, m.reconcileSeconds,
		m.maxWorkers, m.activeWorkers, m.writes, m.repairs, m.propagation)
	for _, operation := range []string{"create", "update", "delete"} {
		for _, result := range writeResults {
			m.writes.WithLabelValues(operation, result)
		}
	}
	for _, cause := range repairCauses {
		m.repairs.WithLabelValues(cause)
	}
	for _, result := range reconcileResults {
		m.reconciles.WithLabelValues(queueName, result)
	}
	m.reconcileErrors.WithLabelValues(queueName)
	m.activeWorkers.WithLabelValues(queueName).Set(0)
	m.maxWorkers.WithLabelValues(queueName).Set(float64(workers))
	m.reconcileSeconds.WithLabelValues(queueName)
}

// registerGauges registers the gauges that are counted at each scrape.
func (c *Controller) registerGauges(registry metrics.KubeRegistry) {
	gauge := func(name, help string, labels map[string]string, count func() int) {
		opts := &metrics.GaugeOpts{
			Name: name, Help: help, ConstLabels: labels, StabilityLevel: metrics.STABLE,
		}
		value := func() float64 { return float64(count()) }
		registry.RawMustRegister(metrics.NewGaugeFunc(opts, value))
	}
	sum := func(name, help string, number func(*plan.Source) int) {
		gauge(name, help, nil, func() (n int) {
			for s := range c.activeSources {
				n += number(s)
			}
			return n
		})
	}
	sum("mirror_sources", "ConfigMaps with the mirror label that the flags allow as sources.",
		func(*plan.Source) int { return 1 })
	sum("mirror_source_bytes",
		"Size of data and binaryData of all sources. The controller holds them in memory.",
		func(s *plan.Source) int { return s.Bytes })
	sum("mirror_invalid_sources",
		"Sources that are frozen until an annotation is fixed that is malformed or not known.",
		func(s *plan.Source) int {
			if s.Frozen == nil {
				return 0
			}
			return 1
		})
	for _, state := range plan.Counted {
		gauge("mirror_copies", "Wanted and existing copies by state.",
			map[string]string{"state": state.String()}, func() int { return c.activeTargets(state) })
	}
	for _, resource := range cache.Resources {
		gauge("mirror_watch_interrupted_seconds",
			"Time since the watch of the resource was established, 0 while it is. "+
				"Meanwhile the controller works with old data.",
			map[string]string{"resource": resource},
			func() int { return int(c.cache.Interrupted(resource).Seconds()) })
	}
}

// reconciling counts a reconcile that begins. Its result is passed to the
// returned function at its end.
func (m *controllerMetrics) reconciling() (done func(result string)) {
	began := time.Now()
	active := m.activeWorkers.WithLabelValues(queueName)
	active.Inc()
	return func(result string) {
		active.Dec()
		m.reconcileSeconds.WithLabelValues(queueName).Observe(time.Since(began).Seconds())
		m.reconciles.WithLabelValues(queueName, result).Inc()
		if result == "error" {
			m.reconcileErrors.WithLabelValues(queueName).Inc()
		}
	}
}

// countWrite counts a write that the API server answered.
func (m *controllerMetrics) countWrite(operation plan.Op, err error) {
	if outcome.IsAnswered(err) {
		m.writes.WithLabelValues(operation.String(), outcome.Of(operation, err).Result()).Inc()
	}
}
