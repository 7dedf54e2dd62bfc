// Package report makes the messages about a source: a summary of its targets comes in, messages go out. It keeps the
// last message of each reason, and knows no clock, no cluster and no client.
package report

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// Spacing is the least time between two messages about one source and reason: a tenant can change what there is to
	// report many times a second.
	Spacing = 10 * time.Second
	// urgentSpacing is the spacing of announcements of copies that are deleted before Spacing is over.
	urgentSpacing = time.Second
	// repeatAfter is the age from which a message that still holds is sent again: an event is forgotten after an hour.
	repeatAfter = 30 * time.Minute
	// maxDoublings bounds the wait after refusals: five minutes, of a spacing of ten seconds.
	maxDoublings = 5
	// MaxNote is how many bytes the API server accepts in the text of an event.
	MaxNote = 1024
)

// Message is one event about a source. Type, Reason, Note and Annotations are those of the Kubernetes event.
type Message struct {
	Type, Reason, Note string
	Annotations        map[string]string
	Log                bool // the log does not have this text yet

	isNew   bool // it announces deletions that no message has announced
	spacing time.Duration
}

// Summary is the status of one source at all its targets.
type Summary struct {
	Key       types.NamespacedName
	Source    *plan.Source // nil: the source is gone, or has just come
	Rules     *plan.Rules
	Counts    plan.Counts // of targets, by state
	Selection *Selection  // nil: not known, and not needed

	at      map[plan.State][]place
	expires map[plan.Unclaimed]*expiry
	isNew   bool // a copy that expires is not announced yet
}

// expiry are the copies that expire for one reason.
type expiry struct {
	namespaces []string
	first      time.Time // when the first of them is deleted
}

// place is a target, and what is wrong there.
type place struct {
	namespace, note string
	adoptable       bool // the owner of the foreign ConfigMap there can hand it over
}

// Add adds a target whose state is a problem. note says what is wrong there.
func (s *Summary) Add(state plan.State, namespace, note string, adoptable bool) {
	if s.at == nil {
		s.at = map[plan.State][]place{}
	}
	s.at[state] = append(s.at[state], place{namespace, note, adoptable})
}

// Expire adds a copy that is deleted at a time. announced says that a message has announced that.
func (s *Summary) Expire(why plan.Unclaimed, announced bool, namespace string, at time.Time) {
	if s.expires == nil {
		s.expires = map[plan.Unclaimed]*expiry{}
	}
	x := cmp.Or(s.expires[why], &expiry{first: at})
	s.expires[why] = x
	x.namespaces = append(x.namespaces, namespace)
	if at.Before(x.first) {
		x.first = at
	}
	s.isNew = s.isNew || !announced
}

// isUrgent reports whether a copy is deleted before Spacing is over.
func (s *Summary) isUrgent(now time.Time) bool {
	isSoon := func(x *expiry) bool { return x.first.Before(now.Add(Spacing)) }
	return slices.ContainsFunc(slices.Collect(maps.Values(s.expires)), isSoon)
}

// Pending reports whether a target is pending.
func (s *Summary) Pending() bool { return s.Counts[plan.StatePending] > 0 }

// conditions are the messages that say how a source stands, but for Expiring and Mirrored, in their order. text returns
// an empty string if the condition does not hold. Some texts name the version of the source.
var conditions = []struct {
	reason    string
	text      func(s *Summary) string
	versioned bool
}{
	{plan.ReasonReservedName, reservedText, true},
	{plan.ReasonInvalidAnnotation, frozenText, true},
	{plan.ReasonForeign, foreignText, false},
	{plan.ReasonSuperseded, supersededText, false},
	{plan.ReasonWriteFailed, rejectedText, false},
	{plan.ReasonFight, fightText, false},
	{plan.ReasonOutOfScope, outOfScopeText, false},
	{plan.ReasonNoTargets, noTargetsText, true},
	{plan.ReasonHeld, heldText, false},
}

// Messages returns the messages that hold now, the announcement of deletions first and Mirrored last.
func (s *Summary) Messages(now time.Time) (all []Message) {
	for _, places := range s.at {
		slices.SortFunc(places, func(a, b place) int { return strings.Compare(a.namespace, b.namespace) })
	}
	add := func(reason, note string) *Message {
		kind := corev1.EventTypeWarning
		if reason == plan.ReasonMirrored || reason == plan.ReasonHeld {
			kind = corev1.EventTypeNormal
		}
		all = append(all, Message{Type: kind, Reason: reason, Note: plan.Clip(note, MaxNote), spacing: Spacing,
			Annotations: map[string]string{plan.InstanceAnnotation: s.Rules.Instance()}})
		return &all[len(all)-1]
	}
	if len(s.expires) > 0 {
		m := add(plan.ReasonExpiring, expiringText(s))
		if m.isNew = s.isNew; s.isUrgent(now) {
			m.spacing = urgentSpacing
		}
	}
	if s.Source == nil {
		return all
	}
	version := s.Source.ConfigMap.ResourceVersion
	for _, c := range conditions {
		if text := c.text(s); text != "" {
			if m := add(c.reason, text); c.versioned {
				m.Annotations[plan.EventVersion] = version
			}
		}
	}
	if text := mirroredText(s); text != "" {
		m := add(plan.ReasonMirrored, text)
		m.Annotations[plan.EventVersion] = version
		for _, state := range plan.Counted {
			// There is no Mirrored while a target is pending, nor of a frozen source.
			if state.Status() < plan.StatusPending {
				m.Annotations[plan.EventAnnotation(state)] = strconv.Itoa(s.Counts[state])
			}
		}
	}
	return all
}

// Sent is the last message of each reason about a source, and when it was sent. The zero value: none was.
type Sent struct {
	uid  types.UID
	last map[string]sent // by reason
}

// sent is the last message with one reason.
type sent struct {
	note   string // empty: the message does not hold any more, or was refused
	logged string
	at     time.Time // of the last try

	refused int // tries in a row that the API server refused
}

// UID returns the UID of the source; empty if no process has seen the source.
func (s *Sent) UID() types.UID { return s.uid }

// Begin begins anew if the UID is another one: a source that was re-created has no events yet. The spacing stays.
func (s *Sent) Begin(uid types.UID) {
	if s.last != nil && s.uid == uid {
		return
	}
	before := s.last
	*s = Sent{uid: uid, last: map[string]sent{}}
	for reason, l := range before {
		s.last[reason] = sent{at: l.at}
	}
}

// QuietIn returns how long until every message may be sent again.
func (s *Sent) QuietIn(now time.Time) (wait time.Duration) {
	for _, l := range s.last {
		wait = max(wait, l.at.Add(Spacing).Sub(now))
	}
	return wait
}

// Due returns those of the messages, which hold now, that are to be sent now, and how long the others have to wait; 0:
// none waits. A message is due if its text differs from the last one, or if that is too old. An announcement is due if
// it has new deletions, and a Mirrored also if a message after the last one does not hold any more.
func (s *Sent) Due(all []Message, now time.Time) (due []Message, wait time.Duration) {
	holds := map[string]bool{plan.ReasonMirrored: true} // while targets are pending, the last one stays
	for _, m := range all {
		holds[m.Reason] = true
	}
	isOver := false
	for reason, l := range s.last {
		if !holds[reason] {
			isOver = isOver || l.at.After(s.last[plan.ReasonMirrored].at)
			s.last[reason] = sent{at: l.at, refused: l.refused}
		}
	}
	for _, m := range all {
		l := s.last[m.Reason]
		isDue := m.Note != l.note || m.Reason == plan.ReasonMirrored && isOver
		if m.Reason == plan.ReasonExpiring {
			isDue = m.isNew
		}
		if !isDue && now.Sub(l.at) < repeatAfter {
			continue
		}
		if left := l.at.Add(m.spacing << min(l.refused, maxDoublings)).Sub(now); left > 0 {
			wait = Sooner(wait, left)
			continue
		}
		m.Log = m.Note != l.logged
		l.logged = m.Note
		s.last[m.Reason] = l
		due = append(due, m)
	}
	return due, wait
}

// Refused records that a message was not sent. Each refusal in a row doubles the time until the next try.
func (s *Sent) Refused(m Message, now time.Time) {
	l := s.last[m.Reason]
	l.note, l.at, l.refused = "", now, l.refused+1
	s.last[m.Reason] = l
}

// Record records that a message was sent.
func (s *Sent) Record(m Message, now time.Time) {
	s.last[m.Reason] = sent{note: m.Note, logged: m.Note, at: now}
}

// Sooner returns the shorter of two waits, of which 0 is none.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
