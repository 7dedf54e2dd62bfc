package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/tools/leaderelection"
)

// ask returns the answer of a handler.
func ask(t *testing.T, handler http.Handler, path string) (code int, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// TestReadiness: a process is ready while its caches are full and it is not stopping. It is alive all the time.
// Case C37.
func TestReadiness(t *testing.T) {
	full := false
	ctx, stop := context.WithCancel(t.Context())
	handler := healthHandler(ctx, leaderelection.NewLeaderHealthzAdaptor(stuckTolerance), func() bool { return full })
	expect := func(when string, ready int, check string) {
		t.Helper()
		if code, text := ask(t, handler, "/readyz?verbose"); code != ready || !strings.Contains(text, check) {
			t.Errorf("%s: /readyz: %d, want %d and %q in\n%s", when, code, ready, check, text)
		}
		for _, path := range []string{"/healthz", "/livez"} {
			if code, text := ask(t, handler, path+"?verbose"); code != 200 || !strings.Contains(text, "[+]leaderElection ok") {
				t.Errorf("%s: %s: %d\n%s", when, path, code, text)
			}
		}
	}
	expect("at first", 500, "[-]caches ")
	full = true
	expect("caches full", 200, "[+]caches ok")
	stop()
	expect("stopping", 500, "[-]shutdown ")
}

// TestServe: the address 0 serves nothing, and one that is taken ends the process. e2e/contract.TestSignals has one
// that serves.
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
