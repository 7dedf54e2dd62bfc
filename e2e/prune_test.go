package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror"
)

// Copies out of scope of the flags: cases C17, C44 and C50.

// TestC17PruneLimit starts the controller with a typo in the prefix: it deletes nothing, says so, and goes on mirroring, also
// the deletion of sources. The right prefix finds everything in place. The typo with --prune-limit=100% is believed.
func TestC17PruneLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "typo-a")
	targets, typo := w.createMany(12), w.ns("typo-a")
	right, wrong := "--namespace-prefix="+w.ns("n"), "--namespace-prefix="+w.ns("typo-")
	p := w.startExactly(right)
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, targets...)
	w.waitInSync(w.createSource(w.home, "temporary"), targets...)
	copies := w.copies("settings", targets...)
	w.stop(p)

	const served = "--metrics-bind-address=127.0.0.1:0"
	blocked := func(copies float64) map[string]float64 { return map[string]float64{`mirror_prune_blocked`: copies} }
	p = w.startExactly(wrong, served, "--resync-period=200ms", "--health-probe-bind-address=127.0.0.1:0")
	w.waitInSync(source, typo)
	w.until("ready while the limit blocks", func() error { return w.probe(p, "/readyz") })
	w.waitEvent(w.home, "settings", "PruneBlocked")
	w.waitMetrics("the copies of both sources", p, blocked(2*12))
	w.delete(w.home, "temporary")
	w.waitGone("temporary", append(targets, typo)...)
	w.passes(3, typo)
	w.allUntouched(copies)
	w.waitMetrics("the copies of one source", p, blocked(12))
	w.stop(p)

	p = w.startExactly(right, served)
	w.waitGone("settings", typo)
	w.settle(targets...)
	w.allUntouched(copies)
	w.waitMetrics("the right prefix", p, blocked(0))
	if writes := w.waitWrites("settings", 12+2); len(writes) != 12+2 || writes[13] != "delete "+typo {
		t.Errorf("writes: %q, want 12 creates with the right prefix, 1 with the wrong one, and that it goes again", writes)
	}
	w.stop(p)

	p = w.startExactly(wrong, served, "--prune-limit=100%")
	w.waitGone("settings", targets...)
	w.waitInSync(source, typo)
	w.waitMetrics("the wrong prefix is believed", p, blocked(0))
}

// TestC17CountsWhatWouldGo: copies that another source takes over are not deleted, and so not counted.
func TestC17CountsWhatWouldGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(12)
	second := w.elsewhere("second")
	first := w.createSource(w.home, "settings")
	p := w.start("--source-namespace=" + w.home)
	w.waitInSync(first, targets...)
	copies := w.copies("settings", targets...)
	w.stop(p)
	successor := w.createSource(second, "settings", withData(map[string]string{"key": "second"}))
	w.start("--source-namespace=" + second)
	w.waitInSync(successor, targets...)
	w.sameObjects(copies)
	w.waitEvent(second, "settings", "Mirrored") // events are written in order, and PruneBlocked would come first
	for _, namespace := range []string{w.home, second} {
		for _, event := range w.seen.EventsOn(namespace, "settings") {
			if event.Reason == "PruneBlocked" {
				t.Errorf("on %s: %s", namespace, event.Note)
			}
		}
	}
}

// TestC44SharedInstance runs two controllers of one instance with different prefixes: each leaves the copies of the other
// alone, reports them, and nothing is emptied.
func TestC44SharedInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.createNamed("ours-", 15), w.createNamed("theirs-", 15)
	const served = "--metrics-bind-address=127.0.0.1:0"
	first := w.startExactly("--namespace-prefix="+w.ns("ours-"), served)
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, ours...)
	second := w.startExactly("--namespace-prefix="+w.ns("theirs-"), served)
	w.waitInSync(source, theirs...)
	if note := w.waitEvent(w.home, "settings", mirror.ReasonPruneBlocked); !strings.Contains(note, "15 of 30") {
		t.Errorf("the event does not say how many: %s", note)
	}
	w.waitEvent(w.home, "settings", mirror.ReasonOutOfScope)
	for who, p := range map[string]*shipped.Process{"first": first, "second": second} {
		w.waitMetrics("the "+who, p, map[string]float64{
			`mirror_copies{state="synced"}`:       15,
			`mirror_copies{state="out_of_scope"}`: 15,
			`mirror_copies{state="foreign"}`:      0,
		})
	}
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInSync(source, slices.Concat(ours, theirs)...)
	for _, e := range writesTo(w.requests(), "settings") {
		if e.Verb == "delete" {
			t.Errorf("one deleted a copy of the other: %v", e)
		}
	}
}

// TestC56FewCopies starts the controller with a wrong prefix: however few copies there are, none is deleted.
func TestC56FewCopies(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "taem-a")
			targets := w.createMany(n)
			p := w.startExactly("--namespace-prefix=" + w.ns("n"))
			w.waitInSync(w.createSource(w.home, "settings"), targets...)
			copies := w.copies("settings", targets...)
			w.stop(p)
			w.startExactly("--namespace-prefix="+w.ns("taem-"), "--deletion-grace=0s")
			if note := w.waitEvent(w.home, "settings", mirror.ReasonPruneBlocked); !strings.HasPrefix(note, fmt.Sprintf("%d of %d copies", n, n+1)) {
				t.Errorf("the event does not say how many: %s", note)
			}
			w.waitEvent(w.home, "settings", mirror.ReasonOutOfScope)
			w.settle(w.ns("taem-a"))
			w.allUntouched(copies)
		})
	}
}

// createNamed creates n target namespaces whose names begin so.
func (w *world) createNamed(prefix string, n int) (names []string) {
	w.Helper()
	for i := range n {
		names = append(names, w.createNamespace(w.ns(fmt.Sprint(prefix, i)), nil).Name)
	}
	return names
}

// TestC50PruneNothing starts the controller with other flags and --prune-limit=0%: it deletes nothing, not even one copy,
// and says so. The copies of a source that goes are deleted all the same.
func TestC50PruneNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kept", "dropped")
	kept, dropped := w.ns("kept"), w.ns("dropped")
	p := w.start()
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, kept, dropped)
	copies := w.copies("settings", kept, dropped)
	w.stop(p)
	p = w.start("--exclude-namespace="+dropped, "--prune-limit=0%", "--resync-period=200ms", "--metrics-bind-address=127.0.0.1:0")
	if note := w.waitEvent(w.home, "settings", mirror.ReasonPruneBlocked); !strings.Contains(note, "1 of 2 copies") {
		t.Errorf("the event does not say how many: %s", note)
	}
	w.waitMetrics("one copy is out of scope", p, map[string]float64{
		`mirror_prune_blocked`:                1,
		`mirror_copies{state="out_of_scope"}`: 1,
		`mirror_copies{state="synced"}`:       1,
	})
	w.passes(2, kept)
	w.allUntouched(copies)
	w.delete(w.home, "settings")
	w.waitGone("settings", kept, dropped)
}

// TestC44SharedInstanceBySourceNamespace is the same with controllers that differ in where sources may be.
func TestC44SharedInstanceBySourceNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(12)
	away := w.elsewhere("away")
	w.start("--source-namespace=" + w.home)
	ours := w.createSource(w.home, "ours")
	theirs := w.createSource(away, "theirs")
	w.waitInSync(ours, targets...)
	w.start("--source-namespace=" + away)
	w.waitInSync(theirs, targets...)
	w.waitEvent(w.home, "ours", mirror.ReasonOutOfScope)
	w.waitEvent(away, "theirs", mirror.ReasonOutOfScope)
	ours = w.edit(w.home, "ours", withData(map[string]string{"key": "two"}))
	theirs = w.edit(away, "theirs", withData(map[string]string{"key": "two"}))
	w.waitInSync(ours, targets...)
	w.waitInSync(theirs, targets...)
	for _, e := range append(writesTo(w.requests(), "ours"), writesTo(w.requests(), "theirs")...) {
		if e.Verb == "delete" {
			t.Errorf("one deleted a copy of the other: %v", e)
		}
	}
}
