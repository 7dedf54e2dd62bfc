package faultproxy

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// patience tells slow from never.
const patience = 5 * time.Minute

var encodings = []string{kruntime.ContentTypeProtobuf, kruntime.ContentTypeJSON}

// server is an API server that has one ConfigMap, and says what was asked of it.
type server struct {
	*httptest.Server
	events chan string // names of ConfigMaps that its watches tell to be added
	pieces chan []byte // bytes that its watches send as they are

	mu       sync.Mutex
	requests []*http.Request
	done     int // requests answered
}

func newServer(t *testing.T) *server {
	s := &server{events: make(chan string), pieces: make(chan []byte)}
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done++
	}()
	info := accepted(r.Header.Get("Accept"))
	if describe(r).Verb == "watch" {
		s.watch(w, r, info)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", info.MediaType)
	_, _ = w.Write(encodeConfigMap(info, "settings"))
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, info kruntime.SerializerInfo) {
	w.Header().Set("Content-Type", info.MediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	for {
		w.(http.Flusher).Flush()
		select {
		case name := <-s.events:
			_, _ = w.Write(addedEvent(info, name))
		case piece := <-s.pieces:
			_, _ = w.Write(piece)
		case <-r.Context().Done():
			return
		}
	}
}

func encodeConfigMap(info kruntime.SerializerInfo, name string) []byte {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Data: map[string]string{"key": "value"}}
	return must(kruntime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), cm))
}

// addedEvent returns the frame of a watch event.
func addedEvent(info kruntime.SerializerInfo, name string) []byte {
	event := &metav1.WatchEvent{Type: string(watch.Added), Object: kruntime.RawExtension{Raw: encodeConfigMap(info, name)}}
	var out bytes.Buffer
	err := info.StreamSerializer.Encode(event, info.StreamSerializer.Framer.NewFrameWriter(&out))
	return must(out.Bytes(), err)
}

// count returns how many requests with the method have reached the server.
func (s *server) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if r.Method == method {
			n++
		}
	}
	return n
}

// kubeconfig writes a file that leads to the server, for a user with the token.
func (s *server) kubeconfig(t *testing.T, token string) string {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: s.URL, CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token}},
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
	p, err := Start(Options{Kubeconfig: s.kubeconfig(t, "secret"), Dir: t.TempDir()})
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
func client(t *testing.T, p *Proxy, contentType string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.UserAgent = "tester"
	config.ContentType, config.AcceptContentTypes = contentType, contentType
	// Clients of equal configuration share their connections, unless they dial in a way of their own.
	config.Proxy = http.ProxyFromEnvironment
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func create(ctx context.Context, c kubernetes.Interface) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
	_, err := c.CoreV1().ConfigMaps("a").Create(ctx, cm, metav1.CreateOptions{})
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

// awaitIdle waits until the server has no request to deal with.
func (s *server) awaitIdle(t *testing.T) {
	t.Helper()
	deadline := time.After(patience)
	for tick := time.Tick(time.Millisecond); ; {
		s.mu.Lock()
		running := len(s.requests) - s.done
		s.mu.Unlock()
		if running == 0 {
			return
		}
		select {
		case <-tick:
		case <-deadline:
			t.Fatalf("%d requests still run at the server", running)
		}
	}
}

func TestPassesOn(t *testing.T) {
	t.Parallel()
	for _, contentType := range encodings {
		p, s := start(t)
		c := client(t, p, contentType)
		cm, err := c.CoreV1().ConfigMaps("a").Get(t.Context(), "settings", metav1.GetOptions{ResourceVersion: "7"})
		if err != nil || cm.Data["key"] != "value" {
			t.Fatalf("got %v, %v", cm, err)
		}
		r := s.requests[0]
		got := []string{r.URL.String(), r.Header.Get("Authorization"), r.UserAgent(), r.Header.Get("Accept")}
		want := []string{"/api/v1/namespaces/a/configmaps/settings?resourceVersion=7", "Bearer secret", "tester", contentType}
		if !slices.Equal(got, want) {
			t.Errorf("%q reached the server, want %q", got, want)
		}
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
		for _, contentType := range encodings {
			p, s := start(t)
			c := client(t, p, contentType)
			i := p.Inject(Rule{Count: 1, Fault: Fault{Kind: kind}})
			if err := create(t.Context(), c); !want.is(err) {
				t.Errorf("%s in %s: %v", kind, contentType, err)
			}
			if n := s.count("POST"); n != want.reached || i.Fired() != 1 || p.Counts()[kind] != 1 {
				t.Errorf("%s: %d requests reached the server, want %d; fired %d times, counted %d",
					kind, n, want.reached, i.Fired(), p.Counts()[kind])
			}
			if err := create(t.Context(), c); err != nil {
				t.Errorf("%s: afterwards: %v", kind, err)
			}
			if _, ever := p.Connections(); ever != want.connections {
				t.Errorf("%s: %d connections, want %d", kind, ever, want.connections)
			}
		}
	}
}

// TestRetryAfter shows that a client of Kubernetes obeys, and asks again.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	p.Inject(Rule{Count: 1, Fault: Fault{Kind: TooManyRequests, For: time.Millisecond}})
	if err := create(t.Context(), client(t, p, encodings[0])); err != nil || s.count("POST") != 1 {
		t.Errorf("got %v after %d requests", err, s.count("POST"))
	}
}

// TestDelays has a delay that is longer than the client's patience: whether the server has heard of it is the difference.
func TestDelays(t *testing.T) {
	t.Parallel()
	for kind, reached := range map[Kind]int{Delay: 0, DelayAnswer: 1} {
		p, s := start(t)
		i := p.Inject(Rule{Fault: Fault{Kind: kind, For: time.Hour}})
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() { failed <- create(ctx, client(t, p, encodings[0])) }()
		p.await(t, "the delay", func() bool { return i.Fired() == 1 })
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) || s.count("POST") != reached {
			t.Errorf("%s: got %v, %d requests reached the server, want %d", kind, err, s.count("POST"), reached)
		}
	}
}

// TestHold shows that what is held goes on when it is let go, through the rules behind, also those that were added
// meanwhile.
func TestHold(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	c := client(t, p, encodings[0])
	hold := p.Inject(Rule{Fault: Fault{Kind: Hold}})
	failed := make(chan error)
	go func() { failed <- create(t.Context(), c) }()
	p.await(t, "the hold", func() bool { return hold.Fired() == 1 && hold.Held() == 1 })
	p.Inject(Rule{Count: 1, Fault: Fault{Kind: Conflict}})
	if n := s.count("POST"); n != 0 {
		t.Errorf("%d requests reached the server", n)
	}
	hold.Stop()
	if err := <-failed; !apierrors.IsConflict(err) || hold.Held() != 0 {
		t.Errorf("let go: %v, %d held", err, hold.Held())
	}
}

func TestChoice(t *testing.T) {
	t.Parallel()
	p, _ := start(t)
	c := client(t, p, encodings[0])
	i := p.Inject(Rule{
		Verbs: []string{"create"}, Resources: []string{"configmaps"}, Skip: 2, Count: 2,
		When:  func(q Request) bool { return q.Namespace == "a" && q.UserAgent == "tester" },
		Fault: Fault{Kind: InternalError},
	})
	// The server's answer to the second makes no sense, but that is not what this is about.
	_, _ = c.CoreV1().ConfigMaps("a").Get(t.Context(), "settings", metav1.GetOptions{})
	_, _ = c.CoreV1().Secrets("a").Create(t.Context(), &corev1.Secret{}, metav1.CreateOptions{})
	var got []bool
	for range 6 {
		got = append(got, create(t.Context(), c) == nil)
	}
	if want := []bool{true, true, false, false, true, true}; !slices.Equal(got, want) || i.Fired() != 2 {
		t.Errorf("passed %v, want %v; fired %d times", got, want, i.Fired())
	}
}

// TestSeed shows that a seed decides for each request in the same way in whatever order they come.
func TestSeed(t *testing.T) {
	t.Parallel()
	decisions := func(seed uint64, order []int) string {
		p := &Proxy{rand: rand.New(rand.NewPCG(seed, 0))}
		i := p.Inject(Rule{Probability: 0.3})
		out := bytes.Repeat([]byte("."), 200)
		for _, n := range order {
			if i.choose(Request{Method: "POST", Path: fmt.Sprint(n)}) {
				out[n] = 'x'
			}
		}
		return string(out)
	}
	first, again := decisions(1, rand.Perm(200)), decisions(1, rand.Perm(200))
	if n := strings.Count(first, "x"); n < 40 || n > 80 {
		t.Errorf("fired %d times in 200, want about 60", n)
	}
	if again != first || decisions(2, rand.Perm(200)) == first {
		t.Errorf("another order, other decisions, or another seed, the same:\n%s\n%s", first, again)
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
	for _, contentType := range encodings {
		p, s := start(t)
		c := client(t, p, contentType)
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
				t.Errorf("%s in %s: got %v, %v", tc.kind, contentType, e, more)
			}
			s.awaitIdle(t) // it ends at the server as well
		}
		p.Inject(Rule{Count: 1, Fault: Fault{Kind: Expired}})
		if err := create(t.Context(), c); err != nil {
			t.Errorf("expired, but no watch: %v", err)
		}
		if e, more := newWatch(t, c).next(); !isExpired(e, more) {
			t.Errorf("expired in %s: %v", contentType, e)
		}
		if n := p.Counts()[Outdated]; n != 0 {
			t.Errorf("counted %d of the proxy's own answers as the server's", n)
		}
	}
}

// TestOutdated shows that the answer of the server that a resourceVersion is too old is counted, and other errors are not.
func TestOutdated(t *testing.T) {
	t.Parallel()
	for _, contentType := range encodings {
		p, s := start(t)
		c := client(t, p, contentType)
		info, _ := encoding(contentType)
		for want, kind := range []Kind{InternalError, Gone} {
			w := newWatch(t, c)
			s.pieces <- errorEvent(info, statusOf(kind))
			if e, _ := w.next(); e.Type != watch.Error || p.Counts()[Outdated] != want {
				t.Errorf("%s in %s: got %v, %d counted, want %d", kind, contentType, e, p.Counts()[Outdated], want)
			}
			w.Stop()
			s.awaitIdle(t)
		}
	}
}

// TestFrames shows that the end of an event is found however its bytes are cut into pieces: no event is torn.
func TestFrames(t *testing.T) {
	t.Parallel()
	for delimited, events := range map[bool][]string{
		true:  {"\x00\x00\x00\x03abc", "\x00\x00\x00\x00", "\x00\x00\x01\x00" + strings.Repeat("x", 256)},
		false: {"{}\n", "{\"a\":\"\\n\"}\n"},
	} {
		text, ends := "", map[int]bool{0: true}
		for _, e := range events {
			text += e
			ends[len(text)] = true
		}
		for size := 1; size <= len(text); size++ {
			f, at := frames{delimited: delimited, complete: true}, 0
			for piece := range slices.Chunk([]byte(text), size) {
				f.add(piece)
				if at += len(piece); f.complete != ends[at] {
					t.Fatalf("delimited %v, pieces of %d: complete is %v after %d bytes", delimited, size, f.complete, at)
				}
			}
		}
	}
}

// TestSilence shows that nothing comes through in a silence, and all of it afterwards.
func TestSilence(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	old, fresh := client(t, p, encodings[0]), client(t, p, encodings[0])
	w := newWatch(t, old)
	p.Silence()
	answers := make(chan error, 2)
	for _, c := range []kubernetes.Interface{old, fresh} {
		go func() { answers <- create(t.Context(), c) }()
	}
	p.await(t, "a new connection", func() bool { _, ever := p.Connections(); return ever == 2 })
	s.events <- "meanwhile" // is on its way, and gets no further
	if len(answers)+len(w.ResultChan())+s.count("POST") != 0 {
		t.Error("something came through in the silence")
	}
	p.Heal()
	w.expect("meanwhile")
	if err := errors.Join(<-answers, <-answers); err != nil || p.Counts()[Silenced] != 1 {
		t.Errorf("after the silence: %v, counts %v", err, p.Counts())
	}
}

// TestLostConnections shows that a lost connection is silent for ever.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	old := client(t, p, encodings[0])
	w := newWatch(t, old)
	if n, m := p.LoseConnections("leases"), p.LoseConnections("leases", "configmaps"); n != 0 || m != 1 {
		t.Errorf("lost %d connections that carried nothing of the kind, and %d", n, m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { failed <- create(ctx, old) }()
	s.events <- "unseen"
	if err := create(t.Context(), client(t, p, encodings[0])); err != nil {
		t.Errorf("on a new connection: %v", err)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || len(w.ResultChan()) > 0 || s.count("POST") != 1 {
		t.Errorf("on the lost connection: %v, %d requests reached the server", err, s.count("POST"))
	}
}

func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	p, _ := start(t)
	c := client(t, p, encodings[0])
	w := newWatch(t, c)
	if n, m := p.BreakConnections("leases"), p.BreakConnections("configmaps"); n != 0 || m != 1 {
		t.Errorf("broke %d connections that carried nothing of the kind, and %d", n, m)
	}
	if e, more := w.next(); more {
		t.Errorf("the watch goes on: %v", e)
	}
	if err := create(t.Context(), c); err != nil {
		t.Errorf("on a new connection: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]Request{
		"GET /api/v1/configmaps?watch=true&sendInitialEvents=true": {Verb: "watch", Resource: "configmaps"},
		"GET /api/v1/configmaps?watch=true&limit=5":                {Verb: "watch", Resource: "configmaps"},
		"GET /api/v1/configmaps?watch=false":                       {Verb: "list", Resource: "configmaps"},
		"GET /api/v1/namespaces/a":                                 {Verb: "get", Resource: "namespaces", Name: "a"},
		"PUT /api/v1/namespaces/a/finalize":                        {Verb: "update", Resource: "namespaces", Name: "a", Subresource: "finalize"},
		"POST /api/v1/namespaces/a/configmaps":                     {Verb: "create", Resource: "configmaps", Namespace: "a"},
		"DELETE /api/v1/namespaces/a/configmaps/b":                 {Verb: "delete", Resource: "configmaps", Namespace: "a", Name: "b"},
		"DELETE /api/v1/namespaces/a/configmaps":                   {Verb: "deletecollection", Resource: "configmaps", Namespace: "a"},
		"PATCH /apis/events.k8s.io/v1/namespaces/a/events/b":       {Verb: "patch", APIGroup: "events.k8s.io", Resource: "events", Namespace: "a", Name: "b"},
		"GET /readyz": {Verb: "get"},
	} {
		method, target, _ := strings.Cut(line, " ")
		got := describe(httptest.NewRequest(method, target, nil))
		if got.IsRelist() != (strings.Contains(line, "sendInitialEvents") || want.Verb == "list") {
			t.Errorf("%s: IsRelist is %v", line, got.IsRelist())
		}
		got.Method, got.Path, got.Query, got.UserAgent = "", "", nil, ""
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", line, got, want)
		}
	}
}
