package e2e

import (
	"fmt"
	"testing"
)

// Copies out of scope of the flags: cases C17 and C44.

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
	second := w.createNamespace("second-"+w.instance, nil).Name
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

// TestC44SharedInstance runs two controllers of one instance with different prefixes: each leaves the copies of
// the other alone, says so, and nothing is emptied.
func TestC44SharedInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := []string{}, []string{}
	for i := range 15 {
		ours = append(ours, w.ns(fmt.Sprintf("ours-%d", i)))
		theirs = append(theirs, w.ns(fmt.Sprintf("theirs-%d", i)))
	}
	for _, name := range append(append([]string{}, ours...), theirs...) {
		w.createNamespace(name, nil)
	}
	first := w.startExactly("--namespace-prefix=" + w.ns("ours-"))
	src := w.createSource(w.home, "settings")
	w.waitInSync(src, ours...)
	second := w.startExactly("--namespace-prefix=" + w.ns("theirs-"))
	w.waitInSync(src, theirs...)
	w.waitEvent(w.home, "settings", "Foreign")
	src = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInSync(src, append(append([]string{}, ours...), theirs...)...)
	for _, e := range writesTo(w.requests(), "settings") {
		if e.Verb == "delete" {
			t.Errorf("one deleted a copy of the other: %v", e)
		}
	}
	w.stop(first)
	w.stop(second)
}

// TestC44SharedInstanceBySourceNamespace is the same with controllers that differ in where sources may be.
func TestC44SharedInstanceBySourceNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(12)
	away := w.createNamespace("away-"+w.instance, nil).Name
	w.start("--source-namespace=" + w.home)
	ours := w.createSource(w.home, "ours")
	theirs := w.createSource(away, "theirs")
	w.waitInSync(ours, targets...)
	w.start("--source-namespace=" + away)
	w.waitInSync(theirs, targets...)
	w.waitEvent(w.home, "ours", "Foreign")
	w.waitEvent(away, "theirs", "Foreign")
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
