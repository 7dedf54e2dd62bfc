package mirror

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
)

// Label values of the metrics. Each exists from the start, with zero, for alerts cannot be set on what is not there.
var (
	writeOperations = []string{"create", "update", "delete"}
	// writeResults are what came of a write: conflict, the object was not the one that was judged, which costs another
	// look; terminating, its namespace is going away; refused, by quota, admission, authorization or validation; error,
	// the API server or the way to it failed.
	writeResults = []string{"success", "conflict", "terminating", "refused", "error"}
	// repairCauses are what others had done to a copy that was put right. See repairCause.
	repairCauses = []string{causeDeleted, causeEdited, causeUnlabelled, causeMetadata}
	watched      = []string{configMapsResource, namespacesResource}
	// reconcileResults are those of controller-runtime that can happen here: requeue, there is more to do for that
	// name at once; error, a write failed.
	reconcileResults = []string{"success", "requeue", "error"}
)

// What is watched.
const (
	configMapsResource = "configmaps"
	namespacesResource = "namespaces"
)

// Causes of a repair.
const (
	causeDeleted    = "deleted"
	causeEdited     = "edited"
	causeUnlabelled = "unlabelled"
	causeMetadata   = "metadata"
)

// copyStates are the states of mirror_copies, and which outcomes count as each. A copy of a source whose narrowing
// cannot be read has failed: what its owner asked for cannot be done. Copies outside the flags are in none of them.
var copyStates = []struct {
	state    string
	outcomes []outcome
}{
	{"synced", []outcome{outcomeSynced}},
	{"pending", []outcome{outcomePending, outcomeFight}},
	{"foreign", []outcome{outcomeForeign}},
	{"superseded", []outcome{outcomeSuperseded}},
	{"failed", []outcome{outcomeFailed, outcomeFrozen}},
}

// Buckets of the two figures that users feel, in seconds: from a few round trips to where only a retry helps.
var latencyBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// reconcileBuckets are those of controller-runtime, so that dashboards and quantiles are comparable.
var reconcileBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8,
	0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60}

// measures are the metrics of a controller. Before they are registered they count nothing.
type measures struct {
	reconciles       *metrics.CounterVec
	reconcileErrors  *metrics.CounterVec
	terminalErrors   *metrics.CounterVec
	panics           *metrics.CounterVec
	timeouts         *metrics.CounterVec
	reconcileSeconds *metrics.HistogramVec
	maxWorkers       *metrics.GaugeVec
	activeWorkers    *metrics.GaugeVec

	watchErrors *metrics.CounterVec
	writes      *metrics.CounterVec
	repairs     *metrics.CounterVec
	propagation *metrics.Histogram
	fill        *metrics.Histogram
}

func newMeasures() *measures {
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.STABLE}, labels)
	}
	gauge := func(name, help string, labels ...string) *metrics.GaugeVec {
		return metrics.NewGaugeVec(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.STABLE}, labels)
	}
	latency := func(name, help string) *metrics.Histogram {
		return metrics.NewHistogram(&metrics.HistogramOpts{Name: name, Help: help, Buckets: latencyBuckets, StabilityLevel: metrics.STABLE})
	}
	return &measures{
		reconciles: counter("controller_runtime_reconcile_total",
			"Slices of targets that were compared with their sources, and with result error the writes that failed.", "controller", "result"),
		reconcileErrors: counter("controller_runtime_reconcile_errors_total", "Writes that failed.", "controller"),
		terminalErrors: counter("controller_runtime_terminal_reconcile_errors_total",
			"Always zero: everything that fails is tried again.", "controller"),
		panics: counter("controller_runtime_reconcile_panics_total", "Always zero: a panic ends the process.", "controller"),
		timeouts: counter("controller_runtime_reconcile_timeouts_total",
			"Always zero: it is requests that time out, see rest_client_requests_total.", "controller"),
		reconcileSeconds: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name:    "controller_runtime_reconcile_time_seconds",
			Help:    "Time for a slice of targets, with the wait for free slots for its writes.",
			Buckets: reconcileBuckets, StabilityLevel: metrics.STABLE,
		}, []string{"controller"}),
		maxWorkers:    gauge("controller_runtime_max_concurrent_reconciles", "Names of sources that can be worked on at a time.", "controller"),
		activeWorkers: gauge("controller_runtime_active_workers", "Names of sources that are being worked on.", "controller"),

		watchErrors: counter("mirror_watch_errors_total",
			"Lists and watches that were refused or failed. While that goes on, what is mirrored is out of date.", "resource"),
		writes:  counter("mirror_writes_total", "Writes of copies that were sent to the API server.", "operation", "result"),
		repairs: counter("mirror_repairs_total", "Copies that others had changed and that were put right, by what had been done to them.", "cause"),
		propagation: latency("mirror_propagation_seconds",
			"Time from when the change of a source was seen to the last of its copies in line."),
		fill: latency("mirror_namespace_fill_seconds",
			"Time from when a new namespace was seen to the last of its copies there."),
	}
}

// Registry takes metrics: a [metrics.KubeRegistry], for example.
type Registry interface {
	MustRegister(...metrics.Registerable)
	RawMustRegister(...prometheus.Collector)
}

// RegisterMetrics registers the metrics of the controller, before it runs; it panics if the registry has some of those
// names already. Those that count sources and copies are zero before the controller leads.
func (c *Controller) RegisterMetrics(registry Registry) {
	m := c.measures
	registry.MustRegister(m.reconciles, m.reconcileErrors, m.terminalErrors, m.panics, m.timeouts, m.reconcileSeconds,
		m.maxWorkers, m.activeWorkers, m.watchErrors, m.writes, m.repairs, m.propagation, m.fill)
	counted := func(name, help string, labels map[string]string, count func() int) {
		registry.RawMustRegister(metrics.NewGaugeFunc(
			&metrics.GaugeOpts{Name: name, Help: help, ConstLabels: labels, StabilityLevel: metrics.STABLE},
			func() float64 { return float64(count()) }))
	}
	counted("mirror_sources", "ConfigMaps that ask to be mirrored and are allowed to.", nil, c.ledger.sources)
	counted("mirror_fights", "Copies that somebody keeps changing back, and that are put right more and more slowly.", nil,
		func() int { return c.ledger.copies(outcomeFight) })
	counted("mirror_invalid_sources", "Sources for which nothing is done until their annotations are mended.", nil, c.ledger.invalidSources)
	counted("mirror_prune_blocked", "Copies outside the flags that are not deleted because they were too many, see --prune-limit.", nil,
		func() int {
			if !c.blocked.Load() {
				return 0
			}
			return c.ledger.copies(outcomeStranger)
		})
	for _, s := range copyStates {
		counted("mirror_copies", "Copies that sources ask for, by how they stand.", map[string]string{"state": s.state},
			func() int { return c.ledger.copies(s.outcomes...) })
	}
	m.begin(c.opts.ConcurrentSources)
}

// begin makes all label values exist.
func (m *measures) begin(workers int) {
	for _, operation := range writeOperations {
		for _, result := range writeResults {
			m.writes.WithLabelValues(operation, result)
		}
	}
	for _, cause := range repairCauses {
		m.repairs.WithLabelValues(cause)
	}
	for _, resource := range watched {
		m.watchErrors.WithLabelValues(resource)
	}
	for _, result := range reconcileResults {
		m.reconciles.WithLabelValues(queueLabel, result)
	}
	for _, v := range []*metrics.CounterVec{m.reconcileErrors, m.terminalErrors, m.panics, m.timeouts} {
		v.WithLabelValues(queueLabel)
	}
	m.activeWorkers.WithLabelValues(queueLabel).Set(0)
	m.maxWorkers.WithLabelValues(queueLabel).Set(float64(workers))
	m.reconcileSeconds.WithLabelValues(queueLabel)
}

// working notes that a worker has begun with a name. What it returns is called at its end, with whether there is more
// to do for that name at once.
func (m *measures) working() (done func(more bool)) {
	began := time.Now()
	active := m.activeWorkers.WithLabelValues(queueLabel)
	active.Inc()
	return func(more bool) {
		active.Dec()
		m.reconcileSeconds.WithLabelValues(queueLabel).Observe(time.Since(began).Seconds())
		result := "success"
		if more {
			result = "requeue"
		}
		m.reconciles.WithLabelValues(queueLabel, result).Inc()
	}
}

// sent counts a write, and passes on its error.
func (m *measures) sent(operation op, err error) error {
	result := writeResult(troubleOf(operation, err))
	m.writes.WithLabelValues(operation.String(), result).Inc()
	if result == "refused" || result == "error" {
		m.reconciles.WithLabelValues(queueLabel, "error").Inc()
		m.reconcileErrors.WithLabelValues(queueLabel).Inc()
	}
	return err
}

func writeResult(t trouble) string {
	switch t {
	case noTrouble:
		return "success"
	case behind:
		return "conflict"
	case closing:
		return "terminating"
	case refused:
		return "refused"
	}
	return "error"
}

// repairCause returns what others have done to a copy that the change puts right; empty if nothing: the copy is new,
// or it is the source that has changed. deleted is that of the target.
func (r *rules) repairCause(c change, deleted bool) string {
	switch {
	case c.op == opCreate && deleted:
		return causeDeleted
	case c.have == nil || c.source == nil || c.have.Annotations[ChecksumAnnotation] != c.source.checksum ||
		!sameKey(c.have.Annotations[SourceAnnotation], c.source.key.Namespace, c.source.key.Name):
		return ""
	case c.have.Labels[r.label] != CopyValue:
		return causeUnlabelled
	case payloadDigest(c.have) != c.source.payload:
		return causeEdited
	}
	return causeMetadata
}
