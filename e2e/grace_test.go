package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Copies that no source claims: cases C52, C53 and C55. A grace of an hour never ends in a test. All times are lower bounds.

// graced are the arguments for a deletion grace, and for metrics that show it.
func graced(grace time.Duration) []string {
	return []string{"--deletion-grace=" + grace.String(), "--metrics-bind-address=127.0.0.1:0"}
}

// expiring are the metrics of so many copies that no source claims.
func expiring(n float64) map[string]float64 {
	return map[string]float64{`mirror_copies{state="expiring"}`: n}
}

// TestC52Kept takes its copies from a source, by a mistake of each kind. The controller says which copies it will delete, why, when,
// and how to keep them, and does not write to them, nor restore what others change. The remedy that it names keeps them all.
func TestC52Kept(t *testing.T) {
	t.Parallel()
	const gone = "the source is deleted, or has lost its label "
	for name, test := range map[string]struct {
		lose, keep func(*world)
		lost       []string // short names of the namespaces
		says       []string
	}{
		"deleted": {
			func(w *world) { w.delete(w.home, "settings") },
			func(w *world) { w.createSource(w.home, "settings") },
			[]string{"a", "b", "c"}, []string{gone, "create the source again"},
		},
		"unlabelled": {
			func(w *world) { w.edit(w.home, "settings", withoutLabel(w.label)) },
			func(w *world) { w.edit(w.home, "settings", withLabel(w.label, plan.SourceValue)) },
			[]string{"a", "b", "c"}, []string{gone, "label it again"},
		},
		"narrowed by a typing error": {
			func(w *world) { w.edit(w.home, "settings", withAnnotation(plan.PrefixAnnotation, "tema-")) },
			func(w *world) { w.edit(w.home, "settings", withAnnotation(plan.PrefixAnnotation, w.prefix)) },
			[]string{"a", "b", "c"}, []string{plan.PrefixAnnotation + `="tema-"`, "correct the annotation"},
		},
		"opted out": {
			func(w *world) { w.optOut(plan.OptOutValue, "a", "b") },
			func(w *world) { w.optOut("", "a", "b") },
			[]string{"a", "b"}, []string{"the namespace has the label ", "remove that label"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a", "b", "c")
			a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
			p := w.start(graced(time.Hour)...)
			source := w.createSource(w.home, "settings")
			w.waitInSync(source, a, b, c)
			copies := w.copies("settings", a, c)

			began := time.Now()
			test.lose(w)
			n := len(test.lost)
			says := append(test.says, fmt.Sprintf("%d copies in %d namespaces", n, n), "To keep them")
			for _, name := range test.lost {
				says = append(says, w.ns(name))
			}
			w.expectEnd(w.waitWarning(source, mirror.ReasonExpiring, says...), began)
			w.untilLogged(p, "will be deleted from")
			w.waitMetrics("they expire", p, expiring(float64(n)))
			w.edit(a, "settings", withData(map[string]string{"key": "edited"}))
			w.delete(b, "settings")
			w.waitMetrics("one is deleted by somebody else", p, expiring(float64(n-1)))
			for i := range 3 {
				w.tick(i, c)
			}
			w.absent("settings", b)
			created := []string{"create " + a, "create " + b, "create " + c}
			w.expectWrites("settings", slices.Clone(created)...)

			test.keep(w)
			w.waitInSync(w.live(w.home, "settings"), a, b, c)
			w.waitMetrics("they are kept", p, expiring(0))
			w.sameObjects(copies)
			w.expectWrites("settings", append(created, "update "+a, "create "+b)...)
		})
	}
}

// optOut sets the mirror label of target namespaces, or takes it away.
func (w *world) optOut(value string, names ...string) {
	w.Helper()
	for _, name := range names {
		w.labelNamespace(w.ns(name), w.label, value)
	}
}

// waitWarning waits for a Warning about this very object with all of these parts in its note, and returns the note.
func (w *world) waitWarning(about *corev1.ConfigMap, reason string, parts ...string) (note string) {
	w.Helper()
	w.eventually("event "+reason, func() error {
		var others []string
		for _, e := range w.seen.EventsOn(about.Namespace, about.Name) {
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
func (w *world) expectEnd(note string, since time.Time) {
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
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	p := w.start(graced(time.Hour)...)
	w.waitInSync(w.createSource(w.home, "settings"), a, b)
	copies := w.copies("settings", a, b)
	w.delete(w.home, "settings")
	w.waitMetrics("they expire", p, expiring(2))

	second := w.createSource(w.elsewhere("second"), "settings", withAnnotation(plan.PrefixAnnotation, a))
	w.waitInSync(second, a)
	w.waitMetrics("the other expires", p, expiring(1))
	second = w.edit(second.Namespace, "settings", withoutAnnotation(plan.PrefixAnnotation))
	w.waitInSync(second, a, b)
	w.waitMetrics("all are claimed", p, expiring(0))

	w.waitYounger(second)
	third := w.createSource(w.home, "settings")
	w.waitEvent(w.home, "settings", mirror.ReasonSuperseded)
	w.delete(second.Namespace, "settings")
	w.waitInSync(third, a, b)
	w.sameObjects(copies)
	w.expectWrites("settings", "create "+a, "create "+b, "update "+a, "update "+b, "update "+a, "update "+b)
}

// shortGrace is a grace that ends in a test.
const shortGrace = 3 * time.Second

// TestC52Restarted kills the controller while copies expire: the next process gives them a whole grace. That of the first is an
// hour, so that a slow machine does not miss the middle.
func TestC52Restarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	p := w.start(graced(time.Hour)...)
	w.loseAll(p)
	p.Kill()
	began := time.Now()
	w.start(graced(shortGrace)...)
	w.expectGrace(began)
}

// TestC52HandedOver has a standby with full caches take over while copies expire: it gives them a whole grace from then on.
func TestC52HandedOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	first, second := w.pair(graced(time.Hour), graced(shortGrace))
	w.loseAll(first.Process)
	w.stop(first.Process)
	w.waitWrites("settings", 4)
	w.expectGrace(w.records(second)[0].lease[0].Received)
}

// loseAll creates a source and deletes it when it has copies in a and b, and waits until they expire.
func (w *world) loseAll(p *shipped.Process) {
	w.Helper()
	w.waitInSync(w.createSource(w.home, "settings"), w.ns("a"), w.ns("b"))
	w.delete(w.home, "settings")
	w.waitMetrics("they expire", p, expiring(2))
}

// expectGrace waits until both copies are deleted, and fails the test if a delete came sooner than a short grace after this time.
func (w *world) expectGrace(began time.Time) {
	w.Helper()
	w.waitGone("settings", w.ns("a"), w.ns("b"))
	w.expectWrites("settings", "create "+w.ns("a"), "create "+w.ns("b"), "delete "+w.ns("a"), "delete "+w.ns("b"))
	for _, e := range writesTo(w.requests(), "settings") {
		if due := began.Add(shortGrace); e.Verb == "delete" && e.Received.Before(due) {
			w.Errorf("a delete came %v too early: %v", due.Sub(e.Received), e)
		}
	}
}

// TestC53SlowReads delays each read of sources, of namespaces or of both by six seconds, which is longer than an answer serves: a
// source that is deleted and a namespace that opts out lose their copies all the same.
func TestC53SlowReads(t *testing.T) {
	t.Parallel()
	for _, slow := range [][]string{{"configmaps"}, {"namespaces"}, watched} {
		t.Run(strings.Join(slow, " and "), func(t *testing.T) {
			t.Parallel()
			w := newProxied(t, newWorld(t, "a", "b"))
			a, b := w.ns("a"), w.ns("b")
			w.run(nil)
			kept := w.createSource(w.home, "kept")
			w.waitInSync(w.createSource(w.home, "gone"), a, b)
			w.waitInSync(kept, a, b)
			reads := w.proxy.Inject(faultproxy.Rule{
				Verbs: []string{"get"}, Resources: slow, Fault: faultproxy.Fault{Kind: faultproxy.Delay, For: 6 * time.Second},
			})
			w.delete(w.home, "gone")
			w.optOut(plan.OptOutValue, "a")
			w.waitGone("gone", a, b)
			w.waitGone("kept", a)
			w.waitInSync(kept, b)
			if reads.Fired() == 0 {
				t.Error("no read was slow")
			}
		})
	}
}

// TestC55NoTargets narrows a source so that it reaches no namespace, when it is created and later: the controller says so, and why.
// (A grace that is too short to act in is announced by nothing: what was deleted is said afterwards. TestC52Kept has a long one.)
func TestC55NoTargets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	w.start()
	const typo, remedy = plan.PrefixAnnotation + `="tema-"`, "correct the annotation"
	source := w.createSource(w.home, "settings", withAnnotation(plan.PrefixAnnotation, "tema-"))
	w.waitWarning(source, mirror.ReasonNoTargets, "of 2 namespaces", "in 2 the source's annotation "+typo, remedy)
	w.absent("settings", a, b)
	w.waitInSync(w.edit(w.home, "settings", withAnnotation(plan.PrefixAnnotation, w.prefix)), a, b)
	w.edit(w.home, "settings", withAnnotation(plan.PrefixAnnotation, "tema-"))
	w.waitWarning(source, mirror.ReasonExpiring, "Deleted ", typo, "To get them back, "+remedy)
	w.waitGone("settings", a, b)
}
