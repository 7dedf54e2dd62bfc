package report_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// domain is the prefix of the annotations.
const domain = "mirror-controller.github.io/"

// now is the time of the texts.
var now = time.Unix(5000, 0)

// messageOf returns the message of a reason; empty if there is none.
func messageOf(s *report.Summary, reason string) (m report.Message) {
	all := s.Messages(now)
	if i := slices.IndexFunc(all, func(m report.Message) bool { return m.Reason == reason }); i >= 0 {
		m = all[i]
	}
	return m
}

// TestTextsFitAnEvent makes every text as long as it can be: the API server takes no note of more than 1,024 bytes. The
// cause, the version and the advice are in it all the same.
func TestTextsFitAnEvent(t *testing.T) {
	verbose := strings.Repeat("denied by policy: é…😀\n", 500)
	named := func(options ...plantest.Option) *plan.Source {
		return rules.ParseSource(plantest.Source("platform", strings.Repeat("a.", 126)+"a", options...))
	}
	annotated := func(key, value string) *plan.Source { return named(plantest.Annotation(key, value)) }
	longest := types.NamespacedName{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("a.", 126) + "a"}
	reserved := named()
	reserved.Reserved = true
	for reason, tc := range map[string]struct {
		source *plan.Source
		state  plan.State
		want   string // in the text
	}{
		plan.ReasonForeign:      {named(), plan.StateForeign, "Not copied to 250 namespaces (n"},
		plan.ReasonWriteFailed:  {named(), plan.StateRejected, "…. Fix the cause; "},
		plan.ReasonFight:        {named(), plan.StateFight, "; repairs wait"},
		plan.ReasonOutOfScope:   {named(), plan.StateOutOfScope, " are out of scope and stay unchanged: "},
		plan.ReasonExpiring:     {named(), plan.StateExpiring, "500 copies in 500 namespaces (n"},
		plan.ReasonReservedName: {reserved, plan.StateNone, "Version 7 is not mirrored"},
		plan.ReasonSuperseded:   {named(), plan.StateSuperseded, "Publish one of the two under another name."},
		plan.ReasonNoTargets: {annotated(plan.SelectorAnnotation, "tier in ("+strings.Repeat("a,", 2000)+"a)"),
			plan.StateNone, "Version 7 is not mirrored"},
		plan.ReasonHeld: {named(plantest.Annotation(plan.PausedAnnotation, "true"), plantest.Annotation(
			plan.RolloutAnnotation, "tier in ("+strings.Repeat("a,", 2000)+"a)")), plan.StateHeld, "remove both annotations."},
		plan.ReasonInvalidAnnotation: {named(plantest.Annotation(plan.SelectorAnnotation, strings.Repeat("Ö", 2000)),
			plantest.Annotation(plan.RolloutAnnotation, strings.Repeat("Ö", 2000)),
			plantest.Annotation(plan.PrefixAnnotation, strings.Repeat("Ö", 2000))), plan.StateFrozen,
			"Version 7 is frozen: no copy of this source is created, updated or deleted. Fix the annotation."},
		plan.ReasonMirrored: {named(), plan.StateRejected, "Synced version 7 to 0 namespaces; 500 are blocked"},
	} {
		t.Run(reason, func(t *testing.T) {
			s := &report.Summary{Source: tc.source, Rules: rules}
			s.Counts[tc.state] = 500
			for i := range 500 {
				namespace := fmt.Sprintf("%s-%03d", strings.Repeat("n", 59), i)
				if tc.state == plan.StateSuperseded {
					s.Supersede(namespace, longest)
				}
				s.Add(tc.state, namespace, verbose, i%2 == 0)
				if tc.state == plan.StateExpiring {
					s.Expire(plan.Unclaimed{Rule: plan.ExcludedByPrefix, Annotation: verbose[:200]}, namespace, now, false)
				}
			}
			if reason == plan.ReasonNoTargets {
				s.Excluded = []plan.Exclusion{plan.ExcludedBySelector}
			}
			m := messageOf(s, reason)
			if n := len(m.Note); n > 1024 || !utf8.ValidString(m.Note) || !strings.Contains(m.Note, tc.want) {
				t.Errorf("got %d bytes, valid %v: %q, want in it %q", n, utf8.ValidString(m.Note), m.Note, tc.want)
			}
			normal := reason == plan.ReasonHeld || reason == plan.ReasonMirrored
			if (m.Type == corev1.EventTypeNormal) != normal || m.Annotations[domain+"instance"] != "default" {
				t.Errorf("got type %q and annotations %v", m.Type, m.Annotations)
			}
			hasCounts := reason == plan.ReasonNoTargets || reason == plan.ReasonMirrored
			if got := m.Annotations[domain+"synced"]; (got != "") != hasCounts {
				t.Errorf("got %q copies in sync in an annotation, want the number %v", got, hasCounts)
			}
			hasVersion := reason == plan.ReasonReservedName || reason == plan.ReasonInvalidAnnotation ||
				reason == plan.ReasonNoTargets || reason == plan.ReasonMirrored
			if got := m.Annotations[domain+"version"]; got != map[bool]string{true: "7"}[hasVersion] {
				t.Errorf("got the version %q, want one %v", got, hasVersion)
			}
		})
	}
}

// TestTextOfMirroredHasItsAnnotations: client-go tells events apart by their texts, and never changes annotations.
func TestTextOfMirroredHasItsAnnotations(t *testing.T) {
	states := []plan.State{plan.StateSynced, plan.StateHeld, plan.StateFight, plan.StateForeign, plan.StateSuperseded,
		plan.StateRejected, plan.StateOutOfScope, plan.StateExpiring}
	names := []string{"synced", "held", "fight", "foreign", "superseded", "rejected", "out_of_scope", "expiring"}
	byText := map[string]map[string]string{}
	parsed := source()
	for i := range 3 * 3 * 3 * 3 * 3 * 3 * 3 * 3 { // each state has up to two targets
		s, rest := &report.Summary{Source: parsed, Rules: rules}, i
		want := map[string]string{domain + "instance": "default", domain + "version": "7"}
		for j, state := range states {
			s.Counts[state], rest = rest%3, rest/3
			want[domain+names[j]] = fmt.Sprint(s.Counts[state])
		}
		m := messageOf(s, plan.ReasonMirrored)
		if m.Note != "" && !maps.Equal(m.Annotations, want) {
			t.Fatalf("%q: got annotations %v, want %v", m.Note, m.Annotations, want)
		}
		if other, found := byText[m.Note]; found && m.Note != "" && !maps.Equal(other, want) {
			t.Fatalf("%q: got annotations %v and %v with one text", m.Note, want, other)
		}
		byText[m.Note] = want
	}
}

// TestTextsSayWhatToDo: the hand-over is for the first namespace where it can be, and says what it does. Each reason
// why copies expire has a sentence, with the time of its first copy. Five namespaces are named.
func TestTextsSayWhatToDo(t *testing.T) {
	s := &report.Summary{Source: source(), Rules: rules}
	s.Add(plan.StateForeign, "team-c", "a foreign ConfigMap is there", true)
	s.Add(plan.StateForeign, "team-b", "another source is there", false)
	s.Add(plan.StateForeign, "team-a", "a foreign ConfigMap is there", true)
	s.Add(plan.StateRejected, "team-a", strings.Repeat("x", 2000)+".", false)
	s.Add(plan.StateFight, "team-a", "", false)
	outOfScope := plan.Unclaimed{Rule: plan.ExcludedExplicitly}
	for i := range 6 {
		s.Expire(outOfScope, fmt.Sprintf("team-%d", i), now.Add(time.Duration(10-i)*time.Hour), false)
	}
	s.Expire(plan.Unclaimed{Rule: plan.SourceGone}, "team-y", now.Add(time.Minute), false)
	s.Expire(plan.Unclaimed{Rule: plan.SourceGone}, "team-x", now.Add(time.Hour), false)
	frozen := plan.Unclaimed{Rule: plan.ExcludedByPrefix, Annotation: `namespace-prefix="x"`}
	s.Expire(frozen, "team-z", now.Add(2*time.Hour), false)
	for reason, want := range map[string]string{
		plan.ReasonForeign: "Not copied to namespace team-b: another source is there. Remove what is in the way, or " +
			"publish the source under another name. A name that becomes free is noticed within a minute. " +
			"Not copied to 2 namespaces (team-a, team-c): a foreign ConfigMap is there. Delete it, or move its " +
			"data to another name, which is noticed within a minute, or hand it over, which REPLACES ITS DATA: " +
			"kubectl annotate -n team-a configmap " +
			"settings mirror-controller.github.io/adopt=true",
		plan.ReasonWriteFailed: "Out of sync in namespace team-a: " + strings.Repeat("x", 597) + "…. Fix the cause; the " +
			"controller retries at least once a minute.",
		plan.ReasonFight: "Another client keeps modifying or deleting the copy in namespace team-a; repairs wait for " +
			"up to a minute. Find the client in the audit log of the API server or, if it modifies the copy, with kubectl get " +
			"configmap -n team-a settings -o yaml --show-managed-fields -w",
		plan.ReasonExpiring: "2 copies in 2 namespaces (team-x, team-y) will be deleted from 1970-01-01 01:24:20 UTC on, " +
			"the last from 1970-01-01 02:23:20 UTC on: " +
			"the source is deleted, or has lost its label mirror=true. To keep them, create the source again, or label it " +
			"again before then. 6 copies in 6 namespaces (team-0, team-1, team-2, team-3, team-4 and 1 more) will be deleted " +
			"from 1970-01-01 06:23:20 UTC on, the last from 1970-01-01 11:23:20 UTC on: --exclude-namespace names the " +
			"namespace. To keep them, start the controller with other flags before then. 1 copy in namespace team-z will " +
			"be deleted from 1970-01-01 03:23:20 UTC on: the " +
			`source's annotation namespace-prefix="x" rules the namespace out. To keep it, ` +
			"correct the annotation namespace-prefix before then.",
	} {
		t.Run(reason, func(t *testing.T) {
			if got := messageOf(s, reason).Note; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestAnnotationsSayWhatTextsSay: those of Expiring have the number of the copies, and when the first and the last are
// deleted; those of NoTargets count the copies that are left. A source that the flags rule out has a version, and a
// winner counts the targets for which another source waits.
func TestAnnotationsSayWhatTextsSay(t *testing.T) {
	s := &report.Summary{Source: source(), Rules: rules, Excluded: []plan.Exclusion{plan.ExcludedByOptOut}}
	s.Counts[plan.StateExpiring] = 2
	s.Expire(plan.Unclaimed{Rule: plan.ExcludedByOptOut}, "team-a", now.Add(time.Hour), false)
	s.Expire(plan.Unclaimed{Rule: plan.SourceGone}, "team-b", now.Add(time.Minute), false)
	beyond := source()
	beyond.OutOfScope = true
	ruledOut := &report.Summary{Source: beyond, Rules: rules}
	ruledOut.Counts[plan.StateOutOfScope] = 1
	ruledOut.Add(plan.StateOutOfScope, "team-a", "why", false)
	winner := &report.Summary{Source: source(), Rules: rules, Waiting: 2}
	winner.Counts[plan.StateSynced] = 3
	ofOne := &report.Summary{Source: source(), Rules: rules, Waiting: 1}
	ofOne.Counts[plan.StateSynced] = 1
	for _, tc := range []struct {
		of                            *report.Summary
		reason, text, annotation, has string
	}{
		{s, plan.ReasonExpiring, "1 copy in namespace team-b", "expiring", "2"},
		{s, plan.ReasonExpiring, "from 1970-01-01 01:24:20 UTC on: ", "from", "1970-01-01T01:24:20Z"},
		{s, plan.ReasonExpiring, "from 1970-01-01 02:23:20 UTC on: ", "until", "1970-01-01T02:23:20Z"},
		{s, plan.ReasonNoTargets, "; 2 copies expire (see Expiring).", "expiring", "2"},
		{s, plan.ReasonNoTargets, "Version 7 ", "version", "7"},
		{ruledOut, plan.ReasonOutOfScope, "Version 7 is not mirrored. Copies in namespace team-a ", "version", "7"},
		{ruledOut, plan.ReasonOutOfScope, "Copies in namespace team-a ", "out_of_scope", "1"},
		{winner, plan.ReasonMirrored, "; another source of this name waits for 2 namespaces", "waiting", "2"},
		{ofOne, plan.ReasonMirrored, "; another source of this name waits for 1 namespace", "waiting", "1"},
	} {
		t.Run(tc.reason+" "+tc.annotation+" "+tc.has, func(t *testing.T) {
			m := messageOf(tc.of, tc.reason)
			if got := m.Annotations[domain+tc.annotation]; got != tc.has || !strings.Contains(m.Note, tc.text) {
				t.Errorf("got %q and %q, want %q and %q", got, m.Note, tc.has, tc.text)
			}
		})
	}
}

// TestAnnotationsOfExpiring are about the copies of all reasons.
func TestAnnotationsOfExpiring(t *testing.T) {
	s := &report.Summary{Rules: rules}
	for minutes, rule := range []plan.Exclusion{plan.ExcludedOwn, plan.SourceGone, plan.ExcludedByPrefix,
		plan.ExcludedByOptOut, plan.ExcludedBySelector} {
		at := now.Add(time.Duration(minutes) * time.Minute)
		s.Expire(plan.Unclaimed{Rule: rule}, fmt.Sprint("team-", minutes), at, false)
	}
	m := messageOf(s, plan.ReasonExpiring)
	from, until := m.Annotations[plan.EventFrom], m.Annotations[plan.EventUntil]
	if from != "1970-01-01T01:23:20Z" || until != "1970-01-01T01:27:20Z" {
		t.Errorf("got from %s until %s, want the first deletion and the last", from, until)
	}
}

// TestTextOfIncompleteExpiry: a line that cannot wait for all copies to be counted says so.
func TestTextOfIncompleteExpiry(t *testing.T) {
	x := report.Expiry{}
	x.Add(plan.Unclaimed{Rule: plan.SourceGone}, "team-a", now)
	for isIncomplete, want := range map[bool]string{
		false: "1 copy in ",
		true:  "At least 1 copy in ",
	} {
		t.Run(want, func(t *testing.T) {
			if got := x.Text(rules, 10, isIncomplete); !strings.HasPrefix(got, want) {
				t.Errorf("got %q, want it to begin with %q", got, want)
			}
		})
	}
}
