package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Attacks by tenants, and by anybody who reaches the ports: case C47. The policies of deploy/ prevent some of them; the controller
// has to bear them without.

const (
	// maxMemory, in MiB, is far below the memory limit of the Deployment, and far above what the controller takes in a small cluster.
	maxMemory = 150
	// maxMemoryOfLists, in MiB, is for an API server that cannot stream: a page of a list is in memory whole before it is stripped.
	// It is below GOMEMLIMIT of the Deployment. How much of a page is garbage at a moment depends on the machine.
	maxMemoryOfLists = 450
	// spacing is the least time between two events, or two log lines, of one reason about one source.
	spacing = 10 * time.Second
)

// TestC47PruneLimitCannotBeDisarmed starts the controller with a prefix that leaves out 13 of 15 copies, while tenants have 40 forged
// copies: they do not outweigh the 13.
func TestC47PruneLimitCannotBeDisarmed(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		tenants, name string // of the forged copies
		ofTenants     string // the value of the mirror label of their namespaces
		says          string
	}{
		"of sources that are not there": {"tenant-", "forged", "", "13 of 15 copies"},
		"in namespaces that opted out":  {"kept-tenant-", "settings", plan.OptOutValue, "13 of 15 copies"},
		"in namespaces out of scope":    {"tenant-", "settings", "", "53 of 55 copies"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t)
			kept, dropped := createNamed(w, "kept-", 2), createNamed(w, "dropped-", 13)
			all := slices.Concat(kept, dropped)
			p := w.StartExactly("--namespace-prefix=" + w.NS("kept-") + "," + w.NS("dropped-"))
			w.WaitInSync(w.CreateSource(w.Home, "settings"), all...)
			copies := w.Copies("settings", all...)
			w.Stop(p)
			for i := range 40 {
				tenant := w.CreateNamespace(w.NS(fmt.Sprint(test.tenants, i)), map[string]string{w.Label: test.ofTenants}).Name
				w.Create(tenant, test.name, w.MarksOfCopy(w.Home, tenant, test.name)...)
			}
			w.StartExactly("--namespace-prefix=" + w.NS("kept-"))
			if note := w.WaitEvent(w.Home, "settings", mirror.ReasonPruneBlocked); !strings.Contains(note, test.says) {
				t.Errorf("the event says %q, want %q in it", note, test.says)
			}
			w.Settle(kept...)
			w.AllUntouched(copies)
		})
	}
}

// TestC47MetadataOfForgedCopies fills a namespace with objects that have the label of a copy, and as much other metadata as the API
// server accepts. The controller bears it while they come, and starts with them, by a stream and by lists. (Nothing else runs beside
// this test, or TestC47HostileConnections: Go's collector needs its time to keep a limit.)
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

// startAsShipped runs a controller with the environment of the Deployment, and serves both ports. The mutation detector is off: it
// keeps a second copy of each object.
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

// TestC47EventsAndLogOfFlips changes forged copies as fast as the API server accepts it: one out of scope, one in the way. The
// state of their sources changes as fast, but events and log lines keep their spacing.
func TestC47EventsAndLogOfFlips(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	p := w.Start("--logging-format=json")
	w.Settle(w.NS("b")) // copies out of scope that it finds when it takes over go
	here, away := w.NS("a"), w.Elsewhere("tenant")
	for _, name := range []string{"here", "away"} {
		w.WaitInSync(w.CreateSource(w.Home, name), here, w.NS("b"))
	}
	w.Create(away, "away", w.MarksOfCopy(w.Home, away, "away")...)
	var flipping sync.WaitGroup
	flipping.Go(func() { flip(w, here, "here") })
	flipping.Go(func() { flip(w, away, "away") })
	flipping.Wait()
	w.Stop(p) // it writes the events that wait
	expectSpacedEvents(w, w.Home)
	expectSpacedLines(w, p.Log())
}

// flip makes a copy of ours of the ConfigMap, and something else again, hundreds of times.
func flip(w *suite.World, namespace, name string) {
	const flips = 500
	ours := map[string]any{plan.SourceAnnotation: w.Home + "/" + name}
	for i := range flips {
		label, annotations := any(plan.CopyValue), ours
		switch i % 6 {
		case 1:
			annotations = map[string]any{plan.SourceAnnotation: nil}
		case 3:
			label = nil
		case 5:
			annotations = map[string]any{plan.SourceAnnotation: w.Home + "/another"}
		}
		labels := map[string]any{w.Label: label}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
		if err == nil {
			_, err = w.Admin.CoreV1().ConfigMaps(namespace).Patch(w.Context(), name, types.MergePatchType, body, metav1.PatchOptions{})
		}
		if err != nil {
			w.Error(err)
			return
		}
	}
}

// expectSpacedEvents fails the test if there are too many events about the sources in the namespace.
func expectSpacedEvents(w *suite.World, namespace string) {
	w.Helper()
	events, err := w.Admin.EventsV1().Events(namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	times := map[string][]time.Time{}
	for _, e := range events.Items {
		key := e.Reason + " " + e.Regarding.Name
		times[key] = append(times[key], e.EventTime.Time)
		if e.Series != nil {
			times[key] = append(times[key], slices.Repeat([]time.Time{e.Series.LastObservedTime.Time}, int(e.Series.Count)-1)...)
		}
	}
	expectSpaced(w, "events", times)
}

// expectSpacedLines is expectSpacedEvents for the lines of a log in JSON. Those without a reason count by their message.
func expectSpacedLines(w *suite.World, log string) {
	w.Helper()
	times := map[string][]time.Time{}
	for line := range strings.Lines(log) {
		var fields struct {
			TS          float64
			Msg, Reason string
			Source      types.NamespacedName
		}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			w.Fatalf("%v: %s", err, line)
		}
		key := fields.Msg
		if fields.Reason != "" {
			key = fields.Reason + " " + fields.Source.Name
		}
		times[key] = append(times[key], time.UnixMicro(int64(fields.TS*1e3)))
	}
	expectSpaced(w, "log lines", times)
}

// expectSpaced fails the test if there are too many of a key in the time that they took. It allows one more for what a process writes
// when it stops.
func expectSpaced(w *suite.World, what string, times map[string][]time.Time) {
	w.Helper()
	counts := map[string]int{}
	for key, at := range times {
		counts[key] = len(at)
		elapsed := slices.MaxFunc(at, time.Time.Compare).Sub(slices.MinFunc(at, time.Time.Compare))
		if most := int(elapsed/spacing) + 2; len(at) > most {
			w.Errorf("%d %s %q in %s, want %d at most", len(at), what, key, elapsed, most)
		}
	}
	w.Logf("%s: %v", what, counts)
	if counts[mirror.ReasonForeign+" here"]*counts[mirror.ReasonOutOfScope+" away"] == 0 {
		w.Errorf("%s: %v: the attack was none", what, counts)
	}
}

// TestC47HostileConnections opens connections to both ports as anybody in the cluster can, and keeps them. The probes of a kubelet
// are answered beside them, and memory is bounded.
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
			address, err := suite.AddressOf(served, p)
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
			// The attacker may push out the connection of a probe, too. A kubelet asks again.
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

// connect opens a connection and writes the request when it gets a place, waits a moment for an answer, calls opened, and keeps the
// connection until ended is closed. Errors are the attacker's, and do not fail the test.
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
