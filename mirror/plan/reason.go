package plan

// Decisions in words. Values of labels and annotations are in them as they stand: a tenant may have written these.

// Reason returns why the target is in its state, in words; empty if it is in sync, or no copy is wanted. c was decided
// by v.
func (r *Rules) Reason(v *View, c Change) string {
	switch c.State {
	case StatePending:
		return r.pendingReason(c)
	case StateExpiring:
		why, _ := r.Explain(c.Why)
		return why
	case StateForeign, StateOutOfScope:
		return c.Note
	case StateFrozen:
		return "an annotation of " + c.Owner.String() + " is malformed or not known: the copy stays as it is"
	case StateHeld:
		by, _ := v.Find(c.Owner).Hold()
		return c.Owner.String() + " holds the target, which stays as it is, by the annotation " + by
	}
	return ""
}

func (r *Rules) pendingReason(c Change) string {
	if c.Op == OpCreate {
		return "there is no copy yet"
	}
	why := repairs[r.RepairCause(c, false)]
	switch {
	case c.CopyOf.Name == "": // foreign
		why = "its owner has handed it over: its data is replaced"
	case c.CopyOf != c.Source.Key:
		why = "it is a copy of " + c.CopyOf.String() + ", whose place the source takes"
	}
	if c.Op == OpRecreate {
		why += "; it is immutable, so it is deleted and created again"
	}
	return why
}
