package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/netutil"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
)

const (
	// serveOff is the address that switches an endpoint off.
	serveOff = "0"
	// serveFlush is how long a stopping process waits for the last responses.
	serveFlush = time.Second

	// Anybody in the cluster may connect, so these bound the memory for connections. Go's limit of a header is 1 MiB.
	maxHeader   = 8 << 10 // bytes
	readTimeout = 2 * time.Second
)

// endpoint is an address at which the process serves HTTP.
type endpoint struct {
	name, address string
	handler       http.Handler
	// writeTimeout bounds the time from the end of the request header to the end of the response.
	writeTimeout time.Duration
	// maxConnections bounds the open connections; others wait.
	maxConnections int
}

// serve serves the endpoint until stop is called, which waits a moment for the last responses.
func (e endpoint) serve(ctx context.Context) (stop func(), err error) {
	if e.address == serveOff {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", e.address)
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", e.name, err)
	}
	klog.FromContext(ctx).Info("Serving "+e.name, "address", listener.Addr().String())
	server := &http.Server{
		Handler:        e.handler,
		MaxHeaderBytes: maxHeader,
		ReadTimeout:    readTimeout,
		WriteTimeout:   e.writeTimeout,
		ErrorLog:       logs.NewLogger(""),
	}
	server.SetKeepAlivesEnabled(false) // or idle connections could keep probes out
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(netutil.LimitListener(listener, e.maxConnections)) // returns when it is shut down
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serveFlush)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // nothing can be done about an error
		}
		<-ended
	}, nil
}

// healthEndpoint returns the endpoint of the probes.
func healthEndpoint(address string, handler http.Handler) endpoint {
	return endpoint{"health", address, handler, 10 * time.Second, 1000}
}

// healthHandler answers the probes of a kubelet. Liveness fails for a leader that should have ended, because it has not
// renewed its lease. Readiness fails until the caches are full, and after the end of ctx. A standby is alive and ready.
// An API server that is away changes neither.
func healthHandler(ctx context.Context, watchdog *leaderelection.HealthzAdaptor, synced func() bool) http.Handler {
	caches := healthz.NamedCheck("caches", func(*http.Request) error {
		if !synced() {
			return errors.New("the caches are not full yet")
		}
		return nil
	})
	alive := []healthz.HealthChecker{healthz.PingHealthz, watchdog}
	mux := http.NewServeMux()
	healthz.InstallHandler(mux, alive...)
	healthz.InstallLivezHandler(mux, alive...)
	healthz.InstallReadyzHandler(mux, caches, healthz.NewShutdownHealthz(ctx.Done()))
	return mux
}

// checkAddress returns why nothing can be served at the address, or nothing.
func checkAddress(address string) string {
	if address == serveOff {
		return ""
	}
	_, port, err := net.SplitHostPort(address)
	if _, notPort := strconv.ParseUint(port, 10, 16); err != nil || notPort != nil {
		return "must be an address with a port, such as :8081 or 127.0.0.1:8081, or 0 (off)"
	}
	return ""
}
