package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
)

const (
	// serveOff is the address by which nothing is served.
	serveOff = "0"
	// serveTimeout bounds what a client may take to ask, and to take in the answer.
	serveTimeout = 10 * time.Second
	// serveFlush is how long a stopping process waits for answers that are on their way.
	serveFlush = time.Second
)

// serve serves what handler answers at the address, until stop is called, which waits a moment for the last answers.
func serve(ctx context.Context, what, address string, handler http.Handler) (stop func(), err error) {
	if address == serveOff {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", what, err)
	}
	server := &http.Server{
		Handler:      handler,
		ReadTimeout:  serveTimeout,
		WriteTimeout: serveTimeout,
		IdleTimeout:  time.Minute, // longer than between two probes
		ErrorLog:     logs.NewLogger(""),
	}
	klog.FromContext(ctx).Info("Serving "+what, "address", listener.Addr().String())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // returns when it is shut down
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serveFlush)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // nothing to be done about what cannot be closed
		}
		<-ended
	}, nil
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
