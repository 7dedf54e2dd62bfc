package mirror

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// deletedConfigMap is the event of a deletion. cm may be nil: then only its key is known.
func deletedConfigMap(namespace string, cm *corev1.ConfigMap) coreinformers.DeletedConfigMap {
	d := coreinformers.DeletedConfigMap{OptionalObj: cm}
	if cm == nil {
		d.FinalStateUnknown = &cache.DeletedFinalStateUnknown{Key: namespace + "/settings"}
	}
	return d
}

// ofFanout is a key of a fan-out that waits before the keys of events are added.
var ofFanout = key{Namespace: "team-a", Name: "waits"}

// added returns what was added to the queues: names of sources, and keys of copies. All copies are keys of events:
// ofFanout comes after them, if it waits.
func (c *Controller) added(t *testing.T) (names, keys []string) {
	t.Helper()
	for c.sources.Len() > 0 {
		name, _ := c.sources.Get()
		names = append(names, name)
		c.sources.Done(name)
	}
	for c.copies.Len() > 0 {
		k, _ := c.copies.Get()
		c.copies.Done(k)
		switch {
		case k != ofFanout:
			keys = append(keys, k.String())
		case c.copies.Len() > 0:
			t.Errorf("got keys behind that of a fan-out, want all as those of events")
		}
	}
	slices.Sort(names)
	slices.Sort(keys)
	return names, keys
}

// records calls f with the locked status of the name settings.
func (c *Controller) records(f func(*nameStatus)) {
	n := c.status.lock("settings")
	defer n.unlock()
	f(n)
}

// TestHandlers is the table of events, and the keys that they add. The caches hold the sources platform/settings and
// base/other, a copy of settings in team-a, and the namespace team-b.
func TestHandlers(t *testing.T) {
	rules := teamRules()
	source := sourceIn("platform")
	changed := sourceIn("platform", withVersion("8"), plantest.Data("key", "new"))
	unlabelled := plantest.ConfigMap("platform", "settings", withVersion("8"), plantest.Label("mirror", "copy"))
	recreated := sourceIn("platform", withVersion("8"), func(cm *corev1.ConfigMap) { cm.UID = "other" })
	have := plantest.Copy(rules, source, "team-a")
	edited := plantest.Copy(rules, source, "team-a", withVersion("8"), plantest.Data("key", "edited"))
	replaced := plantest.Copy(rules, source, "team-a", withVersion("8"), func(cm *corev1.ConfigMap) { cm.UID = "other" })
	lost := plantest.ConfigMap("team-a", "left", plantest.Label("mirror", "copy"))

	active, labelled := plantest.Namespace("team-b"), plantest.Namespace("team-b", "tier", "gold")
	newer, terminating := plantest.Namespace("team-b"), plantest.Terminating("team-b")
	newer.UID = "other"
	annotated := plantest.Namespace("team-b")
	annotated.ResourceVersion, annotated.Annotations = "8", map[string]string{"note": "n"}

	both := []string{"team-b/other", "team-b/settings"}
	for name, tc := range map[string]struct {
		event func(*handlers)
		names []string
		keys  []string
	}{
		"a source appears":        {func(h *handlers) { h.configMapAdded(source) }, []string{"settings"}, []string{"platform/settings"}},
		"a source changes":        {func(h *handlers) { h.configMapUpdated(source, changed) }, []string{"settings"}, []string{"platform/settings"}},
		"a source is shown again": {func(h *handlers) { h.configMapUpdated(source, source) }, []string{"settings"}, nil},
		"a source is unlabelled":  {func(h *handlers) { h.configMapUpdated(source, unlabelled) }, []string{"settings"}, []string{"platform/settings"}},
		"a ConfigMap is labelled": {func(h *handlers) { h.configMapUpdated(unlabelled, source) }, []string{"settings"}, []string{"platform/settings"}},
		"a source is replaced":    {func(h *handlers) { h.configMapUpdated(source, recreated) }, []string{"settings"}, []string{"platform/settings"}},
		"a source is deleted":     {func(h *handlers) { h.configMapDeleted(deletedConfigMap("platform", source)) }, []string{"settings"}, []string{"platform/settings"}},
		"something is deleted":    {func(h *handlers) { h.configMapDeleted(deletedConfigMap("platform", nil)) }, []string{"settings"}, []string{"platform/settings"}},
		"a copy appears":          {func(h *handlers) { h.configMapAdded(have) }, nil, []string{"team-a/settings"}},
		"a copy changes":          {func(h *handlers) { h.configMapUpdated(have, edited) }, nil, []string{"team-a/settings"}},
		"a copy is shown again":   {func(h *handlers) { h.configMapUpdated(have, have) }, nil, nil},
		"a copy is replaced":      {func(h *handlers) { h.configMapUpdated(have, replaced) }, nil, []string{"team-a/settings"}},
		"a copy is deleted":       {func(h *handlers) { h.configMapDeleted(deletedConfigMap("team-a", have)) }, nil, []string{"team-a/settings"}},
		"a copy without a source": {func(h *handlers) { h.configMapAdded(lost) }, nil, []string{"team-a/left"}},
		"a copy asks to be one": {func(h *handlers) {
			h.configMapAdded(plantest.Copy(rules, source, "team-a", plantest.Label("mirror", "true")))
		}, nil, []string{"team-a/settings"}},
		"a namespace appears":                   {func(h *handlers) { h.namespaceAdded(active) }, nil, both},
		"a namespace is labelled":               {func(h *handlers) { h.namespaceUpdated(active, labelled) }, nil, both},
		"a namespace is annotated":              {func(h *handlers) { h.namespaceUpdated(active, annotated) }, nil, nil},
		"a namespace terminates":                {func(h *handlers) { h.namespaceUpdated(active, terminating) }, nil, both},
		"a namespace is replaced":               {func(h *handlers) { h.namespaceUpdated(active, newer) }, nil, both},
		"a namespace is deleted":                {func(h *handlers) { h.namespaceChanged("team-b", nil, false) }, nil, both},
		"a namespace with a copy":               {func(h *handlers) { h.namespaceAdded(plantest.Namespace("team-a")) }, nil, []string{"team-a/other", "team-a/settings"}},
		"a namespace that the flags rule out":   {func(h *handlers) { h.namespaceAdded(plantest.Namespace("elsewhere")) }, nil, nil},
		"one that they rule out, with a source": {func(h *handlers) { h.namespaceAdded(plantest.Namespace("platform")) }, nil, []string{"platform/settings"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := stillController(t, noEdit, sourceIn("platform"), plantest.Source("base", "other"), plantest.Copy(rules, source, "team-a"))
			tc.event(c.handlers)
			if names, keys := c.added(t); len(names)+len(keys) > 0 {
				t.Errorf("before it leads: got %v and %v, want nothing", names, keys)
			}
			if len(c.status.names) > 0 {
				t.Errorf("before it leads: got facts about %d names, want none", len(c.status.names))
			}
			c.handlers.active.Store(true)
			c.copies.Add(ofFanout)
			tc.event(c.handlers)
			names, keys := c.added(t)
			if !slices.Equal(names, tc.names) || !slices.Equal(keys, tc.keys) {
				t.Errorf("got %v and %v, want %v and %v", names, keys, tc.names, tc.keys)
			}
		})
	}
}

// TestEventsOfOurOwnWrites add no key of a target.
func TestEventsOfOurOwnWrites(t *testing.T) {
	rules := teamRules()
	have := plantest.Copy(rules, sourceIn("platform"), "team-a")
	replaced := plantest.Copy(rules, sourceIn("platform"), "team-a", withVersion("41"), func(cm *corev1.ConfigMap) { cm.UID = "other" })
	wrote, deleted := ownWrite{version: "41", at: time.Now()}, ownWrite{deleted: have.UID, at: time.Now()}
	both := ownWrite{version: "41", deleted: have.UID, at: time.Now()}
	for name, tc := range map[string]struct {
		own   ownWrite
		event func(*handlers)
	}{
		"created": {wrote, func(h *handlers) { h.configMapAdded(replaced) }},
		"updated": {wrote, func(h *handlers) {
			h.configMapUpdated(have, plantest.Copy(rules, sourceIn("platform"), "team-a", withVersion("41")))
		}},
		"deleted":                  {deleted, func(h *handlers) { h.configMapDeleted(deletedConfigMap("team-a", have)) }},
		"re-created":               {both, func(h *handlers) { h.configMapDeleted(deletedConfigMap("team-a", have)); h.configMapAdded(replaced) }},
		"re-created, in one event": {both, func(h *handlers) { h.configMapUpdated(have, replaced) }},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := stillController(t, noEdit)
			c.handlers.active.Store(true)
			state := plan.StateSynced
			if name == "deleted" {
				state = plan.StateNone
			}
			c.records(func(n *nameStatus) { n.set("team-a", "team-a", record{basics: basics{state: state}, own: tc.own}) })
			tc.event(c.handlers)
			if names, keys := c.added(t); len(names)+len(keys) > 0 {
				t.Errorf("got %v and %v, want nothing", names, keys)
			}
			c.records(func(n *nameStatus) {
				if got := n.record("team-a", "team-a").own; got != (ownWrite{}) {
					t.Errorf("got %+v still awaited", got)
				}
			})
		})
	}
}

// TestEventsDuringACall repeat the reconcile, also those of our own last write: the call rests on an older state.
func TestEventsDuringACall(t *testing.T) {
	c, _ := stillController(t, noEdit)
	c.handlers.active.Store(true)
	c.records(func(n *nameStatus) {
		n.set("team-a", "team-a", record{own: ownWrite{version: "41", at: time.Now()}})
		n.calls["team-a"] = &meanwhile{}
	})
	c.handlers.configMapAdded(plantest.Copy(teamRules(), sourceIn("platform"), "team-a", withVersion("41")))
	if _, keys := c.added(t); len(keys) != 1 {
		t.Errorf("got the keys %v, want that of the copy", keys)
	}
}

// TestFactsOfEvents: the handlers note two times that no cache holds: of a change, and of the first sight of a
// namespace.
func TestFactsOfEvents(t *testing.T) {
	c, _ := stillController(t, func(o *Options) { o.SourceNamespaces = []string{"platform", "base"} }, sourceIn("platform"))
	c.handlers.active.Store(true)
	changed := func(k key) (set bool) {
		c.records(func(n *nameStatus) { set = !n.source(k).changed.IsZero() })
		return set
	}
	c.handlers.configMapAdded(sourceIn("platform"))
	c.handlers.configMapAdded(sourceIn("elsewhere")) // the flags rule it out
	c.handlers.configMapUpdated(sourceIn("base"), plantest.ConfigMap("base", "settings", withVersion("8")))
	for namespace, want := range map[string]bool{"platform": true, "elsewhere": false, "base": false} {
		if got := changed(settings(namespace)); got != want {
			t.Errorf("%s: got a change to follow %v, want %v", namespace, got, want)
		}
	}
	appeared := func(namespace string) (set bool) {
		c.records(func(n *nameStatus) { set = n.targets[namespace] != nil && !n.targets[namespace].appeared.IsZero() })
		return set
	}
	c.handlers.namespaceAdded(plantest.Namespace("team-a"))
	c.handlers.namespaceAdded(plantest.Namespace("elsewhere"))
	c.handlers.namespaceUpdated(plantest.Namespace("team-b"), plantest.Namespace("team-b", "tier", "gold"))
	for namespace, want := range map[string]bool{"team-a": true, "elsewhere": false, "team-b": false} {
		if got := appeared(namespace); got != want {
			t.Errorf("%s: got a namespace to fill %v, want %v", namespace, got, want)
		}
	}
}

// TestADeletedNamespaceIsForgotten, also if it was never seen terminating.
func TestADeletedNamespaceIsForgotten(t *testing.T) {
	server := func() *apitest.Server {
		return apitest.NewServer(plantest.Namespace("platform"), plantest.Namespace("team-a"), sourceIn("platform"), plantest.ConfigMap("team-a", "settings"))
	}
	alone(t, server, noEdit, func(t *testing.T, s scene) {
		time.Sleep(time.Millisecond)
		if got := s.controller.status.namespaces("settings"); !slices.Contains(got, "team-a") {
			t.Fatalf("got records of %v, want the foreign object in team-a known", got)
		}
		if err := s.Interface.CoreV1().Namespaces().Delete(t.Context(), "team-a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := s.controller.status.namespaces("settings"); slices.Contains(got, "team-a") {
			t.Errorf("got records of %v, want none of a namespace that is gone", got)
		}
	})
}
