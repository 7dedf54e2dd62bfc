package snapshot

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Statuses of a source. The first four follow from the states of its targets,
// the others from the source itself or its absence.
const (
	InSync   = "InSync"   // every target is in sync, or held
	Pending  = "Pending"  // some are to be written: there is no report on this version
	Rejected = "Rejected" // the API server refuses some copies, and a retry may succeed
	Blocked  = "Blocked"  // a foreign ConfigMap, another source or another client is in the way

	Frozen       = "Frozen"       // an annotation is malformed or not known
	ReservedName = "ReservedName" // another controller writes ConfigMaps of its name
	OutOfScope   = "OutOfScope"   // the flags do not allow it, and copies are left
	NoTargets    = "NoTargets"    // no namespace is a target
	Gone         = "Gone"         // it is gone or unlabelled
	NotKnown     = "NotKnown"     // there is no report
)

// statusOf has the status of a source that nothing is mirrored from, by the
// reason of the decisive report.
var statusOf = map[string]string{
	plan.ReasonInvalidAnnotation: Frozen,
	plan.ReasonReservedName:      ReservedName,
	plan.ReasonOutOfScope:        OutOfScope,
	plan.ReasonNoTargets:         NoTargets,
}

// Source is how a source stands by what controllers of one instance have
// reported.
type Source struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Status    string `json:"status"`
	Note      string `json:"note,omitempty"` // why it is so, if no message says it
	// Reported is when the controller has reported it.
	Reported metav1.Time    `json:"reported,omitzero"`
	Counts   map[string]int `json:"counts"` // of targets, by state
	// Until is how long all copies that expire are kept; empty if none expires.
	Until    string    `json:"until,omitempty"`
	Messages []Message `json:"messages,omitempty"`
}

// Message is an event about a source that can still hold.
type Message struct {
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

func newSource(key types.NamespacedName) *Source {
	return &Source{Namespace: key.Namespace, Name: key.Name, Counts: map[string]int{}}
}

// Key returns the namespace and name of the source.
func (s *Source) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// statusOfTargets returns the status of a source that has targets. What may
// change by itself comes first: as long as there is some, the command wait goes
// on.
func (s *Source) statusOfTargets() string {
	status := plan.StatusInSync
	for _, state := range plan.Counted {
		if s.Count(state) > 0 {
			status = max(status, state.Status())
		}
	}
	return status.String()
}

// GoesOn reports whether the status may change by itself, so that waiting makes
// sense.
func (s *Source) GoesOn(ignoreBlocked bool) bool {
	return s.Status == Pending || s.Status == NotKnown || s.Status == Rejected && !ignoreBlocked
}

// Succeeds reports whether the source is as whoever waits for it wants it to
// be.
func (s *Source) Succeeds(ignoreBlocked bool) bool {
	return s.Status == InSync || ignoreBlocked && (s.Status == Rejected || s.Status == Blocked)
}

// Count returns the number of targets in a state.
func (s *Source) Count(state plan.State) int { return s.Counts[state.String()] }

// Total returns the number of targets. Copies that expire or are out of scope
// are none.
func (s *Source) Total() (n int) {
	for _, state := range plan.Counted {
		if state.IsTarget() {
			n += s.Count(state)
		}
	}
	return n
}

// Summary returns the status with the counts, such as "Blocked, 7 synced, 1
// foreign".
func (s *Source) Summary() string {
	text := s.Status
	for _, state := range plan.Counted {
		if n := s.Count(state); n > 0 {
			text += fmt.Sprintf(", %d %s", n, state)
		}
	}
	return text
}
