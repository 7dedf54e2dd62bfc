package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// apiServer is an API server with one target namespace, one source, and one that makes no sense, so that there is
// nothing to do but to say so. A write waits until the test calls answer.
type apiServer struct {
	*httptest.Server
	writes chan *http.Request
	held   chan struct{}

	leaseLock sync.Mutex
	lease     []byte
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{
		writes: make(chan *http.Request, 100),
		held:   make(chan struct{}),
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *apiServer) answer() { close(s.held) }

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
	case strings.Contains(r.URL.Path, "/leases"):
		s.serveLease(w, r)
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		s.writes <- r
		select {
		case <-s.held:
		case <-r.Context().Done():
		}
		// The object as it came is the answer: protobuf, as it was sent.
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusCreated)
		w.Write(body)
	default:
		http.Error(w, `{"kind": "Status", "apiVersion": "v1", "code": 404, "reason": "NotFound"}`, http.StatusNotFound)
	}
}

// serveLease keeps the one lease that there is as it was last written.
func (s *apiServer) serveLease(w http.ResponseWriter, r *http.Request) {
	s.leaseLock.Lock()
	defer s.leaseLock.Unlock()
	if r.Method != http.MethodGet {
		s.lease, _ = io.ReadAll(r.Body)
	}
	if s.lease == nil {
		http.Error(w, `{"kind": "Status", "apiVersion": "v1", "code": 404, "reason": "NotFound"}`, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	w.Write(s.lease)
}
