package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/resourceversion"

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

// Reports are the newest events about one source, by reason.
type Reports map[string]*corev1.Event

// Reports returns what controllers of the instance have reported in a namespace, or in all, by source.
func (r *Reader) Reports(ctx context.Context, namespace string) (map[types.NamespacedName]Reports, error) {
	all := map[types.NamespacedName]Reports{}
	o := metav1.ListOptions{FieldSelector: "reportingComponent=mirror-controller"}
	err := each(ctx, r.Client.CoreV1().Events(namespace).List, o, func(e *corev1.Event) {
		about := types.NamespacedName{Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
		if all[about] == nil {
			all[about] = Reports{}
		}
		known := all[about][e.Reason]
		if e.Annotations[plan.InstanceAnnotation] == r.Rules.Instance() && (known == nil || isNewer(e, known)) {
			all[about][e.Reason] = e
		}
	})
	return all, err
}

// number returns the number of targets in a state by the newest Mirrored; 0 if none has it.
func (r Reports) number(state plan.State) (n int) {
	if e := r[plan.ReasonMirrored]; e != nil {
		n, _ = strconv.Atoi(e.Annotations[plan.EventAnnotation(state)])
	}
	return n
}

// warning returns the newest warning that is not over, as "Reason: text"; empty if there is none. One about copies that
// expire comes first. A warning is over when a newer Mirrored counts none of its targets.
func (r Reports) warning() string {
	var first *corev1.Event
	for reason, e := range r {
		state := plan.Warned[reason]
		if e.Type != corev1.EventTypeWarning || !r.isNew(reason) && r.number(state) == 0 {
			continue
		}
		if first == nil || state == plan.StateExpiring || first.Reason != plan.ReasonExpiring && isNewer(e, first) {
			first = e
		}
	}
	if first == nil {
		return ""
	}
	return first.Reason + ": " + first.Message
}

// isNew reports whether there is an event with this reason, and no newer Mirrored.
func (r Reports) isNew(reason string) bool {
	e, mirrored := r[reason], r[plan.ReasonMirrored]
	return e != nil && (mirrored == nil || isNewer(e, mirrored))
}

// counts reports whether the newest Mirrored has the numbers of a version of the source: no target was pending then,
// and no newer warning is about targets that it does not count. A warning that still holds is repeated.
func (r Reports) counts(version string) bool {
	mirrored := r[plan.ReasonMirrored]
	isNews := func(reason string) bool { return r.isNew(reason) && r.number(plan.Warned[reason]) == 0 }
	return mirrored != nil && mirrored.Annotations[plan.EventVersion] == version &&
		!slices.ContainsFunc(slices.Collect(maps.Keys(plan.Warned)), isNews)
}

// Learn adds what the reports show and no object does: which targets are rejected or fought over. Objects show each of
// these in another state, also in sync for a moment.
func (s *Source) Learn(r Reports) {
	if s.Status == Frozen { // which tells by itself why, and its copies stay
		return
	}
	s.Warning = r.warning()
	if s.Status == InSync && r.isNew(plan.ReasonFight) && r.number(plan.StateFight) == 0 {
		s.Status = Pending // until the next Mirrored counts it
	}
	reported, rejected, fought := 0, r.number(plan.StateRejected), r.number(plan.StateFight)
	for _, state := range plan.Counted {
		reported += r.number(state)
		if state != plan.StateRejected && state != plan.StateFight && r.number(state) > s.Count(state) {
			return // it has changed since
		}
	}
	if rejected+fought == 0 || s.Total() == 0 || reported != s.Count(plan.Counted...) || !r.counts(s.version) {
		return
	}
	s.take(r)
	for i, t := range s.Targets {
		if t.State == plan.StatePending.String() && fought == 0 {
			s.Targets[i] = Target{t.Namespace, plan.StateRejected.String(), "see " + plan.ReasonWriteFailed}
		}
	}
}

// take sets the numbers of targets to those that the newest Mirrored counts.
func (s *Source) take(r Reports) {
	for _, state := range plan.Counted {
		s.Counts[state.String()] = r.number(state)
	}
	maps.DeleteFunc(s.Counts, func(_ string, n int) bool { return n == 0 })
	s.setStatus()
}

// judge returns the state of a source by the reports alone, which are those of an instance.
func (r Reports) judge(s *plan.Source, instance string) *Source {
	out, version := newSource(s.Key), s.ConfigMap.ResourceVersion
	if out.Status, out.Note = StatusOf(s); out.Status != InSync {
		return out
	}
	out.Warning = r.warning()
	newest := r[plan.ReasonMirrored]
	switch none := r[plan.ReasonNoTargets]; {
	case len(r) == 0:
		out.Status = NotKnown
		out.Note = fmt.Sprintf("no report in the last hour: no controller of instance %s looks for sources here", instance)
		return out
	case r.isNew(plan.ReasonNoTargets) && none.Annotations[plan.EventVersion] == version:
		out.Status, newest = NoTargets, none
	case !r.counts(version):
		out.Status, out.Note = Pending, "the controller has not reported on this version, or has warned since"
		return out
	default:
		out.take(r)
	}
	out.Note = "as reported " + duration.HumanDuration(max(0, time.Since(newest.LastTimestamp.Time))) + " ago"
	return out
}

// isNewer reports whether a was written after b.
func isNewer(a, b *corev1.Event) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}

// Reported returns the state of one source, or of those in a namespace, by what controllers have reported there.
func (r *Reader) Reported(ctx context.Context, asked types.NamespacedName) (all []*Source, err error) {
	reports, err := r.Reports(ctx, asked.Namespace)
	if err != nil {
		return nil, err
	}
	o := listOptions(r.Rules.Label()+"="+plan.SourceValue, asked.Name)
	err = each(ctx, r.Client.CoreV1().ConfigMaps(asked.Namespace).List, o, func(cm *corev1.ConfigMap) {
		if r.Rules.AsksToBeMirrored(cm) {
			all = append(all, reports[plan.KeyOf(cm)].judge(r.Rules.ParseSource(cm), r.Rules.Instance()))
		}
	})
	if expiring := reports[asked][plan.ReasonExpiring]; expiring != nil && len(all) == 0 {
		gone := newSource(asked)
		gone.Warning = reports[asked].warning()
		all = append(all, gone)
	}
	return all, err
}
