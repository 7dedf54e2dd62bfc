package report_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// rules are those of a controller that mirrors into team-*.
var rules = func() *plan.Rules {
	o := plan.NewOptions()
	o.NamespacePrefixes = []string{"team-"}
	return plan.NewRules(&o)
}()

// source returns the source platform/settings.
func source(options ...plantest.Option) *plan.Source {
	return rules.ParseSource(plantest.Source("platform", "settings", options...))
}

// version sets the resourceVersion.
func version(v string) plantest.Option { return func(cm *corev1.ConfigMap) { cm.ResourceVersion = v } }

// targets are the namespaces in which a source stands in a state.
type targets map[plan.State][]string

// summaryOf returns the summary of a source. The API server rejects each write for a reason of its own, and the owner
// of a foreign object can hand it over.
func summaryOf(source *plan.Source, at targets) *report.Summary {
	s := &report.Summary{Source: source, Rules: rules}
	for state, namespaces := range at {
		s.Counts[state] = len(namespaces)
		for _, namespace := range namespaces {
			switch {
			case state == plan.StateRejected:
				s.Add(state, namespace, "quota of "+namespace+".", false)
			case state.IsWarned():
				s.Add(state, namespace, "why", state == plan.StateForeign)
			}
		}
	}
	return s
}

// reporter sends the messages about a source.
type reporter struct {
	report.Sent
	now  time.Time
	wait time.Duration // until the messages are due that were not
}

func newReporter() *reporter {
	r := &reporter{now: time.Unix(5000, 0)}
	r.Begin("uid")
	return r
}

// send sends the messages that are due after a time, and returns them as "Type
// Reason: note".
func (r *reporter) send(after time.Duration, s *report.Summary) (all []string) {
	for _, m := range r.due(after, s) {
		all = append(all, fmt.Sprintf("%s %s: %s", m.Type, m.Reason, m.Note))
	}
	return all
}

// due sends the messages that are due after a time, and returns them.
func (r *reporter) due(after time.Duration, s *report.Summary) (all []*report.Message) {
	r.now = r.now.Add(after)
	for {
		next, wait := r.Next(s.Messages(r.now), r.now)
		r.wait = wait
		if next == nil {
			return all
		}
		r.Record(next, r.now)
		all = append(all, next)
	}
}

// TestMessagesAboutASource goes through the lives of sources. Each step has the source and its targets when messages
// are due. A wanted message is given by its beginning and, after each '|', a part of it. None comes a second time.
// Case C05.
func TestMessagesAboutASource(t *testing.T) {
	type step struct {
		source *plan.Source // nil: it is gone
		at     targets
		want   []string
	}
	const (
		mirrored   = "Normal Mirrored: Synced version 7 to "
		changed    = "Normal Mirrored: Synced version 8 to "
		notCopied  = "Warning Foreign: Not copied to "
		failed     = "Warning WriteFailed: Out of sync in "
		outOfScope = "Warning OutOfScope: Copies in "
		ruledOut   = "Warning OutOfScope: Version "
		fight      = "Warning Fight: Another client keeps modifying or deleting the copy in "
		frozen     = "Warning InvalidAnnotation: Annotation "
		held       = "Normal Held: Held in "

		synced, pending, foreign, rejected = plan.StateSynced, plan.StatePending, plan.StateForeign, plan.StateRejected
		fought, beyond, isHeld             = plan.StateFight, plan.StateOutOfScope, plan.StateHeld
	)
	const named = "7 namespaces (a, b, c, d, e and 2 more)"
	seven := []string{"g", "f", "e", "d", "c", "b", "a"}
	next, canary := version("8"), plantest.Annotation(plan.RolloutAnnotation, "tier=canary")
	paused := plantest.Annotation(plan.PausedAnnotation, "true")
	malformed := plantest.Annotation(plan.PrefixAnnotation, "Team")
	with := func(s *plan.Source, reserved, outOfScope bool) *plan.Source {
		s.Reserved, s.OutOfScope = reserved, outOfScope
		return s
	}
	for name, steps := range map[string][]step{
		"counts and versions that change": {
			{source(), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
			{source(), targets{synced: {"a", "b"}}, []string{mirrored + "2 namespaces"}},
			{source(next), targets{synced: {"a"}, pending: {"b"}}, nil},
			{source(next), targets{synced: {"a", "b"}}, []string{changed + "2 namespaces"}},
			{source(next), targets{synced: {"b"}, plan.StateExpiring: {"a", "c"}},
				[]string{changed + "1 namespace; 2 copies expire (see Expiring)"}},
		},
		"something pending for a while": {
			{source(), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
			{source(), targets{pending: {"a"}}, nil},
			{source(), targets{synced: {"a"}}, nil},
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
			{source(), targets{rejected: {"b", "a"}}, []string{failed + "2 namespaces (a, b)",
				mirrored + "0 namespaces; 2 are blocked (see WriteFailed)"}},
		},
		"a warning that is over while another one holds": {
			{source(), targets{synced: {"a"}, rejected: {"c"}},
				[]string{failed, mirrored + "1 namespace; 1 is blocked (see WriteFailed)"}},
			{source(), targets{pending: {"a"}, rejected: {"c"}, foreign: {"b"}}, []string{notCopied}},
			{source(), targets{pending: {"a"}, rejected: {"c", "d"}}, []string{failed + "2 namespaces"}},
			{source(), targets{synced: {"a"}, rejected: {"d"}},
				[]string{failed + "namespace d", mirrored + "1 namespace; 1 is blocked (see WriteFailed)"}},
		},
		"copies out of scope": {
			{source(), targets{synced: {"a"}, beyond: {"y", "z", "x"}}, []string{outOfScope + "3 namespaces (x, y, z)",
				mirrored + "1 namespace; 3 copies are out of scope (see OutOfScope)"}},
			{source(), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
		},
		"a source out of scope": {{with(source(malformed), true, true), targets{beyond: {"x"}},
			[]string{ruledOut + "7 is not mirrored. Copies in namespace x"}},
			{with(source(), false, true), targets{synced: {"a"}, beyond: {"x"}}, nil},
			{with(source(next), false, true), targets{beyond: {"x"}}, []string{ruledOut + "8 is not mirrored. Copies in "}}},
		"problems of all kinds": {
			{source(), targets{synced: {"a"}, foreign: {"b"}, rejected: {"d"}, fought: {"e"}, beyond: {"f"}},
				[]string{notCopied, failed, fight + "namespace e", outOfScope,
					mirrored + "1 namespace; 3 are blocked (see Fight: 1, Foreign: 1, WriteFailed: 1); " +
						"1 copy is out of scope (see OutOfScope)"}},
			{source(), targets{synced: {"a", "e"}, foreign: {"c"}, rejected: {"d"}, beyond: {"f"}},
				[]string{notCopied + "namespace c", mirrored + "2 namespaces; 2 are blocked (see Foreign: 1, WriteFailed: 1); " +
					"1 copy is out of scope (see OutOfScope)"}},
		},
		"more namespaces than a text names": {
			{source(), targets{foreign: seven, rejected: seven, fought: seven, beyond: seven, synced: {"h"}},
				[]string{notCopied + named, failed + named, fight + named, outOfScope + named,
					mirrored + "1 namespace; 21 are blocked (see Fight: 7, Foreign: 7, WriteFailed: 7); " +
						"7 copies are out of scope (see OutOfScope)"}},
		},
		"a warning that stays while one after it is over": {
			{source(), targets{synced: {"a"}, foreign: {"b"}},
				[]string{notCopied, mirrored + "1 namespace; 1 is blocked (see Foreign)"}},
			{source(), targets{pending: {"a"}, foreign: {"b"}, rejected: {"c"}}, []string{failed}},
			{source(), targets{pending: {"a", "c"}, foreign: {"b"}}, nil},
		},
		"malformed, and fixed": {
			{source(), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
			{source(malformed), targets{plan.StateFrozen: {"a"}, synced: {"b", "c"}},
				[]string{frozen + `mirror-controller.github.io/namespace-prefix|Version 7 is frozen`}},
			{source(), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}}, // the newest message does not hold any more
			{source(malformed, plantest.Annotation(plan.SelectorAnnotation, "a=b=c")), nil,
				[]string{frozen + "|namespace-prefix|; annotation mirror-controller.github.io/namespace-selector"}},
		},
		"C62 a change in stages": {
			{source(), targets{synced: {"a", "b"}}, []string{mirrored + "2 namespaces"}},
			{source(next, canary), targets{synced: {"a"}, isHeld: {"b"}}, []string{held + "1 of 2 namespaces by the " +
				`annotation mirror-controller.github.io/rollout="tier=canary": they keep their copies as they are. ` +
				"To reach them, remove the annotation.", changed + "1 namespace; 1 is held by rollout"}},
			{source(next, canary, paused), targets{synced: {"a"}, isHeld: {"b", "c"}},
				[]string{held + `2 of 3 namespaces by the annotation mirror-controller.github.io/paused="true", ` +
					`which wins over mirror-controller.github.io/rollout="tier=canary"|remove both annotations.`,
					changed + "1 namespace; 2 are held by paused"}},
			{source(next), targets{synced: {"a", "b", "c"}}, []string{changed + "3 namespaces"}},
			{source(next, paused), targets{isHeld: {"a"}},
				[]string{held + `1 of 1 namespace by the annotation mirror-controller.github.io/paused="true": they keep`,
					changed + "0 namespaces; 1 is held by paused"}},
			{source(canary), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
		},
		"C62 a hold that has just ended": {
			{source(), targets{synced: {"a"}, isHeld: {"b"}}, []string{mirrored + "1 namespace; 1 is held by an annotation"}},
		},
		"a reserved name": {{with(source(), true, false), targets{synced: {"a"}},
			[]string{"Warning ReservedName: Version 7 is not mirrored|settings"}}},
		"a reserved name, and a wrong annotation": {{with(source(malformed), true, false), targets{},
			[]string{"Warning ReservedName: Version 7 is not mirrored|settings"}}},
		"the source goes and comes back": {
			{source(), targets{synced: {"a"}}, []string{mirrored + "1 namespace"}},
			{nil, targets{foreign: {"a"}}, nil},
			{source(), targets{synced: {"a"}}, nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReporter()
			for i, s := range steps {
				got := r.send(report.Spacing, summaryOf(s.source, s.at))
				matches := slices.EqualFunc(got, s.want, func(got, want string) bool {
					parts := strings.Split(want, "|")
					lacks := func(part string) bool { return !strings.Contains(got, part) }
					return strings.HasPrefix(got, parts[0]) && !slices.ContainsFunc(parts[1:], lacks) &&
						(got == want || !strings.HasPrefix(got, "Normal Mirrored"))
				})
				if !matches {
					t.Errorf("step %d: got %q, want %q", i, got, s.want)
				}
				if again := r.send(report.Spacing, summaryOf(s.source, s.at)); len(again) > 0 {
					t.Errorf("step %d: got %q a second time", i, again)
				}
			}
		})
	}
}

// TestMessageIsDue is the table of what is sent after the first messages, of a source with a foreign object in the way.
// A tenant can change what there is to report many times a second (C47): what waits is due after its wait, however
// often it was not.
func TestMessageIsDue(t *testing.T) {
	at := func(namespaces ...string) targets {
		return targets{plan.StateForeign: namespaces, plan.StateSynced: {"z"}}
	}
	over := targets{plan.StateSynced: {"z"}}
	for name, tc := range map[string]struct {
		after time.Duration
		uid   types.UID // empty: the same
		at    targets
		want  int // messages
		wait  time.Duration
		logs  bool
	}{
		"C11 the same texts":                     {after: 30*time.Minute - 1, at: at("a")},
		"the same texts, for half an hour":       {after: 30 * time.Minute, at: at("a"), want: 2},
		"one differs":                            {after: report.Spacing, at: at("b"), want: 1, logs: true},
		"one differs, within ten seconds":        {after: report.Spacing - 1, at: at("b"), wait: 1},
		"another source":                         {after: report.Spacing, uid: "new", at: at("a"), want: 2, logs: true},
		"another source, within ten seconds":     {after: time.Second, uid: "new", at: at("a"), wait: 9 * time.Second},
		"the warning is over":                    {after: report.Spacing, at: over, want: 1, logs: true},
		"the warning is over within ten seconds": {at: over, wait: report.Spacing},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReporter()
			if all := r.send(0, summaryOf(source(), at("a"))); len(all) != 2 {
				t.Fatalf("got %q, want two messages", all)
			}
			r.now = r.now.Add(tc.after)
			r.Begin(cmp.Or(tc.uid, "uid"))
			if quiet, want := r.QuietIn(r.now), max(0, report.Spacing-tc.after); quiet != want {
				t.Errorf("got every message due again in %v, want %v", quiet, want)
			}
			due := r.due(0, summaryOf(source(), tc.at))
			if len(due) != tc.want || r.wait != tc.wait {
				t.Errorf("got %v, and others after %v, want %d and %v", due, r.wait, tc.want, tc.wait)
			}
			for _, m := range due {
				if m.Log != tc.logs {
					t.Errorf("%s: got it logged %v, want %v", m.Reason, m.Log, tc.logs)
				}
			}
			wait := r.wait
			if late := r.send(wait, summaryOf(source(), tc.at)); (len(late) > 0) != (wait > 0) {
				t.Errorf("got %q after the wait of %v", late, wait)
			}
		})
	}
}

// TestRefused is the table of how long a message waits that was refused so often
// in a row, between the least and the greatest time. The log has it once. Case C84.
func TestRefused(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		refusals     []report.Refusal
		least, below time.Duration
	}{
		"once":                 {[]report.Refusal{{Doubles: true}}, 20 * s, 30 * s},
		"twice":                {[]report.Refusal{{Doubles: true}, {Doubles: true}}, 40 * s, 50 * s},
		"often":                {slices.Repeat([]report.Refusal{{Doubles: true}}, 9), 320 * s, 330 * s},
		"busy":                 {slices.Repeat([]report.Refusal{{}}, 9), 10 * s, 20 * s},
		"busy for half a time": {[]report.Refusal{{RetryAfter: 5 * s}}, 10 * s, 20 * s},
		"busy for a minute":    {[]report.Refusal{{RetryAfter: time.Minute}}, 60 * s, 70 * s},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReporter()
			all := summaryOf(source(), targets{plan.StateSynced: {"z"}}).Messages(r.now)
			next, _ := r.Next(all, r.now)
			if next == nil || !next.Log {
				t.Fatalf("got %v, want a message that is new to the log", next)
			}
			for _, refusal := range tc.refusals {
				r.Refused(next, r.now, refusal)
			}
			if early, wait := r.Next(all, r.now); early != nil || wait < tc.least || wait >= tc.below {
				t.Errorf("got %v, and a wait of %v, want one from %v to %v", early, wait, tc.least, tc.below)
			}
			late, _ := r.Next(all, r.now.Add(tc.below))
			if late == nil || late.Log {
				t.Errorf("got %v after the wait, want the message, which the log has", late)
			}
		})
	}
}

// TestRefusedThenOver: a problem that was over for a moment ends no wait.
func TestRefusedThenOver(t *testing.T) {
	r := newReporter()
	inTheWay := targets{plan.StateForeign: {"a"}, plan.StatePending: {"b"}}
	all := summaryOf(source(), inTheWay).Messages(r.now)
	next, _ := r.Next(all, r.now)
	if next == nil {
		t.Fatal("got no message, want Foreign")
	}
	for range 2 {
		r.Refused(next, r.now, report.Refusal{Doubles: true, RetryAfter: time.Minute})
	}
	if none, _ := r.Next(nil, r.now); none != nil {
		t.Errorf("got %v, though nothing holds", none)
	}
	const least = 90 * time.Second // four times ten seconds, and a minute less the spacing
	if early, wait := r.Next(all, r.now); early != nil || wait < least {
		t.Errorf("got %v, and a wait of %v, want one of at least %v", early, wait, least)
	}
}

// TestRefusedMayHaveBeenSent: a message without an answer may be the newest event.
// When what it is about is over, the Mirrored is due again.
func TestRefusedMayHaveBeenSent(t *testing.T) {
	r := newReporter()
	calm := targets{plan.StateSynced: {"a"}}
	r.send(0, summaryOf(source(), calm))
	warning := summaryOf(source(), targets{plan.StatePending: {"a"}, plan.StateForeign: {"b"}})
	r.now = r.now.Add(report.Spacing)
	due, _ := r.Next(warning.Messages(r.now), r.now)
	if due == nil {
		t.Fatal("got no message, want Foreign")
	}
	r.Refused(due, r.now, report.Refusal{})
	if again := r.send(report.Spacing, summaryOf(source(), calm)); len(again) != 1 {
		t.Errorf("got %q, want Mirrored again", again)
	}
}

// TestBeginWithoutUID is about a source that no process has seen.
func TestBeginWithoutUID(t *testing.T) {
	r := &reporter{now: time.Unix(5000, 0)}
	r.Begin("")
	s := &report.Summary{Rules: rules}
	s.Expire(plan.Unclaimed{Rule: plan.SourceGone}, "team-a", r.now.Add(time.Hour), false)
	if got := r.send(0, s); len(got) != 1 {
		t.Errorf("got %q, want an announcement", got)
	}
}

// TestForeignTextOfEachCause has a sentence for each.
func TestForeignTextOfEachCause(t *testing.T) {
	s := summaryOf(source(), nil)
	s.Add(plan.StateForeign, "team-a", "another source is there", false)
	s.Add(plan.StateForeign, "team-b", "a copy of no instance is there", false)
	got := messageOf(s, plan.ReasonForeign).Note
	for _, want := range []string{
		"Not copied to namespace team-a: another source is there. ",
		"Not copied to namespace team-b: a copy of no instance is there. ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want in it %q", got, want)
		}
	}
}

// TestRefusedMirrored: a Mirrored that ends a warning, and has its former text, is sent again if it is refused.
func TestRefusedMirrored(t *testing.T) {
	r, calm := newReporter(), targets{plan.StateSynced: {"a"}}
	r.send(0, summaryOf(source(), calm))
	r.send(report.Spacing, summaryOf(source(), targets{plan.StatePending: {"a"}, plan.StateForeign: {"b"}}))
	r.now = r.now.Add(report.Spacing)
	due, _ := r.Next(summaryOf(source(), calm).Messages(r.now), r.now)
	if due == nil {
		t.Fatal("got no message, want Mirrored")
	}
	r.Refused(due, r.now, report.Refusal{Doubles: true})
	if again := r.send(3*report.Spacing, summaryOf(source(), calm)); len(again) != 1 {
		t.Errorf("got %q after a refusal, want Mirrored again", again)
	}
}

// TestC86SentAtOneInstant: a Mirrored, and at the same instant a warning after it. When the warning is over the
// Mirrored is due again, or the newest event would be about what is past.
func TestC86SentAtOneInstant(t *testing.T) {
	r := newReporter()
	sentAfter := func(at targets, want string) {
		t.Helper()
		if all := r.send(0, summaryOf(source(), at)); len(all) != 1 || !strings.Contains(all[0], want) {
			t.Fatalf("got %q, want a %s", all, want)
		}
	}
	sentAfter(targets{plan.StateSynced: {"a"}}, plan.ReasonMirrored)
	sentAfter(targets{plan.StatePending: {"a"}, plan.StateForeign: {"b"}}, plan.ReasonForeign)
	r.now = r.now.Add(report.Spacing)
	sentAfter(targets{plan.StateSynced: {"a"}}, plan.ReasonMirrored)
}

// TestSupersededText names the first namespaces, in whatever order they come, and
// the source that wins the first.
func TestSupersededText(t *testing.T) {
	s := summaryOf(source(), nil)
	s.Counts[plan.StateSuperseded] = 7
	for _, namespace := range []string{"d", "c", "g", "a", "f", "b", "e"} {
		s.Supersede(namespace, types.NamespacedName{Namespace: "wins-" + namespace, Name: "settings"})
	}
	const want = "Not copied to 7 namespaces (a, b, c, d, e and 2 more): " +
		"source wins-a/settings of the same name has precedence. "
	if got := messageOf(s, plan.ReasonSuperseded).Note; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want it to begin with %q", got, want)
	}
}

// TestNoTargetsText: only a source that is mirrored, and holds no target, is said
// to have none.
func TestNoTargetsText(t *testing.T) {
	none := []plan.Exclusion{plan.ExcludedName}
	malformed := plantest.Annotation(plan.PrefixAnnotation, "Team")
	for name, tc := range map[string]struct {
		source   *plan.Source
		excluded []plan.Exclusion
		held     int
		want     bool
	}{
		"none":           {source(), none, 0, true},
		"not known":      {source(), nil, 0, false},
		"holds a target": {source(), none, 1, false},
		"frozen":         {source(malformed), none, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := summaryOf(tc.source, nil)
			s.Excluded = tc.excluded
			s.Counts[plan.StateHeld] = tc.held
			isThere := slices.ContainsFunc(s.Messages(now), func(m report.Message) bool {
				return m.Reason == plan.ReasonNoTargets
			})
			if isThere != tc.want {
				t.Errorf("got NoTargets %v, want %v", isThere, tc.want)
			}
		})
	}
}

// TestExpiringIsDue for copies that no message has announced: within a second if the grace ends before ten seconds have
// passed.
func TestExpiringIsDue(t *testing.T) {
	gone := plan.Unclaimed{Rule: plan.SourceGone}
	for name, tc := range map[string]struct {
		after, in time.Duration // in: the deletion
		announced bool
		want      bool
		wait      time.Duration
	}{
		"a new copy":                          {after: report.Spacing, in: time.Hour, want: true},
		"a new copy, within ten seconds":      {after: time.Second, in: time.Hour, wait: 9 * time.Second},
		"a new copy, whose grace ends soon":   {after: time.Second, in: 9 * time.Second, want: true},
		"ends soon, within a second":          {after: time.Second - 1, in: 9 * time.Second, wait: 1},
		"ends in ten seconds":                 {after: time.Second, in: report.Spacing, wait: 9 * time.Second},
		"all are announced":                   {after: report.Spacing, in: time.Hour, announced: true},
		"all are announced, half an hour ago": {after: 30 * time.Minute, in: time.Hour, announced: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReporter()
			s := &report.Summary{Rules: rules}
			s.Expire(gone, "team-a", r.now.Add(time.Hour), false)
			if got := r.send(0, s); len(got) != 1 {
				t.Fatalf("got %q, want an announcement", got)
			}
			s = &report.Summary{Rules: rules}
			s.Expire(gone, "team-b", r.now.Add(tc.after+tc.in+time.Minute), tc.announced)
			s.Expire(gone, "team-a", r.now.Add(tc.after+tc.in), true)
			later := r.now.Add(tc.after)
			got, wait := r.Next(s.Messages(later), later)
			if got != nil && got.Log {
				t.Error("got it logged, though a line of the log comes before its grace begins")
			}
			if (got != nil) != tc.want || wait != tc.wait {
				t.Errorf("got %v and a wait of %v, want an announcement %v, and %v", got, wait, tc.want, tc.wait)
			}
		})
	}
}

// TestSoonestWait: of two messages that wait, the one that is due first counts.
func TestSoonestWait(t *testing.T) {
	later := summaryOf(source(version("8")), targets{plan.StateSynced: {"a"}, plan.StateForeign: {"c"}})
	for name, tc := range map[string]struct{ foreign, mirrored time.Duration }{
		"the first of them": {0, 3 * time.Second},
		"the last of them":  {3 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReporter()
			for _, m := range summaryOf(source(), targets{plan.StateSynced: {"a"}, plan.StateForeign: {"b"}}).Messages(r.now) {
				at := tc.mirrored
				if m.Reason == plan.ReasonForeign {
					at = tc.foreign
				}
				r.Record(&m, r.now.Add(at))
			}
			now := r.now.Add(5 * time.Second)
			if next, wait := r.Next(later.Messages(now), now); next != nil || wait != 5*time.Second {
				t.Errorf("got %v, and a wait of %v, want 5s", next, wait)
			}
		})
	}
}

// TestNewestOfTwoWarningsThatAreOver: Mirrored was sent between them, and is due again.
func TestNewestOfTwoWarningsThatAreOver(t *testing.T) {
	calm := targets{plan.StateSynced: {"a"}}
	for range 20 { // the order of a map is random
		r := newReporter()
		for _, at := range []targets{{plan.StatePending: {"a"}, plan.StateForeign: {"b"}}, calm} {
			r.send(report.Spacing, summaryOf(source(), at))
		}
		both := targets{plan.StatePending: {"a"}, plan.StateForeign: {"b"}, plan.StateFight: {"c"}}
		r.now = r.now.Add(report.Spacing)
		for _, m := range summaryOf(source(), both).Messages(r.now) {
			at := r.now
			if m.Reason == plan.ReasonForeign {
				at = r.now.Add(-3 * report.Spacing)
			}
			r.Record(&m, at)
		}
		if again := r.send(report.Spacing, summaryOf(source(), calm)); len(again) != 1 {
			t.Fatalf("got %q, want Mirrored again", again)
		}
	}
}
