package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Sources of one name: cases C03 and C04.

// TestC03PlatformBeforeTenant has a tenant publish a name before the platform does: the platform takes every
// target, in place, and keeps it over restarts; the tenant gets an event.
func TestC03PlatformBeforeTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	p := w.start()
	tenants := w.createSource(a, "settings")
	w.waitInSync(tenants, b, c)
	copies := w.copies("settings", b, c)
	w.waitYounger(tenants)
	platforms := w.createSource(w.home, "settings")
	w.waitInSync(platforms, b, c)
	w.sameObjects(copies)
	if note := w.waitEvent(a, "settings", "Superseded"); !strings.Contains(note, w.home+"/settings") {
		t.Errorf("the event does not name the winner: %s", note)
	}
	copies = w.copies("settings", b, c)
	for range 3 {
		w.stop(p)
		p = w.start()
		w.settle(a, b, c)
	}
	w.allUntouched(append(copies, tenants))
}

// TestC03OlderBeforeYounger has two sources of equal standing: the older wins, of those of one second the one
// with the smaller key, whichever the controller meets first.
func TestC03OlderBeforeYounger(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	older := w.createSource(b, "aged")
	w.waitYounger(older)
	younger := w.createSource(a, "aged")
	var smaller, greater *corev1.ConfigMap
	tries := 0
	w.until("two sources of one second", func() error {
		name := fmt.Sprintf("twins-%d", tries)
		tries++
		greater, smaller = w.createSource(b, name), w.createSource(a, name)
		if !greater.CreationTimestamp.Equal(&smaller.CreationTimestamp) {
			return errors.New("they are of two seconds")
		}
		return nil
	})
	for range 2 {
		p := w.start()
		w.waitInSync(older, c)
		w.waitInSync(smaller, c)
		w.waitEvent(a, "aged", "Superseded")
		w.waitEvent(b, smaller.Name, "Superseded")
		w.settle(a, b, c)
		w.expectWrites("aged", "create "+c)
		w.expectWrites(smaller.Name, "create "+c)
		w.stop(p)
	}
	w.allUntouched([]*corev1.ConfigMap{older, younger, smaller, greater})

	// One that comes later, while a winner is in place, changes nothing if it is younger.
	w.start()
	latest := w.createSource(w.elsewhere("late"), "late")
	w.waitInSync(latest, a, b, c)
	copies := w.copies("late", a, b, c)
	w.waitYounger(latest)
	w.createSource(w.home, "late")
	w.waitEvent(w.home, "late", "Superseded")
	w.settle(a, b, c)
	w.allUntouched(copies)
}

// TestC03TakeOverInPlace deletes and unlabels the winner a hundred times: each time the other source takes over
// the copies, and gives them back, without a delete.
func TestC03TakeOverInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	loser := w.createSource(a, "settings")
	w.start()
	winner := w.createSource(w.home, "settings")
	w.waitInSync(winner, b, c)
	w.waitEvent(a, "settings", "Superseded")
	copies := w.copies("settings", b, c)
	for i := range 100 {
		if i%2 == 0 {
			w.delete(w.home, "settings")
		} else {
			w.edit(w.home, "settings", withoutLabel(w.label))
		}
		w.waitInSync(loser, b, c)
		w.sameObjects(copies)
		if i%2 == 0 {
			winner = w.createSource(w.home, "settings")
		} else {
			winner = w.edit(w.home, "settings", withLabel(w.label, "true"))
		}
		w.waitInSync(winner, b, c)
		w.sameObjects(copies)
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	w.untouched(loser)
	for _, e := range writesTo(w.requests(), "settings") {
		if e.Verb == "delete" {
			t.Errorf("the controller deleted: %v", e)
		}
	}
}

// TestC03CopyTurnedIntoSource has a tenant turn the copy in his namespace into a source that is older than the
// platform's: he does not win, and what he has made is his.
func TestC03CopyTurnedIntoSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	p := w.start()
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, a, b)
	w.stop(p)
	w.waitYounger(w.live(a, "settings"))
	w.delete(w.home, "settings")
	w.createSource(w.home, "settings")
	turned := w.edit(a, "settings", withLabel(w.label, "true"), withData(map[string]string{"key": "stolen"}),
		func(cm *corev1.ConfigMap) { cm.Annotations = nil })
	copies := w.copies("settings", b)
	w.start()
	w.waitEvent(a, "settings", "Superseded")
	w.settle(a, b)
	w.allUntouched(append(copies, turned))
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInSync(source, b)
	w.untouched(turned)
}

// TestC04SourcesInTargets has two sources of one name in namespaces that both match: neither is overwritten, and
// the other follows where the first was when it goes.
func TestC04SourcesInTargets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	second := w.createSource(b, "settings")
	w.waitYounger(second)
	third := w.createSource(a, "settings")
	w.start("--resync-period=200ms")
	w.waitInSync(second, c)
	w.waitEvent(a, "settings", "Superseded")
	w.passes(2, c)
	w.allUntouched([]*corev1.ConfigMap{second, third})
	third = w.edit(a, "settings", withData(map[string]string{"key": "two"}))
	second = w.edit(b, "settings", withData(map[string]string{"key": "three"}))
	w.waitInSync(second, c)
	w.passes(2, c)
	w.allUntouched([]*corev1.ConfigMap{second, third})

	copies := w.copies("settings", c)
	w.delete(b, "settings")
	w.waitInSync(third, b, c)
	w.passes(1, c)
	w.untouched(third)
	w.sameObjects(copies)
}
