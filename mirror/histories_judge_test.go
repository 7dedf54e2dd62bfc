package mirror

// What a history is held against: a plan from scratch of what the API server has, and every write of the controller.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// world is what the API server has at one moment.
type worldState struct {
	rules      *plan.Rules
	configMaps map[key]*corev1.ConfigMap
	namespaces map[string]*corev1.Namespace
	views      map[string]*plan.View // by name, until one of its sources changes
}

func newWorldState(rules *plan.Rules) *worldState {
	return &worldState{rules, map[key]*corev1.ConfigMap{}, map[string]*corev1.Namespace{}, map[string]*plan.View{}}
}

func (w *worldState) view(name string) *plan.View {
	if v := w.views[name]; v != nil {
		return v
	}
	var sources []*plan.Source
	for _, namespace := range historyNamespaces {
		if cm := w.configMaps[key{Namespace: namespace, Name: name}]; cm != nil && w.rules.AsksToBeMirrored(cm) {
			sources = append(sources, w.rules.ParseSource(cm))
		}
	}
	w.views[name] = plan.NewView(sources)
	return w.views[name]
}

func (w *worldState) target(k key) plan.Target {
	return plan.Target{Key: k, Namespace: w.namespaces[k.Namespace], Have: w.configMaps[k]}
}

// now returns what the API server has now.
func (h *history) now() *worldState {
	w := newWorldState(h.rules)
	for _, cm := range h.server.ConfigMaps.All() {
		w.configMaps[plan.KeyOf(cm)] = cm
	}
	for _, ns := range h.server.Namespaces.All() {
		w.namespaces[ns.Name] = ns
	}
	return w
}

// known is what a controller knows of a target.
type known struct {
	state  plan.State
	owner  key // the source that state counts for
	losers string
}

// knows returns what the controller knows of each target.
func (c *Controller) knows() map[key]known {
	c.status.mu.Lock()
	defer c.status.mu.Unlock()
	all := map[key]known{}
	for name, n := range c.status.names {
		for namespace, r := range n.targets {
			all[key{Namespace: namespace, Name: name}] = known{r.state, r.countsFor, sorted(r.losers)}
		}
	}
	return all
}

func sorted(keys []key) string {
	var all []string
	for _, k := range keys {
		all = append(all, k.String())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// leftOver returns what a controller at rest has left of its work.
func (c *Controller) leftOver() map[string]int {
	left := map[string]int{
		"live reads": len(c.reconciler.confirmer.subjects), "keys": c.copies.Len(), "names": c.sources.Len(),
		"keys in work": len(c.copies.order.open), "events": len(c.copies.order.named), "slow places": len(c.reconciler.lanes.slow),
	}
	for _, n := range c.status.names {
		for _, r := range n.targets {
			// What the watch does not show is retried.
			if r.reason != foreign && (!r.notBefore.IsZero() || r.reason != noRetry) || r.waits || r.echo != (echo{}) || r.note != "" {
				left["retries"]++
			}
		}
	}
	return left
}

// remembered returns what a controller knows of a cluster in which nothing is left.
func (c *Controller) remembered() map[string]int {
	left := c.leftOver()
	left["names with a status"], left["views"], left["slow namespaces"] = len(c.status.names), len(c.caches.views), len(c.reconciler.lanes.slowed)
	return left
}

// compare compares the copies and the status with a plan from scratch. While faults go on, it leaves out what they keep from being
// right.
func (h *history) compare(atRest bool) {
	synctest.Wait()
	w, faults, known := h.now(), h.faults.Load(), h.leader.knows()
	if failsToRead(faults) {
		return
	}
	h.mu.Lock()
	removing := maps.Clone(h.removing)
	h.mu.Unlock()
	totals, owned := map[plan.State]int{}, map[key]map[plan.State]int{}
	for _, name := range historyNames {
		for _, namespace := range historyNamespaces {
			k := key{Namespace: namespace, Name: name}
			t := w.target(k)
			c := h.rules.Decide(w.view(name), t)
			want := wanted(h.rules, w.view(name), t, c)
			count(totals, owned, want.state, want.owner)
			for _, loser := range h.rules.Superseded(w.view(name), t, c) {
				count(totals, owned, plan.StateSuperseded, loser.Key)
			}
			_, fails := faults.failing[namespace]
			_, alters := faults.altered[namespace]
			if !atRest && (fails || alters || removing[namespace]) {
				h.compareOwner(k, known[k], want)
				continue
			}
			if c.Op != plan.OpNone {
				h.found(outOfSync, "%v: %v is due, and there is %v", k, c.Op, t.Have)
			}
			if got := known[k]; got != want && !(got.state == plan.StateFight && !atRest) {
				h.found(wrongStatus, "%v: got %v, want %v", k, got, want)
			}
		}
	}
	if atRest {
		h.compareTotals(totals, owned)
	}
}

func failsToRead(f *faults) bool {
	for _, failure := range f.failing {
		if slices.Contains(failure.verbs, "get") {
			return true
		}
	}
	return false
}

// wanted returns what a controller should know of a target.
func wanted(rules *plan.Rules, v *plan.View, t plan.Target, c plan.Change) known {
	want := known{state: c.State, owner: countsFor(c), losers: sorted(losers(rules, v, t, c))}
	if c.Op != plan.OpNone {
		want.state = plan.StatePending
	}
	if want.state == plan.StateNone {
		want.owner = key{}
	}
	return want
}

func count(totals map[plan.State]int, owned map[key]map[plan.State]int, state plan.State, owner key) {
	if state == plan.StateNone {
		return
	}
	totals[state]++
	if owned[owner] == nil {
		owned[owner] = map[plan.State]int{}
	}
	owned[owner][state]++
}

// compareOwner compares only for which source a target counts: a fault may keep it in any state.
func (h *history) compareOwner(k key, got, want known) {
	if got.state != plan.StateNone && want.state != plan.StateNone && got.owner != want.owner {
		h.found(wrongStatus, "%v: counts for %v, want %v", k, got, want)
	}
}

func (h *history) compareTotals(totals map[plan.State]int, owned map[key]map[plan.State]int) {
	s := h.leader.status
	s.mu.Lock()
	defer s.mu.Unlock()
	for state := range plan.States {
		if s.totals[state] != totals[state] {
			h.found(wrongStatus, "got %d %v in all, want %d", s.totals[state], state, totals[state])
		}
	}
	for _, n := range s.names {
		for source, src := range n.sources {
			for state := range plan.States {
				if got, want := src.counts[state], owned[source][state]; got != want {
					h.found(wrongStatus, "got %d %v of %v, want %d", got, state, source, want)
				}
			}
		}
	}
}

// blockedAt reports whether a target in the namespace is retried for ever, because no event tells when what is in its way goes.
func (h *history) blockedAt(namespace string) bool {
	w := h.now()
	for _, name := range historyNames {
		t := w.target(key{Namespace: namespace, Name: name})
		if t.Have != nil && !h.rules.Visible(t.Have) && h.rules.Decide(w.view(name), t).State != plan.StateNone {
			return true
		}
	}
	return false
}

// audit judges each write of the controller by what the API server had then, and shortly before: the controller decides on what
// its watches and live reads show.
func (h *history) audit() {
	for _, unsafe := range h.server.Unsafe() {
		h.found(wrongWrite, "%s", unsafe)
	}
	w := newWorldState(h.rules)
	unwanted := map[key]time.Time{}  // when a copy was last not wanted, or was to be re-created
	wanted := map[string]time.Time{} // when a copy of this content was last wanted
	cms, nss := h.server.ConfigMaps.Changes(), h.server.Namespaces.Changes()
	for len(cms)+len(nss) > 0 {
		if len(cms) == 0 || len(nss) > 0 && nss[0].Order < cms[0].Order {
			h.note(w, nss[0].At, unwanted, wanted)
			w.applyNamespace(nss[0])
			nss = nss[1:]
			h.note(w, time.Time{}, unwanted, wanted)
			continue
		}
		c := cms[0]
		h.note(w, c.At, unwanted, wanted)
		if c.By.Controller {
			h.judge(w, c, unwanted, wanted)
		}
		w.applyConfigMap(c)
		cms = cms[1:]
	}
}

func (w *worldState) applyNamespace(c apitest.Change[*corev1.Namespace]) {
	if c.New == nil {
		delete(w.namespaces, (*c.Old).Name)
	} else {
		w.namespaces[(*c.New).Name] = *c.New
	}
}

func (w *worldState) applyConfigMap(c apitest.Change[*corev1.ConfigMap]) {
	k := keyOfChange(c)
	delete(w.views, k.Name)
	if c.New == nil {
		delete(w.configMaps, k)
	} else {
		w.configMaps[k] = *c.New
	}
}

func keyOfChange(c apitest.Change[*corev1.ConfigMap]) key {
	if c.New != nil {
		return plan.KeyOf(*c.New)
	}
	return plan.KeyOf(*c.Old)
}

// note takes note, right before the next change, of which copies are wanted.
func (h *history) note(w *worldState, at time.Time, unwanted map[key]time.Time, wanted map[string]time.Time) {
	if at.IsZero() {
		return
	}
	for _, name := range historyNames {
		v := w.view(name)
		for _, namespace := range historyTargets {
			t := w.target(key{Namespace: namespace, Name: name})
			if t.Namespace == nil {
				continue
			}
			t.Prunable = true
			if c := h.rules.Decide(v, t); c.Op == plan.OpDelete || c.Op == plan.OpRecreate {
				unwanted[t.Key] = at
			}
			if s := h.rules.Winner(v, t.Namespace); s != nil {
				wanted[contentKey(t.Key, s.Key, s.Checksum)] = at
			}
		}
	}
}

func contentKey(k, source key, checksum string) string { return fmt.Sprint(k, source, checksum) }

// lateWrite bounds how long a watch or a request may keep the controller from knowing better.
const lateWrite = 3 * time.Minute

// judge judges one write.
func (h *history) judge(w *worldState, c apitest.Change[*corev1.ConfigMap], unwanted map[key]time.Time, wanted map[string]time.Time) {
	k := keyOfChange(c)
	if c.Old != nil && !isOurs(*c.Old) && !isHandedOver(*c.Old) {
		h.found(wrongWrite, "%v: touched a foreign object: %v", k, *c.Old)
	}
	if c.New == nil || (*c.New).DeletionTimestamp != nil {
		if since := c.At.Sub(unwanted[k]); since > answerLifetime+h.latest+time.Second {
			h.found(wrongDeletion, "%v: wanted for %v: %v", k, since, *c.Old)
		}
		return
	}
	cm := *c.New
	source, ok := h.rules.SourceOf(cm)
	if since := c.At.Sub(wanted[contentKey(k, source, cm.Annotations[plan.ChecksumAnnotation])]); !c.By.Altered && (!ok || since > lateWrite+h.latest) {
		h.found(wrongWrite, "%v: not wanted for %v: %v", k, since, cm)
	}
}

// isOurs and isHandedOver read the contract once more, without package plan.
func isOurs(cm *corev1.ConfigMap) bool {
	a := cm.Annotations
	from := strings.Split(a["mirror-controller.github.io/source"], "/")
	return a["mirror-controller.github.io/copy"] == cm.Namespace+"/"+cm.Name && a["mirror-controller.github.io/instance"] == "default" &&
		len(from) == 2 && from[0] != cm.Namespace && from[1] == cm.Name
}

func isHandedOver(cm *corev1.ConfigMap) bool {
	a := cm.Annotations
	isSource := cm.Labels["mirror"] == "true" && a["mirror-controller.github.io/copy"] != cm.Namespace+"/"+cm.Name
	return a["mirror-controller.github.io/adopt"] == "true" && len(cm.Finalizers) == 0 && !isSource
}
