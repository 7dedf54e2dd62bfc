package mirror

// A history is held against a plan from scratch of the objects on the API server, and every write of the controller is
// judged.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/liveread"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
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
	state plan.State
	owner key // the source that state counts for
}

func (k known) String() string {
	return fmt.Sprintf("%v of %v", k.state, k.owner)
}

// knows returns what the controller knows of each target.
func (c *Controller) knows() map[key]known {
	all := map[key]known{}
	c.status.each(func(n *nameStatus) {
		for namespace, r := range n.targets {
			all[key{Namespace: namespace, Name: n.name}] = known{r.state, r.countsFor}
		}
	})
	return all
}

// each calls f with the status of each name, locked.
func (s *status) each(f func(*nameStatus)) {
	s.mu.Lock()
	names := slices.Collect(maps.Values(s.names))
	s.mu.Unlock()
	for _, n := range names {
		n.mu.Lock()
		f(n)
		n.mu.Unlock()
	}
}

// leftOver returns what a controller at rest has left of its work.
func (c *Controller) leftOver() map[string]int {
	synctest.Wait()
	left := map[string]int{"keys": c.copies.Len(), "names": c.sources.Len()}
	left["calls in flight"], left["slow slots"] = c.reconciler.lanes.InFlight()
	left["live reads"] = c.reconciler.live.Known()
	for _, name := range historyNames {
		if c.sources.WantsFanout(name) {
			left["fan-outs"]++
		}
	}
	c.status.each(func(n *nameStatus) {
		left["calls"] += len(n.calls)
		left["queued targets"] += n.queued
		for _, r := range n.targets {
			// An object that the watch does not show is retried.
			if r.retry.outcome != outcome.Foreign && r.state != plan.StateForeign && r.retry != (retry{}) ||
				r.own != (ownWrite{}) || r.unclaimed != (unclaimed{}) {
				left[fmt.Sprintf("retries (%v, %+v)", r.retry.outcome, r.own)]++
			}
		}
	})
	return left
}

// remembered returns what a controller knows of a cluster in which nothing is left.
func (c *Controller) remembered() map[string]int {
	left := c.leftOver()
	left["names with a status"], left["views"] = len(c.status.names), c.cache.KeptViews()
	return left
}

// compare compares the copies and the status with a plan from scratch. While faults go on, it leaves out what they
// keep from being right.
func (h *history) compare(atRest bool) {
	synctest.Wait()
	w, faults, known := h.now(), h.faults.Load(), h.leader.knows()
	if failsToRead(faults) {
		return
	}
	h.mu.Lock()
	removing, before := maps.Clone(h.removing), len(h.findings)
	h.mu.Unlock()
	changed := h.changedLately()
	totals, owned := map[plan.State]int{}, map[key]map[plan.State]int{}
	for _, name := range historyNames {
		v := w.view(name)
		for _, namespace := range historyNamespaces {
			t := w.target(key{Namespace: namespace, Name: name})
			c := h.rules.Decide(v, t)
			if w := h.rules.Decide(v, plan.Target{Key: t.Key, Namespace: t.Namespace}); t.Have != nil &&
				!h.rules.Visible(t.Have) && w.State == plan.StateHeld {
				c = w // such a target is held without being asked
			}
			want := wanted(h.rules, v, t, c)
			count(totals, owned, want.state, want.owner)
			for _, loser := range h.superseded(v, t.Namespace) {
				count(totals, owned, plan.StateSuperseded, loser.Key)
			}
			_, fails := faults.failing[namespace]
			_, alters := faults.altered[namespace]
			excused := !atRest && (fails || alters || removing[namespace] || changed[t.Key])
			h.compareTarget(t, c, known[t.Key], want, excused, atRest)
		}
	}
	if atRest && len(h.findings) == before {
		h.compareTotals(totals, owned)
	}
}

// changedLately returns the ConfigMaps whose answers or events may still be on their way.
func (h *history) changedLately() map[key]bool {
	lately := map[key]bool{}
	for _, c := range slices.Backward(h.server.ConfigMaps.Changes()) {
		if time.Since(c.At) > time.Minute+2*h.latestWatch {
			break
		}
		lately[keyOfChange(c)] = true
	}
	return lately
}

// compareTarget compares one target. If requests about it fail, it may be in any state, but that counts for the right
// source, unless only a request could show what is there.
func (h *history) compareTarget(t plan.Target, c plan.Change, got, want known, fails, atRest bool) {
	hidden := t.Have != nil && !h.rules.Visible(t.Have)
	switch {
	case fails && hidden, c.Op == plan.OpDelete && !atRest && (h.options.DeletionGrace > time.Minute ||
		h.latest > liveread.Lifetime):
	case c.Op != plan.OpNone && !fails:
		h.found(outOfSync, "%v: %v is due, and there is %v", t.Key, c.Op, t.Have)
	case got.state != plan.StateNone && want.state != plan.StateNone && got.owner != want.owner:
		h.found(wrongStatus, "%v: %v counts for %v, want %v", t.Key, got.state, got.owner, want.owner)
	case fails, got.state == plan.StateFight && !atRest:
	case got != want:
		h.found(wrongStatus, "%v: got %v, want %v", t.Key, got, want)
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
	want := known{state: c.State, owner: c.CountsFor()}
	if c.Op != plan.OpNone {
		want.state = plan.StatePending
	}
	if want.state == plan.StateNone {
		want.owner = key{}
	}
	return want
}

// superseded returns the sources that select the namespace and do not win it.
func (h *history) superseded(v *plan.View, ns *corev1.Namespace) (losers []*plan.Source) {
	if ns == nil {
		return nil
	}
	for _, s := range v.Sources {
		if h.rules.Exclusion(s, ns) == plan.NotExcluded {
			losers = append(losers, s)
		}
	}
	return losers[min(1, len(losers)):]
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

func (h *history) compareTotals(totals map[plan.State]int, owned map[key]map[plan.State]int) {
	s := h.leader.status
	for state := range plan.States {
		if got := s.total(state); got != totals[state] {
			h.found(wrongStatus, "got %d %v in all, want %d", got, state, totals[state])
		}
	}
	s.each(func(n *nameStatus) {
		for source, src := range n.sources {
			for state := range plan.States {
				if got, want := src.counts[state], owned[source][state]; got != want {
					h.found(wrongStatus, "got %d %v of %v, want %d", got, state, source, want)
				}
			}
		}
	})
}

// blockedAt reports whether a target in the namespace is retried for ever, because no event tells when what is in its
// way goes.
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

// audit judges each write of the controller by what the API server had then, and shortly before: the controller
// decides on what its watches and live reads show.
func (h *history) audit() {
	for _, unsafe := range h.server.Unsafe() {
		h.found(wrongWrite, "%s", unsafe)
	}
	terms := h.terms
	w, last := newWorldState(terms[0].rules), h.newLastSeen()
	begin := func(now time.Time) {
		for len(terms) > 0 && !terms[0].began.After(now) {
			last.note(w, terms[0].began)
			w.rules, w.views = terms[0].rules, map[string]*plan.View{}
			terms = terms[1:]
		}
	}
	cms, nss := h.server.ConfigMaps.Changes(), h.server.Namespaces.Changes()
	for len(cms)+len(nss) > 0 {
		if len(cms) == 0 || len(nss) > 0 && nss[0].Order < cms[0].Order {
			begin(nss[0].At)
			last.note(w, nss[0].At)
			w.applyNamespace(nss[0])
			nss = nss[1:]
			continue
		}
		begin(cms[0].At)
		last.note(w, cms[0].At)
		if cms[0].By.Controller {
			h.judge(last, cms)
		}
		w.applyConfigMap(cms[0])
		cms = cms[1:]
	}
}

// lastSeen says when a copy was last to be deleted or re-created, since when a copy expires, when a source last had a
// content, when a namespace last accepted copies, and when a target was last not held.
type lastSeen struct {
	now      time.Time     // the begin of the present
	unseen   time.Duration // how long a change may last that the controller does not see
	unwanted map[key]time.Time
	expiring map[key]expiring
	contents map[content]seenContent
	accepted map[string]time.Time
	unheld   map[key]time.Time
	made     map[key]types.UID // by the controller, and altered by a webhook
	open     *plan.Rules       // by which each namespace may hold sources
}

// expiring is a copy that no source claims, or one that is claimed again.
type expiring struct {
	uid            types.UID
	since, claimed time.Time // zero: it is not claimed
}

type seenContent struct {
	at     time.Time
	source *corev1.ConfigMap
}

func (h *history) newLastSeen() *lastSeen {
	open := h.options.Options
	open.SourceNamespaces = nil
	return &lastSeen{h.began, 10*time.Second + 2*h.latestWatch + 10*h.latestDelay, map[key]time.Time{}, map[key]expiring{},
		map[content]seenContent{},
		map[string]time.Time{}, map[key]time.Time{}, map[key]types.UID{}, plan.NewRules(&open)}
}

// note records the state of w until now.
func (l *lastSeen) note(w *worldState, now time.Time) {
	defer func() { l.now = now }()
	for _, name := range historyNames {
		v := w.view(name)
		for _, s := range v.Sources {
			l.contents[contentOf(s)] = seenContent{now, s.ConfigMap}
		}
		for _, s := range v.OutOfScope { // other flags may allow it while an old cache still shows it
			l.contents[contentOf(l.open.ParseSource(s.ConfigMap))] = seenContent{now, s.ConfigMap}
		}
		for _, namespace := range historyTargets {
			t := w.target(key{Namespace: namespace, Name: name})
			if t.Namespace == nil {
				continue
			}
			// No live read shows that another source claims a copy.
			c := w.rules.Decide(v, t)
			if c.Op == plan.OpDelete || c.Op == plan.OpRecreate || plan.Terminating(t.Namespace) ||
				c.Source != nil && c.Source.Key != c.CopyOf {
				l.unwanted[t.Key] = now
			}
			l.expire(t, c)
			if c.State != plan.StateHeld {
				l.unheld[t.Key] = now
			}
			if t.Namespace.Labels["mirror"] != "false" {
				l.accepted[namespace] = now
			}
		}
	}
}

// expire records whether a source claims a copy. A claim so short that the controller may not have seen it counts for
// nothing.
func (l *lastSeen) expire(t plan.Target, c plan.Change) {
	e, expires := l.expiring[t.Key], c.Op == plan.OpDelete
	switch {
	case expires && e.uid != t.Have.UID, expires && !e.claimed.IsZero() && l.now.Sub(e.claimed) > l.unseen:
		e = expiring{uid: t.Have.UID, since: l.now}
	case expires:
		e.claimed = time.Time{}
	case e.claimed.IsZero():
		e.claimed = l.now
	}
	l.expiring[t.Key] = e
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

// lateWrite bounds how long watches and requests may keep the controller from knowing better.
func (h *history) lateWrite() time.Duration { return 3*time.Minute + h.latestWatch + h.latest }

// judge judges the first of these changes, a write of the controller.
func (h *history) judge(last *lastSeen, changes []apitest.Change[*corev1.ConfigMap]) {
	c := changes[0]
	k := keyOfChange(c)
	if c.Old == nil && c.By.Altered {
		last.made[k] = (*c.New).UID
	}
	if c.New == nil && last.made[k] == (*c.Old).UID {
		return // what a webhook made of our own create is taken back
	}
	if c.Old != nil && !isOurs(*c.Old) && !isHandedOver(*c.Old) {
		h.found(wrongWrite, "%v: touched a foreign object: %v", k, *c.Old)
	}
	if c.At.Sub(last.unheld[k]) > h.lateWrite() {
		h.found(wrongWrite, "%v: has been held since %v", k, last.unheld[k])
	}
	if c.New == nil || (*c.New).DeletionTimestamp != nil {
		since := c.At.Sub(last.unwanted[k])
		if again, other := isRecreation(changes); !other && !(again && since <= h.lateWrite()) {
			h.judgeDeletion(last, k, c)
		} else if source, ok := h.rules.SourceOf(*c.Old); ok {
			h.recreated[source] = true
		}
		return
	}
	if c.By.Altered {
		return
	}
	source, ok := h.rules.SourceOf(*c.New)
	seen := last.contents[content{source, (*c.New).Annotations[plan.ChecksumAnnotation]}]
	since := h.lateWrite()
	switch {
	case !ok || c.At.Sub(seen.at) > since:
		h.found(wrongWrite, "%v: no source has had this content since %v: %v", k, seen.at, *c.New)
	case c.At.Sub(last.accepted[k.Namespace]) > since:
		h.found(wrongWrite, "%v: the namespace has opted out since %v", k, last.accepted[k.Namespace])
	case !hasContent(*c.New, seen.source):
		h.found(wrongWrite, "%v: has another content than its source: %v, %v", k, *c.New, seen.source)
	}
}

// judgeDeletion judges a deletion that is not the begin of a re-creation.
func (h *history) judgeDeletion(last *lastSeen, k key, c apitest.Change[*corev1.ConfigMap]) {
	if since := c.At.Sub(last.unwanted[k]); since > liveread.Lifetime+2*h.latest+10*h.latestDelay {
		h.found(wrongDeletion, "%v: wanted for %v: %v", k, since, *c.Old)
	}
	if (*c.Old).Immutable != nil { // it may have been deleted to be made again, and its source has gone meanwhile
		if source, ok := h.rules.SourceOf(*c.Old); ok {
			h.recreated[source] = true
		}
		return
	}
	h.judgeAnnouncement(k, c)
	since := last.expiring[k].since
	for _, term := range h.terms {
		if c.At.Sub(term.began) > h.latest { // else the former leader's
			since = slices.MaxFunc([]time.Time{since, term.began}, time.Time.Compare)
		}
	}
	// A late watch of namespaces may show a copy unclaimed before it is.
	if grace := c.At.Sub(since) + 10*h.latestDelay + h.latestWatch; last.expiring[k].uid == (*c.Old).UID &&
		grace < h.options.DeletionGrace {
		h.found(wrongDeletion, "%v: unclaimed for %v: %v", k, grace, *c.Old)
	}
}

// hasContent reads the contract once more, without package plan: whether a copy holds what its source does. Other
// people's labels stay.
func hasContent(made, from *corev1.ConfigMap) bool {
	return equality.Semantic.DeepEqual(made.Data, from.Data) && equality.Semantic.DeepEqual(made.BinaryData,
		from.BinaryData) &&
		equality.Semantic.DeepEqual(made.Immutable, from.Immutable) && (from.Labels["app"] == "" ||
		made.Labels["app"] == from.Labels["app"])
}

// isRecreation reports whether the controller deletes an immutable copy and creates it again, and whether it does so
// with other content. A re-creation needs no live read, and an old view of the source may ask for it. If somebody
// else creates one of the name before the controller does, nobody knows the content, so it counts as another.
func isRecreation(changes []apitest.Change[*corev1.ConfigMap]) (again, other bool) {
	old := **changes[0].Old
	if old.Immutable == nil || !*old.Immutable {
		return false, false
	}
	if len(old.Finalizers) > 0 { // they hold the copy, and nothing shows what would have followed
		return true, false
	}
	k := keyOfChange(changes[0])
	for _, next := range changes[1:] {
		if keyOfChange(next) == k {
			again = next.Old == nil
			return again, again && (!next.By.Controller || !hasContent(*next.New, &old))
		}
	}
	return false, false
}

// countRequest finds requests that come again and again without a pause.
func (h *history) countRequest(c apitest.Call) {
	const many, within = 60, 8 * time.Second
	h.mu.Lock()
	h.requests[c] = append(h.requests[c], time.Now())
	all := h.requests[c]
	if len(all) > many {
		all = all[1:]
	}
	h.requests[c] = all
	hot := len(all) == many && time.Since(all[0]) < within
	if hot {
		h.requests[c] = nil
	}
	h.mu.Unlock()
	if hot {
		h.found(hotLoop, "%v: %d requests within %v", c, many, time.Since(all[0]))
	}
}

// isOurs and isHandedOver read the contract once more, without package plan.
func isOurs(cm *corev1.ConfigMap) bool {
	a := cm.Annotations
	from := strings.Split(a["mirror-controller.github.io/source"], "/")
	return a["mirror-controller.github.io/copy"] == cm.Namespace+"/"+cm.Name &&
		a["mirror-controller.github.io/instance"] == "default" &&
		len(from) == 2 && from[0] != cm.Namespace && from[1] == cm.Name
}

func isHandedOver(cm *corev1.ConfigMap) bool {
	a := cm.Annotations
	isSource := cm.Labels["mirror"] == "true" && a["mirror-controller.github.io/copy"] != cm.Namespace+"/"+cm.Name
	return a["mirror-controller.github.io/adopt"] == "true" && len(cm.Finalizers) == 0 && !isSource
}
