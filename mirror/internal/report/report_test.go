package report

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// targets are the namespaces in which a source stands in a state.
type targets map[plan.State][]string

// summaryOf returns the summary of a source. The API server rejects each write for a reason of its own.
func summaryOf(source *plan.Source, at targets) *Summary {
	sum := &Summary{Source: source, Rules: rules}
	for state, namespaces := range at {
		sum.Counts[state] = len(namespaces)
		for _, namespace := range namespaces {
			if about := (Note{}); state.IsProblem() {
				if state == plan.StateRejected {
					about.Text = "quota of " + namespace
				}
				sum.Add(state, namespace, about)
			}
		}
	}
	return sum
}

// source returns the source platform/settings.
func source(options ...plantest.Option) *plan.Source {
	return rules.ParseSource(plantest.Source("platform", "settings", options...))
}

// syncedDigits are the first digits of the checksum in the text of a Mirrored.
var syncedDigits = regexp.MustCompile(`^Synced [0-9a-f]{12}`)

// said returns the messages that are due, as "Type Reason: note".
func (r *Reported) said(sum *Summary, now time.Time) (all []string) {
	messages, _ := r.Messages(sum, now)
	for _, m := range messages {
		all = append(all, fmt.Sprintf("%s %s: %s", m.Type, m.Reason, syncedDigits.ReplaceAllString(m.Note, "Synced")))
	}
	return all
}

// TestMessagesAboutASource goes through the lives of sources. Each step has the source and its targets when messages
// are due. A wanted message is given by its beginning and, after each '|', a part of it. None comes a second time.
func TestMessagesAboutASource(t *testing.T) {
	type step struct {
		source *plan.Source // nil: it is gone
		at     targets
		want   []string
	}
	const (
		mirrored   = "Normal Mirrored: Synced to "
		notCopied  = "Warning Foreign: Not copied to "
		failed     = "Warning WriteFailed: Out of sync in "
		outOfScope = "Warning OutOfScope: Copies in "
		fight      = "Warning Fight: Another client keeps modifying or deleting the copy in "
		frozen     = "Warning InvalidAnnotation: Frozen"
		held       = "Normal Held: Held in "

		synced, foreign, rejected = plan.StateSynced, plan.StateForeign, plan.StateRejected
		fought, beyond, isHeld    = plan.StateFight, plan.StateOutOfScope, plan.StateHeld
	)
	changed, canary := plantest.Data("key", "changed"), plantest.Annotation(plan.RolloutAnnotation, "tier=canary")
	paused := plantest.Annotation(plan.PausedAnnotation, "true")
	malformed := plantest.Annotation(plan.PrefixAnnotation, "Team")
	with := func(s *plan.Source, reserved, outOfScope bool) *plan.Source {
		s.Reserved, s.OutOfScope = reserved, outOfScope
		return s
	}
	for name, steps := range map[string][]step{
		"targets that come and go": {
			{source(), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
			{source(), targets{synced: {"a", "b"}}, nil},
			{source(), targets{synced: {"b"}}, nil},
			{source(changed), targets{synced: {"b"}, plan.StateExpiring: {"a", "c"}},
				[]string{mirrored + "1 namespace; 2 copies expire (see Expiring)"}},
		},
		"foreign objects, more and fewer": {
			{source(), targets{foreign: {"b"}},
				[]string{notCopied + "namespace b: ", mirrored + "0 namespaces; 1 is blocked (see Foreign)"}},
			{source(), targets{foreign: {"b", "d", "a"}},
				[]string{notCopied + "3 namespaces (a, b, d): ", mirrored + "0 namespaces; 3 are blocked (see Foreign)"}},
			{source(), targets{synced: {"b"}, foreign: {"a", "d"}},
				[]string{notCopied + "2 namespaces (a, d): ", mirrored + "1 namespace; 2 are blocked (see Foreign)"}},
			{source(), targets{synced: {"b"}}, []string{mirrored + "1 namespace"}},
			{source(), targets{foreign: {"b"}}, []string{notCopied, mirrored + "0 namespaces; 1 is blocked (see Foreign)"}},
			{source(), nil, nil},
		},
		"a rejected write": {
			{source(), targets{synced: {"a"}, rejected: {"b"}},
				[]string{failed + "namespace b|: quota of b. Fix", mirrored + "1 namespace; 1 is blocked (see WriteFailed)"}},
			{source(), targets{rejected: {"b", "a"}}, []string{failed + "2 namespaces (a, b)|in the first: quota of a",
				mirrored + "0 namespaces; 2 are blocked (see WriteFailed)"}},
			{source(), targets{synced: {"a", "b"}}, []string{mirrored + "2 namespaces"}},
		},
		"copies out of scope": {
			{source(), targets{synced: {"a"}, beyond: {"y", "z", "x"}},
				[]string{outOfScope + "3 namespaces (x, y, z)", mirrored + "1 namespace"}},
			{source(), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
		},
		"of two warnings one is over": {
			{source(), targets{synced: {"a"}, foreign: {"b"}, beyond: {"x"}},
				[]string{notCopied, outOfScope, mirrored + "1 namespace; 1 is blocked (see Foreign)"}},
			{source(), targets{synced: {"a"}, foreign: {"b"}}, []string{mirrored + "1 namespace; 1 is blocked (see Foreign)"}},
			{source(), targets{synced: {"a"}, foreign: {"c"}}, []string{notCopied + "namespace c: "}},
		},
		"a source out of scope": {{with(source(malformed), true, true), targets{beyond: {"x"}},
			[]string{outOfScope + "namespace x"}}},
		"a fight": {
			{source(), targets{fought: {"b", "a"}},
				[]string{fight + "2 namespaces (a, b)", mirrored + "0 namespaces; 2 are blocked (see Fight)"}},
			{source(), targets{synced: {"a", "b"}}, []string{mirrored + "2 namespaces"}},
		},
		"problems of all kinds": {
			{source(), targets{synced: {"a"}, foreign: {"b"}, rejected: {"d"}, fought: {"e"}, beyond: {"f"}},
				[]string{notCopied, failed, fight, outOfScope,
					mirrored + "1 namespace; 3 are blocked (see Fight, Foreign, WriteFailed)"}},
		},
		"malformed, and fixed": {
			{source(), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
			{source(malformed), targets{plan.StateFrozen: {"a"}}, []string{frozen + `|namespace-prefix="Team"`}},
			{source(malformed, changed), targets{plan.StateFrozen: {"a"}}, nil},
			{source(), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
			{source(malformed, plantest.Annotation(plan.SelectorAnnotation, "a=b=c")), nil,
				[]string{frozen + "|namespace-prefix|; annotation mirror-controller.github.io/namespace-selector"}},
		},
		"C62 a change in stages": {
			{source(), targets{synced: {"a", "b"}}, []string{mirrored + "2 namespaces"}},
			{source(changed, canary), targets{synced: {"a"}, isHeld: {"b"}}, []string{held +
				"1 of 2 namespaces by the annotation " +
				`mirror-controller.github.io/rollout="tier=canary": they keep their copies as they are.`,
				mirrored + "1 namespace; 1 is held by rollout"}},
			{source(changed, canary, paused), targets{synced: {"a"}, isHeld: {"b", "c"}},
				[]string{held + `2 of 3 namespaces by the annotation mirror-controller.github.io/paused="true", ` +
					`which wins over mirror-controller.github.io/rollout="tier=canary": ` +
					"they keep their copies as they are. To reach them, remove both annotations.",
					mirrored + "1 namespace; 2 are held by paused"}},
			{source(changed), targets{synced: {"a", "b", "c"}}, []string{mirrored + "3 namespaces"}},
		},
		"C62 none is held, then all are": {
			{source(canary), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
			{source(paused), targets{isHeld: {"a"}}, []string{held + "1 of 1 namespace by",
				mirrored + "0 namespaces; 1 is held by paused"}},
		},
		"C62 a warning is over, and a hold goes on": {
			{source(canary), targets{synced: {"a"}, isHeld: {"b"}, beyond: {"x"}},
				[]string{outOfScope + "namespace x", held, mirrored + "1 namespace; 1 is held by rollout"}},
			{source(canary), targets{synced: {"a"}, isHeld: {"b"}}, []string{mirrored + "1 namespace; 1 is held by rollout"}},
		},
		"a reserved name": {{with(source(), true, false), targets{synced: {"a"}},
			[]string{"Warning ReservedName: Not mirrored|settings"}}},
		"the source goes and comes back": {
			{source(), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
			{nil, targets{foreign: {"a"}}, nil},
			{source(), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, now := Reported{}, time.Unix(5000, 0)
			r.Begin("uid", nil)
			for i, s := range steps {
				now = now.Add(Spacing)
				got := r.said(summaryOf(s.source, s.at), now)
				if len(got) != len(s.want) {
					t.Fatalf("step %d: got %q, want %q", i, got, s.want)
				}
				for j, want := range s.want {
					parts := strings.Split(want, "|")
					if !strings.HasPrefix(got[j], parts[0]) || strings.HasPrefix(want, mirrored) && got[j] != want {
						t.Errorf("step %d: got %q, want it to begin with %q", i, got[j], parts[0])
					}
					for _, part := range parts[1:] {
						if !strings.Contains(got[j], part) {
							t.Errorf("step %d: got %q, want in it %q", i, got[j], part)
						}
					}
				}
				now = now.Add(Spacing)
				if again := r.said(summaryOf(s.source, s.at), now); len(again) > 0 {
					t.Errorf("step %d: got %q a second time", i, again)
				}
			}
		})
	}
}

// TestRecreatedSourceGetsItsEvents: the events of its predecessor do not show on it.
func TestRecreatedSourceGetsItsEvents(t *testing.T) {
	r, now := Reported{}, time.Unix(5000, 0)
	for _, uid := range []types.UID{"one", "two"} {
		r.Begin(uid, nil)
		now = now.Add(Spacing)
		if got := r.said(summaryOf(source(), targets{plan.StateForeign: {"team-a"}}), now); len(got) != 2 {
			t.Errorf("%s: got %q, want two events", uid, got)
		}
	}
}

// TestC47SpacingOfATenantsFlips: a tenant changes ten times a second what there is to report. A message comes every ten
// seconds, and the last one tells of the newest state.
func TestC47SpacingOfATenantsFlips(t *testing.T) {
	r, now := Reported{}, time.Unix(5000, 0)
	r.Begin("uid", nil)
	var all []string
	var wait time.Duration
	report := func(blocked, synced string) {
		var messages []*Message
		at := targets{plan.StateForeign: {blocked}, plan.StateSynced: {synced}}
		messages, wait = r.Messages(summaryOf(source(), at), now)
		for _, m := range messages {
			if m.Reason == plan.ReasonForeign {
				all = append(all, m.Note)
			}
		}
	}
	for i := range 151 {
		report([]string{"b", "a"}[i%2], []string{"a", "b"}[i%2])
		now = now.Add(100 * time.Millisecond)
	}
	now = now.Add(wait)
	report("b", "a")
	about := func(note, namespace string) bool { return strings.Contains(note, "namespace "+namespace+":") }
	if !slices.EqualFunc(all, []string{"b", "a", "b"}, about) {
		t.Errorf("got messages %q, want one about b and one about a in 15 seconds, and the last about b", all)
	}
}
