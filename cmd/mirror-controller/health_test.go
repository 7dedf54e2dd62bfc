package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
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
		{name: "all is well", answers: answers{{get, watchConfigMaps, 200}, {get, watchNamespaces, 200}, {get, lease, 404},
			{post, allLeases, 201}, {put, lease, 409}}},
		{name: "caches are not full", unsynced: true, want: "caches"},
		{name: "everything forbidden", answers: answers{{get, watchConfigMaps, 403}, {get, listConfigMaps, 403},
			{get, watchNamespaces, 403}, {get, listNamespaces, 403}, {get, lease, 403}, {post, allLeases,
				403}, {put, lease, 403}},
			want: "list-configmaps watch-configmaps list-namespaces watch-namespaces get-leases create-leases update-leases"},
		{name: "not authenticated", answers: answers{{get, watchConfigMaps, 401}, {put, lease, 401}},
			want: "watch-configmaps update-leases"},
		{name: "an answer in between", answers: answers{{put, lease, 403}, {put, lease, 500}, {get, lease, 200}},
			want: "update-leases"},
		{name: "the API server is away", answers: answers{{get, watchConfigMaps, 200}, {get, watchConfigMaps, 0},
			{get, listConfigMaps, 503}, {get, watchNamespaces, 500}, {get, watchNamespaces, 429}}},
		{name: "behind a gateway",
			answers: answers{{get, "/k8s/clusters/c1" + watchConfigMaps, 403}, {get, "/k8s/clusters/c1" + lease, 403}},
			want:    "watch-configmaps get-leases"},
		{name: "the caches and the lease need no others", answers: answers{
			{get, "/api/v1/namespaces/team-a", 403}, {get, "/api/v1/namespaces/team-a/configmaps/settings", 403},
			{get, "/api/v1/namespaces/team-a/configmaps", 403}, {post, "/api/v1/namespaces/team-a/configmaps",
				403}, {remove, lease, 403}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := &refusals{}
				watchdog := leaderelection.NewLeaderHealthzAdaptor(stuckTolerance)
				handler := healthHandler(t.Context(), watchdog, func() bool { return !test.unsynced }, refused)
				for _, a := range test.answers {
					answerTo(refused, a.method, a.path, a.code)
				}
				expectReadiness(t, handler, test.want)
				for _, path := range []string{"/healthz", "/livez"} {
					if code, text := ask(t, handler, path+"?verbose"); code != 200 || !strings.Contains(text, "[+]leaderElection ok") {
						t.Errorf("%s: %d\n%s", path, code, text)
					}
				}
				if !test.unsynced {
					time.Sleep(90*time.Second - time.Nanosecond)
					expectReadiness(t, handler, test.want)
					time.Sleep(time.Nanosecond)
					expectReadiness(t, handler, "")
				}
			})
		})
	}
}

// expectReadiness fails the test unless exactly these checks of the readiness fail, each with a reason.
func expectReadiness(t *testing.T, handler http.Handler, want string) {
	t.Helper()
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
	if got := strings.Join(failed, " "); got != want || (code == 200) != (want == "") {
		t.Errorf("/readyz: %d, %q, want %q\n%s", code, got, want, text)
	}
}

// TestServe: the address 0 serves nothing, and one that is taken ends the process. e2e/contract.TestSignals has one that serves.
func TestServe(t *testing.T) {
	stop, err := healthEndpoint("0", http.NotFoundHandler()).serve(t.Context())
	noError(t, err)
	stop()
	held, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	defer held.Close()
	address := held.Addr().String()
	_, err = healthEndpoint(address, http.NotFoundHandler()).serve(t.Context())
	if err == nil || !strings.Contains(err.Error(), "serve health: listen tcp "+address) {
		t.Errorf("error %v, want one that names the address", err)
	}
}
