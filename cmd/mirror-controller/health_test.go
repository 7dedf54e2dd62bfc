package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

// ask returns the answer of a handler.
func ask(t *testing.T, handler http.Handler, path string) (code int, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// answerTo has the refusals see an answer of the API server.
func answerTo(r *refusals, method, path string, code int) {
	transport := r.wrap(roundTripper(func(*http.Request) (*http.Response, error) {
		if code == 0 {
			return nil, errors.New("connection refused")
		}
		return &http.Response{StatusCode: code, Status: fmt.Sprint(code, " ", http.StatusText(code)), Body: http.NoBody}, nil
	}))
	_, _ = transport.RoundTrip(httptest.NewRequest(method, path, nil))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

const (
	watchConfigMaps = "/api/v1/configmaps?allowWatchBookmarks=true&labelSelector=x&watch=true"
	listConfigMaps  = "/api/v1/configmaps?labelSelector=x&limit=500"
	watchNamespaces = "/api/v1/namespaces?allowWatchBookmarks=true&watch=true"
	listNamespaces  = "/api/v1/namespaces?limit=500"
	allLeases       = "/apis/coordination.k8s.io/v1/namespaces/mirror-system/leases"
	lease           = allLeases + "/mirror-controller"
)

func TestReadiness(t *testing.T) {
	const get, post, put, remove = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	type answers []struct {
		method, path string
		code         int
	}
	for _, test := range []struct {
		name     string
		unsynced bool
		answers  answers
		want     string // the checks that fail
	}{
		{name: "all is well", answers: answers{{get, watchConfigMaps, 200}, {get, watchNamespaces, 200}}},
		{name: "caches are not full", unsynced: true, want: "caches"},
		{name: "everything refused", answers: answers{{get, watchConfigMaps, 403}, {get, listConfigMaps, 403},
			{get, watchNamespaces, 403}, {get, listNamespaces, 403}},
			want: "list-configmaps watch-configmaps list-namespaces watch-namespaces"},
		{name: "a list does not make a watch",
			answers: answers{{get, watchConfigMaps, 403}, {get, listConfigMaps, 200}}, want: "watch-configmaps"},
		{name: "who watches need not list",
			answers: answers{{get, watchConfigMaps, 403}, {get, listConfigMaps, 403}, {get, watchConfigMaps, 200}}},
		{name: "the API server is away", answers: answers{{get, watchConfigMaps, 200}, {get, watchConfigMaps, 0},
			{get, listConfigMaps, 503}, {get, watchNamespaces, 500}, {get, watchNamespaces, 429}}},
		{name: "behind a gateway",
			answers: answers{{get, "/k8s/clusters/c1" + watchConfigMaps, 403}}, want: "watch-configmaps"},
		{name: "nobody needs these", answers: answers{
			{get, "/api/v1/namespaces/team-a", 403}, {get, "/api/v1/namespaces/team-a/configmaps/settings", 403},
			{get, "/api/v1/namespaces/team-a/configmaps", 403}, {post, "/api/v1/namespaces", 403}, {remove, lease, 403}}},

		{name: "lease refused", answers: answers{{get, lease, 403}}, want: "get-leases"},
		{name: "lease granted, there is none", answers: answers{{get, lease, 403}, {get, lease, 404}}},
		{name: "lease cannot be created or updated",
			answers: answers{{post, allLeases, 403}, {put, lease, 403}, {put, lease, 500}, {get, lease, 500}},
			want:    "create-leases update-leases"},
		{name: "lease updated by another one at the same time",
			answers: answers{{post, allLeases, 403}, {put, lease, 403}, {put, lease, 409}}, want: "create-leases"},
		{name: "lease is there, and expired", answers: answers{{post, allLeases, 403}, {put, lease, 403}, {get, lease, 500},
			{get, lease, 200}, {put, lease, 403}, {get, lease, 500}, {get, lease, 200}}, want: "update-leases"},
		{name: "lease is another's", answers: answers{{put, lease, 403}, {get, lease, 200}, {get, lease, 200}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused := newRefusals()
			watchdog := leaderelection.NewLeaderHealthzAdaptor(stuckTolerance)
			handler := healthHandler(t.Context(), watchdog, func() bool { return !test.unsynced }, refused)
			for _, a := range test.answers {
				answerTo(refused, a.method, a.path, a.code)
			}
			code, text := ask(t, handler, "/readyz?verbose")
			var failed []string
			for line := range strings.Lines(text) {
				if check, ok := strings.CutPrefix(line, "[-]"); ok {
					check, _, _ = strings.Cut(check, " ")
					failed = append(failed, check)
					if code, reason := ask(t, handler, "/readyz/"+check); code != 500 || len(reason) < 30 {
						t.Errorf("/readyz/%s: %d, %s", check, code, reason)
					}
				}
			}
			if got := strings.Join(failed, " "); got != test.want || (code == 200) != (test.want == "") {
				t.Errorf("/readyz: %d, %q, want %q\n%s", code, got, test.want, text)
			}
			for _, path := range []string{"/healthz", "/livez"} {
				if code, text := ask(t, handler, path+"?verbose"); code != 200 || !strings.Contains(text, "[+]leaderElection ok") {
					t.Errorf("%s: %d\n%s", path, code, text)
				}
			}
		})
	}
}

func TestServe(t *testing.T) {
	handler := http.NotFoundHandler()
	stop, err := healthEndpoint("0", handler).serve(t.Context())
	noError(t, err)
	stop()

	held, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	address := held.Addr().String()
	if _, err := healthEndpoint(address, handler).serve(t.Context()); err == nil || !strings.Contains(err.Error(), "serve health: listen tcp "+address) {
		t.Errorf("error %v, want one that names the address", err)
	}
	noError(t, held.Close())
	stop, err = healthEndpoint(address, handler).serve(t.Context())
	noError(t, err)
	if _, err := http.Get("http://" + address); err != nil {
		t.Error(err)
	}
	stop()
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("it still listens")
	}
}

// TestOldestConnectionsAreClosed opens more connections than the health port holds: the first ones are closed, and a probe is
// answered.
func TestOldestConnectionsAreClosed(t *testing.T) {
	held, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	address := held.Addr().String()
	noError(t, held.Close())
	stop, err := healthEndpoint(address, http.NotFoundHandler()).serve(t.Context())
	noError(t, err)
	defer stop()
	var first net.Conn
	for i := range maxOpen + 50 {
		conn, err := net.Dial("tcp", address)
		noError(t, err)
		defer conn.Close()
		if i == 0 {
			first = conn
		}
	}
	answer, err := http.Get("http://" + address)
	noError(t, err)
	noError(t, answer.Body.Close())
	noError(t, first.SetReadDeadline(time.Now().Add(readHeaderTimeout/2))) // before it is closed for its age
	if _, err := first.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("got the oldest connection open, want it closed")
	}
}
