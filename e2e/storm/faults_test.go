package main

import (
	"context"
	"encoding/pem"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// hitPatience tells slow from never.
const hitPatience = 5 * time.Minute

// newProxied returns a replica without a process, whose proxy stands in front of a server that agrees to everything.
func newProxied(t *testing.T) *replica {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.URL, CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: "secret"}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	p, err := faultproxy.Start(faultproxy.Options{Kubeconfig: kubeconfig, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return &replica{proxy: p, installed: &shipped.Installation{User: "replica-0"}}
}

// asker returns what asks for a path through the proxy, on connections of its own, and reports whether it got it.
func (r *replica) asker(t *testing.T, path string) func() bool {
	config, err := clientcmd.BuildConfigFromFlags("", r.proxy.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Proxy = http.ProxyFromEnvironment // what dials in a way of its own shares no connections
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return func() bool {
		answer, err := client.Get(config.Host + path)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
}

// TestLeaseIsSpared shows that what goes wrong with requests and connections leaves the lease alone, unless it is
// about nothing else.
func TestLeaseIsSpared(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		step              step
		configMaps, lease bool // whether they are answered
	}{
		{newStep("requests-500", "0"), false, true},
		{newStep("lease-500", "0"), true, false},
		{newStep("requests-500", "0").with(resourceArg, "leases"), true, false},
		{newStep("requests-reset-before", "0"), false, true},
		{newStep("lease-reset-before", "0"), true, false},
	} {
		r := newProxied(t)
		configMaps, lease := r.asker(t, "/api/v1/namespaces/a/configmaps/x"), r.asker(t, "/apis/coordination.k8s.io/v1/namespaces/a/leases/x")
		during, over := context.WithTimeout(t.Context(), hitPatience)
		done := make(chan error)
		go func() {
			done <- faults[tc.step.kind](during, nil, []*replica{r}, tc.step.with(shareArg, "1").with(forArg, "1h"))
		}()
		hit := configMaps
		if tc.configMaps {
			hit = lease
		}
		for hit() { // until the fault has begun
			if during.Err() != nil {
				t.Fatalf("%s does nothing", tc.step)
			}
		}
		if got := [2]bool{configMaps(), lease()}; got != [2]bool{tc.configMaps, tc.lease} {
			t.Errorf("%s: answers about ConfigMaps and the lease: %v", tc.step, got)
		}
		over()
		if err := <-done; err != nil || !configMaps() || !lease() {
			t.Errorf("%s: it is not over: %v", tc.step, err)
		}
		if got := (incident{step: tc.step}).touchesLease(); got == tc.lease {
			t.Errorf("%s: touches the lease: %v", tc.step, got)
		}
	}
}

// TestLeaseConnectionIsSpared is the same for connections.
func TestLeaseConnectionIsSpared(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		step step
		left int // open connections, of two
	}{
		{newStep("break-connections", "0"), 1},
		{newStep("break-connections", "0").with(resourceArg, "leases"), 1},
		{newStep("break-connections", "0").with(resourceArg, "leases").with(resourceArg, "configmaps"), 0},
	} {
		r := newProxied(t)
		if !r.asker(t, "/api/v1/configmaps")() || !r.asker(t, "/apis/coordination.k8s.io/v1/namespaces/a/leases/x")() {
			t.Fatal("no answer")
		}
		if err := faults[tc.step.kind](t.Context(), nil, []*replica{r}, tc.step); err != nil {
			t.Fatal(err)
		}
		if open, ever := r.proxy.Connections(); open != tc.left || ever != 2 {
			t.Errorf("%s: %d connections of %d are open", tc.step, open, ever)
		}
	}
}

// TestHoldsOneWatch shows that a replica which hears nothing of ConfigMaps hears of namespaces, and reads and writes.
func TestHoldsOneWatch(t *testing.T) {
	t.Parallel()
	r := newProxied(t)
	during, over := context.WithTimeout(t.Context(), hitPatience)
	done := make(chan error)
	go func() {
		done <- faults["hold-configmaps"](during, nil, []*replica{r}, newStep("hold-configmaps", "0").with(forArg, "1h"))
	}()
	watch, watched := r.asker(t, "/api/v1/configmaps?watch=true"), make(chan bool)
	held := func() bool { return r.proxy.Counts()[faultproxy.Hold] > 0 }
	go func() {
		for !held() && during.Err() == nil { // a watch from before the fault is answered
			watch()
		}
		close(watched)
	}()
	if err := r.proxy.Await(during, held); err != nil {
		t.Fatalf("no watch is held: %v", err)
	}
	for _, path := range []string{
		"/api/v1/namespaces?watch=true", "/api/v1/namespaces/a/configmaps/x", "/apis/coordination.k8s.io/v1/namespaces/a/leases/x",
	} {
		if !r.asker(t, path)() {
			t.Errorf("%s: no answer", path)
		}
	}
	select {
	case <-watched:
		t.Error("the watch is not held")
	default:
	}
	over()
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-watched
}

// TestStormsWithOneLeader shows that what is drawn for storms without an end of a leader cannot cost a lease.
func TestStormsWithOneLeader(t *testing.T) {
	d := drawer{rand.New(rand.NewPCG(1, 1))}
	var drawn []step
	for range 500 {
		drawn = append(drawn, pick(d, wireTable)(d))
		drawn = append(drawn, d.collision()...)
		drawn = append(drawn, d.freezing()...)
	}
	for _, st := range drawn {
		if (incident{step: st}).touchesLease() || slices.Contains(onProcesses, st.kind) {
			t.Errorf("drawn: %s", st)
		}
	}
}

// TestPausesHitTheLeader shows that half of the pauses are about whoever leads.
func TestPausesHitTheLeader(t *testing.T) {
	d := drawer{rand.New(rand.NewPCG(1, 1))}
	pauses, led := 0, 0
	for pauses < 200 {
		if st := pick(d, faultTable)(d); st.kind == "pause" {
			pauses++
			if st.on == onLeader {
				led++
			}
		}
	}
	if led < pauses*2/5 || led > pauses*3/5 {
		t.Errorf("%d of %d", led, pauses)
	}
}

// TestIncidents shows when a fault was at work, and on whom.
func TestIncidents(t *testing.T) {
	one, two := &replica{installed: &shipped.Installation{User: "one"}}, &replica{installed: &shipped.Installation{User: "two"}}
	var l incidents
	long := time.Now().Add(-time.Hour)
	end := l.begin(newStep("requests-delay", "*").with(delayArg, "1m"), []*replica{one, two})
	stand := l.begin(newStep("pause", "0"), []*replica{one})
	told := func(from, to time.Time) string {
		var out []string
		for _, i := range l.between(from, to) {
			out = append(out, i.step.kind+" "+i.user)
		}
		return strings.Join(out, ", ")
	}
	expect := func(from, to time.Time, want string) {
		t.Helper()
		if got := told(from, to); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	now := time.Now()
	expect(long, long.Add(time.Minute), "")
	expect(long, now, "requests-delay one, requests-delay two, pause one")
	expect(now.Add(time.Hour), now.Add(2*time.Hour), "requests-delay one, requests-delay two, pause one") // at work still
	end()
	stand()
	expect(time.Now().Add(30*time.Second), time.Now().Add(time.Hour), "requests-delay one, requests-delay two")
	expect(time.Now().Add(2*time.Minute), time.Now().Add(time.Hour), "")
	expect(long, time.Now(), "requests-delay one, requests-delay two, pause one")
}

// What holds up only the lease makes no write late.
func TestHeldUp(t *testing.T) {
	lose := func() step { return newStep("lose-connections", "0") }
	for _, c := range []struct {
		step step
		want bool
	}{
		{lose(), true},
		{lose().with(resourceArg, "leases"), false},
		{lose().with(resourceArg, "leases").with(resourceArg, "configmaps"), true},
		{newStep("lease-delay", "0"), false},
		{newStep("compact", "-"), false},
	} {
		if got := isHeldUp(incident{step: c.step}); got != c.want {
			t.Errorf("%s: got %v, want %v", c.step, got, c.want)
		}
	}
}
