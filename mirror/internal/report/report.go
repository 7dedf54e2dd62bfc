// Package report makes the messages about a source: a summary of its targets
// comes in, messages go out. It keeps the last message of each reason, and
// knows no clock, no cluster and no client.
package report

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// MaxNote is how many bytes the API server accepts in the text of an event.
const MaxNote = 1024

// Message is one event about a source. Type, Reason, Note and Annotations are
// those of the Kubernetes event.
type Message struct {
	Type, Reason, Note string
	Annotations        map[string]string
	Log                bool // the log does not have this text yet

	isNew       bool // it announces deletions that no event has announced
	isOfVersion bool // it is about a version of the source
	spacing     time.Duration
}

// Summary is the status of one source at all its targets.
type Summary struct {
	Source *plan.Source // nil: the source is gone, or has just come
	Rules  *plan.Rules
	Counts plan.Counts // of targets, by state
	// Excluded are the rules that keep a source without targets from all
	// namespaces; nil: not known, or not needed.
	Excluded []plan.Exclusion
	// Waiting is the number of targets that another source would take over.
	Waiting int

	problems   map[plan.State][]problem
	superseded []problem // the first few, of which the note is the winner
	expires    Expiry
	isNew      bool // no event has announced a copy that expires
}

// problem is a target with a warning, and the cause.
type problem struct {
	namespace, note string
	adoptable       bool // the owner of the foreign ConfigMap there can hand it over
}

func compareProblems(a, b problem) int { return strings.Compare(a.namespace, b.namespace) }

// Add adds a target whose state is a problem. note describes what is
// wrong there.
func (s *Summary) Add(state plan.State, namespace, note string, adoptable bool) {
	if s.problems == nil {
		s.problems = map[plan.State][]problem{}
	}
	s.problems[state] = append(s.problems[state], problem{namespace, note, adoptable})
}

// Supersede adds a target that another source wins. Many sources may have many
// of these, so it keeps only as many as a text names.
func (s *Summary) Supersede(namespace string, winner types.NamespacedName) {
	p := problem{namespace: namespace, note: winner.String()}
	at, _ := slices.BinarySearchFunc(s.superseded, p, compareProblems)
	s.superseded = slices.Insert(s.superseded, at, p)
	s.superseded = s.superseded[:min(named, len(s.superseded))]
}

// Expire adds a copy that is deleted at a time. isReported is set if an event
// has announced that.
func (s *Summary) Expire(why plan.Unclaimed, namespace string, at time.Time, isReported bool) {
	if s.expires == nil {
		s.expires = Expiry{}
	}
	s.expires.Add(why, namespace, at)
	s.isNew = s.isNew || !isReported
}

// Pending reports whether a target is pending.
func (s *Summary) Pending() bool { return s.Counts[plan.StatePending] > 0 }

// middleMessages are all messages except Expiring, which comes first, and Mirrored,
// which comes last. text returns an empty string if there is nothing to report.
// Some texts name the version of the source. So does OutOfScope if the source
// itself is out of scope.
var middleMessages = []struct {
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

// Messages returns the messages that hold now, the announcement of deletions
// first and Mirrored last.
func (s *Summary) Messages(now time.Time) (all []Message) {
	for _, places := range s.problems {
		slices.SortFunc(places, compareProblems)
	}
	add := func(reason, note string) *Message {
		kind := corev1.EventTypeWarning
		if reason == plan.ReasonMirrored || reason == plan.ReasonHeld {
			kind = corev1.EventTypeNormal
		}
		all = append(all, Message{
			Type:        kind,
			Reason:      reason,
			Note:        plan.Clip(note, MaxNote),
			Annotations: map[string]string{plan.InstanceAnnotation: s.Rules.Instance()},
			spacing:     Spacing,
		})
		return &all[len(all)-1]
	}
	if len(s.expires) > 0 {
		m := add(plan.ReasonExpiring, s.expires.Text(s.Rules, named, false))
		m.isNew = s.isNew
		maps.Copy(m.Annotations, s.expires.annotations())
		if s.expires.isUrgent(now) {
			m.spacing = urgentSpacing
		}
	}
	if s.Source == nil {
		return all
	}
	version := s.Source.ConfigMap.ResourceVersion
	for _, c := range middleMessages {
		if text := c.text(s); text != "" {
			m := add(c.reason, text)
			if c.versioned || s.Source.OutOfScope {
				m.setVersion(version)
			}
			if c.reason == plan.ReasonNoTargets || s.Source.OutOfScope {
				m.setCounts(&s.Counts)
			}
		}
	}
	if text := mirroredText(s); text != "" {
		m := add(plan.ReasonMirrored, text)
		m.setVersion(version)
		m.setCounts(&s.Counts)
		if s.Waiting > 0 {
			m.Annotations[plan.EventWaiting] = strconv.Itoa(s.Waiting)
		}
	}
	return all
}

func (m *Message) setVersion(version string) {
	m.isOfVersion = true
	m.Annotations[plan.EventVersion] = version
}

// setCounts sets the number of targets in each state that the source can have:
// there is no message with numbers while a target is pending, nor of a frozen
// source.
func (m *Message) setCounts(counts *plan.Counts) {
	for _, state := range plan.Counted {
		if state.Status() < plan.StatusPending {
			m.Annotations[plan.EventAnnotation(state)] = strconv.Itoa(counts[state])
		}
	}
}

// isMirrored reports whether the source is one that has copies.
func (s *Summary) isMirrored() bool {
	return !s.Source.Reserved && s.Source.Frozen == nil && !s.Source.OutOfScope
}
