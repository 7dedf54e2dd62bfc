package main

import (
	"net/http"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// TestProfiling: profiles are served only if the flag asks for them.
func TestProfiling(t *testing.T) {
	controller, err := mirror.New(kubernetes.NewForConfigOrDie(&rest.Config{}), nil, mirror.NewOptions())
	noError(t, err)
	for profiling, want := range map[bool]int{true: http.StatusOK, false: http.StatusNotFound} {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/trace?seconds=0.01"} {
			if code, _ := ask(t, metricsHandler(controller, profiling), path); code != want {
				t.Errorf("%v: got %d from %s, want %d", profiling, code, path, want)
			}
		}
	}
}
