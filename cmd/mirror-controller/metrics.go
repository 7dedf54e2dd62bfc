package main

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // workqueue_*, rest_client_*, leader_election_*

	"github.com/mirror-controller/mirror-controller/mirror"
)

// metricsHandler answers with the metrics of the controller, of the build, and of client-go and the process, which have
// a registry of their own.
func metricsHandler(controller *mirror.Controller) http.Handler {
	registry := metrics.NewKubeRegistry()
	controller.RegisterMetrics(registry)
	build := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "mirror_build_info",
		Help:           "Always 1; the labels say which build this is.",
		StabilityLevel: metrics.STABLE,
	}, []string{"version", "goversion"})
	registry.MustRegister(build)
	build.WithLabelValues(version(), runtime.Version()).Set(1)
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics.HandlerFor(prometheus.Gatherers{registry, legacyregistry.DefaultGatherer}, metrics.HandlerOpts{}))
	return mux
}
