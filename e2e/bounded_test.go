package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Attacks by tenants, and by anybody who reaches the ports: case C47. The policies of deploy/ prevent some of them; the controller
// has to bear them without.

const (
	// maxMemory is far below the memory limit of the Deployment, and far above what the controller takes in a small cluster.
	maxMemory = 150 << 20
	// spacing is the least time between two events, or two log lines, of one reason about one source.
	spacing = 10 * time.Second
)

// TestC47PruneLimitCannotBeDisarmed starts the controller with a prefix that leaves out 13 of 15 copies, while a tenant has 40 forged
// copies: they do not outweigh the 13.
func TestC47PruneLimitCannotBeDisarmed(t *testing.T) {
	t.Parallel()
	const many = 40
	for name, test := range map[string]struct {
		forge func(w *world)
		says  string
	}{
		"of sources that are not there": {func(w *world) {
			tenant := w.createNamespace(w.ns("tenant"), nil).Name
			for i := range many {
				name := fmt.Sprint("forged-", i)
				w.create(tenant, name, w.marksOfCopy(w.home, tenant, name)...)
			}
		}, "13 of 15 copies"},
		"in namespaces that opted out": {func(w *world) {
			for i := range many {
				tenant := w.createNamespace(w.ns(fmt.Sprint("kept-tenant-", i)), map[string]string{w.label: plan.OptOutValue}).Name
				w.create(tenant, "settings", w.marksOfCopy(w.home, tenant, "settings")...)
			}
		}, "13 of 15 copies"},
		"in namespaces out of scope": {func(w *world) {
			for i := range many {
				tenant := w.createNamespace(w.ns(fmt.Sprint("tenant-", i)), nil).Name
				w.create(tenant, "settings", w.marksOfCopy(w.home, tenant, "settings")...)
			}
		}, "53 of 55 copies"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			kept, dropped := w.createNamed("kept-", 2), w.createNamed("dropped-", 13)
			p := w.startExactly("--namespace-prefix=" + w.ns("kept-") + "," + w.ns("dropped-"))
			source := w.createSource(w.home, "settings")
			w.waitInSync(source, slices.Concat(kept, dropped)...)
			copies := w.copies("settings", slices.Concat(kept, dropped)...)
			w.stop(p)
			test.forge(w)
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
	w.expectMirroring(p)
	const annotated, labelled = 500, 100
	forge := func(i int) *corev1.ConfigMap {
		name := fmt.Sprint("forged-", i)
		cm := configMap(tenant, name, w.marksOfCopy(w.home, tenant, name)...)
		filling := fmt.Sprint(i, strings.Repeat("x", 250<<10))
		switch i % 4 {
		case 0: // our marks, and more
			put(&cm.Annotations, plan.SourceAnnotation, tenant+"/"+name) // no source of this copy
			put(&cm.Annotations, "example.com/note", filling)
		case 1:
			put(&cm.Annotations, plan.SourceAnnotation, filling)
		case 2:
			put(&cm.Annotations, plan.CopyAnnotation, filling)
		case 3:
			put(&cm.Annotations, plan.InstanceAnnotation, filling)
		}
		if i < annotated {
			return cm
		}
		cm.Annotations = nil
		for j := range 1100 { // 400 KiB
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
	w.expectMirroring(p) // one watch shows all in order: it has seen the others
	w.expectBounded("while they came", p)
	w.stop(p)
	for _, feature := range []string{"true", "false"} {
		p := w.startAsShipped("KUBE_FEATURE_WatchListClient=" + feature)
		w.expectMirroring(p)
		w.expectBounded("started with them, WatchListClient="+feature, p)
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
func (w *world) expectMirroring(p *shipped.Process) {
	w.Helper()
	source := w.createSource(w.home, fmt.Sprint("settings-", worlds.Add(1)))
	w.waitInSync(source, w.ns("a"), w.ns("b"))
	select {
	case <-p.Done():
		w.Fatalf("the controller has ended:\n%s", lastLines(p.Log(), 60))
	default:
	}
}

// expectBounded fails the test if the controller has, or had, too much in memory.
func (w *world) expectBounded(when string, p *shipped.Process) {
	w.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		w.Fatal(err)
	}
	kilobytes := func(name string) (n int) {
		_, value, _ := strings.Cut(string(status), "\n"+name+":")
		if _, err := fmt.Sscanf(value, "%d kB", &n); err != nil {
			w.Fatalf("%s: %v", name, err)
		}
		return n
	}
	resident, peak := kilobytes("VmRSS")>>10, kilobytes("VmHWM")>>10
	w.figure("%s: %d MiB resident, %d MiB at the most", when, resident, peak)
	if peak >= maxMemory>>20 {
		w.Errorf("%s: the controller had %d MiB in memory, want less than %d MiB", when, peak, maxMemory>>20)
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
			errs[i] = f(i)
			<-places
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// TestC47EventsAndLogOfFlips changes forged copies as fast as the API server accepts it. What there is to report of their source
// changes as fast, and events and log lines do not.
func TestC47EventsAndLogOfFlips(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b, away := w.ns("a"), w.ns("b"), w.elsewhere("tenant")
	p := w.start("--logging-format=json")
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, a, b)
	w.create(away, "settings", w.marksOfCopy(w.home, away, "settings")...)
	w.waitEvent(w.home, "settings", mirror.ReasonOutOfScope)
	flip := func(namespace string, labels, annotations map[string]any) {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
		if err == nil {
			_, err = w.admin.CoreV1().ConfigMaps(namespace).Patch(w.ctx, "settings", types.MergePatchType, body, metav1.PatchOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const flips = 500
	labelled := map[string]any{w.label: plan.CopyValue}
	for i := range flips {
		forged, lost := map[string]any{plan.SourceAnnotation: w.home + "/settings"}, any(nil)
		switch i % 4 {
		case 0:
			forged = map[string]any{plan.SourceAnnotation: w.home + "/other"}
		case 2:
			lost = plan.CopyValue
			forged = map[string]any{plan.SourceAnnotation: nil}
		}
		flip(away, labelled, forged) // out of scope, or foreign and not in the way
		flip(a, labelled, forged)    // in sync, or foreign and in the way
		flip(away, map[string]any{w.label: lost}, nil)
	}
	w.stop(p) // it writes the events that wait
	w.expectSpacedEvents(w.home)
	w.expectSpacedLines(p.Log())
}

// expectSpacedEvents fails the test if events of one reason in the namespace have less than spacing between them, or if there are none.
func (w *world) expectSpacedEvents(namespace string) {
	w.Helper()
	events, err := w.admin.EventsV1().Events(namespace).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	counts, times := map[string]int{}, map[string][]time.Time{}
	for _, e := range events.Items {
		counts[e.Reason]++
		times[e.Reason] = append(times[e.Reason], e.EventTime.Time)
		if e.Series != nil {
			counts[e.Reason] += int(e.Series.Count) - 1
			times[e.Reason] = append(times[e.Reason], e.Series.LastObservedTime.Time)
		}
	}
	w.expectSpaced("events", counts, times)
}

// expectSpacedLines is expectSpacedEvents for the lines of a log in JSON. Those without a reason count by their message.
func (w *world) expectSpacedLines(log string) {
	w.Helper()
	counts, times := map[string]int{}, map[string][]time.Time{}
	for line := range strings.Lines(log) {
		var fields struct {
			TS          float64
			Msg, Reason string
		}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			w.Fatalf("%v: %s", err, line)
		}
		if fields.Reason == "" {
			fields.Reason = fields.Msg
		}
		counts[fields.Reason]++
		times[fields.Reason] = append(times[fields.Reason], time.UnixMicro(int64(fields.TS*1e3)))
	}
	w.expectSpaced("log lines", counts, times)
}

// expectSpaced allows one more: a process that stops writes what waits.
func (w *world) expectSpaced(what string, counts map[string]int, times map[string][]time.Time) {
	w.Helper()
	w.figure("%s by reason: %v", what, counts)
	for _, reason := range []string{mirror.ReasonForeign, mirror.ReasonOutOfScope} {
		if counts[reason] == 0 {
			w.Errorf("no %s of reason %s: the attack was none", what, reason)
		}
	}
	for reason, n := range counts {
		elapsed := slices.MaxFunc(times[reason], time.Time.Compare).Sub(slices.MinFunc(times[reason], time.Time.Compare))
		if most := int(elapsed/spacing) + 2; n > most {
			w.Errorf("%d %s of reason %q in %s, want %d at most", n, what, reason, elapsed, most)
		}
	}
}

// TestC47LongValuesInTheLog has values of 250 KB in all places that the controller reads and a tenant can write, and in an answer of
// the API server. No line of the log is longer than maxLine at any verbosity: expectShortLines judges the controllers of all tests.
func TestC47LongValuesInTheLog(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 250<<10)
	for _, format := range []string{"text", "json"} {
		for _, verbosity := range []string{"2", "7"} {
			t.Run(format+verbosity, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, "a", "b", "judged")
				a, b, judged := w.ns("a"), w.ns("b"), w.ns("judged")
				w.startWebhook(judged, func(*admissionv1.AdmissionRequest) error { return errors.New(long) })
				p := w.start("-v="+verbosity, "--logging-format="+format, "--copy-annotation=example.com/*")
				w.createSource(w.home, "selector", withAnnotation(plan.SelectorAnnotation, "a in ("+long))
				w.createSource(w.home, "prefix", withAnnotation(plan.PrefixAnnotation, "-"+long))
				for _, name := range []string{"selector", "prefix"} {
					w.waitEvent(w.home, name, mirror.ReasonInvalidAnnotation)
				}
				forgeries := []string{plan.SourceAnnotation, plan.CopyAnnotation, plan.InstanceAnnotation, plan.AdoptAnnotation,
					plan.ChecksumAnnotation, plan.CopiedAnnotation}
				for i, key := range forgeries {
					name := fmt.Sprint("forged-", i)
					w.create(a, name, append(w.marksOfCopy(w.home, a, name), withAnnotation(key, long))...)
					w.waitInSync(w.createSource(w.home, name, withAnnotation("example.com/note", long[:200<<10])), b)
					w.waitEvent(w.home, name, mirror.ReasonWriteFailed) // by the webhook
				}
				w.settle(b)
				w.stop(p)
				if !strings.Contains(p.Log(), "xxxx") {
					t.Errorf("there is nothing of the values in the log:\n%s", lastLines(p.Log(), 60))
				}
			})
		}
	}
}

// TestC47HostileConnections opens connections to both ports as anybody in the cluster can. The probes of a kubelet are answered
// in time beside them, and memory is bounded.
func TestC47HostileConnections(t *testing.T) {
	w := newWorld(t, "a", "b")
	p := w.startAsShipped()
	w.until("ready", func() error { return w.probe(p, "/readyz") })
	w.expectMirroring(p)
	probes := w.startProbes(p)
	for _, attack := range []struct {
		name        string
		connections int // to each port
		request     string
	}{
		{"a header of 1 MB", 600, "GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 1_000_000)},
		{"half a header", 1000, "GET /metrics HTTP/1.1\r\nHost: a\r\nX"},
		{"idle", 4000, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n"},
	} {
		var opening sync.WaitGroup
		ended := make(chan struct{})
		for _, served := range []string{"health", "metrics"} {
			address, err := addressOf(served, p)
			if err != nil {
				t.Fatal(err)
			}
			for range attack.connections {
				opening.Add(1)
				go connect(address, attack.request, opening.Done, ended)
			}
		}
		opening.Wait()
		probes.waitRounds(w, 5)
		w.expectBounded(fmt.Sprintf("%d connections with %s to each port", attack.connections, attack.name), p)
		w.expectMirroring(p)
		close(ended)
	}
	probes.end(w)
	w.until("the metrics are served", func() error {
		_, err := w.scrape(p)
		return err
	})
	w.expectBounded("after all", p)
}

// connect opens a connection, writes the request, waits a moment for the answer, calls opened, and keeps the connection until ended is
// closed. What fails is what the attacker meets.
func connect(address, request string, opened func(), ended <-chan struct{}) {
	const moment = 2 * time.Second
	conn, err := net.DialTimeout("tcp", address, moment)
	if err != nil {
		opened()
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(moment))
	if _, err = io.WriteString(conn, request); err == nil {
		_, _ = bufio.NewReaderSize(conn, 16).ReadByte()
	}
	opened()
	<-ended
}

// probes ask a controller about its health all the time, as a kubelet does: with a new connection each, and the timeout of the
// Deployment.
type probes struct {
	stop, stopped chan struct{}

	mu      sync.Mutex
	rounds  int
	slowest time.Duration
	failed  []error
}

func (w *world) startProbes(p *shipped.Process) *probes {
	w.Helper()
	address, err := addressOf("health", p)
	if err != nil {
		w.Fatal(err)
	}
	out := &probes{stop: make(chan struct{}), stopped: make(chan struct{})}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		defer close(out.stopped)
		pace := time.NewTicker(betweenTries)
		defer pace.Stop()
		for {
			for _, path := range []string{"/livez", "/readyz"} {
				began := time.Now()
				response, err := client.Get("http://" + address + path)
				if err == nil {
					var body bytes.Buffer
					_, err = body.ReadFrom(response.Body)
					response.Body.Close()
					if response.StatusCode != http.StatusOK {
						err = fmt.Errorf("%s: %d: %s", path, response.StatusCode, &body)
					}
				}
				out.took(time.Since(began), err)
			}
			select {
			case <-out.stop:
				return
			case <-pace.C:
			}
		}
	}()
	return out
}

func (p *probes) took(d time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rounds++
	p.slowest = max(p.slowest, d)
	if err != nil {
		p.failed = append(p.failed, err)
	}
}

// waitRounds waits until there were n more probes.
func (p *probes) waitRounds(w *world, n int) {
	w.Helper()
	rounds := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.rounds
	}
	before := rounds()
	w.until("probes go on", func() error {
		if now := rounds(); now < before+n {
			return fmt.Errorf("%d of %d", now-before, n)
		}
		return nil
	})
}

func (p *probes) end(w *world) {
	w.Helper()
	close(p.stop)
	w.wait("the last probe", p.stopped)
	w.figure("%d probes, the slowest took %s", p.rounds, p.slowest)
	if err := errors.Join(p.failed...); err != nil {
		w.Errorf("%d of %d probes failed: %v", len(p.failed), p.rounds, err)
	}
}
