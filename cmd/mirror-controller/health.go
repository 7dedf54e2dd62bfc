package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/tools/leaderelection"
)

// healthEndpoint returns the endpoint of the probes.
func healthEndpoint(address string, handler http.Handler) endpoint {
	return endpoint{
		name: "health", address: address, handler: handler, writeTimeout: 10 * time.Second, maxConnections: 1000,
	}
}

// healthHandler answers the probes of a kubelet. Liveness fails for a leader that should have ended, because it has not
// renewed its lease. Readiness fails until the caches are full, for 90 s after a permission was refused, and after the end
// of ctx. A standby is alive and ready. An API server that is away changes neither.
func healthHandler(ctx context.Context, watchdog *leaderelection.HealthzAdaptor, synced func() bool, refused *refusals) http.Handler {
	caches := healthz.NamedCheck("caches", func(*http.Request) error {
		if !synced() {
			return errors.New("the caches are not full yet")
		}
		return nil
	})
	alive := []healthz.HealthChecker{healthz.PingHealthz, watchdog}
	ready := append(refused.checks(), caches, healthz.NewShutdownHealthz(ctx.Done()))
	mux := http.NewServeMux()
	healthz.InstallHandler(mux, alive...)
	healthz.InstallLivezHandler(mux, alive...)
	healthz.InstallReadyzHandler(mux, ready...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const longest = 1 << 10 // a query is logged in detail
		if len(r.URL.RawQuery) > longest {
			http.Error(w, "the query is too long", http.StatusRequestURITooLong)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
