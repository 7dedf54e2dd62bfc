// Package faultproxy stands between a client and the API server and does, on demand, what networks, load balancers
// and API servers do to clients on bad days.
//
// Without a fault it passes on everything as it is, the bearer token included: the API server knows the client and
// not the proxy. Three things can be made to fail: requests, by rules ([Proxy.Inject]); running watches in protobuf
// ([Proxy.EndWatches] and its like); and connections ([Proxy.BreakConnections], [Proxy.LoseConnections],
// [Proxy.Silence]).
package faultproxy

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
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

// Proxy is a running proxy. Its methods may be called concurrently.
type Proxy struct {
	kubeconfig string
	server     *httptest.Server
	forward    *httputil.ReverseProxy
	closed     chan struct{}

	mu         sync.Mutex
	injections []*Injection
	watches    map[*io.PipeWriter]string // the resources of the answers to running watches
	conns      map[*conn]bool            // the open connections
	accepted   int
	silence    chan struct{} // closed when it is over; nil: there is none
}

// Start starts a proxy that passes on everything. Its caller closes it. The kubeconfig says where the API server is,
// and has the token of the client: a certificate cannot be passed on. The one for the way through the proxy is written
// into the folder.
func Start(kubeconfig, folder string) (*Proxy, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig for the proxy: %w", err)
	}
	server, invalid := url.Parse(config.Host)
	trust, err := rest.TLSConfigFor(config)
	if err := errors.Join(invalid, err); err != nil {
		return nil, fmt.Errorf("find the way to the API server: %w", err)
	}
	p := &Proxy{closed: make(chan struct{}), watches: map[*io.PipeWriter]string{}, conns: map[*conn]bool{}}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) },
		// It does not decode what it passes on.
		Transport:     &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true, DisableCompression: true},
		FlushInterval: -1,                         // at once
		ErrorLog:      log.New(io.Discard, "", 0), // it would complain of the faults
		// A server that is not there has no answer.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.server.EnableHTTP2 = true
	p.server.Listener = &listener{p.server.Listener, p}
	p.server.Config.ErrorLog = p.forward.ErrorLog
	p.server.StartTLS()
	config.Host = p.server.URL
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	p.kubeconfig = filepath.Join(folder, fmt.Sprintf("faultproxy-%d.yaml", p.server.Listener.Addr().(*net.TCPAddr).Port))
	if err := cluster.WriteKubeconfig(p.kubeconfig, "proxied", config); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Kubeconfig returns the path of a kubeconfig that leads through the proxy, as the same user.
func (p *Proxy) Kubeconfig() string { return p.kubeconfig }

// Close ends all connections.
func (p *Proxy) Close() error {
	p.Heal()
	close(p.closed)
	defer p.forward.Transport.(*http.Transport).CloseIdleConnections()
	return p.server.Config.Close()
}

func (p *Proxy) locked(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

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
	var after []Rule // happen to the answer
	var injections []*Injection
	p.locked(func() { injections = slices.Clone(p.injections) })
	for _, i := range injections {
		if !i.fires(q) {
			continue
		}
		switch f := i.rule; f.Kind {
		case Hold:
			i.hold(r.Context())
		case Delay:
			wait(r.Context(), time.After(f.For))
		case PlainWatch:
			makePlain(r)
		case DelayAnswer, ResetAfter:
			after = append(after, f)
		case ResetBefore:
			panic(http.ErrAbortHandler)
		default:
			answer(w, r, f)
			return
		}
	}
	forward := *p.forward
	forward.ModifyResponse = func(resp *http.Response) error {
		for _, f := range after {
			if f.Kind == DelayAnswer {
				wait(r.Context(), time.After(f.For))
				continue
			}
			if q.Verb != "watch" {
				_, _ = io.Copy(io.Discard, resp.Body) // when it is whole, the server has carried out the request
			}
			return errCut
		}
		if q.Verb == "watch" {
			p.follow(q.Resource, resp)
		}
		return nil
	}
	forward.ServeHTTP(w, r)
}

// follow makes the body of an answer to a watch one that can be ended on demand.
func (p *Proxy) follow(resource string, resp *http.Response) {
	body := resp.Body
	passed, out := io.Pipe()
	resp.Body = passed
	p.locked(func() { p.watches[out] = resource })
	go func() {
		_, err := io.Copy(out, body)
		_ = errors.Join(out.CloseWithError(err), body.Close()) // fails if the client has gone
		p.locked(func() { delete(p.watches, out) })
	}()
}

// EndWatches ends running watches, as the API server does when their time is over. No resources means all. Each has
// shown whole events, unless one is on its way in this moment: then the client sees a part of it.
func (p *Proxy) EndWatches(resources ...string) {
	p.locked(func() {
		for out, resource := range p.watches {
			if len(resources) == 0 || slices.Contains(resources, resource) {
				_ = out.Close() // never fails
			}
		}
	})
}

// makePlain takes from a watch all that has it begin with what there is.
func makePlain(r *http.Request) {
	query := r.URL.Query()
	if !query.Has("sendInitialEvents") {
		return
	}
	for _, key := range []string{"sendInitialEvents", "resourceVersionMatch", "resourceVersion", "allowWatchBookmarks"} {
		query.Del(key)
	}
	r.URL.RawQuery = query.Encode()
}

// hold keeps a request back until the injection is stopped.
func (i *Injection) hold(ctx context.Context) {
	i.proxy.locked(func() { i.held++ })
	defer i.proxy.locked(func() { i.held-- })
	wait(ctx, i.stopped)
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

const message = "a fault of the test"

// answers are what the proxy answers in place of the API server.
var answers = map[Kind]*apierrors.StatusError{
	TooManyRequests: apierrors.NewTooManyRequestsError(message),
	InternalError:   apierrors.NewInternalError(errors.New(message)),
	Unavailable:     apierrors.NewServiceUnavailable(message),
	Conflict:        apierrors.NewConflict(schema.GroupResource{}, "", errors.New(message)),
	Gone:            apierrors.NewResourceExpired(message),
	Unauthorized:    apierrors.NewUnauthorized(message),
	Forbidden:       apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(message)),
}

// pages are the codes with which a page comes.
var pages = map[Kind]int{BadGateway: http.StatusBadGateway, GatewayTimeout: http.StatusGatewayTimeout}

// answer answers a request with a fault. Clients go by the type of the answer, whichever they have asked for.
func answer(w http.ResponseWriter, r *http.Request, f Rule) {
	// The API server reads a request before it answers.
	_, _ = io.Copy(io.Discard, r.Body) // fails if the client has gone, as the answer will
	if code := pages[f.Kind]; code != 0 {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<html><body>\n<h1>"+http.StatusText(code)+"</h1>\n</body></html>\n")
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	if (f.Kind == TooManyRequests || f.Kind == Unavailable) && f.For > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.For.Seconds()))))
	}
	status := answers[f.Kind].Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}
