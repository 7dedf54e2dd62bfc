package main

import (
	"container/list"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
)

const (
	// serveOff is the address that switches an endpoint off.
	serveOff = "0"
	// serveFlush is how long a stopping process waits for the last responses.
	serveFlush = time.Second

	// Anybody in the cluster may connect, so these bound the memory for connections. Go's limit of a header is 1 MiB.
	maxHeader         = 8 << 10 // bytes
	readHeaderTimeout = 2 * time.Second
	readTimeout       = 10 * time.Second
	idleTimeout       = 15 * time.Second
)

// endpoint is an address at which the process serves HTTP.
type endpoint struct {
	name, address string
	handler       http.Handler
	// writeTimeout bounds the time from the end of the request header to the end of the response.
	writeTimeout time.Duration
	// maxConnections bounds the open connections; others wait. 0: beyond maxOpen the oldest is closed, so that nobody can keep
	// probes out. Such an endpoint ends each connection after one response.
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
		Handler:           e.handler,
		MaxHeaderBytes:    maxHeader,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      e.writeTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          logs.NewLogger(""),
	}
	if e.maxConnections > 0 {
		listener = netutil.LimitListener(listener, e.maxConnections)
	} else {
		server.SetKeepAlivesEnabled(false)
		server.ConnState = (&connections{open: map[net.Conn]*list.Element{}}).changed
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // returns when it is shut down
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

// maxOpen bounds the open connections of an endpoint without maxConnections. A probe takes milliseconds, and is never the
// oldest.
const maxOpen = 1000

// connections closes the oldest of too many connections.
type connections struct {
	mu    sync.Mutex
	order list.List // of net.Conn, the oldest first
	open  map[net.Conn]*list.Element
}

// changed takes note of the state of a connection.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open[conn] = c.order.PushBack(conn)
		if c.order.Len() > maxOpen {
			oldest := c.order.Front().Value.(net.Conn)
			c.remove(oldest)
			_ = oldest.Close() // it may be closed already
		}
	case http.StateClosed, http.StateHijacked:
		c.remove(conn)
	}
}

func (c *connections) remove(conn net.Conn) {
	if e := c.open[conn]; e != nil {
		c.order.Remove(e)
		delete(c.open, conn)
	}
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
