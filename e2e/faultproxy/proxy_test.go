package faultproxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
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
	gate   chan bool   // if not nil, a create is answered in two parts: after the first it sends, then it receives

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
	if r.Method == "POST" && s.gate != nil {
		w.WriteHeader(http.StatusCreated)
		w.(http.Flusher).Flush()
		s.gate <- true
		<-s.gate
	}
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

// httpClient returns a plain client that goes through the proxy, and the address to ask.
func httpClient(t *testing.T, p *Proxy) (*http.Client, string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.DisableCompression = true
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return c, config.Host
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
		for what, have := range map[string][2]string{
			"path":          {r.URL.Path, "/api/v1/namespaces/a/configmaps/settings"},
			"query":         {r.URL.RawQuery, "resourceVersion=7"},
			"host":          {"https://" + r.Host, s.URL},
			"token":         {r.Header.Get("Authorization"), "Bearer secret"},
			"user agent":    {r.UserAgent(), "tester"},
			"accept":        {r.Header.Get("Accept"), contentType},
			"encoding":      {r.Header.Get("Accept-Encoding"), "gzip"},
			"forwarded for": {r.Header.Get("X-Forwarded-For"), ""},
			"protocol":      {r.Proto, "HTTP/2.0"},
		} {
			if have[0] != have[1] {
				t.Errorf("%s reached the server as %q, want %q", what, have[0], have[1])
			}
		}
	}
}

// TestPassesOnBytes shows that answers are not decoded on the way, and that the client's side is HTTP/2.
func TestPassesOnBytes(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(bytes.Repeat([]byte("settings"), 1<<15))
	_ = z.Close()
	s := newServer(t)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.Copy(w, r.Body)
	})
	p, err := Start(Options{Kubeconfig: s.kubeconfig(t, "secret"), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, host := httpClient(t, p)
	resp, err := c.Post(host+"/api/v1/namespaces", "application/octet-stream", bytes.NewReader(packed.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, packed.Bytes()) || resp.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%d bytes went up, %d came back, %v, %v", packed.Len(), len(got), err, resp.Header)
	}
	if resp.ProtoMajor != 2 {
		t.Errorf("the proxy speaks %s", resp.Proto)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	checks := map[Kind]func(error) bool{
		TooManyRequests: apierrors.IsTooManyRequests,
		InternalError:   apierrors.IsInternalError,
		Unavailable:     apierrors.IsServiceUnavailable,
		Conflict:        apierrors.IsConflict,
		Gone:            apierrors.IsResourceExpired,
	}
	for _, contentType := range encodings {
		p, s := start(t)
		c := client(t, p, contentType)
		for kind, is := range checks {
			i := p.Inject(Rule{Verbs: []string{"create"}, Fault: Fault{Kind: kind}})
			err := create(t.Context(), c)
			if !is(err) || !strings.Contains(err.Error(), "a fault of the test") {
				t.Errorf("%s in %s: %v", kind, contentType, err)
			}
			if i.Stop(); i.Fired() != 1 || p.Counts()[kind] != 1 {
				t.Errorf("%s fired %d times, counted %d", kind, i.Fired(), p.Counts()[kind])
			}
		}
		if n := s.count("POST"); n != 0 {
			t.Errorf("%d requests reached the server", n)
		}
		if err := create(t.Context(), c); err != nil {
			t.Errorf("after the faults: %v", err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	for _, kind := range []Kind{TooManyRequests, Unavailable} {
		i := p.Inject(Rule{Fault: Fault{Kind: kind, For: 1500 * time.Millisecond}})
		c, host := httpClient(t, p)
		resp, err := c.Get(host + "/api/v1/namespaces")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if after := resp.Header.Get("Retry-After"); after != "2" {
			t.Errorf("%s: Retry-After is %q", kind, after)
		}
		i.Stop()
	}
	// A client of Kubernetes obeys, and asks again.
	p.Inject(Rule{Count: 1, Fault: Fault{Kind: TooManyRequests, For: time.Millisecond}})
	if err := create(t.Context(), client(t, p, encodings[0])); err != nil || s.count("POST") != 1 {
		t.Errorf("got %v after %d requests", err, s.count("POST"))
	}
}

func TestResets(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kind          Kind
		reached       int
		newConnection bool
	}{
		{ResetBefore, 0, false},
		{ResetAfter, 1, false},
		{BreakBefore, 0, true},
		{BreakAfter, 1, true},
	} {
		p, s := start(t)
		c := client(t, p, encodings[0])
		i := p.Inject(Rule{Count: 1, Fault: Fault{Kind: tc.kind}})
		err := create(t.Context(), c)
		var status apierrors.APIStatus
		if err == nil || errors.As(err, &status) {
			t.Errorf("%s: got %v, want no answer", tc.kind, err)
		}
		if n := s.count("POST"); n != tc.reached || i.Fired() != 1 {
			t.Errorf("%s: %d requests reached the server, want %d; fired %d times", tc.kind, n, tc.reached, i.Fired())
		}
		if err := create(t.Context(), c); err != nil {
			t.Errorf("%s: afterwards: %v", tc.kind, err)
		}
		if _, ever := p.Connections(); (ever > 1) != tc.newConnection {
			t.Errorf("%s: %d connections", tc.kind, ever)
		}
	}
}

// TestResetAfter shows that the server has done with a request when it is reset.
func TestResetAfter(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	s.gate = make(chan bool)
	i := p.Inject(Rule{Fault: Fault{Kind: ResetAfter}})
	failed := make(chan error)
	go func() { failed <- create(t.Context(), client(t, p, encodings[0])) }()
	<-s.gate
	s.pass(t)
	if i.Fired() != 0 {
		t.Error("reset in the middle of the answer")
	}
	s.gate <- true
	if err := <-failed; err == nil || i.Fired() != 1 {
		t.Errorf("got %v, fired %d times", err, i.Fired())
	}
}

// TestAnswerNeverComes shows that a fault that was to meet an answer meets another one if that request ends without.
func TestAnswerNeverComes(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{DelayAnswer, ResetAfter, BreakAfter} {
		p, _ := start(t)
		c := client(t, p, encodings[0])
		i := p.Inject(Rule{Count: 1, Fault: Fault{Kind: kind, For: time.Millisecond}})
		hold := p.Inject(Rule{Fault: Fault{Kind: Hold}})
		failed := make(chan error)
		go func() { failed <- create(t.Context(), c) }()
		p.await(t, "the request", func() bool { return hold.Held() == 1 })
		p.BreakConnections()
		if err := <-failed; err == nil || i.Fired() != 0 {
			t.Errorf("%s: the request that ended early: %v, fired %d times", kind, err, i.Fired())
		}
		hold.Stop()
		p.await(t, "the fault has no request", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return i.taken == 0
		})
		for range 2 {
			_ = create(t.Context(), c) // what becomes of it is not what this is about
		}
		if i.Fired() != 1 {
			t.Errorf("%s: fired %d times, want once, for an answer that came", kind, i.Fired())
		}
	}
}

// pass sends the server many requests, past the proxy. Anything that takes the time of one request has happened when it returns.
func (s *server) pass(t *testing.T) {
	t.Helper()
	for range 30 {
		resp, err := s.Client().Get(s.URL + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	const short = 30 * time.Millisecond
	for _, kind := range []Kind{Delay, DelayAnswer} {
		p, s := start(t)
		c := client(t, p, encodings[0])
		i := p.Inject(Rule{Fault: Fault{Kind: kind, For: short}})
		began := time.Now()
		if err := create(t.Context(), c); err != nil || time.Since(began) < short {
			t.Errorf("%s: got %v after %s", kind, err, time.Since(began))
		}
		i.Stop()
		// One that is longer than the client's patience: whether the server has heard of it is the difference.
		i = p.Inject(Rule{Fault: Fault{Kind: kind, For: time.Hour}})
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() { failed <- create(ctx, c) }()
		p.await(t, "the delay", func() bool { return i.Fired() == 1 })
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", kind, err)
		}
		if n, want := s.count("POST"), map[Kind]int{Delay: 1, DelayAnswer: 2}[kind]; n != want {
			t.Errorf("%s: %d requests reached the server, want %d", kind, n, want)
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
	ctx, cancel := context.WithCancel(t.Context())
	go func() { failed <- create(ctx, c) }()
	p.await(t, "another", func() bool { return hold.Held() == 2 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	p.await(t, "one left", func() bool { return hold.Held() == 1 })
	p.Inject(Rule{Count: 1, Fault: Fault{Kind: Conflict}})
	if n := s.count("POST"); n != 0 {
		t.Errorf("%d requests reached the server", n)
	}
	hold.Stop()
	hold.Stop()
	if err := <-failed; !apierrors.IsConflict(err) {
		t.Errorf("let go: %v", err)
	}
	if err := create(t.Context(), c); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestChoice(t *testing.T) {
	t.Parallel()
	p, _ := start(t)
	c := client(t, p, encodings[0])
	pass := p.Inject(Rule{Verbs: []string{"create"}, Resources: []string{"configmaps"}, Fault: Fault{Kind: Pass}})
	fault := p.Inject(Rule{
		Verbs: []string{"create"}, Resources: []string{"configmaps"}, Skip: 2, Count: 2,
		When:  func(q Request) bool { return q.Namespace == "a" && q.UserAgent == "tester" },
		Fault: Fault{Kind: InternalError},
	})
	var got []bool
	for range 6 {
		got = append(got, create(t.Context(), c) == nil)
	}
	if want := []bool{true, true, false, false, true, true}; !slices.Equal(got, want) {
		t.Errorf("passed %v, want %v", got, want)
	}
	if pass.Fired() != 6 || fault.Fired() != 2 {
		t.Errorf("pass fired %d times, the fault %d times", pass.Fired(), fault.Fired())
	}
	if _, err := c.CoreV1().ConfigMaps("a").Get(t.Context(), "settings", metav1.GetOptions{}); err != nil || pass.Fired() != 6 {
		t.Errorf("another verb: %v, pass fired %d times", err, pass.Fired())
	}
	// The server's answer makes no sense, but that is not what this is about.
	_, _ = c.CoreV1().Secrets("a").Create(t.Context(), &corev1.Secret{}, metav1.CreateOptions{})
	if pass.Fired() != 6 {
		t.Errorf("another resource: pass fired %d times", pass.Fired())
	}
}

// TestSeed shows that a seed decides for each request in the same way in whatever order they come.
func TestSeed(t *testing.T) {
	t.Parallel()
	decisions := func(seed uint64, order []int) string {
		p := &Proxy{rand: rand.New(rand.NewPCG(seed, 0))}
		i := p.Inject(Rule{Probability: 0.3})
		var out [200]byte
		for _, n := range order {
			out[n] = '.'
			if i.choose(Request{Method: "POST", Path: fmt.Sprint(n % 50)}) {
				out[n] = 'x'
			}
		}
		// The four requests of one path are tried in the order in which they come: sort them.
		var lines []string
		for n := range 50 {
			four := []byte{out[n], out[n+50], out[n+100], out[n+150]}
			slices.Sort(four)
			lines = append(lines, string(four))
		}
		return strings.Join(lines, " ")
	}
	order := rand.Perm(200)
	first := decisions(1, order)
	if n := strings.Count(first, "x"); n < 40 || n > 80 {
		t.Errorf("fired %d times in 200, want about 60", n)
	}
	for range 5 {
		if again := decisions(1, rand.Perm(200)); again != first {
			t.Errorf("another order, other decisions:\n%s\n%s", first, again)
		}
	}
	if other := decisions(2, order); other == first {
		t.Error("another seed, the same decisions")
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

func TestWatches(t *testing.T) {
	t.Parallel()
	for _, contentType := range encodings {
		p, s := start(t)
		c := client(t, p, contentType)
		for _, tc := range []struct {
			kind Kind
			end  func(...string) int
			is   func(watch.Event, bool) bool
		}{
			{WatchEnded, p.EndWatches, func(_ watch.Event, more bool) bool { return !more }},
			{WatchCut, p.CutWatches, func(e watch.Event, _ bool) bool {
				err := apierrors.FromObject(e.Object)
				return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "INTERNAL_ERROR")
			}},
			{WatchExpired, p.ExpireWatches, func(e watch.Event, _ bool) bool {
				return e.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(e.Object))
			}},
		} {
			one, two := newWatch(t, c), newWatch(t, c)
			p.await(t, "two watches", func() bool { return p.Watches() == 2 && p.Watches("configmaps") == 2 })
			s.events <- "first"
			s.events <- "second"
			// Either may have got either.
			s.events <- "third"
			s.events <- "fourth"
			if n := tc.end("secrets"); n != 0 {
				t.Errorf("%s: %d watches of something else", tc.kind, n)
			}
			if n := tc.end("secrets", "configmaps"); n != 2 || p.Counts()[tc.kind] != 2 {
				t.Errorf("%s: %d watches, counted %d", tc.kind, n, p.Counts()[tc.kind])
			}
			for _, w := range []watching{one, two} {
				e, more := w.next()
				for more && e.Type == watch.Added {
					e, more = w.next()
				}
				if !tc.is(e, more) {
					t.Errorf("%s in %s: got %v, %v", tc.kind, contentType, e, more)
				}
			}
			p.await(t, "no watch", func() bool { return p.Watches() == 0 })
		}
		for _, r := range s.requests {
			if got := r.Header.Get("Accept-Encoding"); got != "" {
				t.Errorf("watches are accepted in %q", got)
			}
		}
		// All that was ended here ends at the server as well.
		s.awaitIdle(t)
		last := newWatch(t, c)
		s.events <- "last"
		last.expect("last")
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

// TestWatchesEndBetweenEvents shows that an event which is on its way is not torn, unless the watch is cut.
func TestWatchesEndBetweenEvents(t *testing.T) {
	t.Parallel()
	for _, contentType := range encodings {
		p, _ := start(t)
		info, _ := encoding(contentType)
		event := addedEvent(info, "torn")
		fault := errorEvent(info, statusOf(Expired))
		for _, tc := range []struct {
			kind Kind
			end  func(...string) int
			want []byte
			err  error
		}{
			{WatchEnded, p.EndWatches, event, nil},
			{WatchExpired, p.ExpireWatches, append(slices.Clone(event), fault...), nil},
			{WatchCut, p.CutWatches, event[:10], errCut},
		} {
			in, upstream := io.Pipe()
			resp := &http.Response{Header: http.Header{"Content-Type": {contentType + ";stream=watch"}}, Body: in}
			p.follow(Request{Verb: "watch"}, resp)
			go func() { _, _ = upstream.Write(event[:10]) }()
			got := make([]byte, 10)
			if _, err := io.ReadFull(resp.Body, got); err != nil {
				t.Fatal(err)
			}
			tc.end()
			go func() { _, _ = upstream.Write(event[10:]) }() // fails if the watch was cut
			rest, err := io.ReadAll(resp.Body)
			if got = append(got, rest...); !bytes.Equal(got, tc.want) && tc.kind != WatchCut || !errors.Is(err, tc.err) {
				t.Errorf("%s in %s: got %q, %v, want %q, %v", tc.kind, contentType, got, err, tc.want, tc.err)
			}
			resp.Body.Close()
		}
	}
}

func TestWatchRules(t *testing.T) {
	t.Parallel()
	for _, contentType := range encodings {
		p, s := start(t)
		c := client(t, p, contentType)
		p.Inject(Rule{Verbs: []string{"watch"}, Count: 1, Fault: Fault{Kind: Gone}})
		if _, err := c.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
			t.Errorf("gone in %s: %v", contentType, err)
		}
		p.Inject(Rule{Count: 1, Fault: Fault{Kind: Expired}})
		if err := create(t.Context(), c); err != nil {
			t.Errorf("expired, but no watch: %v", err)
		}
		w := newWatch(t, c)
		if e, _ := w.next(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
			t.Errorf("expired in %s: %v", contentType, e)
		}
		if _, more := w.next(); more {
			t.Error("expired: there is more")
		}
		if n := s.count("GET"); n != 0 {
			t.Errorf("%d watches reached the server", n)
		}
		w = newWatch(t, c)
		s.events <- "settings"
		w.expect("settings")
	}
}

// TestOutdated shows that the answer of the server that a resourceVersion is too old is counted, however it comes, and
// nothing else is: neither other errors nor what the proxy itself says.
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
		in, upstream := io.Pipe()
		resp := &http.Response{Header: http.Header{"Content-Type": {contentType + ";stream=watch"}}, Body: in}
		p.follow(Request{Verb: "watch"}, resp)
		go func() {
			for piece := range slices.Chunk(errorEvent(info, statusOf(Gone)), 7) {
				_, _ = upstream.Write(piece)
			}
			upstream.Close()
		}()
		if _, err := io.ReadAll(resp.Body); err != nil || p.Counts()[Outdated] != 2 {
			t.Errorf("in pieces in %s: %v, %d counted", contentType, err, p.Counts()[Outdated])
		}
		resp.Body.Close()
		w := newWatch(t, c)
		p.await(t, "a watch", func() bool { return p.Watches() == 1 })
		p.ExpireWatches()
		if e, _ := w.next(); e.Type != watch.Error || p.Counts()[Outdated] != 2 {
			t.Errorf("expired here in %s: got %v, %d counted", contentType, e, p.Counts()[Outdated])
		}
	}
}

// TestFrames shows that the end of an event is found however its bytes are cut into pieces.
func TestFrames(t *testing.T) {
	t.Parallel()
	events := map[bool][]string{
		true:  {"\x00\x00\x00\x03abc", "\x00\x00\x00\x00", "\x00\x00\x00\x01\n", "\x00\x00\x01\x00" + strings.Repeat("x", 256)},
		false: {"{}\n", "{\"a\":\"\\n\"}\n", strings.Repeat("x", 300) + "\n"},
	}
	for delimited, whole := range events {
		text := strings.Join(whole, "")
		ends, at := map[int]bool{0: true}, 0
		for _, e := range whole {
			at += len(e)
			ends[at] = true
		}
		for size := 1; size <= len(text); size++ {
			f := frames{delimited: delimited, complete: true}
			for at := 0; at < len(text); at += size {
				to := min(at+size, len(text))
				f.add([]byte(text[at:to]))
				if f.complete != ends[to] {
					t.Fatalf("delimited %v, pieces of %d: complete is %v after %d bytes", delimited, size, f.complete, to)
				}
			}
		}
	}
}

func TestSilence(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	old, fresh := client(t, p, encodings[0]), client(t, p, encodings[0])
	w := newWatch(t, old)
	s.events <- "before"
	w.expect("before")
	p.Silence()
	p.Silence()
	answers := make(chan error)
	go func() { answers <- create(t.Context(), old) }()
	go func() { answers <- create(t.Context(), fresh) }()
	p.await(t, "a new connection", func() bool { _, ever := p.Connections(); return ever == 2 })
	s.events <- "meanwhile" // is on its way, and gets no further
	s.pass(t)
	select {
	case err := <-answers:
		t.Errorf("an answer in the silence: %v", err)
	case e := <-w.ResultChan():
		t.Errorf("an event in the silence: %v", e)
	default:
	}
	if n := s.count("POST"); n != 0 {
		t.Errorf("%d requests reached the server in the silence", n)
	}
	p.Heal()
	p.Heal()
	w.expect("meanwhile")
	for range 2 {
		if err := <-answers; err != nil {
			t.Errorf("after the silence: %v", err)
		}
	}
	if open, ever := p.Connections(); open != 2 || ever != 2 || p.Counts()[Silenced] != 1 {
		t.Errorf("%d of %d connections are open, counts %v", open, ever, p.Counts())
	}
}

func TestLostConnections(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	old, fresh := client(t, p, encodings[0]), client(t, p, encodings[0])
	w := newWatch(t, old)
	if n := p.LoseConnections("leases"); n != 0 {
		t.Errorf("%d connections lost that carried nothing of the kind", n)
	}
	if n := p.LoseConnections("leases", "configmaps"); n != 1 || p.LoseConnections() != 0 || p.Counts()[ConnectionLost] != 1 {
		t.Errorf("%d connections lost, counts %v", n, p.Counts())
	}
	s.events <- "unseen"
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan error)
	go func() { answers <- create(ctx, old) }()
	if err := create(t.Context(), fresh); err != nil {
		t.Errorf("on a new connection: %v", err)
	}
	s.pass(t)
	select {
	case err := <-answers:
		t.Errorf("an answer on a lost connection: %v", err)
	case e := <-w.ResultChan():
		t.Errorf("an event on a lost connection: %v", e)
	default:
	}
	cancel()
	if err := <-answers; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := s.count("POST"); n != 1 {
		t.Errorf("%d requests reached the server, want that of the new connection", n)
	}
}

func TestBreakConnections(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	c := client(t, p, encodings[0])
	w := newWatch(t, c)
	if n := p.BreakConnections("leases"); n != 0 {
		t.Errorf("%d connections broken that carried nothing of the kind", n)
	}
	if n := p.BreakConnections(); n != 1 || p.Counts()[ConnectionBroken] != 1 {
		t.Errorf("%d connections broken, counts %v", n, p.Counts())
	}
	// client-go takes that for the end of a watch.
	if e, more := w.next(); more {
		t.Errorf("the watch goes on: %v", e)
	}
	p.await(t, "no connection", func() bool { open, _ := p.Connections(); return open == 0 && p.Watches() == 0 })
	s.awaitIdle(t)
	if err := create(t.Context(), c); err != nil {
		t.Errorf("on a new connection: %v", err)
	}
}

// TestServerGone shows that a server that does not answer is no answer of the proxy's.
func TestServerGone(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	s.CloseClientConnections()
	s.Close()
	err := create(t.Context(), client(t, p, encodings[0]))
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		t.Errorf("got %v, want no answer", err)
	}
}

// TestClose shows that nothing is left of a proxy that is closed in the middle of everything.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	s := newServer(t)
	p, err := Start(Options{Kubeconfig: s.kubeconfig(t, "secret"), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	var answered atomic.Int32
	try := func(c kubernetes.Interface) {
		ended.Go(func() {
			if create(t.Context(), c) == nil {
				answered.Add(1)
			}
		})
	}
	hold := p.Inject(Rule{Verbs: []string{"create"}, Count: 1, Fault: Fault{Kind: Hold}})
	delay := p.Inject(Rule{Verbs: []string{"create"}, Fault: Fault{Kind: DelayAnswer, For: time.Hour}})
	c := client(t, p, encodings[0])
	w := newWatch(t, c)
	try(c)
	try(c)
	p.await(t, "the faults", func() bool { return hold.Fired() == 1 && delay.Fired() == 1 })
	p.Silence()
	try(c)
	try(client(t, p, encodings[0]))
	p.await(t, "a new connection", func() bool { _, ever := p.Connections(); return ever == 2 })
	for range 2 {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	ended.Wait()
	for more := true; more; {
		_, more = w.next()
	}
	if n := answered.Load(); n != 0 {
		t.Errorf("%d requests were answered", n)
	}
	s.awaitIdle(t)
	s.Close()
	deadline := time.After(patience)
	for tick := time.Tick(time.Millisecond); runtime.NumGoroutine() > before; {
		select {
		case <-tick:
		case <-deadline:
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	if _, err := Start(Options{Kubeconfig: s.kubeconfig(t, ""), Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "no token") {
		t.Errorf("a user without a token: %v", err)
	}
	if _, err := Start(Options{Kubeconfig: filepath.Join(t.TempDir(), "none"), Dir: t.TempDir()}); err == nil {
		t.Error("a file that does not exist: no error")
	}
	p, _ := start(t)
	if info, err := os.Stat(p.Kubeconfig()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]Request{
		"GET /api/v1/configmaps?watch=true&sendInitialEvents=true": {Verb: "watch", Resource: "configmaps"},
		"GET /api/v1/configmaps?watch=1":                           {Verb: "watch", Resource: "configmaps"},
		"GET /api/v1/configmaps?watch=false":                       {Verb: "list", Resource: "configmaps"},
		"GET /api/v1/namespaces":                                   {Verb: "list", Resource: "namespaces"},
		"GET /api/v1/namespaces/a":                                 {Verb: "get", Resource: "namespaces", Name: "a"},
		"PUT /api/v1/namespaces/a/finalize":                        {Verb: "update", Resource: "namespaces", Name: "a", Subresource: "finalize"},
		"GET /api/v1/namespaces/a/configmaps":                      {Verb: "list", Resource: "configmaps", Namespace: "a"},
		"POST /api/v1/namespaces/a/configmaps":                     {Verb: "create", Resource: "configmaps", Namespace: "a"},
		"PUT /api/v1/namespaces/a/configmaps/b":                    {Verb: "update", Resource: "configmaps", Namespace: "a", Name: "b"},
		"DELETE /api/v1/namespaces/a/configmaps/b":                 {Verb: "delete", Resource: "configmaps", Namespace: "a", Name: "b"},
		"DELETE /api/v1/namespaces/a/configmaps":                   {Verb: "deletecollection", Resource: "configmaps", Namespace: "a"},
		"PATCH /apis/events.k8s.io/v1/namespaces/a/events/b":       {Verb: "patch", APIGroup: "events.k8s.io", Resource: "events", Namespace: "a", Name: "b"},
		"PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/b":   {Verb: "update", APIGroup: "coordination.k8s.io", Resource: "leases", Namespace: "a", Name: "b"},
		"POST /api/v1/namespaces/a/serviceaccounts/b/token":        {Verb: "create", Resource: "serviceaccounts", Namespace: "a", Name: "b", Subresource: "token"},
		"GET /readyz":       {Verb: "get"},
		"GET /apis/apps/v1": {Verb: "get", APIGroup: ""},
		"GET /api/v1/configmaps?watch=true&allowWatchBookmarks=true&limit=5": {Verb: "watch", Resource: "configmaps"},
	} {
		method, target, _ := strings.Cut(line, " ")
		r := httptest.NewRequest(method, target, nil)
		got := describe(r)
		if got.IsRelist() != (strings.Contains(line, "sendInitialEvents") || want.Verb == "list") {
			t.Errorf("%s: IsRelist is %v", line, got.IsRelist())
		}
		got.Method, got.Path, got.Query, got.UserAgent = "", "", nil, ""
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", line, got, want)
		}
	}
}
