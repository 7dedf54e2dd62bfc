package mirror

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/slow"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// stillController returns a controller that does not run and mirrors into team-*, with these objects and the namespaces
// of the ConfigMaps in its caches.
func stillController(t *testing.T, objects ...runtime.Object) *Controller {
	t.Helper()
	var namespaces []runtime.Object
	for _, o := range objects {
		if cm, ok := o.(*corev1.ConfigMap); ok {
			namespaces = append(namespaces, plantest.Namespace(cm.Namespace))
		}
	}
	c, err := New(apitest.NewServer(append(namespaces, objects...)...), &diary{}, teamOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stopWriting)
	c.cache.Start(t.Context())
	if !c.cache.WaitForSync(t.Context()) {
		t.Fatal("got no caches")
	}
	return c
}

// ofFanout is a key of a fan-out that waits before the keys of events are added.
var ofFanout = key{Namespace: "team-a", Name: "waits"}

// added returns what was added to the queues: names of sources, and keys of copies. All copies are keys of events:
// ofFanout comes after them, if it waits.
func (c *Controller) added(t *testing.T) (names, keys []string) {
	t.Helper()
	for c.queues.sources.Len() > 0 {
		name, _ := c.queues.sources.Get()
		names = append(names, name)
		c.queues.sources.Done(name)
	}
	for c.queues.copies.Len() > 0 {
		k, _ := c.queues.copies.Get()
		c.queues.copies.Done(k)
		switch {
		case k != ofFanout:
			keys = append(keys, k.String())
		case c.queues.copies.Len() > 0:
			t.Errorf("got keys behind that of a fan-out, want all as those of events")
		}
	}
	slices.Sort(names)
	slices.Sort(keys)
	return names, keys
}

// TestKeysThatEventsAdd is the table of the handlers of ConfigMaps. The caches hold the source platform/settings, its
// copy in team-a, and what the event shows.
func TestKeysThatEventsAdd(t *testing.T) {
	rules := teamRules()
	source := sourceIn("platform")
	changed := sourceIn("platform", withVersion("8"), data("new"))
	unlabelled := plantest.ConfigMap("platform", "settings", withVersion("8"), copyLabel)
	recreated := sourceIn("platform", withVersion("8"), func(cm *corev1.ConfigMap) { cm.UID = "other" })
	have := plantest.Copy(rules, source, "team-a")
	edited := plantest.Copy(rules, source, "team-a", withVersion("8"), data("edited"))
	written := plantest.Copy(rules, changed, "team-a", withVersion("8"))
	replaced := plantest.Copy(rules, source, "team-a", withVersion("8"), func(cm *corev1.ConfigMap) { cm.UID = "other" })
	restored := plantest.Copy(rules, source, "team-a", data("edited"), func(cm *corev1.ConfigMap) { cm.UID = "other" })
	lost := plantest.ConfigMap("team-a", "left", copyLabel)
	asks := plantest.Copy(rules, source, "team-a", plantest.Label("mirror", "true"))
	now := func(cms ...*corev1.ConfigMap) []*corev1.ConfigMap { return cms }

	appears := func(cm *corev1.ConfigMap) func(*handlers) { return func(h *handlers) { h.configMapAdded(cm) } }
	changes := func(old, new *corev1.ConfigMap) func(*handlers) {
		return func(h *handlers) { h.configMapUpdated(old, new) }
	}
	goes := func(cm *corev1.ConfigMap) func(*handlers) {
		return func(h *handlers) { h.configMapDeleted(coreinformers.DeletedConfigMap{OptionalObj: cm}) }
	}
	somethingGoes := func(h *handlers) {
		unknown := &cache.DeletedFinalStateUnknown{Key: "team-a/settings"}
		h.configMapDeleted(coreinformers.DeletedConfigMap{FinalStateUnknown: unknown})
	}
	sources, copies := []string{"settings"}, []string{"team-a/settings"}
	for name, tc := range map[string]struct {
		now   []*corev1.ConfigMap
		event func(*handlers)
		names []string
		keys  []string
	}{
		"a source appears":        {now(source, have), appears(source), sources, nil},
		"a source changes":        {now(changed, have), changes(source, changed), sources, nil},
		"a source is shown again": {now(source, have), changes(source, source), sources, nil},
		"a source is unlabelled":  {now(unlabelled, have), changes(source, unlabelled), sources, nil},
		"a ConfigMap is labelled": {now(source, have), changes(unlabelled, source), sources, nil},
		"a source is replaced":    {now(recreated, have), changes(source, recreated), sources, nil},
		"a source is deleted":     {now(have), goes(source), sources, nil},
		"something is deleted":    {now(source), somethingGoes, sources, copies},
		"a copy appears":          {now(source, have), appears(have), nil, nil},
		"a copy changes":          {now(source, edited), changes(have, edited), nil, copies},
		"a copy is written":       {now(changed, written), changes(have, written), nil, nil},
		"a copy is shown again":   {now(source, have), changes(have, have), nil, nil},
		"a copy is replaced":      {now(source, replaced), changes(have, replaced), nil, nil},
		"a copy is another one":   {now(source, restored), changes(have, restored), nil, copies},
		"a copy is deleted":       {now(source), goes(have), nil, copies},
		"a copy without a source": {now(source, lost), appears(lost), nil, nil},
		"a copy asks to be one":   {now(source, asks), appears(asks), nil, copies},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{plantest.Namespace("team-a")}
			for _, cm := range tc.now {
				objects = append(objects, cm.DeepCopy())
			}
			expectKeys(t, stillController(t, objects...), tc.event, tc.names, tc.keys)
		})
	}
}

// TestKeysThatNamespacesAdd is the table of the handlers of namespaces. The caches hold the sources platform/settings
// and base/other, a copy of settings in team-a, and the namespace as it is now. Case C32.
func TestKeysThatNamespacesAdd(t *testing.T) {
	active, labelled := plantest.Namespace("team-b"), plantest.Namespace("team-b", "tier", "gold")
	newer, annotated := plantest.Namespace("team-b"), plantest.Namespace("team-b")
	newer.UID = "other"
	annotated.ResourceVersion, annotated.Annotations = "8", map[string]string{"note": "n"}
	terminating, optsOut := plantest.Terminating("team-b"), plantest.Namespace("team-b", "mirror", plan.OptOutValue)
	both := []string{"team-b/other", "team-b/settings"}
	for name, tc := range map[string]struct {
		old, now *corev1.Namespace
		keys     []string
	}{
		"one appears":       {nil, active, both},
		"one is labelled":   {active, labelled, both},
		"one is annotated":  {active, annotated, nil},
		"one terminates":    {active, terminating, nil},
		"one is replaced":   {active, newer, both},
		"one is deleted":    {active, nil, nil},
		"one opts out":      {active, optsOut, nil},
		"one opts in again": {optsOut, active, both},
		"one with a copy":   {nil, plantest.Namespace("team-a"), []string{"team-a/other"}},
		"one out of scope":  {nil, plantest.Namespace("elsewhere"), nil},
		"one with a source": {nil, plantest.Namespace("platform"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{sourceIn("platform"), plantest.Source("base", "other"),
				plantest.Copy(teamRules(), sourceIn("platform"), "team-a")}
			if tc.now != nil {
				objects = append(objects, tc.now)
			}
			expectKeys(t, stillController(t, objects...), func(h *handlers) {
				switch {
				case tc.old == nil:
					h.namespaceChanged(tc.now.Name, tc.now)
				case tc.now == nil:
					h.namespaceChanged(tc.old.Name, nil)
				default:
					h.namespaceUpdated(tc.old, tc.now)
				}
			}, nil, tc.keys)
		})
	}
}

// expectKeys has the event happen before the controller leads, when it adds nothing, and then again.
func expectKeys(t *testing.T, c *Controller, event func(*handlers), wantNames, wantKeys []string) {
	t.Helper()
	event(c.handlers)
	if names, keys := c.added(t); len(names)+len(keys) > 0 {
		t.Errorf("before it leads: got %v and %v, want nothing", names, keys)
	}
	if len(c.records.byName) > 0 {
		t.Errorf("before it leads: got targets of %d names, want none", len(c.records.byName))
	}
	c.handlers.active.Store(true)
	c.queues.copies.Add(ofFanout)
	event(c.handlers)
	if names, keys := c.added(t); !slices.Equal(names, wantNames) || !slices.Equal(keys, wantKeys) {
		t.Errorf("got %v and %v, want %v and %v", names, keys, wantNames, wantKeys)
	}
}

// TestWhatEndsAGrace is the table of events about ConfigMaps of the name of a copy
// that expires in team-a.
func TestWhatEndsAGrace(t *testing.T) {
	src := sourceIn("platform")
	deleting := sourceIn("platform", plantest.Deleting)
	asks := plantest.Copy(teamRules(), src, "team-b", plantest.Label("mirror", "true"))
	elsewhere := sourceIn("platform", prefixes("none"))
	for name, tc := range map[string]struct {
		shown *corev1.ConfigMap
		ends  bool
	}{
		"a source":                   {src, true},
		"one that is being deleted":  {deleting, false},
		"one that selects no target": {elsewhere, false},
		"a copy that asks to be one": {asks, false},
	} {
		t.Run(name, func(t *testing.T) {
			have := copyOf(src, "team-a")
			c := stillController(t, have)
			n := c.records.lock("settings")
			n.set("team-a", record{unclaimed: unclaimed{uid: have.UID, line: 1}})
			n.unlock()
			c.handlers.active.Store(true)
			c.handlers.sourceChanged(tc.shown) // the cache shows it no more
			n = c.records.lock("settings")
			defer n.unlock()
			known := n.byNamespace["team-a"]
			if ends := known == nil || known.unclaimed.uid == ""; ends != tc.ends {
				t.Errorf("got the end of the grace %v, want %v", ends, tc.ends)
			}
		})
	}
}

// TestOldestChangeCounts for the time in which a source reaches its targets.
func TestOldestChangeCounts(t *testing.T) {
	c := stillController(t)
	n := c.records.lock("settings")
	first := time.Unix(5000, 0)
	status := n.status(settings("platform"))
	status.changeAt = first
	n.unlock()
	c.handlers.sourceChanged(sourceIn("platform"))
	if !status.changeAt.Equal(first) {
		t.Errorf("got a change at %v, want the first, %v", status.changeAt, first)
	}
}

// TestNamespaceThatGoesHasNoTarget: what was known of one there is not counted any
// more, also if nothing shows an object there.
func TestNamespaceThatGoesHasNoTarget(t *testing.T) {
	active, terminating := plantest.Namespace("team-a"), plantest.Terminating("team-a")
	unseen := coreinformers.DeletedNamespace{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "team-a"}}
	for name, tc := range map[string]struct {
		now   []runtime.Object
		event func(*handlers)
	}{
		"it is being deleted": {[]runtime.Object{terminating}, func(h *handlers) {
			h.namespaceUpdated(active, terminating)
		}},
		"it is deleted": {nil, func(h *handlers) {
			h.namespaceDeleted(coreinformers.DeletedNamespace{OptionalObj: terminating})
		}},
		"it was deleted while no watch was open": {nil, func(h *handlers) { h.namespaceDeleted(unseen) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := stillController(t, append(tc.now, sourceIn("platform"))...)
			n := c.records.lock("settings")
			n.set("team-a", record{settled: settled{
				standing: standing{state: plan.StatePending, owner: settings("platform")},
			}})
			n.unlock()
			c.handlers.active.Store(true)
			tc.event(c.handlers)
			n = c.records.lock("settings")
			defer n.unlock()
			if n.pending != 0 || n.byNamespace["team-a"] != nil {
				t.Errorf("got %d targets pending, and %+v known, want none", n.pending, n.byNamespace["team-a"])
			}
		})
	}
}

// TestNamespaceAddsItsRule to those that keep a source without targets from all
// namespaces, if these are known: one rule alone would be reported otherwise.
func TestNamespaceAddsItsRule(t *testing.T) {
	src := sourceIn("platform", selector("tier=gold"))
	added := plantest.Namespace("team-a")
	prefix, bySelector := plan.ExcludedByPrefix, plan.ExcludedBySelector
	for name, tc := range map[string]struct{ known, want []plan.Exclusion }{
		"not known":      {nil, nil},
		"another rule":   {[]plan.Exclusion{prefix}, []plan.Exclusion{prefix, bySelector}},
		"this very rule": {[]plan.Exclusion{bySelector}, []plan.Exclusion{bySelector}},
	} {
		t.Run(name, func(t *testing.T) {
			c := stillController(t, src, added)
			n := c.records.lock("settings")
			status := n.status(plan.KeyOf(src))
			status.excluded = tc.known
			n.unlock()
			c.handlers.active.Store(true)
			c.handlers.namespaceChanged("team-a", added)
			n = c.records.lock("settings")
			defer n.unlock()
			slices.Sort(status.excluded)
			slices.Sort(tc.want)
			if !slices.Equal(status.excluded, tc.want) || (status.excluded == nil) != (tc.want == nil) {
				t.Errorf("got rules %v, want %v", status.excluded, tc.want)
			}
			if isDue := !n.reportAt.IsZero(); isDue != (len(tc.want) > len(tc.known)) {
				t.Errorf("got a report that is due %v", isDue)
			}
		})
	}
}

// TestDeletedNamespaceIsNoLongerSlow: its end is an event, too.
func TestDeletedNamespaceIsNoLongerSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := byHand(t, []runtime.Object{plantest.Namespace("team-a")}, func(*Options) {})
		c := s.controller
		defer c.stopReporting()
		defer c.stopWriting()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c.cache.Start(ctx)
		c.cache.WaitForSync(ctx)
		c.handlers.active.Store(true)
		uid := c.cache.Namespace("team-a").UID
		_ = c.queues.slow.Write(ctx, uid, slow.Ordinary, hanging)
		if !c.queues.slow.Put(uid, settings("team-a"), nil) {
			t.Fatal("got it quick")
		}
		s.removeNamespace("team-a")
		synctest.Wait()
		if c.queues.slow.Put(uid, settings("team-a"), nil) {
			t.Error("got it slow after its end")
		}
	})
}
