package e2e

import (
	"errors"
	"fmt"
	"testing"
)

// names returns the full names of n target namespaces, which newWorld creates under the short ones.
func (w *world) many(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = w.ns(fmt.Sprintf("n%04d", i))
	}
	return out
}

func (w *world) createMany(n int) []string {
	w.Helper()
	all := w.many(n)
	for _, name := range all {
		w.createNamespace(name, nil)
	}
	return all
}

// TestC38 changes a source a hundred times in a row: the last state is everywhere in the end, and the
// controller has not made more writes than there were states to write.
func TestC38UpdatesInARow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(20)
	w.start()
	src := w.createSource(w.home, "busy")
	w.waitInLine(src, targets...)
	for i := range 100 {
		src = w.edit(w.home, "busy", withData(map[string]string{"version": fmt.Sprint(i)}))
	}
	w.waitInLine(src, targets...)
	w.settle(targets...)
	writes := map[string]int{}
	for _, e := range writesTo(w.requests(), "busy") {
		writes[e.Object.Namespace]++
	}
	for _, target := range targets {
		if n := writes[target]; n > 1+100 {
			t.Errorf("%s was written %d times for 101 states", target, n)
		}
	}
}

// TestC40Idle shows that without a change there is no request but the watches, and that a foreign object in
// the way costs no more than its retries.
func TestC40Idle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(10)
	src := w.createSource(w.home, "quiet")
	first := w.start()
	w.waitInLine(src, targets...)
	w.settle(targets...)
	w.stop(first)

	// A restart with everything in line writes nothing: what it does until it has dealt with a new source is
	// all there is.
	mark := w.auditMark()
	w.start("--resync-period=200ms")
	w.settle(targets...)
	w.settle(targets...)
	for _, e := range w.requestsSince(mark) {
		ofTheBarrier := e.Object.Resource == "configmaps" && e.Object.Name != "" && e.Object.Name != "quiet"
		if e.Verb == "watch" || e.Object.Resource == "events" || ofTheBarrier {
			continue
		}
		t.Errorf("request without need: %v", e)
	}
}

// TestC41StaleNamespaces stops the controller's process, lets a namespace opt out and in again, and lets the
// process go on: it sees the opt-out first, and must not delete the copy on its strength.
func TestC41PausedProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	p := w.start()
	src := w.createSource(w.home, "settings")
	w.waitInLine(src, w.ns("a"), w.ns("b"))
	before := w.live(w.ns("a"), "settings")
	for range 20 {
		w.pause(p)
		w.labelNamespace(w.ns("a"), w.label, "false")
		w.labelNamespace(w.ns("a"), w.label, "")
		w.resume(p)
		w.settle(w.ns("b"))
	}
	w.untouched(before)
}

// TestC43LabelThenSource strips the label of a copy and, right after, takes its source away: the copy goes too.
// The process stands still meanwhile, so that it learns of the second before it has dealt with the first.
func TestC43LabelThenSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	p := w.start()
	for i := range 10 {
		name := fmt.Sprintf("settings-%d", i)
		src := w.createSource(w.home, name)
		w.waitInLine(src, w.ns("a"), w.ns("b"))
		w.pause(p)
		w.edit(w.ns("a"), name, withoutLabel(w.label))
		if i%2 == 0 {
			w.edit(w.home, name, withoutLabel(w.label))
		} else {
			w.delete(w.home, name)
		}
		w.resume(p)
		w.waitGone(name, w.ns("a"), w.ns("b"))
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
	w.waitInLine(src, ours...)
	second := w.startExactly("--namespace-prefix=" + w.ns("theirs-"))
	w.waitInLine(src, theirs...)
	w.waitEvent(w.home, "settings", "Foreign")
	src = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInLine(src, append(append([]string{}, ours...), theirs...)...)
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
	w.waitInLine(ours, targets...)
	w.start("--source-namespace=" + away)
	w.waitInLine(theirs, targets...)
	w.waitEvent(w.home, "ours", "Foreign")
	w.waitEvent(away, "theirs", "Foreign")
	ours = w.edit(w.home, "ours", withData(map[string]string{"key": "two"}))
	theirs = w.edit(away, "theirs", withData(map[string]string{"key": "two"}))
	w.waitInLine(ours, targets...)
	w.waitInLine(theirs, targets...)
	for _, e := range append(writesTo(w.requests(), "ours"), writesTo(w.requests(), "theirs")...) {
		if e.Verb == "delete" {
			t.Errorf("one deleted a copy of the other: %v", e)
		}
	}
}

// TestRestartWhileSourceGone covers C14 for many copies at once: source deleted while nobody watches.
func TestC14ManyAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(100)
	p := w.start()
	src := w.createSource(w.home, "settings")
	w.waitInLine(src, targets...)
	w.stop(p)
	w.delete(w.home, "settings")
	mark := w.auditMark()
	w.start()
	w.waitGone("settings", targets...)
	gets := 0
	for _, e := range w.requestsSince(mark) {
		if e.Verb == "get" && e.Object.Resource == "configmaps" {
			gets++
		}
	}
	if gets > 2 {
		t.Errorf("%d live looks for one source that is gone, want 2 at most", gets)
	}
}

// TestStopInTheMiddle stops the controller in the middle of a fan-out: the writes in flight end, it exits with
// 0, writes nothing more, and the next one goes on.
func TestStopInTheMiddle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(200)
	p := w.start("--concurrent-writes=4")
	src := w.createSource(w.home, "settings")
	w.eventually("a few copies", func() error {
		if w.count(targets, "settings") < 10 {
			return errors.New("less than ten")
		}
		return nil
	})
	w.stop(p)
	if n := w.count(targets, "settings"); n == len(targets) {
		t.Log("the fan-out was over before the stop; nothing shown")
	}
	after := w.auditMark()
	if late := writesTo(w.requestsSince(after), ""); len(late) > 0 {
		t.Errorf("writes after the exit: %v", late)
	}
	for _, e := range writesTo(w.requests(), "settings") {
		if e.Response.Code >= 400 {
			t.Errorf("a write in flight was cut off or refused: %v", e)
		}
	}
	w.start()
	w.waitInLine(src, targets...)
}

// count returns in how many of the namespaces the outside watch has shown a ConfigMap of the name.
func (w *world) count(namespaces []string, name string) int {
	n := 0
	for _, namespace := range namespaces {
		if w.seen.ConfigMap(namespace, name) != nil {
			n++
		}
	}
	return n
}
