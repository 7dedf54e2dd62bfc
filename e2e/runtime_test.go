package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// many returns the full names of n target namespaces.
func (w *world) many(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = w.ns(fmt.Sprintf("n%04d", i))
	}
	return out
}

func (w *world) createMany(n int) []string {
	w.Helper()
	all := w.many(n)
	for _, name := range all {
		w.createNamespace(name, nil)
	}
	return all
}

// TestC36Fight changes a copy back each time it was put right: that is told, counted, and slows down, at that target alone,
// and when the other side stops it is put right. Other content is a new beginning.
func TestC36Fight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	p := w.start("--metrics-bind-address=127.0.0.1:0")
	source := w.createSource(w.home, "settings")
	w.waitInLine(source, a, b)
	w.waitMetrics("no fight", p, map[string]float64{`mirror_fights`: 0, `mirror_copies{state="synced"}`: 2})
	spoil := func(i int) {
		w.edit(a, "settings", withData(map[string]string{"key": fmt.Sprintf("spoilt-%d", i)}))
	}
	for i := 0; w.reasons(w.home, "settings")["Fight"] == 0; i++ {
		if i == 40 {
			t.Fatal("put right 40 times and no word of a fight")
		}
		spoil(i)
		w.eventually("it is put right, or a fight is told", func() error {
			if w.reasons(w.home, "settings")["Fight"] > 0 {
				return nil
			}
			return w.inLine(source, a)
		})
	}
	w.waitMetrics("a fight", p, map[string]float64{`mirror_fights`: 1, `mirror_copies{state="synced"}`: 1})
	mark := w.auditMark()
	for i := range 30 {
		spoil(100 + i)
		w.settle(b) // others are served as ever
	}
	repairs := 0
	for _, e := range writesTo(w.requestsSince(mark), "settings") {
		if e.Object.Namespace == a {
			repairs++
		}
	}
	if repairs > 12 { // after 1, 3, 7, 15, 31 seconds
		t.Errorf("put right %d times of 30 although it fights", repairs)
	}
	w.waitInLine(source, a, b)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInLine(source, a, b)
	w.waitMetrics("the fight is over", p, map[string]float64{`mirror_fights`: 0, `mirror_copies{state="synced"}`: 2})
}

// TestC36Webhook has a webhook alter what is written, so that the copy is as it was after each repair, of which no watch
// tells: that is told as well, no hot loop, and put right when the webhook goes.
func TestC36Webhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	h := w.startAltering(a, `[{"op": "add", "path": "/data/injected", "value": "theirs"}]`)
	w.start()
	source := w.createSource(w.home, "settings")
	mark := w.auditMark()
	w.waitInLine(source, b)
	w.waitEvent(w.home, "settings", mirror.ReasonFight)
	for range 30 {
		w.settle(b)
	}
	if n := len(writesTo(w.requestsSince(mark), "settings")); n > 20 { // one for b; 11 at once, then after 1, 3, 7, 15, 31 seconds
		t.Errorf("%d writes", n)
	}
	if w.inLine(source, a) == nil {
		t.Error("nothing was altered")
	}
	h.allow()
	w.waitInLine(source, a, b)
}

// TestC38UpdatesInARow changes a source a hundred times in a row: the last state is everywhere in the end, and the
// controller has looked at its targets once for each update at most, and once for each write of its own that it saw.
func TestC38UpdatesInARow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const updates = 100
	targets := w.createMany(20)
	p := w.start("-v=4", "--resync-period=0")
	src := w.createSource(w.home, "busy")
	w.waitInLine(src, targets...)
	w.settle(targets...)
	looksBefore := strings.Count(p.Log(), `/busy"`)
	mark := w.auditMark()
	for i := range updates {
		src.Data = map[string]string{"version": fmt.Sprint(i)}
		var err error
		if src, err = w.admin.CoreV1().ConfigMaps(w.home).Update(w.ctx, src, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.waitInLine(src, targets...)
	w.settle(targets...)
	looks := strings.Count(p.Log(), `/busy"`) - looksBefore // each logs one line that names the copy
	writes := len(writesTo(w.requestsSince(mark), "busy"))
	if most := (updates+10)*len(targets) + writes; looks > most {
		t.Errorf("%d looks at %d targets for %d updates and %d writes, want %d at most", looks, len(targets), updates, writes, most)
	}
	if most := updates * len(targets); writes > most {
		t.Errorf("%d writes at %d targets for %d updates, want %d at most", writes, len(targets), updates, most)
	}
	t.Logf("%d looks, %d writes", looks, writes)
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
	w.waitInLine(src, targets...)
	w.settle(targets...)
	w.stop(first)

	// A restart with everything in line writes nothing: what it does until it has dealt with a new source is
	// all there is.
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

// TestC41PausedProcess stops the controller's process, lets a namespace opt out and in again, and lets the
// process go on: it sees the opt-out first, and must not delete the copy on its strength.
func TestC41PausedProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	p := w.start()
	src := w.createSource(w.home, "settings")
	w.waitInLine(src, w.ns("a"), w.ns("b"))
	before := w.live(w.ns("a"), "settings")
	for range 20 {
		w.pause(p)
		w.labelNamespace(w.ns("a"), w.label, "false")
		w.labelNamespace(w.ns("a"), w.label, "")
		w.resume(p)
		w.settle(w.ns("b"))
	}
	w.untouched(before)
}

// TestC41Standby holds up the namespaces of a standby that has one as opted out, while that opts in again and gets its copy.
// The standby takes over, knows of the copy and not that it is wanted, and must not delete it.
func TestC41Standby(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	first, second := w.newCandidate("first"), w.newCandidate("second")
	w.stand(first, first.kubeconfig, shortLeaseArgs...)
	src := w.createSource(w.home, "settings")
	w.waitInLine(src, a, b)
	w.labelNamespace(a, w.label, plan.OptOutValue)
	w.waitGone("settings", a)

	between := newProxiedAs(t, w, second.kubeconfig)
	w.stand(second, between.proxy.Kubeconfig(), shortLeaseArgs...)
	w.Cleanup(between.proxy.Heal)
	hold := between.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"watch", "list"}, Resources: []string{"namespaces"}, Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
	between.proxy.CutWatches("namespaces")
	between.await("the watch is down", func() bool { return hold.Held() == 1 })
	w.labelNamespace(a, w.label, "")
	w.waitInLine(src, a)
	before := w.copies("settings", a, b)
	first.Kill()
	w.leads(second)
	w.waitRequests("the look at the namespace", 1, func(e cluster.Event) bool {
		return e.User.Username == second.user && e.Verb == "get" && e.Object.Resource == "namespaces" && e.Object.Name == a
	})
	w.settle(b)
	w.allUntouched(before)

	src = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInLine(src, b)
	hold.Stop()
	w.waitInLine(src, a)
	w.sameObjects(before)
}

// TestC43LabelThenSource strips the label of a copy and, right after, takes its source away: the copy goes too.
// The process stands still meanwhile, so that it learns of the second before it has dealt with the first.
func TestC43LabelThenSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	p := w.start()
	for i := range 10 {
		name := fmt.Sprintf("settings-%d", i)
		src := w.createSource(w.home, name)
		w.waitInLine(src, w.ns("a"), w.ns("b"))
		w.pause(p)
		w.edit(w.ns("a"), name, withoutLabel(w.label))
		if i%2 == 0 {
			w.edit(w.home, name, withoutLabel(w.label))
		} else {
			w.delete(w.home, name)
		}
		w.resume(p)
		w.waitGone(name, w.ns("a"), w.ns("b"))
	}
}

// TestC44SharedInstance runs two controllers of one instance with different prefixes: each leaves the copies of
// the other alone, says so, and nothing is emptied.
func TestC44SharedInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := []string{}, []string{}
	for i := range 15 {
		ours = append(ours, w.ns(fmt.Sprintf("ours-%d", i)))
		theirs = append(theirs, w.ns(fmt.Sprintf("theirs-%d", i)))
	}
	for _, name := range append(append([]string{}, ours...), theirs...) {
		w.createNamespace(name, nil)
	}
	first := w.startExactly("--namespace-prefix=" + w.ns("ours-"))
	src := w.createSource(w.home, "settings")
	w.waitInLine(src, ours...)
	second := w.startExactly("--namespace-prefix=" + w.ns("theirs-"))
	w.waitInLine(src, theirs...)
	w.waitEvent(w.home, "settings", "Foreign")
	src = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInLine(src, append(append([]string{}, ours...), theirs...)...)
	for _, e := range writesTo(w.requests(), "settings") {
		if e.Verb == "delete" {
			t.Errorf("one deleted a copy of the other: %v", e)
		}
	}
	w.stop(first)
	w.stop(second)
}

// TestC44SharedInstanceBySourceNamespace is the same with controllers that differ in where sources may be.
func TestC44SharedInstanceBySourceNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(12)
	away := w.createNamespace("away-"+w.instance, nil).Name
	w.start("--source-namespace=" + w.home)
	ours := w.createSource(w.home, "ours")
	theirs := w.createSource(away, "theirs")
	w.waitInLine(ours, targets...)
	w.start("--source-namespace=" + away)
	w.waitInLine(theirs, targets...)
	w.waitEvent(w.home, "ours", "Foreign")
	w.waitEvent(away, "theirs", "Foreign")
	ours = w.edit(w.home, "ours", withData(map[string]string{"key": "two"}))
	theirs = w.edit(away, "theirs", withData(map[string]string{"key": "two"}))
	w.waitInLine(ours, targets...)
	w.waitInLine(theirs, targets...)
	for _, e := range append(writesTo(w.requests(), "ours"), writesTo(w.requests(), "theirs")...) {
		if e.Verb == "delete" {
			t.Errorf("one deleted a copy of the other: %v", e)
		}
	}
}

// TestC14ManyAfterRestart covers C14 for many copies at once: source deleted while nobody watches.
func TestC14ManyAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(100)
	p := w.start()
	src := w.createSource(w.home, "settings")
	w.waitInLine(src, targets...)
	w.stop(p)
	w.delete(w.home, "settings")
	mark := w.auditMark()
	w.start()
	w.waitGone("settings", targets...)
	var looks, deletions []cluster.Event
	for _, e := range w.requestsSince(mark) {
		switch {
		case e.Object.Resource != "configmaps":
		case e.Verb == "get":
			looks = append(looks, e)
		case e.Verb == "delete":
			deletions = append(deletions, e)
		}
	}
	// The answer of a look is worth five seconds. As a rule the deletions take a fraction of one.
	most := 2 + int(lastReceived(deletions).Sub(firstReceived(deletions))/(5*time.Second))
	if len(looks) > most {
		t.Errorf("%d live looks for one source that is gone, want %d at most", len(looks), most)
	}
}

// TestStopInTheMiddle stops the controller in the middle of a fan-out, with writes in flight that an admission webhook
// holds up: they end, then it exits with 0, and the next one goes on.
func TestStopInTheMiddle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "held")
	held := w.ns("held")
	targets := append(w.createMany(200), held)
	reached, proceed := w.startWebhook(held, nil).holdNext(admissionv1.Create)
	p := w.start("--concurrent-writes=4")
	src := w.createSource(w.home, "settings")
	w.wait("a write in flight", reached)
	w.signal(p, syscall.SIGTERM)
	w.until("it stops", func() error {
		if !strings.Contains(p.Log(), `"Stopping`) {
			return errors.New("it has not said so")
		}
		return nil
	})
	if strings.Contains(p.Log(), "no write in flight") {
		t.Error("it says that no write is in flight")
	}
	proceed()
	w.wait("its end", p.Done())
	if code := p.ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, lastLines(p.Log(), 20))
	}
	w.waitInLine(src, held)
	for _, e := range writesTo(w.requests(), "settings") {
		if e.Response.Code >= 400 {
			t.Errorf("a write in flight was cut off or refused: %v", e)
		}
	}
	w.start()
	w.waitInLine(src, targets...)
}

// count returns in how many of the namespaces the outside watch has shown a ConfigMap of the name.
func (w *world) count(namespaces []string, name string) int {
	n := 0
	for _, namespace := range namespaces {
		if w.seen.ConfigMap(namespace, name) != nil {
			n++
		}
	}
	return n
}
