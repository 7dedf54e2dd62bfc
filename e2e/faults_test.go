package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// Variables in the environment of the controller. The first two have it look after a connection on which
// nothing comes in sooner than the 30 and 15 seconds that are client-go's defaults; the last makes it list.
var (
	impatient = []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=1", "HTTP2_PING_TIMEOUT_SECONDS=1"}
	listing   = []string{"KUBE_FEATURE_WatchListClient=false"}
)

// proxied is a world whose controller reaches the API server through a proxy that misbehaves.
type proxied struct {
	*world
	proxy *faultproxy.Proxy
}

func newProxied(t *testing.T, w *world) *proxied {
	t.Helper()
	return newProxiedAs(t, w, w.installed.Kubeconfig)
}

// newProxiedAs is newProxied for a controller with a kubeconfig of its own.
func newProxiedAs(t *testing.T, w *world, kubeconfig string) *proxied {
	t.Helper()
	p, err := faultproxy.Start(faultproxy.Options{
		Kubeconfig: kubeconfig,
		Dir:        t.TempDir(),
		Rand:       rand.New(rand.NewPCG(42, 42)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("faults: %v", p.Counts())
		}
		if err := p.Close(); err != nil {
			t.Errorf("closing the proxy: %v", err)
		}
	})
	return &proxied{w, p}
}

// run runs a controller that has to pass through the proxy.
func (w *proxied) run(env []string, args ...string) *shipped.Process {
	w.Helper()
	p := w.startWith(shipped.RunOptions{Args: args, Env: env, Kubeconfig: w.proxy.Kubeconfig()})
	w.Cleanup(w.proxy.Heal) // before the controller is stopped
	return p
}

// await waits until the condition holds, which the proxy has asked again whenever something happens there.
func (w *proxied) await(what string, condition func() bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	if err := w.proxy.Await(ctx, condition); err != nil {
		w.Fatalf("%s: %v; faults: %v", what, err, w.proxy.Counts())
	}
}

// watched are the resources that the controller watches.
var watched = []string{"configmaps", "namespaces"}

// TestC33WatchEnds ends the watch on ConfigMaps again and again, as the API server does, while things change.
func TestC33WatchEnds(t *testing.T) {
	t.Parallel()
	w := newProxied(t, newWorld(t, "a", "b", "c"))
	targets := []string{w.ns("a"), w.ns("b"), w.ns("c")}
	w.run(nil)
	src := w.createSource(w.home, "settings")
	w.waitInLine(src, targets...)
	for i := range 20 {
		ended := w.proxy.EndWatches("configmaps")
		if ended != 1 {
			w.await("the watch is back", func() bool { return w.proxy.Watches("configmaps") == 1 })
		}
		src = w.edit(w.home, "settings", withData(map[string]string{"version": fmt.Sprint(i)}))
		w.waitInLine(src, targets...)
		w.edit(targets[0], "settings", withData(map[string]string{"version": "wrong"}))
		w.delete(targets[1], "settings")
		w.waitInLine(src, targets...)
	}
	w.proxy.EndWatches()
	late := w.ns("late")
	w.createNamespace(late, nil)
	w.delete(w.home, "settings")
	w.waitGone("settings", targets...)
	other := w.createSource(w.home, "other")
	w.waitInLine(other, append(targets, late)...)
}

// away is a controller whose watches go down, and come back when things have changed.
type away struct {
	*proxied
	name    string
	env     []string
	down    func(*proxied) // what is done to the watches, with a hold on new ones already in place
	hold    *faultproxy.Injection
	sources map[string]*corev1.ConfigMap // by short name
	quiet   []*corev1.ConfigMap
	foreign *corev1.ConfigMap
	kept    types.UID
	mark    cluster.Mark
}

// TestC33WhileAway changes all sorts of things while the controller's watches are down, for every way in which
// they can be, and lets them come back. A controller for each way has the namespaces in common with the others.
func TestC33WhileAway(t *testing.T) {
	t.Parallel()
	refuse := func(w *proxied, k faultproxy.Kind) {
		for _, resource := range watched {
			w.proxy.Inject(faultproxy.Rule{
				Verbs: []string{"watch"}, Resources: []string{resource}, Count: 1, Fault: faultproxy.Fault{Kind: k},
			})
		}
		w.proxy.EndWatches()
	}
	ways := []*away{
		{name: "ended", down: func(w *proxied) { w.proxy.EndWatches() }},
		{name: "cut", down: func(w *proxied) { w.proxy.CutWatches() }},
		{name: "connection broken", down: func(w *proxied) { w.proxy.BreakConnections() }},
		{name: "expired", down: func(w *proxied) { w.proxy.ExpireWatches() }},
		{name: "answered 410", down: func(w *proxied) { refuse(w, faultproxy.Gone) }},
		{name: "begins expired", down: func(w *proxied) { refuse(w, faultproxy.Expired) }},
		{name: "answered 429", down: func(w *proxied) { refuse(w, faultproxy.TooManyRequests) }},
		{name: "answered 500", down: func(w *proxied) { refuse(w, faultproxy.InternalError) }},
		{name: "reset", down: func(w *proxied) { refuse(w, faultproxy.ResetBefore) }},
		{name: "expired, listing", env: listing, down: func(w *proxied) { w.proxy.ExpireWatches() }},
		{name: "answered 410, listing", env: listing, down: func(w *proxied) { refuse(w, faultproxy.Gone) }},
	}
	common := newWorld(t, "a", "b", "again", "out")
	for _, w := range ways {
		w.proxied = newProxied(t, common.sibling())
		w.run(w.env)
		w.prepare()
	}
	for _, w := range ways {
		w.goDown()
	}
	common.deleteNamespace(common.ns("again"))
	common.waitNamespaceGone(common.ns("again"))
	common.createNamespace(common.ns("again"), nil)
	common.createNamespace(common.ns("late"), nil)
	for _, w := range ways {
		w.change()
	}
	for _, w := range ways {
		w.hold.Stop()
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			w.proxied = w.in(t)
			w.check()
		})
	}
}

// full returns the full name of a source: no other controller has one of that name.
func (w *away) full(name string) string { return name + "-" + w.instance }

func (w *away) prepare() {
	w.sources = map[string]*corev1.ConfigMap{}
	for _, name := range []string{"quiet", "edited", "again", "deleted", "unlabelled", "taken"} {
		w.sources[name] = w.createSource(w.home, w.full(name))
	}
	for _, src := range w.sources {
		w.waitInLine(src, w.ns("a"), w.ns("b"), w.ns("again"), w.ns("out"))
	}
	w.quiet = []*corev1.ConfigMap{w.live(w.ns("a"), w.full("quiet")), w.live(w.ns("b"), w.full("quiet"))}
	w.kept = uid(w.live(w.ns("b"), w.full("again")))
}

func (w *away) goDown() {
	w.hold = w.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"watch", "list"}, Resources: watched, Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
	w.down(w.proxied)
	w.await("the watches are down: "+w.name, func() bool { return w.hold.Fired() == len(watched) && w.proxy.Watches() == 0 })
}

func (w *away) change() {
	data := func(v string) option { return withData(map[string]string{"key": v}) }
	a, b := w.ns("a"), w.ns("b")
	w.sources["edited"] = w.edit(w.home, w.full("edited"), data("new"))
	w.edit(a, w.full("edited"), data("wrong"))
	w.delete(b, w.full("edited"))
	w.delete(w.home, w.full("again"))
	w.sources["again"] = w.createSource(w.home, w.full("again"), data("new"))
	w.delete(w.home, w.full("deleted"))
	w.edit(w.home, w.full("unlabelled"), withoutLabel(w.label))
	w.delete(a, w.full("taken"))
	w.foreign = w.create(a, w.full("taken"), data("somebody's"))
	w.edit(b, w.full("taken"), withoutLabel(w.label))
	w.labelNamespace(w.ns("out"), w.label, "false")
	w.sources["new"] = w.createSource(w.home, w.full("new"))
	w.mark = w.auditMark()
}

func (w *away) check() {
	a, b, again, out, late := w.ns("a"), w.ns("b"), w.ns("again"), w.ns("out"), w.ns("late")
	wanted := map[string]bool{}
	for _, name := range []string{"quiet", "edited", "again", "new"} {
		wanted[w.full(name)] = true
		w.waitInLine(w.sources[name], a, b, again, late)
		w.waitGone(w.full(name), out)
	}
	w.waitInLine(w.sources["taken"], b, again, late)
	w.waitGone(w.full("taken"), out)
	for _, name := range []string{"deleted", "unlabelled"} {
		w.waitGone(w.full(name), a, b, again, out, late)
	}
	w.waitEvent(w.home, w.full("taken"), "Foreign")
	w.settle(a, b, again, late)
	for _, cm := range append(w.quiet, w.foreign) {
		w.untouched(cm)
	}
	if now := uid(w.live(b, w.full("again"))); now != w.kept {
		w.Errorf("the copy of a source that was created anew is another one: %s, was %s", now, w.kept)
	}
	for _, e := range writesTo(w.requestsSince(w.mark), "") {
		if e.Verb == "delete" && wanted[e.Object.Name] && e.Object.Namespace != out {
			w.Errorf("a copy that is wanted was deleted: %v", e)
		}
	}
}

// sibling returns a world with the same target namespaces, for a controller of its own.
func (w *world) sibling() *world {
	w.Helper()
	s := newWorldAt(w.T, w.site)
	s.prefix = w.prefix
	s.takeAccount()
	return s
}

// in returns the world as one of the subtest t.
func (w *proxied) in(t *testing.T) *proxied {
	inner := *w.world
	inner.T = t
	return &proxied{&inner, w.proxy}
}

// TestC33NamespaceAgain deletes a namespace and creates it anew while the watch on namespaces alone is down, so
// that the controller is refused there again and again, for reasons that it cannot see. When the watch is
// back the namespace is filled like a new one, and not when its next try would be due.
func TestC33NamespaceAgain(t *testing.T) {
	t.Parallel()
	w := newProxied(t, newWorld(t, "a", "again"))
	a, again, late := w.ns("a"), w.ns("again"), w.ns("late")
	w.run(nil)
	src := w.createSource(w.home, "settings")
	w.waitInLine(src, a, again)
	hold := w.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"watch", "list"}, Resources: []string{"namespaces"}, Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
	w.proxy.ExpireWatches("namespaces")
	w.await("the watch is down", func() bool { return hold.Fired() == 1 })
	w.deleteNamespace(again)
	// The namespace controller would, seconds later.
	if err := w.admin.CoreV1().ConfigMaps(again).Delete(w.ctx, "settings", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	w.waitNamespaceGone(again)
	w.createNamespace(again, nil)
	mark := w.auditMark()
	hold.Stop()
	w.createNamespace(late, nil)
	w.waitInLine(src, late)
	w.settle(a)
	tried := slices.ContainsFunc(writesTo(w.requestsSince(mark), "settings"), func(e cluster.Event) bool {
		return e.Verb == "create" && e.Object.Namespace == again
	})
	if !tried {
		t.Error("a namespace created later is filled, and this one not even tried")
	}
	w.waitInLine(src, again) // the API server itself may not know yet that the namespace is another one
}

// TestC33HalfOpen makes the controller's connection half-open: nothing arrives any more and nobody says so. It
// has to find out by itself, and what happened meanwhile is put right.
func TestC33HalfOpen(t *testing.T) {
	t.Parallel()
	w := newProxied(t, newWorld(t, "a", "b"))
	a, b, late := w.ns("a"), w.ns("b"), w.ns("late")
	w.run(impatient)
	src := w.createSource(w.home, "settings")
	gone := w.createSource(w.home, "gone")
	w.waitInLine(src, a, b)
	w.waitInLine(gone, a, b)
	if n := w.proxy.LoseConnections(); n == 0 {
		t.Fatal("there is no connection")
	}
	src = w.edit(w.home, "settings", withData(map[string]string{"key": "new"}))
	w.delete(a, "settings")
	w.delete(w.home, "gone")
	w.createNamespace(late, nil)
	w.waitInLine(src, a, b, late)
	w.waitGone("gone", a, b, late)
}

// faulty is a controller whose requests go wrong.
type faulty struct {
	*proxied
	name     string
	rules    []faultproxy.Rule
	injected []*faultproxy.Injection
	targets  []string
	taken    string // a target where a foreign object is in the way
	foreign  *corev1.ConfigMap
	source   *corev1.ConfigMap
}

// TestC34FaultyAPI fans out, edits and takes back a source in 200 namespaces, under every fault that a request can
// meet. Whatever the fault, each copy is written once for each state, by the API server's own account. A
// controller for each fault has the namespaces in common with the others.
func TestC34FaultyAPI(t *testing.T) {
	t.Parallel()
	fault := func(k faultproxy.Kind, probability float64, d time.Duration) faultproxy.Rule {
		return faultproxy.Rule{
			Verbs: []string{"get", "create", "update", "delete"}, Resources: watched,
			Probability: probability, Count: 60, Fault: faultproxy.Fault{Kind: k, For: d},
		}
	}
	few := func(k faultproxy.Kind) faultproxy.Rule {
		r := fault(k, 0.05, 0)
		r.Skip, r.Count = 20, 3
		return r
	}
	conflict := fault(faultproxy.Conflict, 0, 0)
	conflict.Verbs = []string{"create", "update", "delete"}
	const short = 20 * time.Millisecond
	cases := []*faulty{
		{name: "429", rules: []faultproxy.Rule{fault(faultproxy.TooManyRequests, 0.05, time.Second)}},
		{name: "500", rules: []faultproxy.Rule{fault(faultproxy.InternalError, 0.3, 0)}},
		{name: "503", rules: []faultproxy.Rule{fault(faultproxy.Unavailable, 0.3, 0)}},
		{name: "503, retry after", rules: []faultproxy.Rule{fault(faultproxy.Unavailable, 0.05, time.Second)}},
		{name: "409", rules: []faultproxy.Rule{conflict}},
		{name: "late", rules: []faultproxy.Rule{fault(faultproxy.Delay, 0.5, short), fault(faultproxy.DelayAnswer, 0.5, short)}},
		{name: "reset", rules: []faultproxy.Rule{fault(faultproxy.ResetBefore, 0.3, 0), fault(faultproxy.ResetAfter, 0.3, 0)}},
		{name: "connection broken", rules: []faultproxy.Rule{few(faultproxy.BreakBefore), few(faultproxy.BreakAfter)}},
		{name: "all", rules: []faultproxy.Rule{
			fault(faultproxy.TooManyRequests, 0.02, time.Second), fault(faultproxy.InternalError, 0.1, 0),
			fault(faultproxy.Unavailable, 0.1, 0), fault(faultproxy.Delay, 0.1, short),
			fault(faultproxy.ResetBefore, 0.1, 0), fault(faultproxy.ResetAfter, 0.1, 0), few(faultproxy.BreakAfter),
		}},
	}
	common := newWorld(t)
	all := common.createMany(200)
	for _, w := range cases {
		w.proxied = newProxied(t, common.sibling())
		w.targets, w.taken = all[1:], all[0]
		w.foreign = w.create(w.taken, "settings-"+w.instance, withAnnotation("mirror-controller.github.io/source", w.home+"/settings"))
		w.run(nil)
		w.settle(w.targets[0])
	}
	for _, step := range []struct{ do, wait func(*faulty) }{
		{
			func(w *faulty) { w.source = w.createSource(w.home, w.foreign.Name) },
			func(w *faulty) { w.waitInLine(w.source, w.targets...) },
		}, {
			func(w *faulty) { w.source = w.edit(w.home, w.foreign.Name, withData(map[string]string{"key": "new"})) },
			func(w *faulty) { w.waitInLine(w.source, w.targets...) },
		}, {
			func(w *faulty) { w.edit(w.home, w.foreign.Name, withoutLabel(w.label)) },
			func(w *faulty) { w.waitGone(w.foreign.Name, w.targets...) },
		},
	} {
		for _, w := range cases {
			w.inject()
			step.do(w)
		}
		for _, w := range cases {
			step.wait(w)
		}
	}
	for _, w := range cases {
		t.Run(w.name, func(t *testing.T) {
			w.proxied = w.in(t)
			w.check()
		})
	}
}

// inject puts the rules to work, with new counts.
func (w *faulty) inject() {
	w.stopFaults()
	for _, r := range w.rules {
		w.injected = append(w.injected, w.proxy.Inject(r))
	}
}

func (w *faulty) stopFaults() {
	for _, i := range w.injected {
		i.Stop()
	}
	w.injected = nil
}

func (w *faulty) check() {
	w.stopFaults()
	w.settle(w.targets...)
	w.untouched(w.foreign)
	counts := w.proxy.Counts()
	for _, r := range w.rules {
		if counts[r.Fault.Kind] == 0 {
			w.Errorf("there was no fault of kind %s", r.Fault.Kind)
		}
	}
	// What may have been done without the controller's knowing: all that was in flight when a connection broke. It
	// is tried again, in vain, once or, if the watch is as late as the second try, twice.
	unknown := counts[faultproxy.ResetAfter] + 32*(counts[faultproxy.BreakAfter]+counts[faultproxy.BreakBefore])
	w.wroteOnce(w.foreign.Name, w.taken, 2*unknown)
	w.Logf("faults: %v", counts)
}

// wroteOnce fails the test if a copy of the name was created, updated or deleted more than once, if there were
// more than a number of writes that were refused for what they said, or if anything was written in the namespace that is taken.
func (w *world) wroteOnce(name, taken string, refusals int) {
	w.Helper()
	accepted, refused := map[string]int{}, 0
	for _, e := range writesTo(w.requests(), name) {
		switch {
		case e.Response.Code == http.StatusTooManyRequests || e.Response.Code >= 500: // the API server's own trouble
		case e.Response.Code >= 300:
			if e.Object.Namespace != taken {
				refused++
			}
		case e.Object.Namespace == taken:
			w.Errorf("a foreign object was written to: %v", e)
		default:
			accepted[e.Verb+" in "+e.Object.Namespace]++
		}
	}
	if len(accepted) == 0 {
		w.Error("the audit log has no write")
	}
	for what, n := range accepted {
		if n > 1 {
			w.Errorf("%d times %s", n, what)
		}
	}
	if refused > refusals {
		w.Errorf("%d writes were refused by the API server, want %d at most", refused, refusals)
	}
	w.Logf("%d writes accepted, %d refused of at most %d", len(accepted), refused, refusals)
}

// TestC34NoAnswer has some of the requests of a fan-out hang for ever, before or after the server did what they
// asked for. All others go on, and these are tried again when the controller has given them up.
func TestC34NoAnswer(t *testing.T) {
	t.Parallel()
	w := newProxied(t, newWorld(t))
	targets := w.createMany(100)
	w.run(nil)
	w.settle(targets[0])
	creates := faultproxy.Rule{Verbs: []string{"create"}, Resources: []string{"configmaps"}, Skip: 30, Count: 5}
	before, after := creates, creates
	before.Fault = faultproxy.Fault{Kind: faultproxy.Hold}
	after.Fault = faultproxy.Fault{Kind: faultproxy.DelayAnswer, For: time.Hour}
	held, lost := w.proxy.Inject(before), w.proxy.Inject(after)
	src := w.createSource(w.home, "settings")
	w.await("requests hang", func() bool { return held.Fired() == 5 && lost.Fired() == 5 })
	w.eventually("all others in line", func() error {
		if n := w.count(targets, "settings"); n < len(targets)-5 {
			return fmt.Errorf("there are %d of %d", n, len(targets)-5)
		}
		return nil
	})
	w.waitInLine(src, targets...)
	w.settle(targets...)
	w.wroteOnce("settings", "", 5)
}

// TestC34HangingLook has the live look hang on which the deletion of many copies rests. That holds up nobody else.
func TestC34HangingLook(t *testing.T) {
	t.Parallel()
	w := newProxied(t, newWorld(t))
	targets := w.createMany(50) // more than there are slots for writes
	w.run(nil)
	gone, other := w.createSource(w.home, "gone"), w.createSource(w.home, "other")
	w.waitInLine(gone, targets...)
	w.waitInLine(other, targets...)
	hold := w.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"get"}, Resources: []string{"configmaps"}, Fault: faultproxy.Fault{Kind: faultproxy.Hold},
		When: func(q faultproxy.Request) bool { return q.Name == "gone" },
	})
	defer hold.Stop()
	w.edit(w.home, "gone", withoutLabel(w.label))
	w.await("the look", func() bool { return hold.Fired() > 0 })
	other = w.edit(w.home, "other", withData(map[string]string{"key": "new"}))
	w.waitInLine(other, targets...)
	if n := hold.Held(); n > 1 {
		t.Errorf("%d looks hang when the copies of the other source are in line, want 1", n)
	}
	w.await("a look hangs", func() bool { return hold.Held() == 1 }) // it may just have been given up, to be tried again
	hold.Stop()
	w.waitGone("gone", targets...)
}

// TestC34Partition parts the controller from the API server in the middle of a fan-out, until the controller has
// given up its connection, and puts them together again: what it sent before arrives late.
func TestC34Partition(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*proxied){
		"healed": func(w *proxied) {
			_, before := w.proxy.Connections()
			w.proxy.Silence()
			w.await("a new connection is tried", func() bool { _, ever := w.proxy.Connections(); return ever > before })
			w.proxy.Heal()
		},
		"half-open": func(w *proxied) { w.proxy.LoseConnections() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newProxied(t, newWorld(t))
			targets := w.createMany(100)
			w.run(impatient, "--concurrent-writes=8")
			w.settle(targets[0])
			hold := w.proxy.Inject(faultproxy.Rule{
				Verbs: []string{"create"}, Resources: []string{"configmaps"}, Skip: 40,
				Fault: faultproxy.Fault{Kind: faultproxy.Hold},
			})
			src := w.createSource(w.home, "settings")
			w.await("the middle", func() bool { return hold.Held() == 8 })
			// The answers to these get lost, or come late.
			hold.Stop()
			cut(w)
			w.delete(targets[0], "settings")
			w.waitInLine(src, targets...)
			w.settle(targets...)
			again := 0
			for _, e := range writesTo(w.requests(), "settings") {
				switch {
				case e.Verb == "create" && e.Object.Namespace == targets[0] && e.Response.Code < 300:
					again++
				case e.Verb != "create":
					t.Errorf("a write without need: %v", e)
				}
			}
			if again != 2 {
				t.Errorf("the copy that was deleted meanwhile was created %d times, want 2", again)
			}
		})
	}
}

// TestC34Restart restarts the API server in the middle of a fan-out, with requests on their way to it.
func TestC34Restart(t *testing.T) {
	t.Parallel()
	s, err := newSite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := newProxied(t, newWorldAt(t, s))
	targets := w.createMany(200)
	foreign := w.create(targets[0], "settings")
	p := w.run(nil, "--health-probe-bind-address=127.0.0.1:0")
	w.settle(targets[1])
	hold := w.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"create"}, Resources: []string{"configmaps"}, Skip: 80,
		Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
	src := w.createSource(w.home, "settings")
	w.await("the middle", func() bool { return hold.Held() == 32 })
	if err := s.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	hold.Stop() // and nobody is there
	for _, path := range []string{"/livez", "/readyz"} {
		if err := w.probe(p, path); err != nil {
			t.Errorf("while the API server is away: %v", err)
		}
	}
	if err := s.cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.waitInLine(src, targets[1:]...)
	w.untouched(foreign)
	w.edit(targets[1], "settings", withData(map[string]string{"key": "wrong"}))
	w.waitInLine(src, targets[1:]...)
	w.settle(targets[1:]...)
	var updates []cluster.Event
	for _, e := range writesTo(w.requests(), "settings") {
		switch {
		case e.Verb != "create" && e.Verb != "update":
			t.Errorf("a write without need: %v", e)
		case e.Verb == "update" && e.Response.Code < 300: // an API server that has just started refuses some, for want of RBAC
			updates = append(updates, e)
		}
	}
	if len(updates) != 1 {
		t.Errorf("%d updates, want that of the edited copy: %v", len(updates), updates)
	}
	select {
	case <-p.Done():
		t.Error("the controller has ended")
	default:
	}
}

// TestC42Relist has the controller read everything anew, several times and in both ways. All is in line, so
// nothing is written; and what is not in line afterwards is still found.
func TestC42Relist(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{"watching": nil, "listing": listing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newProxied(t, newWorld(t, "a", "b", "c"))
			targets := []string{w.ns("a"), w.ns("b"), w.ns("c")}
			w.run(env, "--copy-label=team", "--copy-annotation=example.com/*")
			binary := func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"b": {0, 0xff}, "empty": {}} }
			sources := []*corev1.ConfigMap{
				w.createSource(w.home, "plain"),
				w.createSource(w.home, "empty", withData(nil)),
				w.createSource(w.home, "binary", binary),
				w.createSource(w.home, "frozen", setImmutable),
				w.createSource(w.home, "marked", withLabel("team", "x"), withAnnotation("example.com/y", "z"), withAnnotation("other", "z")),
			}
			for _, src := range sources {
				w.waitInLine(src, targets...)
			}
			// Marks that a copy can carry, put there by a user.
			w.edit(targets[0], "plain", withAnnotation("payload", "x"), withAnnotation("mirror-controller.github.io/payload", "x"))
			w.settle(targets...)
			mark := w.auditMark()
			for i, expire := range []func(){
				func() { w.proxy.ExpireWatches() },
				func() { // and from the beginning: the last resourceVersion is not to be had
					for _, resource := range watched {
						w.proxy.Inject(faultproxy.Rule{
							Verbs: []string{"watch", "list"}, Resources: []string{resource}, Count: 2, Fault: faultproxy.Fault{Kind: faultproxy.Gone},
						})
					}
					w.proxy.EndWatches()
				},
			} {
				relists := w.proxy.Inject(faultproxy.Rule{
					Resources: watched, When: faultproxy.Request.IsRelist, Fault: faultproxy.Fault{Kind: faultproxy.Pass},
				})
				expire()
				w.await("a relist", func() bool { return relists.Fired() >= 2 && w.proxy.Watches() == 2 })
				relists.Stop()
				late := w.ns(fmt.Sprintf("late-%d", i))
				w.createNamespace(late, nil)
				targets = append(targets, late)
				w.settle(targets...)
				// Handlers pass over what a relist shows to be as it was. This has every copy compared.
				for n, src := range sources {
					sources[n] = w.edit(w.home, src.Name, withAnnotation("touched", fmt.Sprint(i)))
				}
				w.settle(targets...)
				w.settle(targets...)
			}
			for _, e := range w.requestsSince(mark) {
				if slices.Contains(targets[:3], e.Object.Namespace) && slices.ContainsFunc(sources, named(e.Object.Name)) {
					t.Errorf("a request without need: %v", e)
				}
			}
			for _, src := range sources {
				w.waitInLine(src, targets...)
			}
			w.edit(targets[0], "plain", withData(map[string]string{"key": "wrong"}), withAnnotation("payload", "y"))
			w.edit(targets[1], "binary", func(cm *corev1.ConfigMap) { cm.BinaryData["b"] = []byte{1} })
			w.edit(targets[2], "empty", func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"payload": nil} })
			for _, src := range sources {
				w.waitInLine(src, targets...)
			}
		})
	}
}

func named(name string) func(*corev1.ConfigMap) bool {
	return func(cm *corev1.ConfigMap) bool { return cm.Name == name }
}

// TestC42ForgedMarks shows that no object from the API can carry what could stand in the controller's cache for
// a payload that was hashed already: a key with nothing before its '/', with two of them, or with none of
// the characters of a key. The API server refuses them from whoever may do everything, in every way to write.
func TestC42ForgedMarks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	there := w.create(w.ns("a"), "there")
	marks := map[string][]string{ // by field
		"metadata.annotations": {"/payload", "/", "", "a/b/c", "/a/b", "a//b", "payload/", "pay load", "payload\x00", "./payload"},
		"metadata.labels":      {"/payload", "", "a/b/c"},
		"data":                 {"/payload", "a/b", "a/b/c", "/", "", ".", "..", "..payload", "pay load", "payload\x00"},
		"binaryData":           {"/payload", "a/b", "a/b/c", "/", "", ".", "..", "..payload", "pay load", "payload\x00"},
	}
	for encoding, client := range w.clients() {
		api := client.CoreV1().ConfigMaps(there.Namespace)
		patch := func(name string, kind types.PatchType, body any, options metav1.PatchOptions) error {
			content, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			_, err = api.Patch(t.Context(), name, kind, content, options)
			return err
		}
		yes := true
		for field, keys := range marks {
			for _, key := range keys {
				forged := forgedBy(field, key)
				apply := map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "there"},
				}
				if meta, ok := forged["metadata"].(map[string]any); ok {
					meta["name"] = "there"
				}
				for k, v := range forged {
					apply[k] = v
				}
				for way, write := range map[string]func() error{
					"create": func() error {
						cm := configMap(there.Namespace, "new")
						forge(cm, field, key)
						_, err := api.Create(t.Context(), cm, metav1.CreateOptions{})
						return err
					},
					"update": func() error {
						cm := there.DeepCopy()
						forge(cm, field, key)
						_, err := api.Update(t.Context(), cm, metav1.UpdateOptions{})
						return err
					},
					"merge patch": func() error {
						return patch("there", types.MergePatchType, forged, metav1.PatchOptions{})
					},
					"strategic merge patch": func() error {
						return patch("there", types.StrategicMergePatchType, forged, metav1.PatchOptions{})
					},
					"server-side apply": func() error {
						return patch("there", types.ApplyYAMLPatchType, apply, metav1.PatchOptions{FieldManager: "forger", Force: &yes})
					},
					"server-side apply of a new object": func() error {
						apply["metadata"].(map[string]any)["name"] = "applied"
						defer func() { apply["metadata"].(map[string]any)["name"] = "there" }()
						return patch("applied", types.ApplyYAMLPatchType, apply, metav1.PatchOptions{FieldManager: "forger"})
					},
				} {
					if err := write(); !apierrors.IsInvalid(err) {
						t.Errorf("%s in %s of key %q in %s: %v, want that it is invalid", way, encoding, key, field, err)
					}
				}
			}
		}
	}
	w.untouched(there)
}

// clients are clients of the admin, by the encoding that they speak.
func (w *world) clients() map[string]kubernetes.Interface {
	out := map[string]kubernetes.Interface{}
	for encoding, contentType := range map[string]string{"JSON": kruntime.ContentTypeJSON, "protobuf": kruntime.ContentTypeProtobuf} {
		config := w.cluster.Admin()
		config.ContentType, config.AcceptContentTypes = contentType, contentType
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			w.Fatal(err)
		}
		out[encoding] = client
	}
	return out
}

// forge puts a key into a field of cm.
func forge(cm *corev1.ConfigMap, field, key string) {
	switch field {
	case "metadata.annotations":
		put(&cm.Annotations, key, "x")
	case "metadata.labels":
		put(&cm.Labels, key, "x")
	case "data":
		put(&cm.Data, key, "x")
	case "binaryData":
		cm.BinaryData = map[string][]byte{key: []byte("x")}
	}
}

// forgedBy is forge as a patch.
func forgedBy(field, key string) map[string]any {
	entry := map[string]any{key: "eA=="} // x, for binaryData
	switch field {
	case "metadata.annotations":
		return map[string]any{"metadata": map[string]any{"annotations": entry}}
	case "metadata.labels":
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{key: "x"}}}
	}
	return map[string]any{field: entry}
}
