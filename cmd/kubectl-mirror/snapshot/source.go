package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Statuses of a source.
const (
	InSync       = "InSync"       // every target is in sync, or held
	Pending      = "Pending"      // the controller has something to do, or has not reported on this version of the source
	Rejected     = "Rejected"     // the API server refuses copies, and a retry may succeed
	Blocked      = "Blocked"      // a foreign ConfigMap, another source or another client is in the way of copies
	Frozen       = "Frozen"       // an annotation is malformed or not known
	ReservedName = "ReservedName" // another controller writes ConfigMaps of its name
	OutOfScope   = "OutOfScope"   // the flags do not allow it
	NoTargets    = "NoTargets"    // no namespace is a target
	Gone         = "Gone"         // it is gone or unlabelled, and copies are left
	NotKnown     = "NotKnown"     // there is no report
)

// Source is the state of one source. Without the controller's report, a copy that is rejected is pending.
type Source struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Status    string         `json:"status"`
	Note      string         `json:"note,omitempty"`
	Warning   string         `json:"warning,omitempty"` // of the controller: "Reason: text"
	Counts    map[string]int `json:"counts"`            // by state
	Targets   []Target       `json:"targets,omitempty"`

	version string // the resourceVersion
}

// Target is the state of one source at one target.
type Target struct {
	Namespace string `json:"namespace"`
	State     string `json:"state"`
	Reason    string `json:"reason,omitempty"`
}

// Key returns the namespace and name of the source.
func (s *Source) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// Sources returns the state of the sources in a namespace, or in all, sorted.
func (s *Snapshot) Sources(namespace string) []*Source {
	found := map[types.NamespacedName]*Source{}
	at := func(k types.NamespacedName) *Source {
		if found[k] == nil {
			found[k] = newSource(k)
		}
		return found[k]
	}
	for _, g := range s.names {
		for _, source := range g.view.All() {
			r := at(source.Key)
			r.Status, r.Note = StatusOf(source)
			r.version = source.ConfigMap.ResourceVersion
		}
		for target, c := range g.decisions {
			if c.State != plan.StateNone {
				at(c.Owner).add(c.State, target, s.Reason(c))
			}
			for _, superseded := range s.Rules.Superseded(g.view, plan.Target{Namespace: s.Namespaces[target]}, *c) {
				at(superseded.Key).add(plan.StateSuperseded, target, c.Owner.String()+" has precedence")
			}
		}
	}
	maps.DeleteFunc(found, func(k types.NamespacedName, _ *Source) bool {
		return namespace != "" && namespace != k.Namespace
	})
	for k, r := range found {
		s.finish(r, s.View(k.Name).Find(k))
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Source) int { return compareKeys(a.Key(), b.Key()) })
}

func newSource(k types.NamespacedName) *Source {
	return &Source{Namespace: k.Namespace, Name: k.Name, Status: Gone, Counts: map[string]int{},
		Note: "it is gone or no source any more: its copies in scope are deleted at the end of the deletion grace"}
}

// StatusOf returns the status of a source without its targets, and why nothing is mirrored from it.
func StatusOf(s *plan.Source) (status, note string) {
	switch {
	case s.OutOfScope:
		return OutOfScope, "--source-namespace does not allow it to be a source"
	case s.Reserved:
		return ReservedName, "another controller writes a ConfigMap of this name into every namespace: give it another name"
	case s.Frozen != nil:
		why := strings.ReplaceAll(s.Frozen.Error(), "\n", "; ")
		return Frozen, "its copies stay as they are until its annotation is fixed: " + why
	}
	return InSync, ""
}

func (s *Source) add(state plan.State, namespace, reason string) {
	s.Counts[state.String()]++
	s.Targets = append(s.Targets, Target{namespace, state.String(), reason})
}

// finish sets the status of a source that can be mirrored by its counts. found is nil if the source is gone.
func (s *Snapshot) finish(r *Source, found *plan.Source) {
	slices.SortFunc(r.Targets, func(a, b Target) int { return strings.Compare(a.Namespace, b.Namespace) })
	switch {
	case r.Status != InSync:
	case r.Total() == 0:
		why, remedy := s.Rules.ExplainExcluded(found, s.Rules.Excluded(found, maps.Values(s.Namespaces)))
		r.Status, r.Note = NoTargets, "no namespace is a target: "+why+": "+remedy
	default:
		r.setStatus()
	}
	if r.Count(plan.StateHeld) > 0 {
		by, remedy := found.Hold()
		r.Note = "held targets stay as they are by the annotation " + by + ": to reach them, " + remedy
	}
}

// setStatus sets the status of a source that has targets.
func (s *Source) setStatus() {
	status := plan.StatusInSync
	for _, state := range plan.Counted {
		if s.Count(state) > 0 {
			status = max(status, state.Status())
		}
	}
	s.Status = status.String()
}

// GoesOn reports whether the status may change by itself.
func (s *Source) GoesOn(ignoreBlocked bool) bool {
	return s.Status == Pending || s.Status == NotKnown || s.Status == Rejected && !ignoreBlocked
}

// Succeeds reports whether the source is as its owner wants it to be.
func (s *Source) Succeeds(ignoreBlocked bool) bool {
	return s.Status == InSync || ignoreBlocked && (s.Status == Rejected || s.Status == Blocked)
}

// Count returns the number of targets in one of the states.
func (s *Source) Count(states ...plan.State) (n int) {
	for _, state := range states {
		n += s.Counts[state.String()]
	}
	return n
}

// Total returns the number of targets. Copies that expire or are out of scope are none.
func (s *Source) Total() (n int) {
	for _, state := range plan.Counted {
		if state.IsTarget() {
			n += s.Count(state)
		}
	}
	return n
}

// IsInSync reports whether nothing is to be done for the source, and nothing is in its way. One that the flags do not
// allow is nobody's concern unless it has left copies.
func (s *Source) IsInSync() bool {
	return s.Status == InSync || s.Status == OutOfScope && s.Count(plan.Counted...) == 0
}

// Summary is the status with the counts.
func (s *Source) Summary() string {
	text := s.Status
	for _, state := range plan.Counted {
		if n := s.Count(state); n > 0 {
			text += fmt.Sprintf(", %d %s", n, state)
		}
	}
	return text
}
