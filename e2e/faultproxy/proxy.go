package faultproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say what the proxy stands in front of.
type Options struct {
	// Kubeconfig is the file that says where the API server is and who the client is. The client must be
	// known by a token: a client certificate cannot be passed on.
	Kubeconfig string
	// Dir is an existing folder, in which the kubeconfig for the way through the proxy is written.
	Dir string
}

// Proxy is a running proxy. Its methods may be called concurrently.
type Proxy struct {
	kubeconfig string
	server     *http.Server
	transport  *http.Transport
	forward    *httputil.ReverseProxy
	serving    sync.WaitGroup // the server, and the requests that it is dealing with
	ending     chan struct{}  // closed by Close
	close      sync.Once

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced at each change
	random     *rand.Rand    // decides whether a rule with a probability fires: the same in each run
	closing    bool
	lastID     int
	injections []*Injection // in the order of their ids
	counts     map[Kind]int
	streams    map[*stream]bool // the running watches
	conns      map[*conn]bool   // the open connections
	accepted   int
	silence    chan struct{} // closed when it is over; nil: there is none
}

// Start starts a proxy that passes on everything. Whoever starts it closes it.
func Start(o Options) (*Proxy, error) {
	upstream, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig for the proxy: %w", err)
	}
	server, err := url.Parse(upstream.Host)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig for the proxy: %w", err)
	}
	certificate, authority, err := newCertificate()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		ending:  make(chan struct{}),
		changed: make(chan struct{}), random: rand.New(rand.NewPCG(1, 2)),
		counts:  map[Kind]int{},
		streams: map[*stream]bool{},
		conns:   map[*conn]bool{},
	}
	p.kubeconfig, err = writeKubeconfig(o, "https://"+l.Addr().String(), authority)
	if err == nil {
		p.transport, err = newTransport(upstream)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p.forward = p.newForward(server)
	p.server = &http.Server{
		Handler:   http.HandlerFunc(p.serve),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		// What it would complain of are the faults.
		ErrorLog:    log.New(io.Discard, "", 0),
		ConnContext: withConn,
	}
	p.serving.Go(func() { _ = p.server.ServeTLS(&listener{l, p}, "", "") }) // returns when it is closed
	return p, nil
}

// newTransport returns the way to the API server, which does not decode what it passes on.
func newTransport(upstream *rest.Config) (*http.Transport, error) {
	trust, err := rest.TLSConfigFor(upstream)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig for the proxy: %w", err)
	}
	return &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true, DisableCompression: true}, nil
}

func (p *Proxy) newForward(server *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.Out.Host = server.Host
			if r.In.Context().Value(courseKey{}).(*course).request.Verb == "watch" {
				// The API server packs watches that begin with all objects. Events have to be told apart.
				r.Out.Header.Del("Accept-Encoding")
			}
		},
		Transport:      p.transport,
		FlushInterval:  -1, // at once
		ErrorLog:       log.New(io.Discard, "", 0),
		ModifyResponse: p.answered,
		// A server that is not there has no answer.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// Kubeconfig returns the path of a kubeconfig that leads through the proxy, as the same user.
func (p *Proxy) Kubeconfig() string { return p.kubeconfig }

// Close ends all connections and returns when nothing of the proxy runs any more.
func (p *Proxy) Close() error {
	var err error
	p.close.Do(func() {
		p.mu.Lock()
		p.closing = true
		p.mu.Unlock()
		p.Heal()
		close(p.ending)
		err = p.server.Close()
		p.serving.Wait()
		p.transport.CloseIdleConnections()
	})
	return err
}

// Counts returns how many requests, watches and connections have met each kind of fault.
func (p *Proxy) Counts() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Await returns when the condition holds, or with the error of ctx. The condition is asked again whenever
// something changes that the proxy can tell: a fault, a watch or a connection that begins or ends.
func (p *Proxy) Await(ctx context.Context, condition func() bool) error {
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wake has everybody in Await ask again. The mutex is held.
func (p *Proxy) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// course is what was decided about a request for the time when it is answered.
type course struct {
	request Request
	conn    *conn
	// What is to happen to the answer.
	delays []time.Duration // DelayAnswer
	end    Kind            // ResetAfter or BreakAfter; empty: the client gets it
}

type courseKey struct{}
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c.(*tls.Conn).NetConn())
}

// serve has the rules decide about a request, and passes it on if they let it.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	q, err := describe(r)
	c := &course{request: q, conn: r.Context().Value(connKey{}).(*conn)}
	if err != nil || !p.begin(c) {
		panic(http.ErrAbortHandler)
	}
	defer p.serving.Done()
	for id := 0; ; {
		i := p.next(id, c.request)
		if i == nil {
			break
		}
		id = i.id
		if goesOn := p.apply(w, r, c, i); !goesOn {
			return
		}
	}
	p.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), courseKey{}, c)))
}

// begin reports whether a request may begin, and takes note of it.
func (p *Proxy) begin(c *course) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return false
	}
	p.serving.Add(1)
	c.conn.carried[c.request.Resource] = true
	return true
}

// apply does to a request what is to be done before the server hears of it. It returns false if that is the end of it.
func (p *Proxy) apply(w http.ResponseWriter, r *http.Request, c *course, i *Injection) (goesOn bool) {
	switch f := i.rule.Fault; f.Kind {
	case Pass:
	case Hold:
		i.hold(r.Context())
	case Delay:
		p.delay(r.Context(), f.For)
	case DelayAnswer:
		c.delays = append(c.delays, f.For)
	case ResetAfter, BreakAfter:
		c.end = f.Kind
	case ResetBefore:
		panic(http.ErrAbortHandler)
	case BreakBefore:
		_ = c.conn.reset() // fails if the client has gone
		panic(http.ErrAbortHandler)
	default:
		answer(w, r, f)
		return false
	}
	return true
}

// answered has the rules decide about an answer of the server. The client gets none if it returns an error.
func (p *Proxy) answered(resp *http.Response) error {
	ctx := resp.Request.Context()
	c := ctx.Value(courseKey{}).(*course)
	if c.request.Verb == "watch" && resp.StatusCode == http.StatusOK {
		p.follow(c.request, resp)
	}
	for _, d := range c.delays {
		p.delay(ctx, d)
	}
	if c.end == "" {
		return nil
	}
	if c.request.Verb != "watch" {
		// The server has done with it when the answer is whole.
		_, _ = io.Copy(io.Discard, resp.Body) // fails if the server has gone: no answer either
	}
	if c.end == BreakAfter {
		_ = c.conn.reset() // fails if the client has gone
	}
	return errCut
}

// wait returns when released is closed. It ends the request if the client gives up before, or the proxy is closed.
func (p *Proxy) wait(ctx context.Context, released <-chan struct{}) {
	select {
	case <-released:
		return
	case <-ctx.Done():
	case <-p.ending:
	}
	panic(http.ErrAbortHandler)
}

// delay is wait for a time.
func (p *Proxy) delay(ctx context.Context, d time.Duration) {
	released := make(chan struct{})
	defer time.AfterFunc(d, func() { close(released) }).Stop()
	p.wait(ctx, released)
}
