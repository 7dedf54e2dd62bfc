package e2e

import (
	"fmt"
	"net/http"
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
	targets, late := w.createMany(200), w.ns("z")
	// The fan-out takes minutes until the new namespace has its turn: calls that take long count as usual, and from then on none
	// is answered, so that it is seconds before the controller cuts one and makes the next one.
	const usual = 20
	creates := faultproxy.Rule{Verbs: []string{"create"}, Resources: []string{"configmaps"}}
	long, never, turn := creates, creates, creates
	long.Count, long.Fault = usual, faultproxy.Fault{Kind: faultproxy.Delay, For: 250 * time.Millisecond}
	never.Skip, never.Fault = usual, faultproxy.Fault{Kind: faultproxy.Hold}
	never.When = func(q faultproxy.Request) bool { return q.Namespace != late }
	turn.Fault = faultproxy.Fault{Kind: faultproxy.Pass}
	turn.When = func(q faultproxy.Request) bool { return q.Namespace == late }
	w.proxy.Inject(long)
	hold, itsTurn := w.proxy.Inject(never), w.proxy.Inject(turn)
	p := w.run(nil, "--concurrent-writes=1", "--metrics-bind-address=127.0.0.1:0")
	w.waitMetrics("it leads", p, map[string]float64{`mirror_sources`: 0, `workqueue_depth{name="mirror"}`: 0})
	source := w.createSource(w.home, "settings")
	w.await("the middle of the fan-out", func() bool { return hold.Held() > 0 })
	got, err := w.scrape(p)
	if depth := got[`workqueue_depth{name="mirror"}`]; err != nil || depth < 50 || depth > float64(len(targets)) {
		t.Errorf("depth of the queue in the middle of the fan-out: %v, %v", depth, err)
	}
	w.createNamespace(late, nil)
	w.await("the new namespace has its turn", func() bool { return itsTurn.Fired() > 0 })
	if n := usual + hold.Fired(); n > len(targets)/2 {
		t.Errorf("the new namespace came after %d of %d others", n, len(targets))
	}
	hold.Stop()
	w.waitInSync(source, append(targets, late)...)
}

// TestC46FanOutsShare has a controller take over with ten sources that have no copies yet: none of them waits for the end
// of another. The proxy makes the writes slow, so that all fan-outs are planned while the first copies are written.
func TestC46FanOutsShare(t *testing.T) {
	t.Parallel()
	const sources = 10
	w := newProxied(t, newWorld(t))
	targets := w.createMany(40)
	var all []*corev1.ConfigMap
	for i := range sources {
		all = append(all, w.createSource(w.home, fmt.Sprintf("settings-%d", i)))
	}
	w.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"create"}, Resources: []string{"configmaps"},
		Fault: faultproxy.Fault{Kind: faultproxy.Delay, For: 50 * time.Millisecond},
	})
	w.run(nil, "--concurrent-writes=4")
	for _, source := range all {
		w.waitInSync(source, targets...)
	}
	// How many copies each source has when the first source has most of its copies.
	most, made := len(targets)*9/10, map[string]int{}
	for _, e := range writesTo(w.requests(), "") {
		if e.Response.Code < 300 {
			made[e.Object.Name]++
		}
		if made[e.Object.Name] == most {
			break
		}
	}
	for _, source := range all {
		if n := made[source.Name]; n < most/4 {
			t.Errorf("%s has %d copies when the first source has %d", source.Name, n, most)
		}
	}
	t.Logf("copies when the first source has most: %v", made)
}

// TestC38UpdatesInARow changes a source a hundred times in a row: the last state is everywhere in the end, and no copy was
// written twice for one update. TestC38EditsAllTheTime in package mirror counts the passes, in virtual time.
func TestC38UpdatesInARow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const updates = 100
	targets := w.createMany(20)
	w.start("--resync-period=0")
	src := w.createSource(w.home, "busy")
	w.waitInSync(src, targets...)
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
	written := map[string]int{}
	for _, e := range writesTo(w.requestsSince(mark), "busy") {
		if e.Response.Code < 300 {
			written[e.Object.Namespace]++
		}
	}
	for namespace, n := range written {
		if n > updates {
			t.Errorf("%d writes in %s for %d updates", n, namespace, updates)
		}
	}
	w.expectQuiet("busy", targets[0])
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
	began, mark := time.Now(), w.auditMark()
	w.start("--resync-period=200ms")
	w.settle(targets...)
	w.settle(targets...)
	var retries []cluster.Event
	for _, e := range w.requestsSince(mark) {
		ofTheBarrier := e.Object.Resource == "configmaps" && e.Object.Name != "" && e.Object.Name != "quiet"
		switch {
		case e.Verb == "watch", e.Verb == "list", e.Object.Resource == "events", ofTheBarrier: // a list begins a watch
		case e.Object.Namespace == taken && (e.Verb == "get" || e.Verb == "create" && e.Response.Code == http.StatusConflict):
			retries = append(retries, e)
		default:
			t.Errorf("request without need: %v", e)
		}
	}
	w.expectPaced(began, 1, 2, retries)
}
