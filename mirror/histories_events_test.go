package mirror

// The events and log lines of a history are held against the cluster.

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	staleEvents  = "the events that are repeated are not those of a new process"
	wrongEvent   = "an event contradicts the cluster"
	unannounced  = "a deletion was not announced"
	minAnnounced = 2 * time.Second // the shortest grace that an announcement fits in

	repeatsWithin = 40 * time.Minute // each event that holds
)

// remark is an event or a log line about a ConfigMap.
type remark struct {
	at           time.Time
	about        key
	uid          types.UID
	reason, note string
	annotations  map[string]string
}

// sent records an event of a controller with these flags.
func (h *history) sent(flags *Options, e remark) {
	if e.reason == plan.ReasonMirrored {
		h.judgeMirrored(flags, e)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// judgeMirrored judges a Mirrored that names the present version of its source: as many targets as it counts have the
// content, and no other target is left that is neither held nor blocked. What the watch need not have shown yet does
// not count.
func (h *history) judgeMirrored(flags *Options, e remark) {
	w := h.now(flags)
	s := w.configMaps[e.about]
	if s == nil || s.UID != e.uid || !w.asksToBeMirrored(s) {
		return
	}
	present, synced, held, blocked := e.reported(s, flags)
	unseen := h.unseen()
	lately := h.changedSince(unseen)
	for k := range lately {
		if cm := w.configMaps[k]; !present || k.Name == s.Name && k != e.about && (cm == nil || w.asksToBeMirrored(cm)) &&
			h.wasSource(k, unseen) || k == e.about && h.restored {
			return
		}
	}
	have, lacks, targets, unsure := 0, []key{}, 0, 0
	for k := range lately {
		if k.Name == s.Name && w.namespaces[k.Namespace] == nil {
			unsure++ // it has just gone
		}
	}
	for namespace, ns := range w.namespaces {
		k := key{Namespace: namespace, Name: s.Name}
		if lately[k] {
			unsure++
			continue
		}
		if w.isTarget(s, ns) {
			targets++
		}
		switch v := w.judge(k); {
		case v.winner != s || v.state == "held" || v.state == "frozen" || v.state == "foreign":
		case w.configMaps[k] != nil && w.hasContent(w.configMaps[k], s):
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

// unseen returns how long a change may last that a controller does not act on: the next fan-out waits for a runGap.
func (h *history) unseen() time.Duration {
	unseen := 2*runGap + 2*h.latestWatch + 30*h.latestDelay
	if time.Since(h.watchEnded) < 10*time.Minute {
		unseen += time.Minute // client-go waits before it watches again
	}
	return unseen
}

// wasSource reports whether a ConfigMap was a source within this time.
func (h *history) wasSource(k key, within time.Duration) bool {
	for _, c := range slices.Backward(h.server.ConfigMaps.Changes()) {
		if time.Since(c.At) > within {
			break
		}
		for _, cm := range []**corev1.ConfigMap{c.Old, c.New} {
			if cm != nil && apitest.KeyOf(*cm) == k && (*cm).Labels["mirror"] == "true" {
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
		switch value := values[i+1].(type) {
		case key:
			line.about = value
		case string:
			if values[i] == "reason" {
				line.reason = value
			}
		}
	}
	if line.reason == "" {
		return
	}
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.h.lines = append(s.h.lines, line)
}

// lastRemarks returns the last event of each source and reason that says how the source stands, from a time on, and the
// newest reason of each source.
func (h *history) lastRemarks(from time.Time) (last map[[2]string]remark, newest map[key]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, newest = map[[2]string]remark{}, map[key]string{}
	for _, e := range h.events {
		if !e.at.Before(from) && e.reason != plan.ReasonRestored {
			last[[2]string{e.about.String(), e.reason}], newest[e.about] = e, e.reason
		}
	}
	return last, newest
}

// compareEvents: at rest, the events that are repeated are those of a process that knows nothing of the past. They are
// those that hold, and no source has one about what is past as its newest.
func (h *history) compareEvents() {
	repeated, _ := h.lastRemarks(time.Now().Add(-repeatsWithin))
	_, newest := h.lastRemarks(h.began)
	took := time.Now()
	h.leader = h.lead(h.options, h.leader)
	time.Sleep(5 * time.Minute)
	fresh, _ := h.lastRemarks(took)
	ids := maps.Clone(repeated)
	maps.Copy(ids, fresh)
	w := h.now(h.options)
	for id := range ids {
		about := repeated[id].about
		if _, ok := repeated[id]; !ok {
			about = fresh[id].about
		}
		if repeated[id].note != fresh[id].note && !h.isRemembered(w, about.Name) {
			h.found(staleEvents, "%v: got %q, want %q", id, repeated[id].note, fresh[id].note)
		}
	}
	for k, cm := range w.configMaps {
		ns := w.namespaces[k.Namespace]
		if ns == nil || isGoing(ns) || !w.asksToBeMirrored(cm) || h.isRemembered(w, cm.Name) { // no event is possible there
			delete(newest, k)
			continue
		}
		want := w.reasons(cm)
		for reason := range want {
			e, ok := fresh[[2]string{k.String(), reason}]
			if !ok {
				h.found(wrongEvent, "%v: got no %s, want %v", k, reason, want)
			} else if reason == plan.ReasonMirrored {
				present, synced, held, blocked := e.reported(cm, h.options)
				if got := [3]int{synced, held, blocked}; !present || got != w.reported(k) {
					h.found(wrongEvent, "%v: got %v in %q %v, want %v", k, got, e.note, e.annotations, w.reported(k))
				}
			}
		}
		if len(want) > 0 && !want[newest[k]] {
			h.found(wrongEvent, "%v: the newest event was %s, and %v hold", k, newest[k], want)
		}
		delete(newest, k)
	}
	for k, e := range fresh {
		cm := w.configMaps[e.about]
		if !h.isRemembered(w, e.about.Name) && (cm == nil || !w.asksToBeMirrored(cm) || !w.reasons(cm)[e.reason]) {
			h.found(wrongEvent, "%v does not hold: %q", k, e.note)
		}
	}
}

// isRemembered reports whether how a target of the name stands depends on what only one process remembers: that
// admission altered the object there, or what a live read showed of a copy that its source holds or freezes.
func (h *history) isRemembered(w *oracle, name string) bool {
	spoilt := h.spoilt()
	for _, namespace := range historyNamespaces {
		k := key{Namespace: namespace, Name: name}
		have, state := w.configMaps[k], w.judge(k).state
		if have != nil && (spoilt[have.UID] || !w.isShown(have) && (state == "held" || state == "frozen")) {
			return true
		}
	}
	return false
}

// reasons returns the reasons of the events that hold for a ConfigMap that asks to be mirrored, in a cluster at rest.
func (o *oracle) reasons(s *corev1.ConfigMap) map[string]bool {
	of := o.countsOf(apitest.KeyOf(s))
	reported := o.reported(apitest.KeyOf(s))
	allowed, frozen := o.allowsSource(s.Namespace), o.isFrozen(s)
	reserved := slices.Contains(plan.ReservedNames, s.Name)
	all := map[string]bool{
		plan.ReasonReservedName:      allowed && reserved,
		plan.ReasonInvalidAnnotation: allowed && frozen,
		plan.ReasonForeign:           of["foreign"] > 0,
		plan.ReasonSuperseded:        of["superseded"] > 0,
		plan.ReasonOutOfScope:        of["out_of_scope"] > 0,
		plan.ReasonHeld:              of["held"] > 0,
		plan.ReasonNoTargets:         allowed && !reserved && !frozen && !o.selects(s),
		plan.ReasonMirrored:          !frozen && reported[0]+reported[1]+reported[2] > 0,
	}
	maps.DeleteFunc(all, func(_ string, holds bool) bool { return !holds })
	return all
}

// reported returns how many targets of a source are in sync, held and blocked.
func (o *oracle) reported(source key) [3]int {
	of := o.countsOf(source)
	return [3]int{of["synced"], of["held"], of["foreign"] + of["superseded"]}
}

// countsOf returns how many targets count for a source, by state.
func (o *oracle) countsOf(source key) map[string]int {
	of := map[string]int{}
	for namespace := range o.namespaces {
		k := key{Namespace: namespace, Name: source.Name}
		if v := o.judge(k); v.owner == source {
			of[v.state]++
		}
		if slices.Contains(o.superseded(k), source) {
			of["superseded"]++
		}
	}
	return of
}

// announced are the namespaces in the text of an Expiring.
var announced = regexp.MustCompile(
	`\d+ cop(?:y|ies) in (?:namespace ([a-z0-9-]+)|\d+ namespaces \(([^)]*)\)) will be deleted`)

// names reports whether the text of an Expiring names the namespace.
func (e remark) names(namespace string) bool {
	for _, m := range announced.FindAllStringSubmatch(e.note, -1) {
		if slices.Contains(strings.Split(m[1]+m[2], ", "), namespace) {
			return true
		}
	}
	return false
}

// judgeAnnouncement judges whether a line named the copy before it was deleted, although it may have had another source
// then. Time that passes between two statements may keep a short announcement back, and so may a watch that is silent
// for long.
func (h *history) judgeAnnouncement(k, source key, c apitest.Change[*corev1.ConfigMap]) {
	if h.options.DeletionGrace < minAnnounced+100*h.latestDelay || h.latestWatch > 10*time.Second {
		return
	}
	known := false // sources that no report has met share the spacing of ten seconds
	for _, line := range h.lines {
		known = known || line.about == source && line.reason == plan.ReasonMirrored && line.at.Before(c.At)
		if line.reason == plan.ReasonExpiring && line.about.Name == source.Name && line.names(k.Namespace) &&
			!line.at.After(c.At) && c.At.Sub(line.at) < h.options.DeletionGrace+2*time.Hour {
			return
		}
	}
	if known {
		h.found(unannounced, "%v, copy of %v, at %v", k, source, c.At.Sub(h.began))
	}
}
