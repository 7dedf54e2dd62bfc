package e2e

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
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
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
			w := newWorld(t)
			kept, dropped := w.createNamed("kept-", 2), w.createNamed("dropped-", 13)
			all := slices.Concat(kept, dropped)
			p := w.startExactly("--namespace-prefix=" + w.ns("kept-") + "," + w.ns("dropped-"))
			w.waitInSync(w.createSource(w.home, "settings"), all...)
			copies := w.copies("settings", all...)
			w.stop(p)
			for i := range 40 {
				tenant := w.createNamespace(w.ns(fmt.Sprint(test.tenants, i)), map[string]string{w.label: test.ofTenants}).Name
				w.create(tenant, test.name, w.marksOfCopy(w.home, tenant, test.name)...)
			}
			w.startExactly("--namespace-prefix=" + w.ns("kept-"))
			if note := w.waitEvent(w.home, "settings", mirror.ReasonPruneBlocked); !strings.Contains(note, test.says) {
				t.Errorf("the event says %q, want %q in it", note, test.says)
			}
			w.settle(kept...)
			w.allUntouched(copies)
		})
	}
}

// TestC47MetadataOfForgedCopies fills a namespace with objects that have the label of a copy, and as much other metadata as the API
// server accepts. The controller bears it while they come, and starts with them, by a stream and by lists. (Nothing else runs beside
// this test, or TestC47HostileConnections: Go's collector needs its time to keep a limit.)
func TestC47MetadataOfForgedCopies(t *testing.T) {
	w := newWorld(t, "a", "b")
	tenant := w.elsewhere("tenant")
	p := w.startAsShipped()
	w.expectMirroring()
	const annotated, labelled = 300, 80
	forge := func(i int) *corev1.ConfigMap {
		name := fmt.Sprint("forged-", i)
		cm := configMap(tenant, name, w.marksOfCopy(tenant, tenant, name)...) // not ours, or the controller would delete it
		if i < annotated {
			keys := []string{"example.com/note", plan.SourceAnnotation, plan.CopyAnnotation, plan.InstanceAnnotation}
			put(&cm.Annotations, keys[i%len(keys)], fmt.Sprint(i, strings.Repeat("x", 250<<10)))
			return cm
		}
		cm.Annotations = nil
		for j := range 3500 { // 1.3 MB: labels have no limit but that of a request
			put(&cm.Labels, fmt.Sprintf("%0253d/%063d", i, j), fmt.Sprintf("%063d", i))
		}
		return cm
	}
	w.Cleanup(func() {
		w.cleanUp(inParallel(annotated+labelled, func(i int) error {
			return w.admin.CoreV1().ConfigMaps(tenant).Delete(w.background(), fmt.Sprint("forged-", i), metav1.DeleteOptions{})
		}))
	})
	err := inParallel(annotated+labelled, func(i int) error {
		_, err := w.admin.CoreV1().ConfigMaps(tenant).Create(w.ctx, forge(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.expectMirroring() // one watch shows all in order: it has seen the others
	w.expectBounded("while they came", p, maxMemory)
	w.stop(p)
	for feature, most := range map[string]int{"true": maxMemory, "false": maxMemoryOfLists} {
		p := w.startAsShipped("KUBE_FEATURE_WatchListClient=" + feature)
		w.expectMirroring()
		w.expectBounded("started with them, WatchListClient="+feature, p, most)
		w.stop(p)
	}
}

// startAsShipped runs a controller with the environment of the Deployment, and serves both ports. The mutation detector is off: it
// keeps a second copy of each object.
func (w *world) startAsShipped(env ...string) *shipped.Process {
	w.Helper()
	deployment, err := w.installed.Manifests.Deployment()
	if err != nil {
		w.Fatal(err)
	}
	env = append(env, "KUBE_CACHE_MUTATION_DETECTOR=false")
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		env = append(env, variable.Name+"="+variable.Value)
	}
	return w.startWith(shipped.RunOptions{Env: env,
		Args: []string{"--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0"}})
}

// expectMirroring waits until the copies of a new source are in the namespaces a and b.
func (w *world) expectMirroring() {
	w.Helper()
	w.waitInSync(w.createSource(w.home, fmt.Sprint("settings-", worlds.Add(1))), w.ns("a"), w.ns("b"))
}

// expectBounded fails the test if the controller has, or had, too much in memory. most is in MiB.
func (w *world) expectBounded(when string, p *shipped.Process, most int) {
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
	w.figure("%s: %d MiB", when, peak)
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
	w := newWorld(t, "a", "b")
	p := w.start("--logging-format=json")
	w.settle(w.ns("b")) // copies out of scope that it finds when it takes over go
	here, away := w.ns("a"), w.elsewhere("tenant")
	for _, name := range []string{"here", "away"} {
		w.waitInSync(w.createSource(w.home, name), here, w.ns("b"))
	}
	w.create(away, "away", w.marksOfCopy(w.home, away, "away")...)
	var flipping sync.WaitGroup
	flipping.Go(func() { w.flip(here, "here") })
	flipping.Go(func() { w.flip(away, "away") })
	flipping.Wait()
	w.stop(p) // it writes the events that wait
	w.expectSpacedEvents(w.home)
	w.expectSpacedLines(p.Log())
}

// flip makes a copy of ours of the ConfigMap, and something else again, hundreds of times.
func (w *world) flip(namespace, name string) {
	const flips = 500
	ours := map[string]any{plan.SourceAnnotation: w.home + "/" + name}
	for i := range flips {
		label, annotations := any(plan.CopyValue), ours
		switch i % 6 {
		case 1:
			annotations = map[string]any{plan.SourceAnnotation: nil}
		case 3:
			label = nil
		case 5:
			annotations = map[string]any{plan.SourceAnnotation: w.home + "/another"}
		}
		labels := map[string]any{w.label: label}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
		if err == nil {
			_, err = w.admin.CoreV1().ConfigMaps(namespace).Patch(w.ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		}
		if err != nil {
			w.Error(err)
			return
		}
	}
}

// expectSpacedEvents fails the test if there are too many events about the sources in the namespace.
func (w *world) expectSpacedEvents(namespace string) {
	w.Helper()
	events, err := w.admin.EventsV1().Events(namespace).List(w.ctx, metav1.ListOptions{})
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
	w.expectSpaced("events", times)
}

// expectSpacedLines is expectSpacedEvents for the lines of a log in JSON. Those without a reason count by their message.
func (w *world) expectSpacedLines(log string) {
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
	w.expectSpaced("log lines", times)
}

// expectSpaced fails the test if there are too many of a key in the time that they took. It allows one more for what a process writes
// when it stops.
func (w *world) expectSpaced(what string, times map[string][]time.Time) {
	w.Helper()
	counts := map[string]int{}
	for key, at := range times {
		counts[key] = len(at)
		elapsed := slices.MaxFunc(at, time.Time.Compare).Sub(slices.MinFunc(at, time.Time.Compare))
		if most := int(elapsed/spacing) + 2; len(at) > most {
			w.Errorf("%d %s %q in %s, want %d at most", len(at), what, key, elapsed, most)
		}
	}
	w.figure("%s: %v", what, counts)
	if counts[mirror.ReasonForeign+" here"]*counts[mirror.ReasonOutOfScope+" away"] == 0 {
		w.Errorf("%s: %v: the attack was none", what, counts)
	}
}

// TestC47HostileConnections opens connections to both ports as anybody in the cluster can, and keeps them. The probes of a kubelet
// are answered beside them, and memory is bounded.
func TestC47HostileConnections(t *testing.T) {
	w := newWorld(t, "a", "b")
	p := w.startAsShipped()
	w.until("ready", func() error { return w.probe(p, "/readyz") })
	w.expectMirroring()
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
			address, err := addressOf(served, p)
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
		w.wait("all connections are open", opened)
		for _, path := range []string{"/livez", "/readyz"} {
			// The attacker may push out the connection of a probe, too. A kubelet asks again.
			w.until("a probe beside "+attack.what, func() error { return w.probe(p, path) })
		}
		w.expectBounded("beside them", p, maxMemory)
		w.expectMirroring()
		close(ended)
	}
	w.until("the metrics are served", func() error {
		_, err := w.scrape(p)
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
