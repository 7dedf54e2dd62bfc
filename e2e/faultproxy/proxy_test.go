package faultproxy

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// server is an API server that answers each create, and whose watches show a ConfigMap for each event.
type server struct {
	creates atomic.Int32
	events  chan struct{}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		s.creates.Add(1)
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
		return
	}
	w.Header().Set("Content-Type", watchInProtobuf)
	for {
		w.(http.Flusher).Flush()
		select {
		case <-s.events:
			_ = encode(w, watch.Added, configMap)
		case <-r.Context().Done():
			return
		}
	}
}

var configMap = &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}}

// start starts a proxy in front of a new server.
func start(t *testing.T) (*Proxy, *server) {
	t.Helper()
	s := &server{events: make(chan struct{})}
	listening := httptest.NewUnstartedServer(s)
	listening.EnableHTTP2 = true
	listening.StartTLS()
	t.Cleanup(listening.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: listening.Certificate().Raw})
	config := &rest.Config{Host: listening.URL, TLSClientConfig: rest.TLSClientConfig{CAData: authority}}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err := cluster.WriteKubeconfig(file, "user", config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(file, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p, s
}

// client is a client of its own connections that goes through the proxy.
type client struct {
	corev1client.ConfigMapInterface
}

func newClient(t *testing.T, p *Proxy) client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	// Clients of equal configuration share their connections, unless they dial in a way of their own.
	config.Proxy = http.ProxyFromEnvironment
	return client{kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("a")}
}

func (c client) create(ctx context.Context) error {
	_, err := c.Create(ctx, configMap.DeepCopy(), metav1.CreateOptions{})
	return err
}

func (c client) watch(t *testing.T) <-chan watch.Event {
	t.Helper()
	w, err := c.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w.ResultChan()
}

func gotNoAnswer(err error) bool {
	return err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
}

// TestFaultsOfRequests has a create meet each fault once.
func TestFaultsOfRequests(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Kind]struct {
		is      func(error) bool
		reached int32 // requests that the server has seen
	}{
		TooManyRequests: {apierrors.IsTooManyRequests, 0},
		InternalError:   {apierrors.IsInternalError, 0},
		Unavailable:     {apierrors.IsServiceUnavailable, 0},
		Conflict:        {apierrors.IsConflict, 0},
		Gone:            {apierrors.IsResourceExpired, 0},
		ResetBefore:     {gotNoAnswer, 0},
		ResetAfter:      {gotNoAnswer, 1},
	} {
		p, s := start(t)
		c := newClient(t, p)
		injected := p.Inject(Rule{Count: 1, Fault: Fault{Kind: kind}})
		if err := c.create(t.Context()); !want.is(err) {
			t.Errorf("%s: %v", kind, err)
		}
		if n := s.creates.Load(); n != want.reached || injected.Fired() != 1 {
			t.Errorf("%s: %d requests reached the server, want %d; fired %d", kind, n, want.reached, injected.Fired())
		}
		if err := c.create(t.Context()); err != nil {
			t.Errorf("%s: afterwards: %v", kind, err)
		}
	}
}

// TestEndsOfWatches ends other watches, and then one that has shown an event. Without the error of an expired watch, and
// without plain ones, TestC79RelistThatNeverEnds waits in vain.
func TestEndsOfWatches(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	events := newClient(t, p).watch(t)
	for _, ended := range []string{"secrets", "configmaps"} {
		s.events <- struct{}{}
		if e := <-events; e.Type != watch.Added {
			t.Errorf("got %v before the end of watches of %s", e, ended)
		}
		p.EndWatches(ended)
	}
	if e := <-events; e.Type != "" {
		t.Errorf("got %v at the end", e)
	}
}

// TestLostConnectionsAreSilentForEver has no twin about Silence: without that TestC35CutOff waits in vain.
func TestLostConnectionsAreSilentForEver(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	old := newClient(t, p)
	events := old.watch(t)
	p.LoseConnections()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { failed <- old.create(ctx) }()
	s.events <- struct{}{}
	if err := newClient(t, p).create(t.Context()); err != nil {
		t.Errorf("on a new connection: %v", err)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || len(events) > 0 || s.creates.Load() != 1 {
		t.Errorf("on the lost connection: %v, %d requests reached the server", err, s.creates.Load())
	}
}
