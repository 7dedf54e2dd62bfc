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
	for name, tc := range map[string]struct {
		profiling bool
		want      int
	}{"on": {true, http.StatusOK}, "off": {false, http.StatusNotFound}} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/trace?seconds=0.01"} {
				if code, _ := ask(t, metricsHandler(controller, tc.profiling), path); code != tc.want {
					t.Errorf("got %d from %s, want %d", code, path, tc.want)
				}
			}
		})
	}
}
