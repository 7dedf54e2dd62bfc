package main

import (
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	// For workqueue_*, rest_client_* and leader_election_*.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// metricsEndpoint returns the endpoint of the metrics. Its writeTimeout allows
// for a CPU profile of a minute. A few scrapers at a time are usual.
func metricsEndpoint(address string, handler http.Handler) endpoint {
	return endpoint{"metrics", address, handler, 90 * time.Second, 32}
}

// metricsHandler answers with the metrics of the controller and of the build,
// and with those of client-go and the process, which have a registry of their
// own. With profiling it also has the profiles of net/http/pprof.
func metricsHandler(controller *mirror.Controller, profiling bool) http.Handler {
	registry := metrics.NewKubeRegistry()
	controller.RegisterMetrics(registry)
	build := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "mirror_build_info",
		Help:           "Always 1. The labels describe the build.",
		StabilityLevel: metrics.STABLE,
	}, []string{"version", "goversion"})
	registry.MustRegister(build)
	build.WithLabelValues(version(), runtime.Version()).Set(1)

	mux := http.NewServeMux()
	all := prometheus.Gatherers{registry, legacyregistry.DefaultGatherer}
	mux.Handle("/metrics", metrics.HandlerFor(all, metrics.HandlerOpts{}))
	if profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index) // also every profile by its name
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}
