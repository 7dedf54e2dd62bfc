package report

import (
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// Spacing is the least time between two messages about one source and reason:
	// a tenant can change what there is to report many times a second.
	Spacing = 10 * time.Second
	// urgentSpacing is the spacing of announcements of copies that are deleted
	// before Spacing is over.
	urgentSpacing = time.Second
	// repeatAfter is the age from which a message that still holds is sent again:
	// the API server forgets an event after an hour.
	repeatAfter = 30 * time.Minute
	// maxDoublings bounds the wait after refusals: 320 s, of a spacing of 10 s.
	maxDoublings = 5
)

// Sent is the last message of each reason about a source, and when it was sent.
// The zero value: none was.
type Sent struct {
	uid  types.UID
	last map[string]sent // by reason
}

// sent is the last message with one reason.
type sent struct {
	note      string // empty: the message does not hold any more
	isRefused bool
	at        time.Time // of the last try

	doublings int           // of the spacing, by refusals in a row
	extra     time.Duration // to wait besides the spacing
}

// Refusal is how the API server refused a message.
type Refusal struct {
	// Doubles is set if each such refusal in a row doubles the wait. An API server
	// that is busy, or that gave no answer, may take the message soon.
	Doubles bool
	// RetryAfter is the least time to wait that the API server asks for.
	RetryAfter time.Duration
}

// UID returns the UID of the source; empty if no process has seen the source.
func (s *Sent) UID() types.UID { return s.uid }

// Begin begins anew if the UID is another one: a source that was re-created has
// no events yet. The spacing stays.
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

// Next returns the first of the messages, which hold now, that is to be sent now;
// nil: none is. wait is how long those have to wait that are due later; 0: none
// waits.
//
// A message is due if its text differs from the last one with its reason, or if
// that is too old. An announcement is due if it has new deletions.
//
// A message about a version of the source is due again, with the same text, if a
// message that was sent after it does not hold any more: after a Mirrored and a
// Foreign that has ended comes the Mirrored once more. So the newest event never
// describes the past.
func (s *Sent) Next(all []Message, now time.Time) (next *Message, wait time.Duration) {
	over := s.forgetPast(all)
	for i := range all {
		m := &all[i]
		l := s.last[m.Reason]
		isDue := m.Note != l.note || l.isRefused || m.isOfVersion && !over.Before(l.at)
		if m.Reason == plan.ReasonExpiring {
			isDue = m.isNew
		}
		if !isDue && now.Sub(l.at) < repeatAfter {
			continue
		}
		left := l.at.Add(m.spacing<<min(l.doublings, maxDoublings) + l.extra).Sub(now)
		switch {
		case left > 0 && (wait == 0 || left < wait):
			wait = left
		case left <= 0 && next == nil:
			m.Log = m.Note != l.note && m.Reason != plan.ReasonExpiring
			next = m
		}
	}
	return next, wait
}

// forgetPast forgets the texts of messages that do not hold any more, and returns
// when the last try to send one of these was. A Mirrored stays while targets are
// pending.
func (s *Sent) forgetPast(all []Message) (last time.Time) {
	holds := map[string]bool{plan.ReasonMirrored: true}
	for _, m := range all {
		holds[m.Reason] = true
	}
	for reason, l := range s.last {
		if holds[reason] {
			continue
		}
		if l.at.After(last) {
			last = l.at
		}
		s.last[reason] = sent{at: l.at, doublings: l.doublings, extra: l.extra}
	}
	return last
}

// Refused records that a message was not sent. Messages that were refused
// together come again at different times.
func (s *Sent) Refused(m *Message, now time.Time, r Refusal) {
	l := s.last[m.Reason]
	l.note = m.Note
	l.isRefused = true
	l.at = now
	if r.Doubles {
		l.doublings++
	}
	l.extra = max(0, r.RetryAfter-m.spacing) + rand.N(m.spacing)
	s.last[m.Reason] = l
}

// Record records that a message was sent.
func (s *Sent) Record(m *Message, now time.Time) {
	s.last[m.Reason] = sent{note: m.Note, at: now}
}
