package plan

// Decisions in words. Values of labels and annotations are in them as they stand:
// a tenant may have written these.

// Causes of a repair, the values of the label of mirror_repairs_total.
const (
	CauseDeleted    = "deleted"
	CauseEdited     = "edited"
	CauseUnlabelled = "unlabelled"
	CauseMetadata   = "metadata"
)

// repairs are the causes of a repair in words: what another client did to a copy.
var repairs = map[string]string{
	CauseDeleted:    "the copy was deleted",
	CauseEdited:     "the copy was edited",
	CauseUnlabelled: "the copy has lost its label",
	CauseMetadata:   "labels or annotations of the copy were edited",
	"":              "the source has changed",
}

// RepairCause returns what another client did to the copy that the change
// restores; empty if the copy is new or the source has changed. wasSynced is set
// if the copy was in sync with this content before.
func (r *Rules) RepairCause(c Change, wasSynced bool) (cause string) {
	if c.Op == OpCreate && wasSynced {
		return CauseDeleted
	}
	if c.Have == nil || c.Source == nil {
		return ""
	}
	m := MarksOf(c.Have)
	holdsFormer := m.Checksum != c.Source.Checksum && r.MatchesChecksum(c.Have)
	switch {
	case !wasSynced && (m.Source != c.Source.Key || holdsFormer):
		return ""
	case c.Have.Labels[r.label] != CopyValue:
		return CauseUnlabelled
	case payloadDigest(c.Have) != c.Source.payload:
		return CauseEdited
	}
	return CauseMetadata
}

// Restored returns the text about a copy that the change restored: why, and how to
// keep a ConfigMap of one's own. cause is that of [Rules.RepairCause], and not
// empty.
func (r *Rules) Restored(c Change, cause string) string {
	return "Restored from the source " + c.Source.Key.String() + ", because " + repairs[cause] +
		". To change it, change the source. To keep a ConfigMap of your own, give it another " +
		"name. Or, if you may patch the namespace, label it " + r.label + "=" + OptOutValue +
		", which removes all copies from it."
}

// Reason returns why the target is in its state, in words; empty if it is in
// sync, or no copy is wanted. c was decided by v.
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
		return "an annotation of " + c.Owner.String() +
			" is malformed or not known: the copy stays as it is"
	case StateHeld:
		by, _ := v.Find(c.Owner).Hold()
		return c.Owner.String() + " holds the target, which stays as it is, by the annotation " + by
	}
	return ""
}

// pendingReason returns why something is to be done at the target, in words.
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
