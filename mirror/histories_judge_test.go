package mirror

// A history is held against what package judge says of the objects on the API server. Every write of the controller is
// judged, and so are its events and log lines.

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/apitest/judge"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// lateLoss is how long a controller goes on at most after the loss of its lease, and lifetime how old a live read may
// be on which a deletion depends.
const lateLoss, lifetime = 8 * time.Second, 5 * time.Second

// now returns what the API server has now.
func (p people) now(flags *Options) *judge.Cluster {
	w := judge.New(&flags.Options)
	for _, cm := range p.ConfigMaps.All() {
		w.ConfigMaps[apitest.KeyOf(cm)] = cm
	}
	for _, ns := range p.Namespaces.All() {
		w.Namespaces[ns.Name] = ns
	}
	return w
}

// compare compares the copies and the status with the verdicts of package judge. While faults go on, it leaves out what
// they keep from being right.
func (h *history) compare(atRest bool) {
	synctest.Wait()
	wasInterrupted := h.rare.interrupted.Load() && h.sinceWatchEnded() < 2*time.Minute
	isInterrupted := len(h.faults.Load().interrupted) > 0 || wasInterrupted
	if !atRest && (isInterrupted || !h.leader.Synced()) {
		return // the controller works with what it saw before
	}
	w, faults, known := h.now(h.options), h.faults.Load(), h.leader.targetStates()
	for _, f := range faults.failing {
		if slices.Contains(f.verbs, "get") {
			return
		}
	}
	h.mu.Lock()
	removing, before := maps.Clone(h.removing), len(h.findings)
	h.mu.Unlock()
	changed, spoilt := h.changedSince(time.Minute+2*h.latestWatch), h.spoilt()
	counts, remembered := map[key]map[string]int{}, false
	for k := range historyPlaces {
		v, have, got := w.Judge(k), w.ConfigMaps[k], known[k].state.String()
		hidden := have != nil && !w.IsShown(have)
		if have != nil && v.State == "foreign" && got == "rejected" && spoilt[have.UID] {
			v.State = got // by admission, as long as the object is there
		}
		if have != nil && v.Due == "recreate" && got == "rejected" && spoilt[have.UID] {
			v.Due, v.State = "", got // as admission made it, until the source has other content
		}
		if hidden && got == "foreign" && v.Stops() {
			v.State, v.Owner, remembered = got, known[k].owner, true // the copy of another source is in the way
		}
		addTo(counts, v.Owner, v.State, 1)
		addTo(counts, key{}, v.State, 1)
		for _, s := range w.Superseded(k) {
			addTo(counts, s, "superseded", 1)
			addTo(counts, key{}, "superseded", 1)
		}
		_, fails := faults.failing[k.Namespace]
		_, alters := faults.altered[k.Namespace]
		slow := faults.lags[k.Namespace] > 10*time.Second
		excused := !atRest && (fails || slow || alters || removing[k.Namespace] || changed[k])
		switch {
		case excused && hidden,
			v.Due == "delete" && !atRest && (h.options.DeletionGrace > time.Minute || h.latest > lifetime):
		case v.Due != "" && !excused:
			h.found(outOfSync, "%v: %v is due, and there is %v", k, v.Due, have)
		case got != "none" && v.State != "none" && known[k].owner != v.Owner:
			h.found(wrongStatus, "%v: %v counts for %v, want %v", k, got, known[k].owner, v.Owner)
		case excused, got == "fight" && !atRest:
		case got != v.State:
			h.found(wrongStatus, "%v: got %v of %v, want %v of %v", k, got, known[k].owner, v.State, v.Owner)
		}
	}
	judged := atRest && !remembered && len(h.findings) == before
	if got := h.leader.counts(); judged && !equality.Semantic.DeepEqual(got, counts) {
		h.found(wrongStatus, "got %v, want %v", got, counts)
	}
}

// historyPlaces yields every place of a history.
func historyPlaces(yield func(key) bool) {
	for _, name := range historyNames {
		for _, namespace := range historyNamespaces {
			if !yield(key{Namespace: namespace, Name: name}) {
				return
			}
		}
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

// since returns the changes within this time.
func since[T apitest.Object[T]](s *apitest.Store[T], within time.Duration) []apitest.Change[T] {
	isOld := func(c apitest.Change[T]) bool { return time.Since(c.At) > within }
	return slices.DeleteFunc(slices.Clone(s.Changes()), isOld)
}

// changedSince returns the targets that have changed within this time, by themselves or because their namespaces did.
func (h *history) changedSince(within time.Duration) map[key]bool {
	lately := map[key]bool{}
	for _, c := range since(h.ConfigMaps, within) {
		lately[c.Key()] = true
	}
	for _, c := range since(h.Namespaces, within) {
		for _, name := range historyNames {
			lately[key{Namespace: c.Key().Name, Name: name}] = true
		}
	}
	return lately
}

// blockedAt reports whether a target in the namespace is retried for ever, because no event tells when what is in its
// way goes.
func (h *history) blockedAt(namespace string) bool {
	w, spoilt := h.now(h.options), h.spoilt()
	for k, have := range w.ConfigMaps {
		if k.Namespace == namespace && (!w.IsShown(have) || spoilt[have.UID]) && w.Judge(k).State != "none" {
			return true
		}
	}
	return false
}

// spoilt returns the UIDs of what admission has altered.
func (p people) spoilt() map[types.UID]bool {
	all := map[types.UID]bool{}
	for _, c := range p.ConfigMaps.Changes() {
		if c.By.Altered && c.New != nil {
			all[(*c.New).UID] = true
		}
	}
	p.Altered.Range(func(uid, _ any) bool {
		all[uid.(types.UID)] = true
		return true
	})
	return all
}

// audit judges each write of the controller by what the API server had then, and shortly before: the controller
// decides on what its watches and live reads show.
func (h *history) audit() {
	for _, unsafe := range h.Unsafe() {
		// After a restore a resourceVersion comes again, and may name what the update would write.
		if len(h.restores) == 0 || !strings.HasPrefix(unsafe, "update that changes nothing") {
			h.found(wrongWrite, "%s", unsafe)
		}
	}
	w, terms := judge.New(&h.terms[0].flags.Options), h.terms
	former, ended := w.Flags, terms[0].began
	last := &lastSeen{h.began, 10*time.Second + 2*h.latestWatch + 10*h.latestDelay, map[key]time.Time{},
		map[key]expiring{}, map[key][]seenContent{}, map[[2]key]time.Time{}, map[key]time.Time{}, map[string]time.Time{}}
	begin := func(now time.Time) {
		for len(terms) > 0 && !terms[0].began.After(now) {
			last.note(w, terms[0].began)
			former, ended = w.Flags, terms[0].began
			w.Flags, terms = &terms[0].flags.Options, terms[1:]
		}
		last.note(w, now)
		if now.Sub(ended) < lateLoss+h.lateWrite() {
			last.noteTargets(&judge.Cluster{Flags: former, ConfigMaps: w.ConfigMaps, Namespaces: w.Namespaces})
		}
	}
	cms, nss := h.ConfigMaps.Changes(), h.Namespaces.Changes()
	for len(cms)+len(nss) > 0 {
		if len(cms) == 0 || len(nss) > 0 && nss[0].Order < cms[0].Order {
			c, name := nss[0], nss[0].Key().Name
			begin(c.At)
			last.moved[name] = c.At
			happen(w.Namespaces, name, c)
			nss = nss[1:]
			continue
		}
		c := cms[0]
		begin(c.At)
		if c.By.Controller {
			h.judge(w, last, cms)
		} else {
			last.moved[c.Key().Name] = c.At
		}
		happen(w.ConfigMaps, c.Key(), c)
		cms = cms[1:]
	}
}

// happen has a change happen to objects.
func happen[K comparable, T apitest.Object[T]](objects map[K]T, k K, c apitest.Change[T]) {
	delete(objects, k)
	if c.New != nil {
		objects[k] = *c.New
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
func (l *lastSeen) note(w *judge.Cluster, now time.Time) {
	for k, cm := range w.ConfigMaps {
		if !w.AsksToBeMirrored(cm) { // other flags may allow it while an old cache still shows it
			continue
		}
		same := func(c seenContent) bool {
			return judge.SamePayload(c.source, cm) && maps.Equal(w.Travels(c.source), w.Travels(cm))
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
		l.expire(k, w.ConfigMaps[k], v.Due == "delete", since)
	}
}

// noteTargets records the targets until now, and returns them.
func (l *lastSeen) noteTargets(w *judge.Cluster) map[key]judge.Verdict {
	all := map[key]judge.Verdict{}
	for k := range historyPlaces {
		ns := w.Namespaces[k.Namespace]
		if ns == nil || !slices.Contains(historyTargets, k.Namespace) {
			continue
		}
		v := w.Judge(k)
		of, ours := w.CopyOf(w.ConfigMaps[k])
		// No live read shows that another source claims a copy.
		if v.Due == "delete" || v.Due == "recreate" || judge.IsTerminating(ns) ||
			v.Winner != nil && ours && of != v.Owner {
			l.unwanted[k] = l.now
		}
		if !v.Stops() {
			l.free[k] = l.now
		}
		l.won[[2]key{k, v.Owner}], all[k] = l.now, v
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

// lateWrite bounds how long watches and requests may keep the controller from knowing better.
func (h *history) lateWrite() time.Duration { return 3*time.Minute + h.latestWatch + h.latest }

// judge judges the first of these changes, a write of the controller.
func (h *history) judge(w *judge.Cluster, last *lastSeen, changes []apitest.Change[*corev1.ConfigMap]) {
	c := changes[0]
	k := c.Key()
	h.judged = c.At
	if c.Old != nil {
		if _, ours := w.CopyOf(*c.Old); !ours && !w.IsHandedOver(*c.Old) {
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
	source, ours := w.CopyOf(*c.New)
	seen := func(s seenContent) bool { return c.At.Sub(s.at) <= h.lateWrite() && w.HasContent(*c.New, s.source) }
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
func lostMetadata(w *judge.Cluster, old, updated *corev1.ConfigMap) string {
	const room = 256 << 10 // for annotations
	copied := "," + old.Annotations[plan.CopiedAnnotation] + ","
	lost := func(kind string, before, after map[string]string) string {
		for k, v := range before {
			_, overwritten := w.Travels(updated)[kind+k]
			ours := strings.HasPrefix(k, plan.Domain+"/") || k == w.Flags.Label || k == plan.ManagedByLabel ||
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

// judgeDeletion judges a deletion that is not the begin of a re-creation. One that was on its way during a restore may
// meet the state that it names, whatever has happened to that since.
func (h *history) judgeDeletion(w *judge.Cluster, last *lastSeen, k key, c apitest.Change[*corev1.ConfigMap]) {
	wasOnItsWay := func(at time.Time) bool { return at.Before(c.At) && c.At.Sub(at) < h.latest }
	if slices.ContainsFunc(h.restores, wasOnItsWay) {
		return
	}
	if (*c.Old).DeletionTimestamp != nil && len(h.restores) > 0 {
		return // an update: a resourceVersion came again, with finalizers that the controller has not seen
	}
	if since := c.At.Sub(last.unwanted[k]); since > lifetime+2*h.latest+10*h.latestDelay {
		h.found(wrongDeletion, "%v: wanted for %v: %v", k, since, *c.Old)
	}
	if judge.IsImmutable(*c.Old) {
		return // it may have been deleted to be made again, and its source has gone meanwhile
	}
	source, _ := w.CopyOf(*c.Old)
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
	if !judge.IsImmutable(old) {
		return false, false
	}
	if len(old.Finalizers) > 0 { // they hold the copy, and nothing shows what would have followed
		return true, false
	}
	k := changes[0].Key()
	for _, next := range changes[1:] {
		if next.Key() == k {
			again = next.Old == nil
			return again, again && (!next.By.Controller || !judge.SamePayload(*next.New, old))
		}
	}
	return false, false
}

// countRequests begins to look for requests without a pause, or ends it: two leaders undo what the other did.
func (h *history) countRequests(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = nil
	if on {
		h.requests = map[apitest.Call][]time.Time{}
	}
}

// countRequest finds requests that come again and again without a pause.
func (h *history) countRequest(c apitest.Call) {
	const many, within = 60, 8 * time.Second
	h.mu.Lock()
	if h.requests == nil {
		h.mu.Unlock()
		return
	}
	all := append(h.requests[c], time.Now())
	all = all[max(0, len(all)-many):]
	took := time.Since(all[0])
	hot := len(all) == many && took < within
	if hot {
		all = nil
	}
	h.requests[c] = all
	h.mu.Unlock()
	if hot {
		h.found(hotLoop, "%v: %d requests within %v", c, many, took)
	}
}

const (
	staleEvents = "the events that are repeated are not those of a new process"
	wrongEvent  = "an event contradicts the cluster"
	unannounced = "a deletion was not announced"

	repeatsWithin = 40 * time.Minute // each event that holds
)

// remark is an event or a log line about a ConfigMap.
type remark struct {
	at           time.Time
	by           *leader
	about        key
	uid          types.UID
	reason, note string
	annotations  map[string]string
}

// sent records an event.
func (h *history) sent(e remark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// judgeMirrored judges a Mirrored that names the present version of its source: as many targets as it counts have the
// content, and no other target is left that is neither held nor blocked. What the watch need not have shown yet does
// not count.
func (h *history) judgeMirrored(flags *Options, e remark) {
	w := h.now(flags)
	s := w.ConfigMaps[e.about]
	if s == nil || s.UID != e.uid || !w.AsksToBeMirrored(s) {
		return
	}
	present, synced, held, blocked := e.reported(s, flags)
	unseen, restored := h.unseen()
	lately := h.changedSince(unseen)
	have, lacks, targets, unsure := 0, []key{}, 0, 0
	for k := range lately {
		cm := w.ConfigMaps[k]
		if !present || k == e.about && restored || k.Name == s.Name && k != e.about &&
			(cm == nil || w.AsksToBeMirrored(cm)) && h.wasSource(k, unseen) {
			return
		}
		if k.Name == s.Name && w.Namespaces[k.Namespace] == nil {
			unsure++ // it has just gone
		}
	}
	for namespace, ns := range w.Namespaces {
		k := key{Namespace: namespace, Name: s.Name}
		if lately[k] {
			unsure++
			continue
		}
		if w.IsTarget(s, ns) {
			targets++
		}
		switch v := w.Judge(k); {
		case v.Winner != s || v.Stops() || v.State == "foreign":
		case w.ConfigMaps[k] != nil && w.HasContent(w.ConfigMaps[k], s):
			have++
		default:
			lacks = append(lacks, k)
		}
	}
	if present && (synced > have+unsure || synced+held+blocked+unsure < targets) {
		h.found(wrongEvent, "%v: %q: %d of %d targets have the content, %d may have, %v lack it", e.about, e.note, have,
			targets, unsure, lacks)
	}
}

// unseen returns how long a change may last that a controller does not act on: the next fan-out waits for a fanOutGap.
// And it reports whether there was a restore.
func (h *history) unseen() (unseen time.Duration, restored bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	unseen = 2*fanOutGap + 2*h.latestWatch + 30*h.latestDelay
	if time.Since(h.watchEnded) < 10*time.Minute {
		unseen += time.Minute // client-go waits before it watches again
	}
	return unseen, len(h.restores) > 0
}

// wasSource reports whether a ConfigMap was a source within this time.
func (h *history) wasSource(k key, within time.Duration) bool {
	for _, c := range since(h.ConfigMaps, within) {
		for _, cm := range []**corev1.ConfigMap{c.Old, c.New} {
			if cm != nil && c.Key() == k && (*cm).Labels["mirror"] == "true" {
				return true
			}
		}
	}
	return false
}

// logSink records the log lines of messages about sources. If one history is played it prints all lines.
type logSink struct {
	h      *history
	prints bool
}

func (logSink) Init(logr.RuntimeInfo)            {}
func (s logSink) Enabled(level int) bool         { return level == 0 || s.prints && level <= 4 }
func (s logSink) WithValues(...any) logr.LogSink { return s }
func (s logSink) WithName(string) logr.LogSink   { return s }
func (s logSink) Error(err error, message string, values ...any) {
	s.Info(0, message, append(values, "err", err)...)
}

func (s logSink) Info(_ int, message string, values ...any) {
	if s.prints {
		fmt.Println(time.Since(s.h.began), message, values)
	}
	line := remark{at: time.Now(), note: message}
	for i := 0; i+1 < len(values); i += 2 {
		if about, ok := values[i+1].(key); ok {
			line.about = about
		}
		if values[i] == "reason" {
			line.reason = values[i+1].(string)
		}
	}
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.h.lines = append(s.h.lines, line)
}

// reported returns what a Mirrored says of the source: whether it is about the present version, and how many targets
// are in sync, held and blocked.
func (e remark) reported(s *corev1.ConfigMap, flags *Options) (present bool, synced, held, blocked int) {
	number := func(key string) int {
		n, _ := strconv.Atoi(e.annotations[key])
		return n
	}
	for _, state := range []plan.State{plan.StateForeign, plan.StateSuperseded, plan.StateRejected, plan.StateFight} {
		blocked += number(plan.EventAnnotation(state))
	}
	present = e.annotations[plan.EventVersion] == s.ResourceVersion &&
		e.annotations[plan.InstanceAnnotation] == flags.Instance
	return present, number(plan.Domain + "/synced"), number(plan.Domain + "/held"), blocked
}

// lastRemarks returns the last event of each source and reason that says how the source stands, from a time on, and the
// newest reason of each source. What a former leader sends after a takeover does not count.
func (h *history) lastRemarks(from time.Time) (last map[[2]string]remark, newest map[key]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, newest = map[[2]string]remark{}, map[key]string{}
	for _, e := range h.events {
		if !e.at.Before(from) && e.reason != plan.ReasonRestored && !h.isOfFormer(e) {
			last[[2]string{e.about.String(), e.reason}], newest[e.about] = e, e.reason
		}
	}
	return last, newest
}

// isOfFormer reports whether a former leader sent an event after the takeover: it had not noticed yet that it led no
// longer.
func (h *history) isOfFormer(e remark) bool {
	return e.by != h.leader && e.at.After(h.terms[len(h.terms)-1].began)
}

// compareEvents: at rest, the events that are repeated are those of a process that knows nothing of the past. They are
// those that hold, and no source has one about what is past as its newest.
func (h *history) compareEvents() {
	repeated, _ := h.lastRemarks(time.Now().Add(-repeatsWithin))
	_, newest := h.lastRemarks(h.began)
	before := h.now(h.options)
	remembered := map[string]bool{} // names; the new process creates again what admission altered
	for _, name := range historyNames {
		remembered[name] = h.isRemembered(before, name)
	}
	took := time.Now()
	h.leader = h.lead(h.options, h.leader)
	time.Sleep(5 * time.Minute)
	fresh, _ := h.lastRemarks(took)
	ids := maps.Clone(repeated)
	maps.Copy(ids, fresh)
	w := h.now(h.options)
	for id, e := range ids {
		if repeated[id].note != fresh[id].note && !remembered[e.about.Name] && !h.isRemembered(w, e.about.Name) {
			h.found(staleEvents, "%v: got %q, want %q", id, repeated[id].note, fresh[id].note)
		}
	}
	for k, cm := range w.ConfigMaps {
		ns := w.Namespaces[k.Namespace] // in one that goes no event is possible
		if ns == nil || judge.IsTerminating(ns) || !w.AsksToBeMirrored(cm) ||
			remembered[cm.Name] || h.isRemembered(w, cm.Name) {
			delete(newest, k)
			continue
		}
		want := w.Reasons(cm)
		h.compareReasons(w, k, fresh)
		if len(want) > 0 && !want[newest[k]] {
			h.found(wrongEvent, "%v: the newest event was %s, and %v hold", k, newest[k], want)
		}
		delete(newest, k)
	}
	for k, e := range fresh {
		cm := w.ConfigMaps[e.about]
		if !h.isRemembered(w, e.about.Name) && (cm == nil || !w.AsksToBeMirrored(cm) || !w.Reasons(cm)[e.reason]) {
			h.found(wrongEvent, "%v does not hold: %q", k, e.note)
		}
	}
}

// compareReasons compares the last events about a source with the reasons that
// hold, and the numbers of its Mirrored with the cluster.
func (h *history) compareReasons(w *judge.Cluster, k key, last map[[2]string]remark) {
	cm := w.ConfigMaps[k]
	want := w.Reasons(cm)
	for reason := range want {
		e, ok := last[[2]string{k.String(), reason}]
		if !ok {
			h.found(wrongEvent, "%v: got no %s, want %v", k, reason, want)
		} else if reason == plan.ReasonMirrored {
			present, synced, held, blocked := e.reported(cm, h.options)
			if got := [3]int{synced, held, blocked}; !present || got != w.Reported(k) {
				h.found(wrongEvent, "%v: got %v in %q %v, want %v", k, got, e.note, e.annotations,
					w.Reported(k))
			}
		}
	}
}

// isRemembered reports whether how a target of the name stands depends on what only one process remembers: that
// admission altered the object there, or what a live read showed of a copy that its source holds or freezes.
func (h *history) isRemembered(w *judge.Cluster, name string) bool {
	spoilt := h.spoilt()
	for k, have := range w.ConfigMaps {
		if k.Name == name && (spoilt[have.UID] || !w.IsShown(have) && w.Judge(k).Stops()) {
			return true
		}
	}
	return false
}

// announced are the namespaces in the text of an Expiring.
var announced = regexp.MustCompile(
	`\d+ cop(?:y|ies) in (?:namespace ([a-z0-9./-]+)|\d+ namespaces \(([^)]*)\)) will be deleted`)

// names reports whether the text of an Expiring names the target, by its namespace
// or, in a line about sources that the process has never seen, by both.
func (e remark) names(target key) bool {
	name := target.String()
	if e.about.Name == target.Name {
		name = target.Namespace
	}
	for _, m := range announced.FindAllStringSubmatch(e.note, -1) {
		if slices.Contains(strings.Split(m[1]+m[2], ", "), name) {
			return true
		}
	}
	return false
}

// judgeAnnouncement judges whether a line named the copy a grace before it was
// deleted, although it may have had another source then. A watch that is silent
// for long may keep the line back.
func (h *history) judgeAnnouncement(k, source key, c apitest.Change[*corev1.ConfigMap]) {
	if h.latestWatch > 10*time.Second {
		return
	}
	for _, line := range h.lines {
		if line.reason == plan.ReasonExpiring && line.names(k) &&
			!line.at.After(c.At.Add(-h.options.DeletionGrace)) && c.At.Sub(line.at) < h.options.DeletionGrace+2*time.Hour {
			return
		}
	}
	h.found(unannounced, "%v, copy of %v, at %v", k, source, c.At.Sub(h.began))
}
