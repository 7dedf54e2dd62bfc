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

// apiServer is an API server with one source and one target namespace, of which nothing changes; and perhaps one that
// makes no sense, so that there is nothing to do but to say so. A write waits until the test calls answer.
type apiServer struct {
	*httptest.Server
	gets   chan *http.Request
	writes chan *http.Request
	held   chan struct{}
	events chan struct{} // what a write of an event waits for; usually held
	frozen bool          // there is the source that makes no sense

	leaseLock sync.Mutex
	lease     []byte
	taken     bool // the lease is another's
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{
		gets:   make(chan *http.Request, 100),
		writes: make(chan *http.Request, 100),
		held:   make(chan struct{}),
	}
	s.events = s.held
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
		fmt.Fprintf(w, `{"apiVersion": "v1", "kind": %q, "metadata": {"resourceVersion": "1"}, "items": [{"metadata": %s}]}`,
			kind, strings.Join(items, `}, {"metadata": `))
	}
	switch {
	case r.URL.Query().Has("sendInitialEvents"): // a list is easier to imitate than the stream that can replace it
		http.Error(w, "no streams", http.StatusBadRequest)
	case r.Method == http.MethodGet && r.URL.Query().Has("watch"):
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/configmaps":
		s.gets <- r
		sources := []string{`{"name": "settings", "namespace": "shared", "uid": "1", "resourceVersion": "1", "labels": {"mirror": "true"}}`}
		if s.frozen {
			sources = append(sources, `{"name": "frozen", "namespace": "shared", "uid": "3", "resourceVersion": "1",
				"labels": {"mirror": "true"}, "annotations": {"`+plan.PrefixAnnotation+`": ""}}`)
		}
		list("ConfigMapList", sources...)
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces":
		list("NamespaceList", `{"name": "team-a", "uid": "2", "resourceVersion": "1"}`)
	case strings.Contains(r.URL.Path, "/leases"):
		s.serveLease(w, r)
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		s.writes <- r
		held := s.held
		if strings.HasSuffix(r.URL.Path, "/events") {
			held = s.events
		}
		select {
		case <-held:
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

// serveLease keeps the one lease that there is as it was last written, until it is another's.
func (s *apiServer) serveLease(w http.ResponseWriter, r *http.Request) {
	s.leaseLock.Lock()
	defer s.leaseLock.Unlock()
	if s.taken {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "another", "leaseDurationSeconds": 15}}`)
		} else {
			http.Error(w, `{"kind": "Status", "apiVersion": "v1", "code": 409, "reason": "Conflict"}`, http.StatusConflict)
		}
		return
	}
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

// takeLease makes the lease another's.
func (s *apiServer) takeLease() {
	s.leaseLock.Lock()
	defer s.leaseLock.Unlock()
	s.taken = true
}
