package main

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Statuses of a source.
const (
	statusInSync     = "InSync"
	statusOutOfSync  = "OutOfSync"
	statusFrozen     = "Frozen"       // its annotations are malformed
	statusReserved   = "ReservedName" // another controller writes ConfigMaps of its name
	statusOutOfScope = "OutOfScope"   // the flags do not allow it
	statusGone       = "Gone"         // it is gone or unlabelled, and copies are left
)

const goneNote = "it is gone, or asks no longer to be mirrored: its copies are deleted at the end of the deletion grace"

// counted are the states that have targets, in the order of their interest.
var counted = []plan.State{
	plan.StateSynced, plan.StatePending, plan.StateForeign, plan.StateSuperseded, plan.StateFailed, plan.StateOutOfScope,
	plan.StateExpiring,
}

// report is the state of all sources, or of one.
type report struct {
	Settings string         `json:"settings"`
	InSync   bool           `json:"inSync"`
	Sources  []sourceReport `json:"sources"`

	namespace string // of the sources; empty: all
}

// sourceReport is the state of one source. The counts are those of mirror_copies.
type sourceReport struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Status    string         `json:"status"`
	Note      string         `json:"note,omitempty"`
	Counts    map[string]int `json:"counts"`
	Targets   []targetReport `json:"targets,omitempty"`
}

func (s *sourceReport) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// targetReport is the state of one source at one target.
type targetReport struct {
	Namespace string `json:"namespace"`
	State     string `json:"state"`
	// Operation is what is to be done.
	Operation string `json:"operation,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// newReport counts the decisions by source. keep chooses the sources.
func newReport(s *snapshot, all map[string][]*decided, keep func(types.NamespacedName) bool) *report {
	sources := map[types.NamespacedName]*sourceReport{}
	source := func(k types.NamespacedName) *sourceReport {
		if sources[k] == nil {
			sources[k] = &sourceReport{Namespace: k.Namespace, Name: k.Name, Status: statusGone, Note: goneNote, Counts: map[string]int{}}
			for _, state := range counted {
				sources[k].Counts[state.Metric()] = 0
			}
		}
		return sources[k]
	}
	for name, g := range s.names {
		for _, found := range g.view.All() {
			r := source(found.Key)
			r.Status, r.Note = statusOf(found), sourceNote(found)
		}
		for _, d := range all[name] {
			if state := d.state(); state != plan.StateNone {
				source(d.countsFor()).add(state, d, s.reason(d))
			}
			for _, loser := range d.losers {
				source(loser.Key).add(plan.StateSuperseded, d, supersededReason(d))
			}
		}
	}
	r := &report{InSync: true, Sources: []sourceReport{}}
	for k, found := range sources {
		if keep(k) {
			found.finish()
			r.InSync = r.InSync && found.isInSync()
			r.Sources = append(r.Sources, *found)
		}
	}
	slices.SortFunc(r.Sources, func(a, b sourceReport) int { return strings.Compare(a.key().String(), b.key().String()) })
	return r
}

func supersededReason(d *decided) string {
	if d.state() == plan.StateFrozen {
		return "a copy of " + d.CopyOf.String() + ", which is frozen, is there"
	}
	return d.Source.Key.String() + " has precedence"
}

func statusOf(s *plan.Source) string {
	switch {
	case s.OutOfScope:
		return statusOutOfScope
	case s.Reserved:
		return statusReserved
	case s.Frozen != nil:
		return statusFrozen
	}
	return statusInSync
}

func (s *sourceReport) add(state plan.State, d *decided, reason string) {
	s.Counts[state.Metric()]++
	t := targetReport{Namespace: d.Key.Namespace, State: state.Metric(), Reason: reason}
	if (state == plan.StatePending || state == plan.StateFailed || state == plan.StateExpiring) && d.Op != plan.OpNone {
		t.Operation = d.Op.String()
	}
	s.Targets = append(s.Targets, t)
}

// finish sets the status of a source that can be mirrored by its counts.
func (s *sourceReport) finish() {
	if s.Status == statusInSync && s.targets() != s.Counts[plan.StateSynced.Metric()] {
		s.Status = statusOutOfSync
	}
	slices.SortFunc(s.Targets, func(a, b targetReport) int { return strings.Compare(a.Namespace, b.Namespace) })
}

// targets returns the number of targets, of any state.
func (s *sourceReport) targets() (n int) {
	for _, count := range s.Counts {
		n += count
	}
	return n
}

// isInSync reports whether nothing is to be done for the source, and nothing is in its way. One that the flags do not allow is
// nobody's concern unless it has left copies.
func (s *sourceReport) isInSync() bool {
	return s.Status == statusInSync || s.Status == statusOutOfScope && len(s.Targets) == 0
}
