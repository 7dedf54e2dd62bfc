// Package faultproxy stands between a client and the API server and does, on demand, what networks, load balancers
// and API servers do to clients on bad days.
//
// Without a fault it passes on everything as it is, the bearer token included: the API server knows the client and
// not the proxy. Three things can be made to fail: requests, by rules ([Proxy.Inject]); running watches in protobuf
// ([Proxy.EndWatches] and its like); and connections ([Proxy.BreakConnections], [Proxy.LoseConnections],
// [Proxy.Silence]). Only faults that are delays wait by the clock: a test that has to know that something has come to
// pass asks [Proxy.Await].
package faultproxy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// Options say what the proxy stands in front of.
type Options struct {
	// Kubeconfig says where the API server is, and has the token of the client: a certificate cannot be passed on.
	Kubeconfig string
	// Dir is an existing folder, in which the kubeconfig for the way through the proxy is written.
	Dir string
}

// Proxy is a running proxy. Its methods may be called concurrently.
type Proxy struct {
	kubeconfig string
	server     *httptest.Server
	forward    *httputil.ReverseProxy

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced at each change
	random     *rand.Rand    // decides whether a rule with a probability fires: the same in each run
	injections []*Injection
	counts     map[Kind]int
	watches    map[*stream]bool
	conns      map[*conn]bool // the open connections
	accepted   int
	silence    chan struct{} // closed when it is over; nil: there is none
}

// Start starts a proxy that passes on everything. Its caller closes it.
func Start(o Options) (*Proxy, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig for the proxy: %w", err)
	}
	p := &Proxy{
		changed: make(chan struct{}), random: rand.New(rand.NewPCG(1, 2)),
		counts: map[Kind]int{}, watches: map[*stream]bool{}, conns: map[*conn]bool{},
	}
	if p.forward, err = newForward(config); err != nil {
		return nil, fmt.Errorf("find the way to the API server: %w", err)
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.server.EnableHTTP2 = true
	p.server.Listener = &listener{p.server.Listener, p}
	p.server.Config.ErrorLog = p.forward.ErrorLog
	p.server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c.(*tls.Conn).NetConn())
	}
	p.server.StartTLS()
	config.Host = p.server.URL
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	p.kubeconfig = filepath.Join(o.Dir, fmt.Sprintf("faultproxy-%d.yaml", p.server.Listener.Addr().(*net.TCPAddr).Port))
	if err := cluster.WriteKubeconfig(p.kubeconfig, "proxied", config); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// newForward returns the way to the API server, which does not decode what it passes on.
func newForward(config *rest.Config) (*httputil.ReverseProxy, error) {
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	trust, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.Out.Header.Del("Accept-Encoding") // the events of a packed watch cannot be told apart
		},
		Transport:     &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true, DisableCompression: true},
		FlushInterval: -1,                         // at once
		ErrorLog:      log.New(io.Discard, "", 0), // it would complain of the faults
		// A server that is not there has no answer.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}

// Kubeconfig returns the path of a kubeconfig that leads through the proxy, as the same user.
func (p *Proxy) Kubeconfig() string { return p.kubeconfig }

// Close ends all connections.
func (p *Proxy) Close() error {
	p.Heal()
	defer p.forward.Transport.(*http.Transport).CloseIdleConnections()
	return p.server.Config.Close()
}

// Counts returns how many requests have met each kind of fault.
func (p *Proxy) Counts() (counts map[Kind]int) {
	p.locked(func() { counts = maps.Clone(p.counts) })
	return counts
}

// Await returns when the condition holds, or with the error of ctx. The condition is asked again whenever
// something changes that the proxy can tell: a fault, a watch or a connection that begins or ends.
func (p *Proxy) Await(ctx context.Context, condition func() bool) error {
	for {
		var changed chan struct{}
		p.locked(func() { changed = p.changed })
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

func (p *Proxy) locked(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

// change does something, locked, and has each Await ask again.
func (p *Proxy) change(do func()) {
	p.locked(func() {
		do()
		close(p.changed)
		p.changed = make(chan struct{})
	})
}

// exchange is a request on its way, and what is to happen to its answer.
type exchange struct {
	*Request
	conn  *conn
	after []Fault
}

// connKey is that of a request's connection in its context.
type connKey struct{}

// requests reads requests as the API server does.
var requests = request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// serve has the rules decide about a request, and passes it on if they let it.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	q, err := requests.NewRequestInfo(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	x := &exchange{Request: q, conn: r.Context().Value(connKey{}).(*conn)}
	p.locked(func() { x.conn.carried.Insert(q.Resource) })
	for _, i := range p.atWork() {
		if i.fires(q) && !i.act(w, r, x) {
			return
		}
	}
	forward := *p.forward
	forward.ModifyResponse = func(resp *http.Response) error { return p.answered(x, resp) }
	forward.ServeHTTP(w, r)
}

// act does to a request what is to be done before the server hears of it. It returns false if that answers the request.
func (i *Injection) act(w http.ResponseWriter, r *http.Request, x *exchange) (goesOn bool) {
	switch f := i.rule.Fault; f.Kind {
	case Hold:
		i.proxy.change(func() { i.held++ })
		defer i.proxy.change(func() { i.held-- })
		wait(r.Context(), i.stopped)
	case Delay:
		wait(r.Context(), time.After(f.For))
	case DelayAnswer, ResetAfter, BreakAfter:
		x.after = append(x.after, f)
	case BreakBefore:
		_ = x.conn.reset() // fails if the client has gone
		panic(http.ErrAbortHandler)
	case ResetBefore:
		panic(http.ErrAbortHandler)
	default:
		answer(w, r, f)
		return false
	}
	return true
}

// wait returns with the first value from the channel, or when that is closed. It ends the request if the client gives
// up before.
func wait[T any](ctx context.Context, released <-chan T) {
	select {
	case <-released:
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

// errCut ends an answer in a way that the client sees as a reset.
var errCut = errors.New("cut by a fault of the test")

// answered does to an answer of the server what the rules have decided. The client gets none if it returns an error.
func (p *Proxy) answered(x *exchange, resp *http.Response) error {
	for _, f := range x.after {
		if f.Kind == DelayAnswer {
			wait(resp.Request.Context(), time.After(f.For))
			continue
		}
		if x.Verb != "watch" {
			_, _ = io.Copy(io.Discard, resp.Body) // when it is whole, the server has carried out the request
		}
		if f.Kind == BreakAfter {
			_ = x.conn.reset() // fails if the client has gone
		}
		return errCut
	}
	if resp.Header.Get("Content-Type") == watchInProtobuf {
		p.follow(x.Resource, resp)
	}
	return nil
}

const message = "a fault of the test"

// answers are what the proxy answers in place of the API server.
var answers = map[Kind]*apierrors.StatusError{
	TooManyRequests: apierrors.NewTooManyRequestsError(message),
	InternalError:   apierrors.NewInternalError(errors.New(message)),
	Unavailable:     apierrors.NewServiceUnavailable(message),
	Conflict:        apierrors.NewConflict(schema.GroupResource{}, "", errors.New(message)),
	Gone:            apierrors.NewResourceExpired(message),
}

// statusOf returns an answer as clients read it.
func statusOf(k Kind) *metav1.Status {
	status := answers[k].Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}

// answer answers a request with a fault. Clients go by the type of the answer, whichever they have asked for.
func answer(w http.ResponseWriter, r *http.Request, f Fault) {
	// The API server reads a request before it answers.
	_, _ = io.Copy(io.Discard, r.Body) // fails if the client has gone, as the answer will
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	if (f.Kind == TooManyRequests || f.Kind == Unavailable) && f.For > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.For.Seconds()))))
	}
	status := statusOf(f.Kind)
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}
