package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestC33WhileAway, of case C42 too, changes all sorts of things while the controller's watches are down, for every way
// in which they can be, and lets them come back.
func TestC33WhileAway(t *testing.T) {
	t.Parallel()
	listing := []string{"KUBE_FEATURE_WatchListClient=false"}
	expire := func(p *faultproxy.Proxy) { expire(p, watched...) }
	for name, way := range map[string]struct {
		down func(*faultproxy.Proxy)
		env  []string
	}{
		"ended":             {down: func(p *faultproxy.Proxy) { p.EndWatches() }},
		"connection broken": {down: (*faultproxy.Proxy).BreakConnections},
		"expired":           {down: expire},
		"expired, listing":  {down: expire, env: listing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "a", "b", "again", "out").WithProxy()
			w.StartProxied(way.env)
			testWhileAway(w, way.down)
		})
	}
}

func testWhileAway(w *suite.World, down func(*faultproxy.Proxy)) {
	a, b, again, out, late := w.NS("a"), w.NS("b"), w.NS("again"), w.NS("out"), w.NS("late")
	sources := map[string]*corev1.ConfigMap{}
	for _, name := range []string{"quiet", "edited", "again", "deleted", "unlabelled", "taken"} {
		content := suite.WithKey("key", name)
		if name == "quiet" { // a relist compares all that there can be
			content = func(cm *corev1.ConfigMap) {
				suite.SetImmutable(cm)
				cm.BinaryData = map[string][]byte{"binary": {0, 0xff}, "empty": {}}
			}
		}
		sources[name] = w.CreateSource(w.Home, name, content)
	}
	for _, src := range sources {
		w.WaitInSync(src, a, b, again, out)
	}
	untouched, kept := w.Copies("quiet", a, b), w.Copies("again", b)

	var holds []*faultproxy.Injection
	for _, resource := range watched {
		holds = append(holds, w.Proxy.Inject(
			faultproxy.Rule{Verbs: reads, Resources: []string{resource}, Kind: faultproxy.Hold}))
	}
	down(w.Proxy)
	for _, hold := range holds {
		w.Await("the watches are down", func() bool { return hold.Fired() > 0 })
	}
	changed := suite.WithKey("key", "changed")
	w.Edit(w.Home, "quiet", suite.WithAnnotation("touched", "x")) // by which its copies are compared
	sources["edited"] = w.Edit(w.Home, "edited", changed)
	w.Edit(a, "edited", suite.WithKey("key", "wrong"))
	w.Delete(b, "edited")
	w.Delete(w.Home, "again")
	sources["again"] = w.CreateSource(w.Home, "again", changed)
	w.Delete(w.Home, "deleted")
	w.Edit(w.Home, "unlabelled", suite.WithoutLabel(w.Label))
	w.Delete(a, "taken")
	untouched = append(untouched, w.Create(a, "taken", suite.WithKey("key", "somebody's")))
	w.Edit(b, "taken", suite.WithoutLabel(w.Label))
	w.LabelNamespace(out, w.Label, "false")
	sources["new"] = w.CreateSource(w.Home, "new")
	w.DeleteNamespace(again)
	w.WaitNamespaceGone(again)
	w.CreateNamespace(again, nil)
	w.CreateNamespace(late, nil)
	mark := w.AuditMark()
	for _, hold := range holds {
		hold.Stop()
	}

	wanted := []string{"quiet", "edited", "again", "new"}
	for _, name := range wanted {
		w.WaitInSync(sources[name], a, b, again, late)
		w.WaitGone(name, out)
	}
	w.WaitInSync(sources["taken"], b, again, late)
	w.WaitGone("taken", out)
	for _, name := range []string{"deleted", "unlabelled"} {
		w.WaitGone(name, a, b, again, out, late)
	}
	w.WaitEvent(w.Home, "taken", plan.ReasonForeign)
	w.Settle(a, b, again, late)
	w.Untouched(untouched...)
	w.SameObjects(kept)
	for _, e := range suite.WritesTo(w.RequestsSince(mark), "") {
		if e.Verb == "delete" && slices.Contains(wanted, e.Object.Name) && e.Object.Namespace != out {
			w.Errorf("a copy that is wanted was deleted: %v", e)
		}
	}
}

// TestC79RelistThatNeverEnds has a proxy forget that the watch of a resource has to begin with all objects, when the
// controller starts, and when its watch has expired.
func TestC79RelistThatNeverEnds(t *testing.T) {
	t.Parallel()
	for _, resource := range watched {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "a").WithProxy()
			src := w.CreateSource(w.Home, "settings")
			w.Proxy.Inject(faultproxy.Rule{Resources: []string{resource}, Kind: faultproxy.PlainWatch})
			p := w.StartProxied(nil, "--metrics-bind-address=127.0.0.1:0")
			w.WaitInSync(src, w.NS("a"))
			w.WaitLog(p, "the watch does not show the end of what it begins with")
			w.WaitMetrics("the watch is established", p, map[string]float64{
				fmt.Sprintf("mirror_watch_interrupted_seconds{resource=%q}", resource): 0,
			})
			expire(w.Proxy, resource)
			src = w.Edit(w.Home, "settings", suite.WithKey("key", "changed"))
			w.CreateNamespace(w.NS("late"), nil)
			w.WaitInSync(src, w.NS("a"), w.NS("late"))
		})
	}
}

const interrupted = `mirror_watch_interrupted_seconds{resource="configmaps"}`

// TestC79Undecodable puts an object that cannot be decoded into etcd, in a
// namespace of no concern: the API server refuses each list and watch of
// ConfigMaps. A line says so, the leader ends after five minutes, and the standby,
// which sees as little, does not lead before the object is gone.
func TestC79Undecodable(t *testing.T) {
	t.Parallel()
	w := suite.NewAlone(t, "a")
	a, late := w.NS("a"), w.NS("late")
	w.Patience = interruption
	first, second := newPair(w, "--metrics-bind-address=127.0.0.1:0")
	w.WaitInSync(w.CreateSource(w.Home, "settings"), a)
	w.WaitMetrics("the watch is established", first.Process, map[string]float64{interrupted: 0})

	heal, err := w.Cluster.Corrupt(w.Context(), "/registry/configmaps/junk/broken")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*candidate{first, second} {
		w.WaitLog(c.Process, "object not decodable")
	}
	exits(w, first)
	w.WaitLog(second.Process, "Neither acquiring nor renewing the Lease")
	metrics, err := w.Scrape(second.Process)
	if err != nil || metrics[interrupted] < 300 {
		t.Errorf("got a watch that has been interrupted for %v s, error %v, want 5 minutes", metrics[interrupted], err)
	}
	w.CreateNamespace(late, nil)
	if strings.Contains(second.Log(), `"Mirroring"`) {
		t.Error("the standby leads without a watch")
	}
	if err := heal(); err != nil {
		t.Fatal(err)
	}
	source := w.Edit(w.Home, "settings", suite.WithKey("key", "changed"))
	w.WaitInSync(source, a, late)
	w.WaitLog(second.Process, `"Mirroring"`)
	w.WaitMetrics("the watch is established", second.Process, map[string]float64{interrupted: 0})
}

// interruption bounds the waits for what comes after five minutes without a watch,
// and the end of a lease.
const interruption = 8 * time.Minute

// TestC79LeaderGivesWay has a proxy before the leader alone reset its lists and
// watches of ConfigMaps: after five minutes the standby leads. The process that is
// started in the place of the first is not ready, and does not stand for election.
func TestC79LeaderGivesWay(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	a, late := w.NS("a"), w.NS("late")
	w.Patience = interruption
	first, second := newPair(w, "--metrics-bind-address=127.0.0.1:0")
	w.WaitInSync(w.CreateSource(w.Home, "settings"), a)
	reset := w.Proxy.Inject(faultproxy.Rule{
		Verbs: reads, Resources: []string{"configmaps"}, Kind: faultproxy.ResetBefore,
	})
	w.Proxy.EndWatches("configmaps")
	w.WaitLog(first.Process, "Cannot list or watch")
	exits(w, first)
	if log := first.Log(); !strings.Contains(log, "Neither acquiring nor renewing the Lease") {
		t.Error("the log does not say why the Lease was lost")
	}
	again := start(w, first.Account, w.Proxy.Kubeconfig(), longLease)
	w.WaitLog(second.Process, `"Mirroring"`)
	source := w.Edit(w.Home, "settings", suite.WithKey("key", "changed"))
	w.CreateNamespace(late, nil)
	w.WaitInSync(source, a, late)
	w.WaitLog(again.Process, "Cannot list or watch")
	if log := again.Log(); w.Probe(again.Process, "/readyz") == nil || strings.Contains(log, "Attempting to acquire") {
		t.Error("a process that sees nothing is ready, or stands for election")
	}
	reset.Stop()
	w.Until("the caches are full", func() error { return w.Probe(again.Process, "/readyz") })
}
