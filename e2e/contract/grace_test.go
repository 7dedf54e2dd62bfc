package contract

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestC52Kept takes its copies from a source, by a mistake of each kind. The controller says which copies it will delete, why, when,
// and how to keep them, and does not write to them, nor restore what others change. The remedy that it names keeps them all.
func TestC52Kept(t *testing.T) {
	t.Parallel()
	const gone = "the source is deleted, or has lost its label "
	for name, test := range map[string]struct {
		lose, keep func(*suite.World)
		lost       []string // short names of the namespaces
		says       []string
	}{
		"deleted": {
			func(w *suite.World) { w.Delete(w.Home, "settings") },
			func(w *suite.World) { w.CreateSource(w.Home, "settings") },
			[]string{"a", "b", "c"}, []string{gone, "create the source again"},
		},
		"unlabelled": {
			func(w *suite.World) { w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label)) },
			func(w *suite.World) { w.Edit(w.Home, "settings", suite.WithLabel(w.Label, plan.SourceValue)) },
			[]string{"a", "b", "c"}, []string{gone, "label it again"},
		},
		"narrowed by a typing error": {
			func(w *suite.World) { w.Edit(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, "tema-")) },
			func(w *suite.World) {
				w.Edit(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, w.Prefix))
			},
			[]string{"a", "b", "c"}, []string{plan.PrefixAnnotation + `="tema-"`, "correct the annotation"},
		},
		"opted out": {
			func(w *suite.World) { w.OptOut(plan.OptOutValue, "a", "b") },
			func(w *suite.World) { w.OptOut("", "a", "b") },
			[]string{"a", "b"}, []string{"the namespace has the label ", "remove that label"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "a", "b", "c")
			a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
			p := w.Start(suite.Graced(time.Hour)...)
			source := w.CreateSource(w.Home, "settings")
			w.WaitInSync(source, a, b, c)
			copies := w.Copies("settings", a, c)

			began := time.Now()
			test.lose(w)
			n := len(test.lost)
			says := append(test.says, fmt.Sprintf("%d copies in %d namespaces", n, n), "To keep them")
			for _, name := range test.lost {
				says = append(says, w.NS(name))
			}
			expectEnd(w, waitWarning(w, source, mirror.ReasonExpiring, says...), began)
			untilLogged(w, p, "will be deleted from")
			w.WaitMetrics("they expire", p, suite.Expiring(float64(n)))
			w.Edit(a, "settings", suite.WithData(map[string]string{"key": "edited"}))
			w.Delete(b, "settings")
			w.WaitMetrics("one is deleted by somebody else", p, suite.Expiring(float64(n-1)))
			for i := range 3 {
				w.Tick(i, c)
			}
			w.Absent("settings", b)
			created := []string{"create " + a, "create " + b, "create " + c}
			w.ExpectWrites("settings", slices.Clone(created)...)

			test.keep(w)
			w.WaitInSync(w.Live(w.Home, "settings"), a, b, c)
			w.WaitMetrics("they are kept", p, suite.Expiring(0))
			w.SameObjects(copies)
			w.ExpectWrites("settings", append(created, "update "+a, "create "+b)...)
		})
	}
}

// waitWarning waits for a Warning about this very object with all of these parts in its note, and returns the note.
func waitWarning(w *suite.World, about *corev1.ConfigMap, reason string, parts ...string) (note string) {
	w.Helper()
	w.Eventually("event "+reason, func() error {
		var others []string
		for _, e := range w.Seen.EventsOn(about.Namespace, about.Name) {
			lacks := func(part string) bool { return !strings.Contains(e.Note, part) }
			if e.Type == corev1.EventTypeWarning && e.Reason == reason && e.Regarding.UID == about.UID && !slices.ContainsFunc(parts, lacks) {
				note = e.Note
				return nil
			}
			others = append(others, e.Reason+": "+e.Note)
		}
		return fmt.Errorf("none of %q has all of %q", others, parts)
	})
	return note
}

// expectEnd fails the test unless an event says when a grace of an hour ends that has begun since this time.
func expectEnd(w *suite.World, note string, since time.Time) {
	w.Helper()
	said := regexp.MustCompile(`will be deleted from (.{19}) UTC on`).FindStringSubmatch(note)
	if said == nil {
		w.Fatalf("the event does not say when: %s", note)
	}
	end, err := time.Parse(time.DateTime, said[1])
	earliest, latest := since.Add(time.Hour).Truncate(time.Second), time.Now().Add(time.Hour)
	if err != nil || end.Before(earliest) || end.After(latest) {
		w.Errorf("the event says %s, %v, want between %v and %v", said[1], err, earliest.UTC(), latest.UTC())
	}
}

// TestC52TakenOver has other sources of that name claim copies that expire, or that lose their source: they have them at once.
func TestC52TakenOver(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	p := w.Start(suite.Graced(time.Hour)...)
	w.WaitInSync(w.CreateSource(w.Home, "settings"), a, b)
	copies := w.Copies("settings", a, b)
	w.Delete(w.Home, "settings")
	w.WaitMetrics("they expire", p, suite.Expiring(2))

	second := w.CreateSource(w.Elsewhere("second"), "settings", suite.WithAnnotation(plan.PrefixAnnotation, a))
	w.WaitInSync(second, a)
	w.WaitMetrics("the other expires", p, suite.Expiring(1))
	second = w.Edit(second.Namespace, "settings", suite.WithoutAnnotation(plan.PrefixAnnotation))
	w.WaitInSync(second, a, b)
	w.WaitMetrics("all are claimed", p, suite.Expiring(0))

	w.WaitYounger(second)
	third := w.CreateSource(w.Home, "settings")
	w.WaitEvent(w.Home, "settings", mirror.ReasonSuperseded)
	w.Delete(second.Namespace, "settings")
	w.WaitInSync(third, a, b)
	w.SameObjects(copies)
	w.ExpectWrites("settings", "create "+a, "create "+b, "update "+a, "update "+b, "update "+a, "update "+b)
}

// TestC55NoTargets narrows a source so that it reaches no namespace, when it is created and later: the controller says so, and why.
// (A grace that is too short to act in is announced by nothing: what was deleted is said afterwards. TestC52Kept has a long one.)
func TestC55NoTargets(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	w.Start()
	const typo, remedy = plan.PrefixAnnotation + `="tema-"`, "correct the annotation"
	source := w.CreateSource(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, "tema-"))
	waitWarning(w, source, mirror.ReasonNoTargets, "of 2 namespaces", "in 2 the source's annotation "+typo, remedy)
	w.Absent("settings", a, b)
	w.WaitInSync(w.Edit(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, w.Prefix)), a, b)
	w.Edit(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, "tema-"))
	waitWarning(w, source, mirror.ReasonExpiring, "Deleted ", typo, "To get them back, "+remedy)
	w.WaitGone("settings", a, b)
}
