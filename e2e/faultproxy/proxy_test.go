package faultproxy

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// patience tells slow from never.
const patience = 5 * time.Minute

// server is an API server that has one ConfigMap, and says what was asked of it.
type server struct {
	*httptest.Server
	events chan string // names of ConfigMaps that its watches tell to be added

	mu      sync.Mutex
	writes  int
	running sync.WaitGroup
}

func newServer(t *testing.T) *server {
	s := &server{events: make(chan string)}
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.running.Add(1)
	defer s.running.Done()
	if r.Method == http.MethodGet {
		s.watch(w, r)
		return
	}
	s.mu.Lock()
	s.writes++
	s.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", kruntime.ContentTypeProtobuf)
	_, _ = w.Write(encode(named("settings")))
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", streamed)
	w.WriteHeader(http.StatusOK)
	for {
		w.(http.Flusher).Flush()
		select {
		case name := <-s.events:
			_, _ = w.Write(event(watch.Added, named(name)))
		case <-r.Context().Done():
			return
		}
	}
}

func named(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// reached returns how many writes have reached the server.
func (s *server) reached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// kubeconfig writes a file that leads to the server.
func (s *server) kubeconfig(t *testing.T) string {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: s.URL, CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: "secret"}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// start starts a proxy in front of a new server.
func start(t *testing.T) (*Proxy, *server) {
	t.Helper()
	s := newServer(t)
	p, err := Start(Options{Kubeconfig: s.kubeconfig(t), Dir: t.TempDir()})
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

// client returns a client of its own connections that goes through the proxy.
func client(t *testing.T, p *Proxy) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.ContentType, config.AcceptContentTypes = kruntime.ContentTypeProtobuf, kruntime.ContentTypeProtobuf
	// Clients of equal configuration share their connections, unless they dial in a way of their own.
	config.Proxy = http.ProxyFromEnvironment
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func create(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.CoreV1().ConfigMaps("a").Create(ctx, named("settings"), metav1.CreateOptions{})
	return err
}

func (p *Proxy) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Await(ctx, condition); err != nil {
		t.Fatalf("%s: %v; counts %v", what, err, p.Counts())
	}
}

// watching is a watch, and what came of it.
type watching struct {
	t *testing.T
	watch.Interface
}

func newWatch(t *testing.T, c kubernetes.Interface) watching {
	t.Helper()
	w, err := c.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return watching{t, w}
}

// next returns the next event, or false at the end of the watch.
func (w watching) next() (watch.Event, bool) {
	w.t.Helper()
	select {
	case e, more := <-w.ResultChan():
		return e, more
	case <-time.After(patience):
		w.t.Fatal("no event")
		return watch.Event{}, false
	}
}

// expect fails the test if the next event is not that of the ConfigMap.
func (w watching) expect(name string) {
	w.t.Helper()
	e, _ := w.next()
	if cm, ok := e.Object.(*corev1.ConfigMap); !ok || cm.Name != name {
		w.t.Fatalf("got %v, want the ConfigMap %s", e, name)
	}
}

func gotNoAnswer(err error) bool {
	var status apierrors.APIStatus
	return err != nil && !errors.As(err, &status)
}

// TestFaults has a create meet each fault once.
func TestFaults(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Kind]struct {
		is          func(error) bool
		reached     int // requests that the server has seen
		connections int // after the next request
	}{
		TooManyRequests: {apierrors.IsTooManyRequests, 0, 1},
		InternalError:   {apierrors.IsInternalError, 0, 1},
		Unavailable:     {apierrors.IsServiceUnavailable, 0, 1},
		Conflict:        {apierrors.IsConflict, 0, 1},
		Gone:            {apierrors.IsResourceExpired, 0, 1},
		ResetBefore:     {gotNoAnswer, 0, 1},
		ResetAfter:      {gotNoAnswer, 1, 1},
		BreakBefore:     {gotNoAnswer, 0, 2},
		BreakAfter:      {gotNoAnswer, 1, 2},
	} {
		p, s := start(t)
		c := client(t, p)
		p.Inject(Rule{Count: 1, Fault: Fault{Kind: kind}})
		if err := create(t.Context(), c); !want.is(err) {
			t.Errorf("%s: %v", kind, err)
		}
		if n := s.reached(); n != want.reached || p.Counts()[kind] != 1 {
			t.Errorf("%s: %d requests reached the server, want %d; counted %d", kind, n, want.reached, p.Counts()[kind])
		}
		if err := create(t.Context(), c); err != nil {
			t.Errorf("%s: afterwards: %v", kind, err)
		}
		if _, ever := p.Connections(); ever != want.connections {
			t.Errorf("%s: %d connections, want %d", kind, ever, want.connections)
		}
	}
}

// TestHold shows that what is held goes on when it is let go, through the rules behind, also those that were added
// meanwhile.
func TestHold(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	c := client(t, p)
	hold := p.Inject(Rule{Fault: Fault{Kind: Hold}})
	failed := make(chan error)
	go func() { failed <- create(t.Context(), c) }()
	p.await(t, "the hold", func() bool { return hold.Fired() == 1 && hold.Held() == 1 })
	p.Inject(Rule{Count: 1, Fault: Fault{Kind: Conflict}})
	if n := s.reached(); n != 0 {
		t.Errorf("%d requests reached the server", n)
	}
	hold.Stop()
	if err := <-failed; !apierrors.IsConflict(err) || hold.Held() != 0 {
		t.Errorf("let go: %v, %d held", err, hold.Held())
	}
}

func TestWatches(t *testing.T) {
	t.Parallel()
	isExpired := func(e watch.Event, _ bool) bool {
		return e.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(e.Object))
	}
	isCut := func(e watch.Event, _ bool) bool {
		return e.Object != nil && apierrors.IsInternalError(apierrors.FromObject(e.Object))
	}
	p, s := start(t)
	c := client(t, p)
	for _, tc := range []struct {
		kind Kind
		end  func(...string) int
		is   func(watch.Event, bool) bool
	}{
		{WatchEnded, p.EndWatches, func(_ watch.Event, more bool) bool { return !more }},
		{WatchCut, p.CutWatches, isCut},
		{WatchExpired, p.ExpireWatches, isExpired},
	} {
		w := newWatch(t, c)
		p.await(t, "a watch", func() bool { return p.Watches() == 1 && p.Watches("configmaps") == 1 })
		s.events <- "first"
		w.expect("first")
		if n, m := tc.end("secrets"), tc.end("configmaps"); n != 0 || m != 1 || p.Counts()[tc.kind] != 1 {
			t.Errorf("%s: ended %d of something else, %d watches, counted %d", tc.kind, n, m, p.Counts()[tc.kind])
		}
		if e, more := w.next(); !tc.is(e, more) {
			t.Errorf("%s: got %v, %v", tc.kind, e, more)
		}
		s.running.Wait() // it ends at the server as well
	}
	p.Inject(Rule{Count: 1, Fault: Fault{Kind: Expired}})
	if err := create(t.Context(), c); err != nil {
		t.Errorf("expired, but no watch: %v", err)
	}
	if e, more := newWatch(t, c).next(); !isExpired(e, more) {
		t.Errorf("expired: %v", e)
	}
}

// TestFrames shows that the end of an event is found however its bytes are cut into pieces: no event is torn.
func TestFrames(t *testing.T) {
	t.Parallel()
	text, ends := "", map[int]bool{0: true}
	for _, e := range []string{"\x00\x00\x00\x03abc", "\x00\x00\x00\x00", "\x00\x00\x01\x00" + strings.Repeat("x", 256)} {
		text += e
		ends[len(text)] = true
	}
	for size := 1; size <= len(text); size++ {
		f, at := frames{}, 0
		for piece := range slices.Chunk([]byte(text), size) {
			f.add(piece)
			if at += len(piece); f.complete() != ends[at] {
				t.Fatalf("pieces of %d: complete is %v after %d bytes", size, f.complete(), at)
			}
		}
	}
}

// TestSilence shows that nothing comes through in a silence, in either direction, and all of it afterwards.
func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Proxy{changed: make(chan struct{}), counts: map[Kind]int{}, conns: map[*conn]bool{}}
		far, near := net.Pipe()
		c := &conn{Conn: near, proxy: p, closed: make(chan struct{})}
		p.Silence()
		var came atomic.Int32
		pass := func(from, to net.Conn) {
			go func() { _, _ = from.Write([]byte("x")) }()
			go func() {
				if n, err := to.Read(make([]byte, 1)); n == 1 && err == nil {
					came.Add(1)
				}
			}()
		}
		pass(far, c)
		pass(c, far)
		synctest.Wait()
		if n := came.Load(); n != 0 {
			t.Errorf("%d came through in the silence", n)
		}
		p.Heal()
		synctest.Wait()
		if n := came.Load(); n != 2 || p.Counts()[Silenced] != 1 {
			t.Errorf("%d came through after the silence, want 2; counts %v", n, p.Counts())
		}
	})
}

// TestLostConnections shows that a lost connection is silent for ever.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	old := client(t, p)
	w := newWatch(t, old)
	if n, m := p.LoseConnections("leases"), p.LoseConnections("leases", "configmaps"); n != 0 || m != 1 {
		t.Errorf("lost %d connections that carried nothing of the kind, and %d", n, m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { failed <- create(ctx, old) }()
	s.events <- "unseen"
	if err := create(t.Context(), client(t, p)); err != nil {
		t.Errorf("on a new connection: %v", err)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || len(w.ResultChan()) > 0 || s.reached() != 1 {
		t.Errorf("on the lost connection: %v, %d requests reached the server", err, s.reached())
	}
}
