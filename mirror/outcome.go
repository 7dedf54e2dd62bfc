package mirror

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Outcome is the state of the cluster as a controller leaves it.
type Outcome struct {
	DryRun bool
	// Led is set if the controller has led and planned everything. If not, nothing else is set.
	Led bool
	// PruneBlocked is the number of copies out of scope of the flags that the prune limit keeps.
	PruneBlocked int
	// Changes are the copies that were created, updated, re-created and deleted; in a dry run those that would be.
	Changes tally
	// Sources are sorted by their key. A source that is gone is among them while something is to be said of its copies.
	Sources []SourceOutcome
}

// SourceOutcome is the part of an [Outcome] for one source.
type SourceOutcome struct {
	Source key
	// Frozen is set if the annotations of the source are malformed.
	Frozen bool
	// Note says why nothing is mirrored; empty: it is.
	Note string
	// Counts are the numbers of targets by state.
	Counts [plan.States]int
	// Targets are those that are not in sync, by state and namespace.
	Targets []TargetOutcome
}

// TargetOutcome is the part of an [Outcome] for one target that is not in sync.
type TargetOutcome struct {
	Namespace string
	State     plan.State
	// Would is the change that a dry run withheld; OpNone: none.
	Would plan.Op
	// Note is an error, or the source that has the target.
	Note string
}

func compareKeys(a, b key) int { return strings.Compare(a.String(), b.String()) }

func outcomeOf(bySource map[key]*SourceOutcome, k key) *SourceOutcome {
	if bySource[k] == nil {
		bySource[k] = &SourceOutcome{Source: k}
	}
	return bySource[k]
}

// outcome adds what the records say of each source, and returns the changes.
func (s *status) outcome(bySource map[key]*SourceOutcome) (changes tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes = s.written
	add := func(k key, t TargetOutcome) {
		src := outcomeOf(bySource, k)
		src.Counts[t.State]++
		if t.State != plan.StateSynced {
			src.Targets = append(src.Targets, t)
		}
	}
	for _, n := range s.names {
		for namespace, r := range n.targets {
			if r.state != plan.StateNone {
				add(r.countsFor, TargetOutcome{Namespace: namespace, State: r.state, Would: r.would, Note: r.note})
			}
			for _, loser := range r.losers {
				add(loser, TargetOutcome{Namespace: namespace, State: plan.StateSuperseded, Note: r.countsFor.String()})
			}
			if r.would != plan.OpNone {
				changes[r.would]++
			}
		}
	}
	return changes
}

// Err returns why the cluster is not in sync, in one line; nil if it is, but for what foreign objects and other sources keep
// from it, and for what a dry run would do.
func (o Outcome) Err() error {
	if !o.Led {
		return errors.New("nothing was compared: the caches were not full, or another process held the Lease")
	}
	var problems []string
	problem := func(n int, what string) {
		if n > 0 {
			problems = append(problems, fmt.Sprintf("%d %s", n, what))
		}
	}
	var counts [plan.States]int
	frozen, withheld := 0, 0
	for _, src := range o.Sources {
		for state, n := range src.Counts {
			counts[state] += n
		}
		if src.Frozen {
			frozen++
		}
	}
	if o.DryRun {
		for _, n := range o.Changes {
			withheld += n
		}
	}
	problem(counts[plan.StateFailed], "failed")
	problem(counts[plan.StateFight], "kept out of sync by another client")
	problem(counts[plan.StatePending]-withheld, "pending")
	if frozen > 0 {
		problems = append(problems, counted(frozen, "frozen source", "frozen sources"))
	}
	problem(o.PruneBlocked, "kept by the prune limit")
	if len(problems) == 0 {
		return nil
	}
	return errors.New("not in sync: " + strings.Join(problems, ", "))
}

// String returns the summary for people: a line for each source, below it one for each target that is not in sync, and the
// number of changes in the end.
func (o Outcome) String() string {
	var b strings.Builder
	if !o.Led {
		return ""
	}
	for _, src := range o.Sources {
		fmt.Fprintf(&b, "%s: %s\n", src.Source, src.counts())
		if src.Note != "" {
			fmt.Fprintf(&b, "  %s\n", Printable(src.Note))
		}
		for _, t := range src.Targets {
			fmt.Fprintf(&b, "  %s: %s\n", t.Namespace, t.text())
		}
	}
	if o.PruneBlocked > 0 {
		fmt.Fprintf(&b, "Not deleted because of --prune-limit: %s out of scope of the flags.\n", counted(o.PruneBlocked, "copy", "copies"))
	}
	did, would := "Changes", "none"
	if o.DryRun {
		did = "Changes that a run would make"
	}
	if text := o.Changes.String(); text != "" {
		would = text
	}
	fmt.Fprintf(&b, "%s: %s.\n", did, would)
	return b.String()
}

// counts lists the states that have targets.
func (s *SourceOutcome) counts() string {
	var parts []string
	for state, n := range s.Counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %v", n, plan.State(state)))
		}
	}
	if len(parts) == 0 {
		return "no targets"
	}
	return strings.Join(parts, ", ")
}

func (t TargetOutcome) text() string {
	switch {
	case t.Would != plan.OpNone:
		return "would " + t.Would.String()
	case t.State == plan.StateSuperseded:
		return "superseded by " + t.Note
	case t.Note != "":
		return t.State.String() + ": " + Printable(t.Note)
	}
	return t.State.String()
}

// Printable replaces what a terminal could take for more than text: a tenant may write an error of a webhook.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}
