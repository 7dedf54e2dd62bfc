package mirror

// A history is held against what the oracle says of the objects on the API server, and every write of the controller is
// judged.

import (
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// lateLoss is how long a controller goes on at most after the loss of its lease, and lifetime how old a live read may
// be on which a deletion depends.
const lateLoss, lifetime = 8 * time.Second, 5 * time.Second

// now returns what the API server has now.
func (h *history) now(flags *Options) *oracle {
	w := &oracle{flags, map[key]*corev1.ConfigMap{}, map[string]*corev1.Namespace{}}
	for _, cm := range h.server.ConfigMaps.All() {
		w.configMaps[apitest.KeyOf(cm)] = cm
	}
	for _, ns := range h.server.Namespaces.All() {
		w.namespaces[ns.Name] = ns
	}
	return w
}

// compare compares the copies and the status with the verdicts of the oracle. While faults go on, it leaves out what
// they keep from being right.
func (h *history) compare(atRest bool) {
	synctest.Wait()
	w, faults, known := h.now(h.options), h.faults.Load(), h.leader.targetStates()
	readFails := func(f failure) bool { return slices.Contains(f.verbs, "get") }
	if slices.ContainsFunc(slices.Collect(maps.Values(faults.failing)), readFails) {
		return
	}
	h.mu.Lock()
	removing, before := maps.Clone(h.removing), len(h.findings)
	h.mu.Unlock()
	changed, spoilt := h.changedSince(time.Minute+2*h.latestWatch), h.spoilt()
	counts, remembered := map[key]map[string]int{}, false
	for _, name := range historyNames {
		for _, namespace := range historyNamespaces {
			k := key{Namespace: namespace, Name: name}
			v, have, got := w.judge(k), w.configMaps[k], known[k].state.String()
			if have != nil && v.state == "foreign" && got == "rejected" && spoilt[have.UID] {
				v.state = got // by admission, as long as the object is there
			}
			if have != nil && !w.isShown(have) && got == "foreign" && (v.state == "held" || v.state == "frozen") {
				v.state, v.owner, remembered = got, known[k].owner, true // the copy of another source is in the way
			}
			addTo(counts, v.owner, v.state, 1)
			addTo(counts, key{}, v.state, 1)
			for _, s := range w.superseded(k) {
				addTo(counts, s, "superseded", 1)
				addTo(counts, key{}, "superseded", 1)
			}
			_, fails := faults.failing[namespace]
			_, alters := faults.altered[namespace]
			slow := faults.lags[namespace] > 10*time.Second
			excused := !atRest && (fails || slow || alters || removing[namespace] || changed[k])
			hidden := have != nil && !w.isShown(have)
			switch {
			case excused && hidden,
				v.due == "delete" && !atRest && (h.options.DeletionGrace > time.Minute || h.latest > lifetime):
			case v.due != "" && !excused:
				h.found(outOfSync, "%v: %v is due, and there is %v", k, v.due, have)
			case got != "none" && v.state != "none" && known[k].owner != v.owner:
				h.found(wrongStatus, "%v: %v counts for %v, want %v", k, got, known[k].owner, v.owner)
			case excused, got == "fight" && !atRest:
			case got != v.state:
				h.found(wrongStatus, "%v: got %v of %v, want %v of %v", k, got, known[k].owner, v.state, v.owner)
			}
		}
	}
	judged := atRest && !remembered && len(h.findings) == before
	if got := h.leader.counts(); judged && !equality.Semantic.DeepEqual(got, counts) {
		h.found(wrongStatus, "got %v, want %v", got, counts)
	}
}

// addTo counts targets of a source in a state.
func addTo(counts map[key]map[string]int, source key, state string, n int) {
	if n == 0 || state == "none" {
		return
	}
	if counts[source] == nil {
		counts[source] = map[string]int{}
	}
	counts[source][state] += n
}

// changedSince returns the targets that have changed within this time, by themselves or because their namespaces did.
func (h *history) changedSince(within time.Duration) map[key]bool {
	lately := map[key]bool{}
	for _, c := range slices.Backward(h.server.ConfigMaps.Changes()) {
		if time.Since(c.At) > within {
			break
		}
		lately[keyOfChange(c)] = true
	}
	for _, c := range slices.Backward(h.server.Namespaces.Changes()) {
		if time.Since(c.At) > within {
			break
		}
		for _, name := range historyNames {
			lately[key{Namespace: nameOfChange(c), Name: name}] = true
		}
	}
	return lately
}

// blockedAt reports whether a target in the namespace is retried for ever, because no event tells when what is in its
// way goes.
func (h *history) blockedAt(namespace string) bool {
	w, spoilt := h.now(h.options), h.spoilt()
	for _, name := range historyNames {
		k := key{Namespace: namespace, Name: name}
		if have := w.configMaps[k]; have != nil && (!w.isShown(have) || spoilt[have.UID]) && w.judge(k).state != "none" {
			return true
		}
	}
	return false
}

// spoilt returns the UIDs of what admission has altered.
func (h *history) spoilt() map[types.UID]bool {
	all := map[types.UID]bool{}
	for _, c := range h.server.ConfigMaps.Changes() {
		if c.By.Altered && c.New != nil {
			all[(*c.New).UID] = true
		}
	}
	h.server.Altered.Range(func(uid, _ any) bool {
		all[uid.(types.UID)] = true
		return true
	})
	return all
}

// audit judges each write of the controller by what the API server had then, and shortly before: the controller
// decides on what its watches and live reads show.
func (h *history) audit() {
	for _, unsafe := range h.server.Unsafe() {
		h.found(wrongWrite, "%s", unsafe)
	}
	terms := h.terms
	w := &oracle{terms[0].flags, map[key]*corev1.ConfigMap{}, map[string]*corev1.Namespace{}}
	last := &lastSeen{h.began, 10*time.Second + 2*h.latestWatch + 10*h.latestDelay, map[key]time.Time{},
		map[key]expiring{}, map[key][]seenContent{}, map[[2]key]time.Time{}, map[key]time.Time{}, map[string]time.Time{}}
	former := terms[0]
	begin := func(now time.Time) {
		for len(terms) > 0 && !terms[0].began.After(now) {
			last.note(w, terms[0].began)
			former = historyTerm{terms[0].began, w.flags}
			w.flags, terms = terms[0].flags, terms[1:]
		}
		last.note(w, now)
		if now.Sub(former.began) < lateLoss+h.lateWrite() {
			last.noteTargets(&oracle{former.flags, w.configMaps, w.namespaces})
		}
	}
	cms, nss := h.server.ConfigMaps.Changes(), h.server.Namespaces.Changes()
	for len(cms)+len(nss) > 0 {
		if len(cms) == 0 || len(nss) > 0 && nss[0].Order < cms[0].Order {
			begin(nss[0].At)
			last.moved[nameOfChange(nss[0])] = nss[0].At
			delete(w.namespaces, nameOfChange(nss[0]))
			if nss[0].New != nil {
				w.namespaces[(*nss[0].New).Name] = *nss[0].New
			}
			nss = nss[1:]
			continue
		}
		begin(cms[0].At)
		if cms[0].By.Controller {
			h.judge(w, last, cms)
		}
		if !cms[0].By.Controller {
			last.moved[keyOfChange(cms[0]).Name] = cms[0].At
		}
		delete(w.configMaps, keyOfChange(cms[0]))
		if cms[0].New != nil {
			w.configMaps[keyOfChange(cms[0])] = *cms[0].New
		}
		cms = cms[1:]
	}
}

// lastSeen says when a copy was last to be deleted or re-created, since when a copy expires, when a source last had a
// content, when it last won a target, and when a target was last neither held nor frozen.
type lastSeen struct {
	now      time.Time
	unseen   time.Duration // how long a change may last that the controller does not see
	unwanted map[key]time.Time
	expiring map[key]expiring
	contents map[key][]seenContent
	won      map[[2]key]time.Time // by target and source
	free     map[key]time.Time
	moved    map[string]time.Time // when somebody else last changed a namespace, or a ConfigMap of a name
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

// note records the state of w until now.
func (l *lastSeen) note(w *oracle, now time.Time) {
	for k, cm := range w.configMaps {
		if !w.asksToBeMirrored(cm) { // other flags may allow it while an old cache still shows it
			continue
		}
		same := func(c seenContent) bool {
			return samePayload(c.source, cm) && maps.Equal(w.travels(c.source), w.travels(cm))
		}
		if i := slices.IndexFunc(l.contents[k], same); i >= 0 {
			l.contents[k][i].at = now
		} else {
			l.contents[k] = append(l.contents[k], seenContent{now, cm})
		}
	}
	since := l.now
	l.now = now
	for k, v := range l.noteTargets(w) {
		l.expire(k, w.configMaps[k], v.due == "delete", since)
	}
}

// noteTargets records the targets until now, and returns them.
func (l *lastSeen) noteTargets(w *oracle) map[key]verdict {
	all := map[key]verdict{}
	for _, name := range historyNames {
		for _, namespace := range historyTargets {
			k := key{Namespace: namespace, Name: name}
			ns := w.namespaces[namespace]
			if ns == nil {
				continue
			}
			v := w.judge(k)
			of, ours := w.copyOf(w.configMaps[k])
			// No live read shows that another source claims a copy.
			if v.due == "delete" || v.due == "recreate" || isGoing(ns) || v.winner != nil && ours && of != v.owner {
				l.unwanted[k] = l.now
			}
			if v.state != "held" && v.state != "frozen" {
				l.free[k] = l.now
			}
			l.won[[2]key{k, v.owner}], all[k] = l.now, v
		}
	}
	return all
}

// expire records whether a source has claimed a copy since a time. A claim so short that the controller may not have
// seen it counts for nothing.
func (l *lastSeen) expire(k key, have *corev1.ConfigMap, expires bool, begin time.Time) {
	e := l.expiring[k]
	switch {
	case expires && e.uid != have.UID, expires && !e.claimed.IsZero() && begin.Sub(e.claimed) > l.unseen:
		e = expiring{uid: have.UID, since: begin}
	case expires:
		e.claimed = time.Time{}
	case e.claimed.IsZero():
		e.claimed = begin
	}
	l.expiring[k] = e
}

func keyOfChange(c apitest.Change[*corev1.ConfigMap]) key {
	if c.New != nil {
		return apitest.KeyOf(*c.New)
	}
	return apitest.KeyOf(*c.Old)
}

func nameOfChange(c apitest.Change[*corev1.Namespace]) string {
	if c.New != nil {
		return (*c.New).Name
	}
	return (*c.Old).Name
}

// lateWrite bounds how long watches and requests may keep the controller from knowing better.
func (h *history) lateWrite() time.Duration { return 3*time.Minute + h.latestWatch + h.latest }

// judge judges the first of these changes, a write of the controller.
func (h *history) judge(w *oracle, last *lastSeen, changes []apitest.Change[*corev1.ConfigMap]) {
	c := changes[0]
	k := keyOfChange(c)
	h.judged = c.At
	if c.Old != nil {
		if _, ours := w.copyOf(*c.Old); !ours && !w.isHandedOver(*c.Old) {
			h.found(wrongWrite, "%v: touched a foreign object: %v", k, *c.Old)
		}
	}
	// A cache may show together what has never been so together.
	isLate := func(since time.Time) bool {
		for _, at := range []time.Time{since, last.moved[k.Name], last.moved[k.Namespace]} {
			if c.At.Sub(at) <= h.lateWrite() {
				return false
			}
		}
		return true
	}
	if isLate(last.free[k]) {
		h.found(wrongWrite, "%v: has been held or frozen since %v", k, last.free[k])
	}
	if c.New == nil || (*c.New).DeletionTimestamp != nil {
		since := c.At.Sub(last.unwanted[k])
		if again, other := isRecreation(changes); !other && !(again && since <= h.lateWrite()) {
			h.judgeDeletion(w, last, k, c)
		}
		return
	}
	if c.By.Altered {
		return
	}
	source, ours := w.copyOf(*c.New)
	seen := func(s seenContent) bool { return c.At.Sub(s.at) <= h.lateWrite() && w.hasContent(*c.New, s.source) }
	switch {
	case !ours || !slices.ContainsFunc(last.contents[source], seen):
		h.found(wrongWrite, "%v: no source has had this content lately: %v, but %v", k, *c.New, last.contents[source])
	case isLate(last.won[[2]key{k, source}]):
		h.found(wrongWrite, "%v: %v has not won it since %v", k, source, last.won[[2]key{k, source}])
	case c.Old != nil:
		if lost := lostMetadata(w, *c.Old, *c.New); lost != "" {
			h.found(wrongWrite, "%v: %s of other people is not what it was", k, lost)
		}
	}
}

// lostMetadata returns metadata of other people that an update does not keep; empty: it keeps all, or there is no room.
func lostMetadata(w *oracle, old, updated *corev1.ConfigMap) string {
	const room = 256 << 10 // for annotations
	copied := "," + old.Annotations[plan.CopiedAnnotation] + ","
	lost := func(kind string, before, after map[string]string) string {
		for k, v := range before {
			_, overwritten := w.travels(updated)[kind+k]
			ours := strings.HasPrefix(k, plan.Domain+"/") || k == w.flags.Label || k == plan.ManagedByLabel ||
				overwritten || strings.Contains(copied, ","+kind+k+",")
			if is, there := after[k]; !ours && (!there || is != v) {
				return kind + k
			}
		}
		return ""
	}
	if !slices.Equal(old.Finalizers, updated.Finalizers) {
		return "a finalizer"
	}
	if what := lost("label:", old.Labels, updated.Labels); what != "" {
		return what
	}
	if sizeOf(old.Annotations)+sizeOf(updated.Annotations) > room {
		return ""
	}
	return lost("annotation:", old.Annotations, updated.Annotations)
}

func sizeOf(metadata map[string]string) (n int) {
	for k, v := range metadata {
		n += len(k) + len(v)
	}
	return n
}

// judgeDeletion judges a deletion that is not the begin of a re-creation.
func (h *history) judgeDeletion(w *oracle, last *lastSeen, k key, c apitest.Change[*corev1.ConfigMap]) {
	if since := c.At.Sub(last.unwanted[k]); since > lifetime+2*h.latest+10*h.latestDelay {
		h.found(wrongDeletion, "%v: wanted for %v: %v", k, since, *c.Old)
	}
	if isTrue((*c.Old).Immutable) {
		return // it may have been deleted to be made again, and its source has gone meanwhile
	}
	source, _ := w.copyOf(*c.Old)
	h.judgeAnnouncement(k, source, c)
	since := last.expiring[k].since
	for _, term := range h.terms {
		if c.At.Sub(term.began) > h.latest+lateLoss { // else the former leader's
			since = slices.MaxFunc([]time.Time{since, term.began}, time.Time.Compare)
		}
	}
	// A late watch of namespaces may show a copy unclaimed before it is.
	if grace := c.At.Sub(since) + 10*h.latestDelay + h.latestWatch; last.expiring[k].uid == (*c.Old).UID &&
		grace < h.options.DeletionGrace {
		h.found(wrongDeletion, "%v: unclaimed for %v: %v", k, grace, *c.Old)
	}
}

// isRecreation reports whether the controller deletes an immutable copy and creates it again, and whether it does so
// with other content. A re-creation needs no live read, and an old view of the source may ask for it. If somebody
// else creates one of the name before the controller does, nobody knows the content, so it counts as another.
func isRecreation(changes []apitest.Change[*corev1.ConfigMap]) (again, other bool) {
	old := *changes[0].Old
	if !isTrue(old.Immutable) {
		return false, false
	}
	if len(old.Finalizers) > 0 { // they hold the copy, and nothing shows what would have followed
		return true, false
	}
	k := keyOfChange(changes[0])
	for _, next := range changes[1:] {
		if keyOfChange(next) == k {
			again = next.Old == nil
			return again, again && (!next.By.Controller || !samePayload(*next.New, old))
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
