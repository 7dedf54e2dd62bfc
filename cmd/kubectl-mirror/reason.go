package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// precedenceRule says which of several sources of a name has a target, and precedenceRemedy what changes that.
const (
	precedenceRule   = "A source in a namespace that cannot be a target comes first, then the older source."
	precedenceRemedy = "rename one of them, or narrow its targets by an annotation"
)

// reason returns why the target is in its state, in words; empty if it is in sync.
func (s *snapshot) reason(d *decided) string {
	switch d.state() {
	case plan.StatePending:
		return s.pendingReason(d)
	case plan.StateExpiring:
		return s.deletionReason(d)
	case plan.StateFailed:
		return d.failure
	case plan.StateForeign:
		return s.foreignReason(d)
	case plan.StateFrozen:
		return "the annotations of " + d.CopyOf.String() + " are malformed: the copy stays as it is"
	case plan.StateOutOfScope:
		return s.outOfScopeReason(d)
	}
	return ""
}

func (s *snapshot) pendingReason(d *decided) string {
	switch d.Op {
	case plan.OpCreate:
		return "there is no copy yet"
	case plan.OpRecreate:
		return s.updateReason(d) + "; it is immutable, so it is deleted and created again"
	case plan.OpUpdate:
		return s.updateReason(d)
	}
	if len(d.have.Finalizers) > 0 {
		return "it is being deleted, and held by the finalizer " + printable(d.have.Finalizers[0])
	}
	return "it is being deleted"
}

// updateReason says why what is there does not match the source.
func (s *snapshot) updateReason(d *decided) string {
	if _, ours := s.rules.SourceOf(d.have); !ours {
		return "its owner has handed it over: its data is replaced"
	}
	if d.CopyOf != d.Source.Key {
		return "it is a copy of " + d.CopyOf.String() + ", whose place the source takes"
	}
	switch s.rules.RepairCause(d.Change, false) {
	case plan.CauseEdited:
		return "the copy was edited"
	case plan.CauseUnlabelled:
		return "the copy has lost its label"
	case plan.CauseMetadata:
		return "labels or annotations of the copy were edited"
	}
	return "the source has changed"
}

func (s *snapshot) deletionReason(d *decided) string {
	owner := s.names[d.Key.Name].view.Find(d.CopyOf)
	switch {
	case d.Prune:
		return "the flags do not allow it: " + s.outOfScopeReason(d)
	case owner == nil:
		return d.CopyOf.String() + " is gone, or asks no longer to be mirrored"
	}
	return d.CopyOf.String() + " no longer selects the namespace, or the namespace has opted out"
}

func (s *snapshot) foreignReason(d *decided) string {
	why := "a foreign ConfigMap of this name is there"
	switch owner := d.have.Annotations[plan.InstanceAnnotation]; {
	case s.rules.AsksToBeMirrored(d.have):
		why = "another source of this name is there"
	case owner != "" && d.have.Labels[plan.ManagedByLabel] == plan.ManagedByValue:
		why += ", made by instance " + printable(owner)
	}
	if d.have.Annotations[plan.AdoptAnnotation] != "" {
		why += ", and it cannot be handed over" + finalizerNote(d.have)
	}
	return why
}

func finalizerNote(cm *corev1.ConfigMap) string {
	if len(cm.Finalizers) == 0 {
		return ""
	}
	return fmt.Sprintf(": it has the finalizer %s", printable(cm.Finalizers[0]))
}

func (s *snapshot) outOfScopeReason(d *decided) string {
	if !s.rules.AllowsSource(d.CopyOf.Namespace) {
		return "--source-namespace does not allow the source"
	}
	if ns := s.namespaces[d.Key.Namespace]; ns != nil && !s.rules.Selects(ns) && s.rules.AllowsTarget(ns.Name) {
		return "--namespace-selector does not match the namespace"
	}
	return "--namespace-prefix or --exclude-namespace rules the namespace out"
}

// sourceNote says why nothing is mirrored from a source; empty: it is.
func sourceNote(s *plan.Source) string {
	switch {
	case s.OutOfScope:
		return "--source-namespace does not allow it to be a source"
	case s.Reserved:
		return "another controller writes a ConfigMap of this name into every namespace: give it another name"
	case s.Frozen != nil:
		return "its copies stay as they are until its annotation is fixed: " + frozenNote(s)
	}
	return ""
}
