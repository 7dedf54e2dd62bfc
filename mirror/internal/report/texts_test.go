package report

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestTextsFitAnEvent makes every text as long as it can be: the API server takes no note of more than 1,024 bytes.
func TestTextsFitAnEvent(t *testing.T) {
	many := numbered(500)
	verbose := strings.Repeat("denied by policy: é…😀\n", 500)
	frozen := rules.ParseSource(plantest.Source("platform", "settings",
		plantest.Annotation(plan.PrefixAnnotation, strings.Repeat("Ä,", 300)),
		plantest.Annotation(plan.SelectorAnnotation, strings.Repeat("Ö", 5000))))
	for state := range plan.States {
		source := rules.ParseSource(plantest.Source("platform", strings.Repeat("a.", 126)+"a"))
		sum := &Summary{Source: source, at: map[plan.State][]string{state: many}, notes: map[string]Note{}, Rules: rules}
		for _, namespace := range many {
			sum.notes[namespace] = Note{Text: verbose}
		}
		switch state {
		case plan.StateFrozen:
			sum.Source, sum.at = frozen, nil
		case plan.StateNone:
			source.Reserved = true
		case plan.StateHeld:
			sum.Source = rules.ParseSource(plantest.Source("platform", "settings",
				plantest.Annotation(plan.PausedAnnotation, "true"),
				plantest.Annotation(plan.RolloutAnnotation, "tier in ("+strings.Repeat("a,", 2000)+"a)")))
			sum.Counts[plan.StateHeld] = 1000000
		}
		told := &Reported{}
		told.Begin("1", nil)
		all, _ := told.Messages(sum, time.Now())
		for _, m := range all {
			if n := len(m.Note); n == 0 || n > 1024 || !utf8.ValidString(m.Note) {
				t.Errorf("%s: got %d bytes, valid %v, want 1 to 1024, valid", m.Reason, n, utf8.ValidString(m.Note))
			}
			if normal := m.Reason == plan.ReasonHeld ||
				m.Reason == plan.ReasonMirrored; (m.Type == corev1.EventTypeNormal) != normal {
				t.Errorf("%s: got kind %q", m.Reason, m.Type)
			}
		}
		if (state.IsProblem() || state == plan.StateHeld) && len(all) == 0 {
			t.Errorf("%v: got no text", state)
		}
	}
}

// rules are those of a controller that mirrors into team-*.
var rules = func() *plan.Rules {
	o := plan.NewOptions()
	o.NamespacePrefixes = []string{"team-"}
	return plan.NewRules(&o)
}()

// numbered returns so many long names of namespaces.
func numbered(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%03d", strings.Repeat("n", 60), i))
	}
	return all
}

func TestLongTextsAreClippedAtACharacter(t *testing.T) {
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
		if got := Clip(tc.note); got != tc.want {
			t.Errorf("%s: got %d bytes …%q, want %d bytes", name, len(got), got[max(0, len(got)-12):], len(tc.want))
		}
	}
}

func TestTextsNameFiveNamespaces(t *testing.T) {
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

// TestTextsSayWhatToDo: the advice names the command, and what adoption does.
func TestTextsSayWhatToDo(t *testing.T) {
	source := rules.ParseSource(plantest.Source("platform", "settings"))
	sum := &Summary{Source: source, Rules: rules, notes: map[string]Note{
		"team-a": {"a foreign ConfigMap is there", true}, "team-b": {"another source is there", false},
		"team-c": {"a foreign ConfigMap is there", true},
	}}
	want := "Not copied to namespace team-b: another source is there. Rename one of the two, or delete it. " +
		"Not copied to 2 namespaces (team-a, team-c): a foreign ConfigMap is there. Delete or rename it, or hand it over, " +
		"which REPLACES ITS DATA: kubectl annotate -n team-a configmap settings mirror-controller.github.io/adopt=true"
	if got := foreignText(sum, []string{"team-a", "team-b", "team-c"}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	const refusal = `mirror-controller may only write to namespaces starting with "dev-" that are not excluded ` +
		"(settings: annotations of ClusterRoleBinding blue"
	sum.notes["team-a"] = Note{Text: refusal}
	const fix = "Fix the cause (kubectl annotate --overwrite clusterrolebinding blue " +
		"mirror-controller.github.io/namespace-prefix=team-); the controller retries"
	if got := rejectedText(sum, []string{"team-a"}); !strings.Contains(got, fix) {
		t.Errorf("got %q, want %q in it", got, fix)
	}
}
