// Package report decides which messages about a source are due, and in which words. It knows no clock, no cluster and
// no recorder: the caller passes a summary of the source and the time, and sends the messages.
package report

import (
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// Spacing is the least time between two messages about one source and reason. A tenant can change what there is to
	// report many times a second. The newest state is always reported in the end.
	Spacing = 10 * time.Second
	// urgentSpacing is the spacing of announcements of copies that are deleted before Spacing is over.
	urgentSpacing = time.Second
)

// Message is one event about a source. Type, Reason, Note and Annotations are those of the Kubernetes event.
type Message struct {
	Type, Reason, Note string
	Annotations        map[string]string
	Again              bool // the last message with this reason said the same
}

// Summary is the status of one source at all its targets.
type Summary struct {
	Key       types.NamespacedName
	Source    *plan.Source // nil: the source is gone
	Rules     *plan.Rules
	Counts    [plan.States]int // of targets, by state
	Selection *Selection       // nil: not known, and not needed

	at        map[plan.State][]string // namespaces of the states that are problems
	notes     map[string]Note         // by namespace
	unclaimed map[plan.Loss][]string  // namespaces of copies that expire
	expires   time.Time               // when the first of these copies is deleted
	losses    int                     // the number of the newest of these losses
}

// Note is about one target: the error, or a description of the ConfigMap there.
type Note struct {
	Text      string
	Adoptable bool // the owner of the foreign ConfigMap there can hand it over
}

// Add adds a target whose state is a problem.
func (s *Summary) Add(state plan.State, namespace string, about Note) {
	if s.at == nil {
		s.at, s.notes = map[plan.State][]string{}, map[string]Note{}
	}
	s.at[state] = append(s.at[state], namespace)
	s.notes[namespace] = about
}

// Expire adds a copy that is deleted at a time. nth is the number of the loss: a report finds new losses by it.
func (s *Summary) Expire(why plan.Loss, nth int, namespace string, at time.Time) {
	if s.unclaimed == nil {
		s.unclaimed = map[plan.Loss][]string{}
	}
	s.unclaimed[why] = append(s.unclaimed[why], namespace)
	s.losses = max(s.losses, nth)
	if s.expires.IsZero() || at.Before(s.expires) {
		s.expires = at
	}
}

// Pending reports whether something is to be done or awaited at a target.
func (s *Summary) Pending() bool {
	for state, n := range s.Counts {
		if n > 0 && plan.State(state).IsPending() {
			return true
		}
	}
	return false
}

// blocked returns from how many targets something keeps the source, and the reasons of the events about these.
func (s *Summary) blocked() (targets int, reasons []string) {
	for reason, state := range plan.Blocking {
		if n := s.Counts[state]; n > 0 {
			targets += n
			reasons = append(reasons, reason)
		}
	}
	slices.Sort(reasons)
	return targets, reasons
}

// conditions are the events that say how a source stands, but for Expiring and Mirrored, in the order of reporting.
// text describes the condition of a source at targets in this state, which are sorted. Without a state it returns an
// empty string if the condition does not hold.
var conditions = []struct {
	reason string
	kind   string
	state  plan.State
	text   func(s *Summary, targets []string) string
}{
	{plan.ReasonReservedName, corev1.EventTypeWarning, plan.StateNone, reservedText},
	{plan.ReasonInvalidAnnotation, corev1.EventTypeWarning, plan.StateNone, frozenText},
	{plan.ReasonForeign, corev1.EventTypeWarning, plan.StateForeign, foreignText},
	{plan.ReasonSuperseded, corev1.EventTypeWarning, plan.StateNone, supersededText},
	{plan.ReasonWriteFailed, corev1.EventTypeWarning, plan.StateRejected, rejectedText},
	{plan.ReasonFight, corev1.EventTypeWarning, plan.StateFight, fightText},
	{plan.ReasonOutOfScope, corev1.EventTypeWarning, plan.StateOutOfScope, outOfScopeText},
	{plan.ReasonNoTargets, corev1.EventTypeWarning, plan.StateNone, noTargetsText},
	{plan.ReasonHeld, corev1.EventTypeNormal, plan.StateNone, heldText},
}

// Reported is what was reported about a source, and what is counted for the next message. The zero value: nothing.
type Reported struct {
	uid          types.UID
	texts        map[string]string    // by reason, of the conditions that hold
	at           map[string]time.Time // by reason: the last message
	announced    int                  // the number of the newest loss that was announced
	mirrored     mirrored             // of the last Mirrored
	ended        bool                 // a condition is over; a Mirrored is due unless the newest message holds
	last         string               // the reason of the last message
	repeat       time.Time            // a condition that holds and was reported before this time is reported again
	took         map[types.NamespacedName]int
	deleted      int
	deletedSince time.Time // the first of these deletions
}

// mirrored is the state on which a Mirrored depends: another one is due when the state changes.
type mirrored struct {
	checksum      string
	held, blocked int
}

// UID returns the UID of the source; empty if no process has seen the source.
func (r *Reported) UID() types.UID { return r.uid }

// Begin begins anew if the UID is another one: a source that was re-created has no events yet. Sources of a name that
// this process has never seen have no UID, and share the spacing unseen: a tenant can name any ConfigMap as the source
// of a copy.
func (r *Reported) Begin(uid types.UID, unseen map[string]time.Time) {
	if r.texts == nil || r.uid != uid {
		*r = Reported{uid: uid, texts: map[string]string{}, at: maps.Clone(r.at),
			took: r.took, deleted: r.deleted, deletedSince: r.deletedSince}
	}
	switch {
	case r.uid == "":
		r.at = unseen
	case r.at == nil:
		r.at = map[string]time.Time{}
	}
}

// Repeat has each condition that still holds reported again.
func (r *Reported) Repeat(now time.Time) { r.repeat = now }

// Deleted counts a copy that was deleted because no source claimed it.
func (r *Reported) Deleted(now time.Time) {
	if r.deleted++; r.deleted == 1 {
		r.deletedSince = now
	}
}

// TookOver counts a copy that the source took over from another one.
func (r *Reported) TookOver(from types.NamespacedName) {
	if r.took == nil {
		r.took = map[types.NamespacedName]int{}
	}
	r.took[from]++
}

// QuietIn returns how long until every message may be repeated.
func (r *Reported) QuietIn(now time.Time) (wait time.Duration) {
	for reason := range r.at {
		wait = max(wait, r.dueIn(reason, Spacing, now))
	}
	return wait
}

// Announce returns the announcement of the copies that expire, if it is due, or how long it has to wait. It goes ahead
// of other messages.
func (r *Reported) Announce(sum *Summary, now time.Time) (m *Message, wait time.Duration) {
	if sum.losses == 0 && sum.Counts[plan.StateExpiring] == 0 { // else the deletions are on their way
		r.end(plan.ReasonExpiring)
	}
	again := sum.losses <= r.announced
	if sum.losses == 0 || again && !r.isOld(plan.ReasonExpiring) {
		return nil, 0
	}
	spacing := Spacing
	if sum.expires.Before(r.at[plan.ReasonExpiring].Add(Spacing)) {
		spacing = urgentSpacing
	}
	if wait := r.dueIn(plan.ReasonExpiring, spacing, now); wait > 0 {
		return nil, wait
	}
	r.announced, r.texts[plan.ReasonExpiring] = sum.losses, expiringText(sum)
	return r.say(corev1.EventTypeWarning, plan.ReasonExpiring, r.texts[plan.ReasonExpiring], again, now), 0
}

// Messages returns the other messages that are due, and records them as reported. It returns how long those have to
// wait that are not due yet.
func (r *Reported) Messages(sum *Summary, now time.Time) (out []*Message, wait time.Duration) {
	add := func(m *Message, later time.Duration) {
		if m != nil {
			out = append(out, m)
		}
		wait = Sooner(wait, later)
	}
	for i := range conditions {
		add(r.condition(i, sum, now))
	}
	add(r.deletions(sum, now))
	add(r.inSync(sum, now))
	return out, wait
}

// condition returns the message about one of the conditions.
func (r *Reported) condition(i int, sum *Summary, now time.Time) (*Message, time.Duration) {
	c, text := conditions[i], ""
	targets := sum.at[c.state]
	if sum.Source != nil && (len(targets) > 0 || c.state == plan.StateNone) {
		slices.Sort(targets)
		text = c.text(sum, targets)
	}
	again := text == r.texts[c.reason]
	switch {
	case again && (text == "" || !r.isOld(c.reason)):
		return nil, 0
	case text == "":
		r.end(c.reason)
		return nil, 0
	}
	if wait := r.dueIn(c.reason, Spacing, now); wait > 0 {
		return nil, wait
	}
	r.texts[c.reason] = text
	return r.say(c.kind, c.reason, text, again, now), 0
}

// deletions returns the message that counts the copies that were deleted. While more copies expire, it waits for those
// that follow soon.
func (r *Reported) deletions(sum *Summary, now time.Time) (*Message, time.Duration) {
	if r.deleted == 0 {
		return nil, 0
	}
	wait := r.dueIn(plan.ReasonDeleted, Spacing, now)
	if sum.Counts[plan.StateExpiring] > 0 {
		wait = max(wait, r.deletedSince.Add(Spacing).Sub(now))
	}
	if wait > 0 {
		return nil, wait
	}
	m := r.say(corev1.EventTypeNormal, plan.ReasonDeleted, deletedText(r.deleted), false, now)
	r.deleted = 0
	return m, 0
}

// inSync returns the message Mirrored. Without a target there is none.
func (r *Reported) inSync(sum *Summary, now time.Time) (*Message, time.Duration) {
	if sum.Source == nil {
		r.mirrored, r.ended = mirrored{}, false
		return nil, 0
	}
	if sum.Pending() || sum.Source.Reserved || sum.Source.Frozen != nil {
		return nil, 0
	}
	blocked, _ := sum.blocked()
	is := mirrored{sum.Source.Checksum, sum.Counts[plan.StateHeld], blocked}
	again := is == r.mirrored && r.took == nil && !(r.ended && (!r.warns() || r.texts[r.last] == ""))
	if again && !r.isOld(plan.ReasonMirrored) || sum.Counts[plan.StateSynced]+is.held+is.blocked == 0 {
		return nil, 0
	}
	if wait := r.dueIn(plan.ReasonMirrored, Spacing, now); wait > 0 {
		return nil, wait
	}
	m := r.say(corev1.EventTypeNormal, plan.ReasonMirrored, mirroredText(sum, r.took), again, now)
	m.Annotations = map[string]string{
		plan.ChecksumAnnotation: is.checksum,
		plan.EventPayload:       sum.Source.Payload(),
		plan.InstanceAnnotation: sum.Rules.Instance(),
		plan.EventSynced:        strconv.Itoa(sum.Counts[plan.StateSynced]),
		plan.EventHeld:          strconv.Itoa(is.held),
		plan.EventBlocked:       strconv.Itoa(is.blocked),
		plan.EventExpiring:      strconv.Itoa(sum.Counts[plan.StateExpiring]),
	}
	r.mirrored, r.ended, r.took = is, false, nil
	return m, 0
}

// Sooner returns the shorter of two waits, of which 0 is none.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// dueIn returns how long a message with this reason has to wait.
func (r *Reported) dueIn(reason string, spacing time.Duration, now time.Time) time.Duration {
	return max(0, r.at[reason].Add(spacing).Sub(now))
}

// isOld reports whether a message with this reason is to be repeated if it still holds.
func (r *Reported) isOld(reason string) bool { return r.at[reason].Before(r.repeat) }

// say returns a message, and records it as reported.
func (r *Reported) say(kind, reason, note string, again bool, now time.Time) *Message {
	r.at[reason], r.last = now, reason
	return &Message{Type: kind, Reason: reason, Note: Clip(note), Again: again}
}

// warns reports whether a warning holds.
func (r *Reported) warns() bool {
	for reason := range r.texts {
		if reason != plan.ReasonHeld {
			return true
		}
	}
	return false
}

// end records that a condition does not hold any more.
func (r *Reported) end(reason string) {
	if r.texts[reason] != "" {
		r.ended = true
	}
	delete(r.texts, reason)
}
