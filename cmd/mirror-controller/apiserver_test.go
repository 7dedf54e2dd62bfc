package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// apiServer is an API server with one target namespace, one source, and one that makes no sense, so that there is
// nothing to do but to say so. A write of that is never answered.
type apiServer struct {
	*httptest.Server
	writes chan struct{}
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{writes: make(chan struct{}, 100)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	list := func(kind string, items ...string) {
		const form = `{"apiVersion": "v1", "kind": %q, "metadata": {"resourceVersion": "1"}, "items": [{"metadata": %s}]}`
		fmt.Fprintf(w, form, kind, strings.Join(items, `}, {"metadata": `))
	}
	switch {
	case r.URL.Query().Has("sendInitialEvents"): // a list is easier to imitate than the stream that can replace it
		http.Error(w, "no streams", http.StatusBadRequest)
	case r.Method == http.MethodGet && r.URL.Query().Has("watch"):
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/configmaps":
		const about = `"namespace": "shared", "resourceVersion": "1", "labels": {"mirror": "true"}`
		list("ConfigMapList", `{"name": "settings", "uid": "1", `+about+`}`,
			`{"name": "frozen", "uid": "3", `+about+`, "annotations": {"`+plan.PrefixAnnotation+`": ""}}`)
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces":
		list("NamespaceList", `{"name": "team-a", "uid": "2", "resourceVersion": "1"}`)
	case r.Method == http.MethodGet: // also the lease, which nobody has
		http.Error(w, `{"kind": "Status", "apiVersion": "v1", "code": 404, "reason": "NotFound"}`, http.StatusNotFound)
	case !strings.Contains(r.URL.Path, "/leases"):
		_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection does not end the context
		s.writes <- struct{}{}
		<-r.Context().Done()
	default: // the lease as it came is the answer: protobuf, as it was sent
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
	}
}
