package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestWhyACopyIsWritten is the table of what another client, or the source, may have done to a copy: the operation, the
// cause of a repair, as metrics have it, and the reason in words. Case C22.
func TestWhyACopyIsWritten(t *testing.T) {
	const edits = "labels or annotations of the copy were edited"
	const again = "; it is immutable, so it is deleted and created again"
	r := testRules()
	src, fixed := plantest.Source("platform", "settings"), plantest.Source("platform", "settings", plantest.Immutable)
	changed := plantest.Source("platform", "settings", plantest.Data("key", "changed"))
	have := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Copy(r, src, "team-a", o...) }
	edited, unlabelled := plantest.Data("key", "edited"), plantest.Without(DefaultLabel)
	unmanaged, large := plantest.Without(ManagedByLabel), plantest.Annotation("theirs", strings.Repeat("x", 200<<10))
	checksum := plantest.Annotation(ChecksumAnnotation, "sha256:00")
	handedOver := func(o ...plantest.Option) *corev1.ConfigMap {
		return plantest.ConfigMap("team-a", "settings", append(o, plantest.Annotation(AdoptAnnotation, AdoptValue))...)
	}
	copying := testRules(func(o *Options) { o.CopyLabels = []string{"app"} })
	web := plantest.Source("platform", "settings", plantest.Label("app", "web"))
	theirs := plantest.Copy(r, plantest.Source("team-b", "settings"), "team-a")
	for name, tc := range map[string]struct {
		source, have  *corev1.ConfigMap
		wasSynced     bool
		cause, reason string
	}{
		"a new copy":                    {src, nil, false, "", "there is no copy yet"},
		"deleted":                       {src, nil, true, "deleted", "there is no copy yet"},
		"data edited":                   {src, have(edited), false, "edited", "the copy was edited"},
		"deleted, then created":         {src, have(edited), true, "edited", "the copy was edited"},
		"edited, with much metadata":    {src, have(edited, large), false, "edited", "the copy was edited"},
		"C23 made immutable":            {src, have(plantest.Immutable), false, "edited", "the copy was edited" + again},
		"C08 label removed":             {src, have(unlabelled), false, "unlabelled", "the copy has lost its label"},
		"label removed and data edited": {src, have(unlabelled, edited), false, "unlabelled", "the copy has lost its label"},
		"C02 labelled true": {src, have(plantest.Label(DefaultLabel, SourceValue)), false, "unlabelled",
			"the copy has lost its label"},
		"other metadata": {src, have(unmanaged), false, "metadata", edits},
		"immutable, edited": {fixed, plantest.Copy(r, fixed, "team-a", edited, large), false, "edited",
			"the copy was edited" + again},
		"immutable, other metadata": {fixed, plantest.Copy(r, fixed, "team-a", unmanaged, large), false, "metadata",
			edits},
		"the source changed": {changed, have(), false, "", "the source has changed"},
		"the source changed, also what is copied": {changed, plantest.Copy(copying, web, "team-a"), false, "",
			"the source has changed"},
		"list of copied forged, checksum removed": {src, have(plantest.Annotation(CopiedAnnotation, "x"),
			plantest.Without(ChecksumAnnotation)), false, "metadata", edits},
		"an old copy is put back":         {changed, have(), true, "edited", "the source has changed"},
		"edited, then the source changed": {changed, have(edited), false, "edited", "the copy was edited"},
		"taken over": {src, theirs, false, "",
			"it is a copy of team-b/settings, whose place the source takes"},
		"C12 adopted": {src, handedOver(), false, "",
			"its owner has handed it over: its data is replaced"},
		"C12 adopted, immutable": {src, handedOver(plantest.Immutable), false, "",
			"its owner has handed it over: its data is replaced" + again},
		"C65 checksum edited":          {src, have(checksum), false, "metadata", edits},
		"C65 data and checksum edited": {src, have(edited, checksum), false, "edited", "the copy was edited"},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(r, tc.source)
			c := decideAt(r, v, plantest.Namespace("team-a"), stripped(r, tc.have))
			want := OpUpdate
			switch {
			case tc.have == nil:
				want = OpCreate
			case strings.HasSuffix(tc.reason, again):
				want = OpRecreate
			}
			if got := r.RepairCause(c, tc.wasSynced); c.Op != want || c.State != StatePending || got != tc.cause {
				t.Errorf("got %v, %v because of %q, want %v because of %q", c.Op, c.State, got, want, tc.cause)
			}
			if got := r.Reason(v, c); got != tc.reason {
				t.Errorf("got %q, want %q", got, tc.reason)
			}
		})
	}
	if got := r.RepairCause(Change{Op: OpDelete, Have: have()}, true); got != "" {
		t.Errorf("got %q for a deletion, want no cause", got)
	}
}

// TestRestored has why the copy changed back, and what its owner can do.
func TestRestored(t *testing.T) {
	r := testRules()
	c := Change{Source: r.ParseSource(plantest.Source("platform", "settings"))}
	const want = "Restored from the source platform/settings, because the copy was edited. To change it, change the " +
		"source. To keep a ConfigMap of your own, give it another name. Or, if you may patch the namespace, " +
		"label it mirror=false, which removes all copies from it."
	if got := r.Restored(c, CauseEdited); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
