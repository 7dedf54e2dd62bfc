package mirror

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestClip(t *testing.T) {
	for name, tc := range map[string]struct{ note, want string }{
		"nothing":                    {"", ""},
		"short":                      {"note", "note"},
		"of 1023 bytes":              {strings.Repeat("a", 1023), strings.Repeat("a", 1023)},
		"of 1024 bytes":              {strings.Repeat("a", 1024), strings.Repeat("a", 1024)},
		"of 1025 bytes":              {strings.Repeat("a", 1025), strings.Repeat("a", 1021) + "…"},
		"very long":                  {strings.Repeat("a", 100000), strings.Repeat("a", 1021) + "…"},
		"1024 bytes of two each":     {strings.Repeat("é", 512), strings.Repeat("é", 512)},
		"more bytes than characters": {strings.Repeat("é", 513), strings.Repeat("é", 510) + "…"},
		"cut after one of three":     {strings.Repeat("a", 1020) + "…aaaa", strings.Repeat("a", 1020) + "…"},
		"cut after two of three":     {strings.Repeat("a", 1019) + "…aaaa", strings.Repeat("a", 1019) + "…"},
		"cut behind all of three":    {strings.Repeat("a", 1018) + "…aaaa", strings.Repeat("a", 1018) + "……"},
		"cut after one of four":      {strings.Repeat("a", 1020) + "😀aaaa", strings.Repeat("a", 1020) + "…"},
		"cut after three of four":    {strings.Repeat("a", 1018) + "😀aaaa", strings.Repeat("a", 1018) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			got := clip(tc.note)
			if got != tc.want {
				t.Errorf("got %d bytes …%q, want %d bytes …%q", len(got), got[max(0, len(got)-12):], len(tc.want), tc.want[max(0, len(tc.want)-12):])
			}
			if len(got) > 1024 || !utf8.ValidString(got) {
				t.Errorf("got %d bytes, valid %v, want 1024 at most, valid", len(got), utf8.ValidString(got))
			}
		})
	}
}

func TestNamespaces(t *testing.T) {
	for _, tc := range []struct {
		targets []string
		want    string
	}{
		{[]string{"a"}, "namespace a"},
		{[]string{"a", "b"}, "2 namespaces (a, b)"},
		{[]string{"a", "b", "c", "d", "e"}, "5 namespaces (a, b, c, d, e)"},
		{[]string{"a", "b", "c", "d", "e", "f"}, "6 namespaces (a, b, c, d, e and 1 more)"},
		{numbered("t", 1000), "1000 namespaces (t-000, t-001, t-002, t-003, t-004 and 995 more)"},
	} {
		if got := namespaces(tc.targets); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestCounted(t *testing.T) {
	for n, want := range map[int]string{0: "0 copies", 1: "1 copy", 2: "2 copies", 1000: "1000 copies"} {
		if got := counted(n, "copy", "copies"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestReasonsDoNotChange(t *testing.T) {
	for got, want := range map[string]string{
		ReasonMirrored: "Mirrored", ReasonForeign: "Foreign", ReasonSuperseded: "Superseded", ReasonReservedName: "ReservedName",
		ReasonInvalidSelector: "InvalidSelector", ReasonWriteFailed: "WriteFailed", ReasonFight: "Fight", ReasonPruneBlocked: "PruneBlocked",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestStatementsFitAnEvent makes every kind of statement as long as it can be: the API server refuses events
// with notes beyond 1,024 bytes.
func TestStatementsFitAnEvent(t *testing.T) {
	long := strings.Repeat("n", 60)
	targets := numbered(long, 3)
	many := numbered(long, 500)
	verbose := "denied by policy: " + strings.Repeat("é…😀", 1000)
	for name, tc := range map[string]struct {
		src  *corev1.ConfigMap
		o    outcome
		note string
		at   []string
	}{
		"foreign":    {sourceCM("platform", longName), outcomeForeign, "", many},
		"superseded": {sourceCM("platform", longName), outcomeSuperseded, "platform/" + longName, many},
		"C30 failed": {sourceCM("platform", longName), outcomeFailed, verbose, many},
		"C25 too large for the API server": {sourceCM("platform", longName), outcomeFailed,
			errors.New("etcdserver: request is too large").Error(), targets},
		"stranger": {sourceCM("platform", longName), outcomeStranger, "", many},
		"fight":    {sourceCM("platform", longName), outcomeFight, "", many},
		"C31 frozen": {sourceCM("platform", longName, annotation(PrefixAnnotation, strings.Repeat("Ä,", 300)),
			annotation(SelectorAnnotation, strings.Repeat("Ö", 5000))), outcomeFrozen, "", many},
		"C31 frozen twice over": {sourceCM("platform", "settings", annotation(PrefixAnnotation, "A"), annotation(SelectorAnnotation, "a=b=c")), outcomeFrozen, "", targets},
		"C05 reserved":          {sourceCM("platform", "openshift-service-ca.crt"), outcomeNone, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger("mirror")
			s := testRules().readSource(tc.src)
			l.opens(tc.src.Name, s)
			for _, ns := range tc.at {
				l.enter(s, ns, standing{outcome: tc.o, note: tc.note})
			}
			all := l.says(tc.src.Name)
			if len(all) != 1 {
				t.Fatalf("got %d statements, want 1", len(all))
			}
			got := all[0]
			if len(got.note) > 1024 || len(got.note) == 0 || !utf8.ValidString(got.note) {
				t.Errorf("got %d bytes, valid %v, want 1 to 1024, valid", len(got.note), utf8.ValidString(got.note))
			}
			if strings.ContainsAny(got.note, "\n\t") {
				t.Errorf("got a note of several lines: %q", got.note)
			}
			if got.kind != "Warning" {
				t.Errorf("got kind %q, want a warning", got.kind)
			}
			if len(got.reason) == 0 || len(got.reason) > 128 {
				t.Errorf("got reason %q, want 1 to 128 characters", got.reason)
			}
		})
	}
}

// TestForeignTellsHowToHandOver: what the note says has to work, with the mirror label of the flags.
func TestForeignTellsHowToHandOver(t *testing.T) {
	l := newLedger("example.com/mirror")
	s := testRules().readSource(sourceCM("platform", "settings"))
	l.opens("settings", s)
	l.enter(s, "team-a", standing{outcome: outcomeForeign})
	got := l.says("settings")
	if len(got) != 1 {
		t.Fatalf("got %v, want one statement", got)
	}
	for _, want := range []string{
		"namespace team-a", "label configmap settings example.com/mirror=copy --overwrite", "mirror-controller.github.io/adopt=true",
	} {
		if !strings.Contains(got[0].note, want) {
			t.Errorf("C12: got %q, want %q in it", got[0].note, want)
		}
	}
}

// TestSupersededNamesTheWinner of the first target, which it lists first.
func TestSupersededNamesTheWinner(t *testing.T) {
	d := newDesk()
	d.has(sourceCM("platform", "settings"))
	d.says(outcomeSuperseded, "base/settings", "b", "c")
	d.says(outcomeSuperseded, "alpha/settings", "a")
	got := d.statementsOf("settings")
	if len(got) != 1 || !strings.Contains(got[0], "alpha/settings, in 3 namespaces (a, b, c).") {
		t.Errorf("C03: got %q, want the winner of a", got)
	}
}

func TestSayPruneBlocked(t *testing.T) {
	got := sayPruneBlocked(600, 1000)
	for _, want := range []string{"600 of 1000 copies", "--prune-limit=100%"} {
		if !strings.Contains(got, want) || strings.Contains(got, "%%") {
			t.Errorf("C17: got %q, want %q in it", got, want)
		}
	}
}

func TestStatementsRegardTheRightSource(t *testing.T) {
	l := newLedger("mirror")
	r := testRules()
	one, other := r.readSource(sourceCM("platform", "settings")), r.readSource(sourceCM("base", "settings"))
	l.opens("settings", one, other)
	l.enter(one, "team-a", standing{outcome: outcomeForeign})
	l.enter(other, "team-a", standing{outcome: outcomeSuperseded, note: "platform/settings"})
	reasons := map[cache.ObjectName]string{}
	for _, s := range l.says("settings") {
		reasons[cache.MetaObjectToName(s.source)] = s.reason
	}
	if len(reasons) != 2 || reasons[one.key] != "Foreign" || reasons[other.key] != "Superseded" {
		t.Errorf("got %v, want Foreign of the first and Superseded of the other", reasons)
	}
}
