package faults

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// Watches that end: cases C33 and C42.

// away is a controller whose watches go down, and come back when things have changed.
type away struct {
	*suite.Proxied
	name    string
	env     []string
	down    func(*suite.Proxied) // what is done to the watches, with a hold on new ones already in place
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
	refuse := func(w *suite.Proxied) {
		for _, resource := range watched {
			w.Proxy.Inject(faultproxy.Rule{
				Verbs: []string{"watch"}, Resources: []string{resource}, Count: 1, Fault: faultproxy.Fault{Kind: faultproxy.Gone},
			})
		}
		w.Proxy.EndWatches()
	}
	ways := []*away{
		{name: "ended", down: func(w *suite.Proxied) { w.Proxy.EndWatches() }},
		{name: "connection broken", down: func(w *suite.Proxied) { w.Proxy.BreakConnections() }},
		{name: "expired", down: func(w *suite.Proxied) { w.Proxy.ExpireWatches() }},
		{name: "answered 410", down: refuse},
		{name: "expired, listing", env: listing, down: func(w *suite.Proxied) { w.Proxy.ExpireWatches() }},
	}
	common := suite.New(t, "a", "b", "again", "out")
	for _, w := range ways {
		w.Proxied = suite.NewProxied(t, common.Sibling())
		w.StartProxied(w.env)
		w.prepare()
	}
	for _, w := range ways {
		w.goDown()
	}
	common.DeleteNamespace(common.NS("again"))
	common.WaitNamespaceGone(common.NS("again"))
	common.CreateNamespace(common.NS("again"), nil)
	common.CreateNamespace(common.NS("late"), nil)
	for _, w := range ways {
		w.change()
	}
	for _, w := range ways {
		w.hold.Stop()
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			w.Proxied = w.In(t)
			w.check()
		})
	}
}

// full returns the full name of a source: no other controller has one of that name.
func (w *away) full(name string) string { return name + "-" + w.Instance }

func (w *away) prepare() {
	w.sources = map[string]*corev1.ConfigMap{}
	for _, name := range []string{"quiet", "edited", "again", "deleted", "unlabelled", "taken"} {
		content := suite.WithKey("key", name)
		if name == "quiet" { // a relist compares all that there can be
			content = func(cm *corev1.ConfigMap) {
				suite.SetImmutable(cm)
				cm.BinaryData = map[string][]byte{"binary": {0, 0xff}, "empty": {}}
			}
		}
		w.sources[name] = w.CreateSource(w.Home, w.full(name), content)
	}
	for _, src := range w.sources {
		w.WaitInSync(src, w.NS("a"), w.NS("b"), w.NS("again"), w.NS("out"))
	}
	w.quiet = []*corev1.ConfigMap{w.Live(w.NS("a"), w.full("quiet")), w.Live(w.NS("b"), w.full("quiet"))}
	w.kept = suite.UID(w.Live(w.NS("b"), w.full("again")))
}

func (w *away) goDown() {
	w.hold = w.Proxy.Inject(faultproxy.Rule{
		Verbs: []string{"watch", "list"}, Resources: watched, Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
	w.down(w.Proxied)
	w.Await("the watches are down: "+w.name, func() bool { return w.hold.Fired() == len(watched) })
}

func (w *away) change() {
	data := func(v string) suite.Option { return suite.WithData(map[string]string{"key": v}) }
	a, b := w.NS("a"), w.NS("b")
	w.Edit(w.Home, w.full("quiet"), suite.WithAnnotation("touched", "x")) // by which its copies are compared
	w.sources["edited"] = w.Edit(w.Home, w.full("edited"), data("new"))
	w.Edit(a, w.full("edited"), data("wrong"))
	w.Delete(b, w.full("edited"))
	w.Delete(w.Home, w.full("again"))
	w.sources["again"] = w.CreateSource(w.Home, w.full("again"), data("new"))
	w.Delete(w.Home, w.full("deleted"))
	w.Edit(w.Home, w.full("unlabelled"), suite.WithoutLabel(w.Label))
	w.Delete(a, w.full("taken"))
	w.foreign = w.Create(a, w.full("taken"), data("somebody's"))
	w.Edit(b, w.full("taken"), suite.WithoutLabel(w.Label))
	w.LabelNamespace(w.NS("out"), w.Label, "false")
	w.sources["new"] = w.CreateSource(w.Home, w.full("new"))
	w.mark = w.AuditMark()
}

func (w *away) check() {
	a, b, again, out, late := w.NS("a"), w.NS("b"), w.NS("again"), w.NS("out"), w.NS("late")
	wanted := map[string]bool{}
	for _, name := range []string{"quiet", "edited", "again", "new"} {
		wanted[w.full(name)] = true
		w.WaitInSync(w.sources[name], a, b, again, late)
		w.WaitGone(w.full(name), out)
	}
	w.WaitInSync(w.sources["taken"], b, again, late)
	w.WaitGone(w.full("taken"), out)
	for _, name := range []string{"deleted", "unlabelled"} {
		w.WaitGone(w.full(name), a, b, again, out, late)
	}
	w.WaitEvent(w.Home, w.full("taken"), "Foreign")
	w.Settle(a, b, again, late)
	for _, cm := range append(w.quiet, w.foreign) {
		w.Untouched(cm)
	}
	if now := suite.UID(w.Live(b, w.full("again"))); now != w.kept {
		w.Errorf("the copy of a source that was created anew is another one: %s, was %s", now, w.kept)
	}
	for _, e := range suite.WritesTo(w.RequestsSince(w.mark), "") {
		if e.Verb == "delete" && wanted[e.Object.Name] && e.Object.Namespace != out {
			w.Errorf("a copy that is wanted was deleted: %v", e)
		}
	}
}
