package plan

// Causes of a repair, the values of the label of mirror_repairs_total.
const (
	CauseDeleted    = "deleted"
	CauseEdited     = "edited"
	CauseUnlabelled = "unlabelled"
	CauseMetadata   = "metadata"
)

// repairs say what another client did to a copy.
var repairs = map[string]string{
	CauseDeleted:    "the copy was deleted",
	CauseEdited:     "the copy was edited",
	CauseUnlabelled: "the copy has lost its label",
	CauseMetadata:   "labels or annotations of the copy were edited",
	"":              "the source has changed",
}

// RepairCause returns what another client did to the copy that the change restores; empty if the copy is new or the
// source has changed. wasSynced says that the copy was in sync with this content before.
func (r *Rules) RepairCause(c Change, wasSynced bool) string {
	switch {
	case c.Op == OpCreate && wasSynced:
		return CauseDeleted
	case c.Have == nil || c.Source == nil || !wasSynced && MarksOf(c.Have).Source != c.Source.Key:
		return ""
	case !wasSynced && c.Have.Annotations[ChecksumAnnotation] != c.Source.Checksum && r.MatchesChecksum(c.Have):
		return "" // the copy holds a former content
	case c.Have.Labels[r.label] != CopyValue:
		return CauseUnlabelled
	case payloadDigest(c.Have) != c.Source.payload:
		return CauseEdited
	}
	return CauseMetadata
}

// Restored is the text about a copy that the change restored. cause is that of [Rules.RepairCause], and not empty.
func (r *Rules) Restored(c Change, cause string) string {
	return "Restored from the source " + c.Source.Key.String() + ", because " + repairs[cause] +
		". To change it, change the source. To keep a ConfigMap of your own, give it another name. Or, if you may patch " +
		"the namespace, label it " + r.label + "=" + OptOutValue + ", which removes all copies from it."
}
