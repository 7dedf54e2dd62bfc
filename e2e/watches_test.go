package e2e

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
)

// Watches that end: case C33.

// TestC33WatchEnds ends the watch on ConfigMaps again and again, as the API server does, while things change.
func TestC33WatchEnds(t *testing.T) {
	t.Parallel()
	w := newProxied(t, newWorld(t, "a", "b", "c"))
	targets := []string{w.ns("a"), w.ns("b"), w.ns("c")}
	w.run(nil)
	src := w.createSource(w.home, "settings")
	w.waitInSync(src, targets...)
	for i := range 20 {
		ended := w.proxy.EndWatches("configmaps")
		if ended != 1 {
			w.await("the watch is back", func() bool { return w.proxy.Watches("configmaps") == 1 })
		}
		src = w.edit(w.home, "settings", withData(map[string]string{"version": fmt.Sprint(i)}))
		w.waitInSync(src, targets...)
		w.edit(targets[0], "settings", withData(map[string]string{"version": "wrong"}))
		w.delete(targets[1], "settings")
		w.waitInSync(src, targets...)
	}
	w.proxy.EndWatches()
	late := w.ns("late")
	w.createNamespace(late, nil)
	w.delete(w.home, "settings")
	w.waitGone("settings", targets...)
	other := w.createSource(w.home, "other")
	w.waitInSync(other, append(targets, late)...)
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
		w.waitInSync(src, w.ns("a"), w.ns("b"), w.ns("again"), w.ns("out"))
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
		w.waitInSync(w.sources[name], a, b, again, late)
		w.waitGone(w.full(name), out)
	}
	w.waitInSync(w.sources["taken"], b, again, late)
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

// TestC33NamespaceAgain deletes a namespace and creates it anew while the watch on namespaces alone is down, so
// that the controller is refused there again and again, for reasons that it cannot see. When the watch is
// back the namespace is filled like a new one, and not when its next try would be due.
func TestC33NamespaceAgain(t *testing.T) {
	t.Parallel()
	w := newProxied(t, newWorld(t, "a", "again"))
	a, again, late := w.ns("a"), w.ns("again"), w.ns("late")
	w.run(nil)
	src := w.createSource(w.home, "settings")
	w.waitInSync(src, a, again)
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
	w.waitInSync(src, late)
	w.settle(a)
	tried := slices.ContainsFunc(writesTo(w.requestsSince(mark), "settings"), func(e cluster.Event) bool {
		return e.Verb == "create" && e.Object.Namespace == again
	})
	if !tried {
		t.Error("a namespace created later is filled, and this one not even tried")
	}
	w.waitInSync(src, again) // the API server itself may not know yet that the namespace is another one
}

// TestC33HalfOpen makes the controller's connection half-open: nothing arrives any more and nobody says so. It
// has to find out by itself, and what happened meanwhile is restored.
func TestC33HalfOpen(t *testing.T) {
	t.Parallel()
	w := newProxied(t, newWorld(t, "a", "b"))
	a, b, late := w.ns("a"), w.ns("b"), w.ns("late")
	w.run(impatient)
	src := w.createSource(w.home, "settings")
	gone := w.createSource(w.home, "gone")
	w.waitInSync(src, a, b)
	w.waitInSync(gone, a, b)
	if n := w.proxy.LoseConnections(); n == 0 {
		t.Fatal("there is no connection")
	}
	src = w.edit(w.home, "settings", withData(map[string]string{"key": "new"}))
	w.delete(a, "settings")
	w.delete(w.home, "gone")
	w.createNamespace(late, nil)
	w.waitInSync(src, a, b, late)
	w.waitGone("gone", a, b, late)
}
