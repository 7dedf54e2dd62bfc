package contract

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// In which order copies are written, and how often: cases C32, C38 and C40.

// TestC32DuringFanOut creates a namespace in the middle of a fan-out to hundreds: it does not wait for the end. The copies
// that wait meanwhile are the depth of the queue.
func TestC32DuringFanOut(t *testing.T) {
	t.Parallel()
	w := suite.NewProxied(t, suite.New(t))
	targets, late := w.CreateMany(200), w.NS("z")
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
	w.Proxy.Inject(long)
	hold, itsTurn := w.Proxy.Inject(never), w.Proxy.Inject(turn)
	p := w.StartProxied(nil, "--concurrent-writes=1", "--metrics-bind-address=127.0.0.1:0")
	w.WaitMetrics("it leads", p, map[string]float64{`mirror_sources`: 0, `workqueue_depth{name="mirror"}`: 0})
	source := w.CreateSource(w.Home, "settings")
	w.Await("the middle of the fan-out", func() bool { return hold.Held() > 0 })
	got, err := w.Scrape(p)
	if depth := got[`workqueue_depth{name="mirror"}`]; err != nil || depth < 50 || depth > float64(len(targets)) {
		t.Errorf("depth of the queue in the middle of the fan-out: %v, %v", depth, err)
	}
	w.CreateNamespace(late, nil)
	w.Await("the new namespace has its turn", func() bool { return itsTurn.Fired() > 0 })
	if n := usual + hold.Fired(); n > len(targets)/2 {
		t.Errorf("the new namespace came after %d of %d others", n, len(targets))
	}
	hold.Stop()
	w.WaitInSync(source, append(targets, late)...)
}

// TestC46FanOutsShare has a controller take over with ten sources that have no copies yet: none of them waits for the end
// of another. The proxy makes the writes slow, so that all fan-outs are planned while the first copies are written.
func TestC46FanOutsShare(t *testing.T) {
	t.Parallel()
	const sources = 10
	w := suite.NewProxied(t, suite.New(t))
	targets := w.CreateMany(40)
	var all []*corev1.ConfigMap
	for i := range sources {
		all = append(all, w.CreateSource(w.Home, fmt.Sprintf("settings-%d", i)))
	}
	w.Proxy.Inject(faultproxy.Rule{
		Verbs: []string{"create"}, Resources: []string{"configmaps"},
		Fault: faultproxy.Fault{Kind: faultproxy.Delay, For: 50 * time.Millisecond},
	})
	w.StartProxied(nil, "--concurrent-writes=4")
	for _, source := range all {
		w.WaitInSync(source, targets...)
	}
	// How many copies each source has when the first source has most of its copies.
	most, made := len(targets)*9/10, map[string]int{}
	for _, e := range suite.WritesTo(w.Requests(), "") {
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
	w := suite.New(t)
	const updates = 100
	targets := w.CreateMany(20)
	w.Start("--resync-period=0")
	src := w.CreateSource(w.Home, "busy")
	w.WaitInSync(src, targets...)
	mark := w.AuditMark()
	for i := range updates {
		src.Data = map[string]string{"version": fmt.Sprint(i)}
		var err error
		if src, err = w.Admin.CoreV1().ConfigMaps(w.Home).Update(w.Context(), src, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.WaitInSync(src, targets...)
	w.Settle(targets...)
	written := map[string]int{}
	for _, e := range suite.WritesTo(w.RequestsSince(mark), "busy") {
		if e.Response.Code < 300 {
			written[e.Object.Namespace]++
		}
	}
	for namespace, n := range written {
		if n > updates {
			t.Errorf("%d writes in %s for %d updates", n, namespace, updates)
		}
	}
	w.ExpectQuiet("busy", targets[0])
}

// TestC40Idle shows that without a change there is no request but the watches, and that a foreign object in
// the way costs no more than its retries: creates that are refused, and reads at the first of them.
func TestC40Idle(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "taken")
	targets, taken := w.CreateMany(10), w.NS("taken")
	w.Create(taken, "quiet")
	src := w.CreateSource(w.Home, "quiet")
	first := w.Start()
	w.WaitInSync(src, targets...)
	w.Settle(targets...)
	w.Stop(first)

	// A restart with everything in sync writes nothing. When it has dealt with a new source, it has done everything.
	began, mark := time.Now(), w.AuditMark()
	w.Start("--resync-period=200ms")
	w.Settle(targets...)
	w.Settle(targets...)
	var retries []cluster.Event
	for _, e := range w.RequestsSince(mark) {
		ofTheBarrier := e.Object.Resource == "configmaps" && e.Object.Name != "" && e.Object.Name != "quiet"
		switch {
		case e.Verb == "watch", e.Verb == "list", e.Object.Resource == "events", ofTheBarrier: // a list begins a watch
		case e.Object.Namespace == taken && (e.Verb == "get" || e.Verb == "create" && e.Response.Code == http.StatusConflict):
			retries = append(retries, e)
		default:
			t.Errorf("request without need: %v", e)
		}
	}
	w.ExpectPaced(began, 1, 2, retries)
}
