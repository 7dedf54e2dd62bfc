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

// Counted are the states that have targets, in the order of their interest.
var Counted = []plan.State{
	plan.StateSynced, plan.StatePending, plan.StateForeign, plan.StateSuperseded, plan.StateRejected, plan.StateFight,
	plan.StateFrozen, plan.StateHeld, plan.StateOutOfScope, plan.StateExpiring,
}

// Source is the state of one source. No object tells that a copy is rejected or fought over: that is known by the
// controller's report, and counts as pending without it.
type Source struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Status    string         `json:"status"`
	Note      string         `json:"note,omitempty"`
	Warning   string         `json:"warning,omitempty"` // of the controller: "Reason: text"
	Counts    map[string]int `json:"counts"`
	Targets   []Target       `json:"targets,omitempty"`
	UID       types.UID      `json:"-"`

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

// Sources returns the state of one source, of those of a namespace, or of all, sorted.
func (s *Snapshot) Sources(asked types.NamespacedName) []*Source {
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
			r.UID, r.version = source.ConfigMap.UID, source.ConfigMap.ResourceVersion
		}
		for _, d := range g.decisions {
			if d.State != plan.StateNone {
				at(d.Owner).add(d.State, d, s.Reason(d))
			}
			for _, superseded := range d.Superseded {
				at(superseded.Key).add(plan.StateSuperseded, d, d.Owner.String()+" has precedence")
			}
		}
	}
	maps.DeleteFunc(found, func(k types.NamespacedName, _ *Source) bool {
		return asked.Name != "" && asked.Name != k.Name || asked.Namespace != "" && asked.Namespace != k.Namespace
	})
	for k, r := range found {
		s.finish(r, s.View(k.Name).Find(k))
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Source) int { return compareKeys(a.Key(), b.Key()) })
}

func newSource(k types.NamespacedName) *Source {
	s := &Source{Namespace: k.Namespace, Name: k.Name, UID: GoneUID(k), Status: Gone, Counts: map[string]int{},
		Note: "it is gone or no source any more: its copies in scope are deleted at the end of the deletion grace"}
	for _, state := range Counted {
		s.Counts[state.String()] = 0
	}
	return s
}

// StatusOf returns the status of a source that is there, as far as it is known without its targets, and why nothing is
// mirrored from it.
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

func (s *Source) add(state plan.State, d *Decision, reason string) {
	s.Counts[state.String()]++
	s.Targets = append(s.Targets, Target{d.Key.Namespace, state.String(), reason})
}

// finish sets the status of a source that can be mirrored by its counts. found is nil if the source is gone.
func (s *Snapshot) finish(r *Source, found *plan.Source) {
	slices.SortFunc(r.Targets, func(a, b Target) int { return strings.Compare(a.Namespace, b.Namespace) })
	switch {
	case r.Status != InSync:
	case r.Total() == r.Count(plan.StateExpiring, plan.StateOutOfScope):
		why, remedy := s.Rules.ExplainExcluded(found, s.Rules.Excluded(found, maps.Values(s.Namespaces)))
		r.Status, r.Note = NoTargets, "no namespace is a target: "+why+": "+remedy
	default:
		r.settle()
	}
	if r.Count(plan.StateHeld) > 0 && found != nil && found.HeldBy() != "" {
		by, remedy := found.Hold()
		r.Note = "held targets stay as they are by the annotation " + by + ": to reach them, " + remedy
	}
}

// settle sets the status of a source that has targets.
func (s *Source) settle() {
	switch {
	case s.Count(plan.StatePending) > 0:
		s.Status = Pending
	case s.Count(plan.StateRejected) > 0:
		s.Status = Rejected
	case s.Count(plan.StateForeign, plan.StateSuperseded, plan.StateFight) > 0:
		s.Status = Blocked
	default:
		s.Status = InSync
	}
}

// Ends reports whether nothing will change by itself, and whether that is a success.
func (s *Source) Ends(ignoreBlocked bool) (ends, succeeds bool) {
	switch s.Status {
	case InSync:
		return true, true
	case Blocked:
		return true, ignoreBlocked
	case Rejected:
		return ignoreBlocked, ignoreBlocked
	case Pending, NotKnown:
		return false, false
	}
	return true, false
}

// Count returns the number of targets in one of the states.
func (s *Source) Count(states ...plan.State) (n int) {
	for _, state := range states {
		n += s.Counts[state.String()]
	}
	return n
}

// Total returns the number of targets, of any state.
func (s *Source) Total() int { return s.Count(Counted...) }

// IsInSync reports whether nothing is to be done for the source, and nothing is in its way. One that the flags do not
// allow is nobody's concern unless it has left copies.
func (s *Source) IsInSync() bool {
	return s.Status == InSync || s.Status == OutOfScope && s.Total() == 0
}

// IsQuiet reports whether the cluster shows all that is to be said of the source.
func (s *Source) IsQuiet() bool { return s.IsInSync() && s.Count(plan.StateExpiring) == 0 }

// Summary is the status with the counts.
func (s *Source) Summary() string {
	text := s.Status
	for _, state := range Counted {
		if n := s.Count(state); n > 0 {
			text += fmt.Sprintf(", %d %s", n, state)
		}
	}
	return text
}
