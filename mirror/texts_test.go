package mirror

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestTextsFitAnEvent makes every text as long as it can be: the API server takes no note of more than 1,024 bytes.
func TestTextsFitAnEvent(t *testing.T) {
	many := numbered(strings.Repeat("n", 60), 500)
	verbose := strings.Repeat("denied by policy: é…😀\n", 500)
	frozen := parsed(sourceIn("platform", plantest.Annotation(plan.PrefixAnnotation, strings.Repeat("Ä,", 300)),
		plantest.Annotation(plan.SelectorAnnotation, strings.Repeat("Ö", 5000))))
	for state := range plan.States {
		source := parsed(plantest.Source("platform", strings.Repeat("a.", 126)+"a"))
		sum := &summary{source: source, object: source.ConfigMap, at: map[plan.State][]string{state: many}, notes: map[string]note{}, rules: teamRules()}
		for _, namespace := range many {
			sum.notes[namespace] = note{text: verbose}
		}
		switch state {
		case plan.StateFrozen:
			sum.source, sum.at = frozen, nil
		case plan.StateNone:
			source.Reserved = true
		case plan.StateHeld:
			sum.source = parsed(sourceIn("platform", plantest.Annotation(plan.PausedAnnotation, "true"),
				plantest.Annotation(plan.RolloutAnnotation, "tier in ("+strings.Repeat("a,", 2000)+"a)")))
			sum.counts[plan.StateHeld] = 1000000
		}
		told := &reported{}
		told.begin(sum.object.UID, nil)
		all, _ := told.news(sum, time.Now())
		for _, m := range all {
			if n := len(m.note); n == 0 || n > 1024 || !utf8.ValidString(m.note) {
				t.Errorf("%s: got %d bytes, valid %v, want 1 to 1024, valid", m.reason, n, utf8.ValidString(m.note))
			}
			if (m.kind == corev1.EventTypeWarning) != (m.reason != plan.ReasonHeld) {
				t.Errorf("%s: got kind %q", m.reason, m.kind)
			}
		}
		if (state.IsProblem() || state == plan.StateHeld) && len(all) == 0 {
			t.Errorf("%v: got no text", state)
		}
	}
}

func TestClip(t *testing.T) {
	for name, tc := range map[string]struct{ note, want string }{
		"nothing":                  {"", ""},
		"of 1024 bytes":            {strings.Repeat("a", 1024), strings.Repeat("a", 1024)},
		"of 1025 bytes":            {strings.Repeat("a", 1025), strings.Repeat("a", 1021) + "…"},
		"1024 bytes of two each":   {strings.Repeat("é", 512), strings.Repeat("é", 512)},
		"cut after one of two":     {strings.Repeat("é", 513), strings.Repeat("é", 510) + "…"},
		"cut after two of three":   {strings.Repeat("a", 1019) + "…aaaa", strings.Repeat("a", 1019) + "…"},
		"cut after all of three":   {strings.Repeat("a", 1018) + "…aaaa", strings.Repeat("a", 1018) + "……"},
		"cut after three of four":  {strings.Repeat("a", 1018) + "😀aaaa", strings.Repeat("a", 1018) + "…"},
		"characters, but no bytes": {strings.Repeat("a", 1022) + "é", strings.Repeat("a", 1022) + "é"},
	} {
		if got := clip(tc.note); got != tc.want {
			t.Errorf("%s: got %d bytes …%q, want %d bytes", name, len(got), got[max(0, len(got)-12):], len(tc.want))
		}
	}
}

func TestNamespaceLists(t *testing.T) {
	for _, tc := range []struct {
		targets []string
		want    string
	}{
		{[]string{"a"}, "namespace a"},
		{[]string{"a", "b"}, "2 namespaces (a, b)"},
		{[]string{"a", "b", "c", "d", "e"}, "5 namespaces (a, b, c, d, e)"},
		{[]string{"a", "b", "c", "d", "e", "f"}, "6 namespaces (a, b, c, d, e and 1 more)"},
	} {
		if got := namespaces(tc.targets); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestReasonsDoNotChange(t *testing.T) {
	got := []string{plan.ReasonMirrored, plan.ReasonForeign, plan.ReasonSuperseded, plan.ReasonReservedName, plan.ReasonInvalidAnnotation, plan.ReasonWriteFailed,
		plan.ReasonFight, plan.ReasonOutOfScope, plan.ReasonNoTargets, plan.ReasonExpiring, plan.ReasonDeleted, plan.ReasonHeld}
	want := []string{"Mirrored", "Foreign", "Superseded", "ReservedName", "InvalidAnnotation", "WriteFailed", "Fight", "OutOfScope",
		"NoTargets", "Expiring", "Deleted", "Held"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTextsSayWhatToDo: the advice names the command, and what adoption does.
func TestTextsSayWhatToDo(t *testing.T) {
	sum := &summary{source: parsed(sourceIn("platform")), notes: map[string]note{
		"team-a": {"a foreign ConfigMap is there", true}, "team-b": {"another source is there", false}, "team-c": {"a foreign ConfigMap is there", true},
	}}
	want := "Not copied to namespace team-b: another source is there. Rename one of the two, or delete it. " +
		"Not copied to 2 namespaces (team-a, team-c): a foreign ConfigMap is there. Delete or rename it, or hand it over, which REPLACES " +
		"ITS DATA: kubectl annotate -n team-a configmap settings mirror-controller.github.io/adopt=true"
	if got := foreignText(sum, []string{"team-a", "team-b", "team-c"}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEventsAreLoggedWithTheirType, so that a filter of the log finds the warnings.
func TestEventsAreLoggedWithTheirType(t *testing.T) {
	d := &desk{t: t, status: newStatus()}
	d.has(sourceIn("platform"))
	d.at(plan.StateForeign, "", "b")
	d.writes("a")
	var out bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out))))
	r := reporterOf(t, d.status)
	r.report(ctx, "settings", plan.NewView(d.sources))
	for _, want := range []string{`type="Warning" reason="Foreign"`, `type="Normal" reason="Mirrored"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want in it %s", out.String(), want)
		}
	}
}
