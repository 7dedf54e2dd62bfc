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

// serveOff is the address that switches an endpoint off.
const serveOff = "0"

// serveFlush is how long a stopping process waits for the last responses.
const serveFlush = time.Second

// Anybody in the cluster may connect, so these two bound what the connections
// cost. Probes and scrapes need far less.
const (
	maxHeader   = 8 << 10 // bytes; Go's default is 1 MiB
	readTimeout = 2 * time.Second
)

// endpoint is an address at which the process serves HTTP.
type endpoint struct {
	name    string // in errors and in the log
	address string // host:port, or serveOff
	handler http.Handler
	// writeTimeout bounds the time from the end of the request header to the
	// end of the response.
	writeTimeout time.Duration
	// maxConnections bounds the open connections; others wait.
	maxConnections int
}

// serve serves the endpoint in the background. stop ends that, after it has
// waited a moment for the last responses.
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
	// Idle connections count, too, and could keep probes out.
	server.SetKeepAlivesEnabled(false)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// The error is that of a server that was shut down.
		_ = server.Serve(netutil.LimitListener(listener, e.maxConnections))
	}()
	return func() {
		// ctx has ended already when the process stops.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serveFlush)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // nothing can be done about an error
		}
		<-ended
	}, nil
}

// healthEndpoint returns the endpoint of the probes. A kubelet asks every few
// seconds; a thousand connections leave it room beside whoever else connects.
func healthEndpoint(address string, handler http.Handler) endpoint {
	return endpoint{"health", address, handler, 10 * time.Second, 1000}
}

// healthHandler answers the probes of a kubelet.
//
// Liveness fails for a leader that should have ended, because it has not
// renewed its Lease. Readiness fails until the caches are full, and after the
// end of ctx. A standby is alive and ready. An API server that is away changes
// neither: a restart would not bring it back.
func healthHandler(
	ctx context.Context, watchdog *leaderelection.HealthzAdaptor, synced func() bool,
) http.Handler {
	caches := healthz.NamedCheck("caches", func(*http.Request) error {
		if !synced() {
			return errors.New("the caches are not full yet")
		}
		return nil
	})
	mux := http.NewServeMux()
	healthz.InstallHandler(mux, healthz.PingHealthz, watchdog) // the former /livez: /healthz
	healthz.InstallLivezHandler(mux, healthz.PingHealthz, watchdog)
	healthz.InstallReadyzHandler(mux, caches, healthz.NewShutdownHealthz(ctx.Done()))
	return mux
}

// checkAddress returns an error if nothing can be served at the address that a
// flag has: it is neither serveOff nor ends with a port.
func checkAddress(flag, address string) error {
	if address == serveOff {
		return nil
	}
	_, port, notAddress := net.SplitHostPort(address)
	_, notPort := strconv.ParseUint(port, 10, 16)
	if notAddress != nil || notPort != nil {
		return wrongValue(flag, address,
			"must be an address with a port, such as :8081 or 127.0.0.1:8081, or 0 (off)")
	}
	return nil
}
