package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Statuses of a source. The first four follow from the states of its targets,
// the others from the source itself or its absence.
const (
	InSync   = "InSync"   // every target is in sync, or held
	Pending  = "Pending"  // some are to be written, or there is no report on this version
	Rejected = "Rejected" // the API server refuses some copies, and a retry may succeed
	Blocked  = "Blocked"  // a foreign ConfigMap, another source or another client is in the way

	Frozen       = "Frozen"       // an annotation is malformed or not known
	ReservedName = "ReservedName" // another controller writes ConfigMaps of its name
	OutOfScope   = "OutOfScope"   // the flags do not allow it
	NoTargets    = "NoTargets"    // no namespace is a target
	Gone         = "Gone"         // it is gone or unlabelled, and copies are left
	NotKnown     = "NotKnown"     // there is no report
)

// Source is the status of one source, and what it follows from. Objects do not
// show that a write was rejected: without a report such a target is pending.
type Source struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Status    string         `json:"status"`
	Note      string         `json:"note,omitempty"`    // why it is so, or how long ago
	Warning   string         `json:"warning,omitempty"` // of the controller: "Reason: text"
	Counts    map[string]int `json:"counts"`            // of targets, by state
	Targets   []TargetState  `json:"targets,omitempty"`

	version string // the resourceVersion of the ConfigMap
}

// TargetState is the state of one source at one target.
type TargetState struct {
	Namespace string `json:"namespace"`
	State     string `json:"state"`
	Reason    string `json:"reason,omitempty"`
}

// newSource returns a source that is gone, until somebody finds its ConfigMap.
func newSource(key types.NamespacedName) *Source {
	return &Source{
		Namespace: key.Namespace,
		Name:      key.Name,
		Status:    Gone,
		Note: "it is gone or no source any more: " +
			"its copies in scope are deleted at the end of the deletion grace",
		Counts: map[string]int{},
	}
}

// Key returns the namespace and name of the source.
func (s *Source) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// Sources returns the statuses of the sources in a namespace, or in all if that
// is empty, sorted. A source that is gone is there while copies of it are left.
func (s *Snapshot) Sources(namespace string) []*Source {
	found := map[types.NamespacedName]*Source{}
	sourceOf := func(key types.NamespacedName) *Source {
		if found[key] == nil {
			found[key] = newSource(key)
		}
		return found[key]
	}
	for _, g := range s.groups {
		for _, parsed := range g.view.All() {
			source := sourceOf(parsed.Key)
			source.Status, source.Note = StatusOf(parsed)
			source.version = parsed.ConfigMap.ResourceVersion
		}
		for target, c := range g.decisions {
			if c.State != plan.StateNone {
				sourceOf(c.Owner).add(c.State, target, s.Reason(c))
			}
			// A target counts for each source that selects it, also if another
			// one wins.
			place := plan.Target{Namespace: s.Namespaces[target]}
			for _, superseded := range s.Rules.Superseded(g.view, place, *c) {
				sourceOf(superseded.Key).add(plan.StateSuperseded, target,
					c.Owner.String()+" has precedence")
			}
		}
	}
	for key, source := range found {
		if namespace != "" && namespace != key.Namespace {
			delete(found, key)
			continue
		}
		s.finish(source, s.View(key.Name).Find(key))
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Source) int {
		return compareKeys(a.Key(), b.Key())
	})
}

// StatusOf returns the status of a source without its targets, and why nothing
// is mirrored from it.
func StatusOf(parsed *plan.Source) (status, note string) {
	switch {
	case parsed.OutOfScope:
		return OutOfScope, "--source-namespace does not allow it to be a source"
	case parsed.Reserved:
		return ReservedName, "another controller writes a ConfigMap of this name into every " +
			"namespace: give it another name"
	case parsed.Frozen != nil:
		why := strings.ReplaceAll(parsed.Frozen.Error(), "\n", "; ")
		return Frozen, "its copies stay as they are until its annotation is fixed: " + why
	}
	return InSync, ""
}

// add adds a target.
func (s *Source) add(state plan.State, namespace, reason string) {
	s.Counts[state.String()]++
	s.Targets = append(s.Targets, TargetState{namespace, state.String(), reason})
}

// finish sets what depends on all targets of a source. parsed is nil if the
// source is gone.
func (s *Snapshot) finish(source *Source, parsed *plan.Source) {
	slices.SortFunc(source.Targets, func(a, b TargetState) int {
		return strings.Compare(a.Namespace, b.Namespace)
	})
	switch {
	case source.Status != InSync:
		// The source itself has the reason.
	case source.Total() == 0:
		excluded := s.Rules.Excluded(parsed, maps.Values(s.Namespaces))
		why, remedy := s.Rules.ExplainExcluded(parsed, excluded)
		source.Status = NoTargets
		source.Note = "no namespace is a target: " + why + ": " + remedy
	default:
		source.setStatus()
	}
	if source.Count(plan.StateHeld) > 0 {
		by, remedy := parsed.Hold()
		source.Note = "held targets stay as they are by the annotation " + by +
			": to reach them, " + remedy
	}
}

// setStatus sets the status of a source that has targets. What may change by
// itself comes first: as long as there is some, the command wait goes on.
func (s *Source) setStatus() {
	status := plan.StatusInSync
	for _, state := range plan.Counted {
		if s.Count(state) > 0 {
			status = max(status, state.Status())
		}
	}
	s.Status = status.String()
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

// IsInSync reports whether nothing is to be done for the source, and nothing is
// in its way. One that the flags do not allow is nobody's concern unless it has
// left copies.
func (s *Source) IsInSync() bool {
	return s.Status == InSync || s.Status == OutOfScope && s.Count(plan.Counted...) == 0
}

// Count returns the number of targets in one of the states.
func (s *Source) Count(states ...plan.State) (n int) {
	for _, state := range states {
		n += s.Counts[state.String()]
	}
	return n
}

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

// Summary returns the status with the counts, such as "Pending, 7 synced, 1
// pending".
func (s *Source) Summary() string {
	text := s.Status
	for _, state := range plan.Counted {
		if n := s.Count(state); n > 0 {
			text += fmt.Sprintf(", %d %s", n, state)
		}
	}
	return text
}
