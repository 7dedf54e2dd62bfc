package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
)

// In which order copies are written, and how often: cases C32, C38 and C40.

// TestC32DuringFanOut creates a namespace in the middle of a fan-out to hundreds: it does not wait for the end. The copies
// that wait meanwhile are the depth of the queue.
func TestC32DuringFanOut(t *testing.T) {
	t.Parallel()
	w := newProxied(t, newWorld(t))
	targets := w.createMany(300)
	w.proxy.Inject(faultproxy.Rule{ // so that the fan-out takes some ten seconds
		Verbs: []string{"create"}, Resources: []string{"configmaps"},
		Fault: faultproxy.Fault{Kind: faultproxy.Delay, For: 30 * time.Millisecond},
	})
	p := w.run(nil, "--concurrent-writes=1", "--metrics-bind-address=127.0.0.1:0")
	w.waitMetrics("it leads", p, map[string]float64{`mirror_sources`: 0, `workqueue_depth{name="mirror"}`: 0})
	source := w.createSource(w.home, "settings")
	w.eventually("the fan-out has begun", func() error {
		if w.count(targets, "settings") == 0 {
			return errors.New("no copy yet")
		}
		return nil
	})
	mark := w.auditMark()
	late := w.createNamespace(w.ns("z"), nil).Name
	got, err := w.scrape(p)
	if depth := got[`workqueue_depth{name="mirror"}`]; err != nil || depth < 50 || depth > float64(len(targets)) {
		t.Errorf("depth of the queue in the middle of the fan-out: %v, %v", depth, err)
	}
	w.waitInSync(source, append(targets, late)...)
	w.waitWrites("settings", len(targets)+1)
	order := writesTo(w.requestsSince(mark), "settings")
	at := slices.IndexFunc(order, func(e cluster.Event) bool { return e.Object.Namespace == late })
	if len(order) < 50 {
		t.Errorf("only %d copies were left when the namespace came: this machine is too slow to tell", len(order))
	} else if at < 0 || at > len(order)/2 {
		t.Errorf("the new namespace came %dth of the %d that were left", at+1, len(order))
	}
}

// TestC46FanOutsShare has a controller take over with ten sources that have no copies yet: none of them waits for the end
// of another.
func TestC46FanOutsShare(t *testing.T) {
	t.Parallel()
	const sources = 10
	w := newWorld(t)
	targets := w.createMany(150)
	var all []*corev1.ConfigMap
	for i := range sources {
		all = append(all, w.createSource(w.home, fmt.Sprintf("settings-%d", i)))
	}
	w.start()
	for _, source := range all {
		w.waitInSync(source, targets...)
		w.waitWrites(source.Name, len(targets))
	}
	// How many copies each source has when the first source has all of its copies.
	made := map[string]int{}
	for _, e := range writesTo(w.requests(), "") {
		if e.Response.Code < 300 {
			made[e.Object.Name]++
		}
		if made[e.Object.Name] == len(targets) {
			break
		}
	}
	for _, source := range all {
		if n := made[source.Name]; n < len(targets)/4 {
			t.Errorf("%s has %d of %d copies when the first source has all", source.Name, n, len(targets))
		}
	}
	t.Logf("copies when the first source has all: %v", made)
}

// TestC38UpdatesInARow changes a source a hundred times in a row: the last state is everywhere in the end, and the
// controller has reconciled each target once for each update at most, and once for each write of its own that it saw.
func TestC38UpdatesInARow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const updates = 100
	targets := w.createMany(20)
	p := w.start("-v=4", "--resync-period=0")
	src := w.createSource(w.home, "busy")
	w.waitInSync(src, targets...)
	w.settle(targets...)
	before := strings.Count(p.Log(), `/busy"`)
	mark := w.auditMark()
	for i := range updates {
		src.Data = map[string]string{"version": fmt.Sprint(i)}
		var err error
		if src, err = w.admin.CoreV1().ConfigMaps(w.home).Update(w.ctx, src, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.waitInSync(src, targets...)
	w.settle(targets...)
	reconciles := strings.Count(p.Log(), `/busy"`) - before // each logs one line that names the copy
	writes := len(writesTo(w.requestsSince(mark), "busy"))
	if most := (updates+10)*len(targets) + writes; reconciles > most {
		t.Errorf("%d reconciles of %d targets for %d updates and %d writes, want %d at most", reconciles, len(targets), updates, writes, most)
	}
	if most := updates * len(targets); writes > most {
		t.Errorf("%d writes at %d targets for %d updates, want %d at most", writes, len(targets), updates, most)
	}
	t.Logf("%d reconciles, %d writes", reconciles, writes)
}

// TestC40Idle shows that without a change there is no request but the watches, and that a foreign object in
// the way costs no more than its retries: creates that are refused, and reads at the first of them.
func TestC40Idle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "taken")
	targets, taken := w.createMany(10), w.ns("taken")
	w.create(taken, "quiet")
	src := w.createSource(w.home, "quiet")
	first := w.start()
	w.waitInSync(src, targets...)
	w.settle(targets...)
	w.stop(first)

	// A restart with everything in sync writes nothing. When it has dealt with a new source, it has done everything.
	mark := w.auditMark()
	w.start("--resync-period=200ms")
	w.settle(targets...)
	w.settle(targets...)
	retries := 0
	for _, e := range w.requestsSince(mark) {
		ofTheBarrier := e.Object.Resource == "configmaps" && e.Object.Name != "" && e.Object.Name != "quiet"
		switch {
		case e.Verb == "watch", e.Object.Resource == "events", ofTheBarrier:
		case e.Object.Namespace == taken && (e.Verb == "get" || e.Verb == "create" && e.Response.Code == http.StatusConflict):
			retries++
		default:
			t.Errorf("request without need: %v", e)
		}
	}
	if retries > 20 { // two at each of the first tries, after 0, 1, 3, 7, 15 and 31 seconds
		t.Errorf("%d requests for one object that is in the way", retries)
	}
}
