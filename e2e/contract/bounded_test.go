package contract

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Attacks by tenants, and by anybody who reaches the ports: case C47. The policies of deploy/ prevent some of them; the
// controller has to bear them without.

const (
	// maxMemory, in MiB, is far below the memory limit of the Deployment, and far above what the controller takes in a
	// small cluster.
	maxMemory = 150
	// maxMemoryOfLists, in MiB, is for an API server that cannot stream: a page of a list is in memory whole before it is stripped.
	// It is below GOMEMLIMIT of the Deployment. How much of a page is garbage at a moment depends on the machine.
	maxMemoryOfLists = 450
)

// TestC47MetadataOfForgedCopies fills a namespace with objects that have the label of a copy, and as much other metadata as
// the API server accepts. The controller bears it while they come, and starts with them, by a stream and by lists. (Nothing
// else runs beside this test, or TestC47HostileConnections: Go's collector needs its time to keep a limit.)
func TestC47MetadataOfForgedCopies(t *testing.T) {
	w := suite.New(t, "a", "b")
	tenant := w.Elsewhere("tenant")
	p := startAsShipped(w)
	expectMirroring(w)
	const annotated, labelled = 300, 80
	forge := func(i int) *corev1.ConfigMap {
		name := fmt.Sprint("forged-", i)
		cm := suite.ConfigMap(tenant, name, w.MarksOfCopy(tenant, tenant, name)...) // not ours, or the controller would delete it
		if i < annotated {
			keys := []string{"example.com/note", plan.SourceAnnotation, plan.CopyAnnotation, plan.InstanceAnnotation}
			suite.Put(&cm.Annotations, keys[i%len(keys)], fmt.Sprint(i, strings.Repeat("x", 250<<10)))
			return cm
		}
		cm.Annotations = nil
		for j := range 3500 { // 1.3 MB: labels have no limit but that of a request
			suite.Put(&cm.Labels, fmt.Sprintf("%0253d/%063d", i, j), fmt.Sprintf("%063d", i))
		}
		return cm
	}
	w.Cleanup(func() {
		w.CleanUp(inParallel(annotated+labelled, func(i int) error {
			return w.Admin.CoreV1().ConfigMaps(tenant).Delete(w.Background(), fmt.Sprint("forged-", i), metav1.DeleteOptions{})
		}))
	})
	err := inParallel(annotated+labelled, func(i int) error {
		_, err := w.Admin.CoreV1().ConfigMaps(tenant).Create(w.Context(), forge(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	expectMirroring(w) // one watch shows all in order: it has seen the others
	expectBounded(w, "while they came", p, maxMemory)
	w.Stop(p)
	for feature, most := range map[string]int{"true": maxMemory, "false": maxMemoryOfLists} {
		p := startAsShipped(w, "KUBE_FEATURE_WatchListClient="+feature)
		expectMirroring(w)
		expectBounded(w, "started with them, WatchListClient="+feature, p, most)
		w.Stop(p)
	}
}

// startAsShipped runs a controller with the environment of the Deployment, and serves both ports. The mutation detector is
// off: it keeps a second copy of each object.
func startAsShipped(w *suite.World, env ...string) *shipped.Process {
	w.Helper()
	deployment, err := w.Installed.Manifests.Deployment()
	if err != nil {
		w.Fatal(err)
	}
	env = append(env, "KUBE_CACHE_MUTATION_DETECTOR=false")
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		env = append(env, variable.Name+"="+variable.Value)
	}
	return w.StartWith(shipped.RunOptions{Env: env,
		Args: []string{"--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0"}})
}

// expectedSources counts the sources of expectMirroring.
var expectedSources atomic.Int32

// expectMirroring waits until the copies of a new source are in the namespaces a and b.
func expectMirroring(w *suite.World) {
	w.Helper()
	w.WaitInSync(w.CreateSource(w.Home, fmt.Sprint("settings-", expectedSources.Add(1))), w.NS("a"), w.NS("b"))
}

// expectBounded fails the test if the controller has, or had, too much in memory. most is in MiB.
func expectBounded(w *suite.World, when string, p *shipped.Process, most int) {
	w.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		w.Fatal(err)
	}
	peak := 0
	_, value, _ := strings.Cut(string(status), "\nVmHWM:")
	if _, err := fmt.Sscanf(value, "%d kB", &peak); err != nil {
		w.Fatal(err)
	}
	peak >>= 10
	w.Logf("%s: %d MiB", when, peak)
	if peak >= most {
		w.Errorf("%s: the controller had %d MiB in memory, want less than %d MiB", when, peak, most)
	}
}

// inParallel calls f with 0 to n-1, several at a time.
func inParallel(n int, f func(i int) error) error {
	const atATime = 8
	errs := make([]error, n)
	places := make(chan struct{}, atATime)
	var running sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		running.Go(func() {
			errs[i] = insist(func() error { return f(i) })
			<-places
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// insist repeats a request that the API server gave up, which it does after 34 seconds. Such a request may have taken effect.
func insist(request func() error) error {
	err := request()
	for apierrors.IsTimeout(err) {
		if err = request(); apierrors.IsAlreadyExists(err) {
			return nil
		}
	}
	return err
}

// TestC47HostileConnections opens connections to both ports as anybody in the cluster can, and keeps them. The probes of a
// kubelet are answered beside them, and memory is bounded.
func TestC47HostileConnections(t *testing.T) {
	w := suite.New(t, "a", "b")
	p := startAsShipped(w)
	w.Until("ready", func() error { return w.Probe(p, "/readyz") })
	expectMirroring(w)
	for _, attack := range []struct {
		what        string
		connections int // to each port
		request     string
	}{
		{"a header of 1 MB", 600, "GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 1_000_000)},
		{"half a header", 1000, "GET /metrics HTTP/1.1\r\nHost: a\r\nX"},
		{"a whole request", 4000, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n"},
	} {
		// The attacker has this machine's processors, too: it writes to some connections at a time, and keeps all.
		places := make(chan struct{}, 64)
		var opening sync.WaitGroup
		ended, opened := make(chan struct{}), make(chan struct{})
		for _, served := range []string{"health", "metrics"} {
			address, err := p.Address(served)
			if err != nil {
				t.Fatal(err)
			}
			for range attack.connections {
				opening.Add(1)
				go connect(address, attack.request, places, opening.Done, ended)
			}
		}
		go func() {
			opening.Wait()
			close(opened)
		}()
		w.Wait("all connections are open", opened)
		for _, path := range []string{"/livez", "/readyz"} {
			// The attacker may keep a probe waiting until its connections are closed for their age. A kubelet asks again.
			w.Until("a probe beside "+attack.what, func() error { return w.Probe(p, path) })
		}
		expectBounded(w, "beside them", p, maxMemory)
		expectMirroring(w)
		close(ended)
	}
	w.Until("the metrics are served", func() error {
		_, err := w.Scrape(p)
		return err
	})
}

// connect opens a connection and writes the request when it gets a place, waits a moment for an answer, calls opened, and
// keeps the connection until ended is closed. Errors are the attacker's, and do not fail the test.
func connect(address, request string, places chan struct{}, opened func(), ended <-chan struct{}) {
	const moment = 2 * time.Second
	places <- struct{}{}
	conn, err := net.DialTimeout("tcp", address, moment)
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(moment))
		_, err = io.WriteString(conn, request)
	}
	<-places
	if err == nil {
		_, _ = conn.Read(make([]byte, 1))
	}
	opened()
	<-ended
}
