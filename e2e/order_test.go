package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// In which order copies are written, and how often: cases C32, C38 and C40.

// TestC32DuringFanOut creates a namespace in the middle of a fan-out to hundreds: it does not wait for the end.
func TestC32DuringFanOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(300)
	hook := w.startWebhook(targets[0], nil)
	w.start("--concurrent-writes=1")
	reached, proceed := hook.holdNext(admissionv1.Create)
	source := w.createSource(w.home, "settings")
	w.wait("the fan-out", reached)
	late := w.createNamespace(w.ns("z"), nil).Name
	w.eventually("the namespace is seen", func() error {
		if w.seen.Namespace(late) == nil {
			return errors.New("not yet")
		}
		return nil
	})
	proceed()
	w.waitInSync(source, append(targets, late)...)
	order := w.waitWrites("settings", len(targets)+1)
	if at := slices.Index(order, "create "+late); at > len(order)/2 {
		t.Errorf("the new namespace came %dth of %d", at+1, len(order))
	}
}

// TestC38UpdatesInARow changes a source a hundred times in a row: the last state is everywhere in the end, and the
// controller has looked at its targets once for each update at most, and once for each write of its own that it saw.
func TestC38UpdatesInARow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const updates = 100
	targets := w.createMany(20)
	p := w.start("-v=4", "--resync-period=0")
	src := w.createSource(w.home, "busy")
	w.waitInSync(src, targets...)
	w.settle(targets...)
	looksBefore := strings.Count(p.Log(), `/busy"`)
	mark := w.auditMark()
	for i := range updates {
		src.Data = map[string]string{"version": fmt.Sprint(i)}
		var err error
		if src, err = w.admin.CoreV1().ConfigMaps(w.home).Update(w.ctx, src, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.waitInSync(src, targets...)
	w.settle(targets...)
	looks := strings.Count(p.Log(), `/busy"`) - looksBefore // each logs one line that names the copy
	writes := len(writesTo(w.requestsSince(mark), "busy"))
	if most := (updates+10)*len(targets) + writes; looks > most {
		t.Errorf("%d looks at %d targets for %d updates and %d writes, want %d at most", looks, len(targets), updates, writes, most)
	}
	if most := updates * len(targets); writes > most {
		t.Errorf("%d writes at %d targets for %d updates, want %d at most", writes, len(targets), updates, most)
	}
	t.Logf("%d looks, %d writes", looks, writes)
}

// TestC40Idle shows that without a change there is no request but the watches, and that a foreign object in
// the way costs no more than its retries: creates that are refused, and reads at the first of them.
func TestC40Idle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "taken")
	targets, taken := w.createMany(10), w.ns("taken")
	w.create(taken, "quiet")
	src := w.createSource(w.home, "quiet")
	first := w.start()
	w.waitInSync(src, targets...)
	w.settle(targets...)
	w.stop(first)

	// A restart with everything in sync writes nothing: what it does until it has dealt with a new source is
	// all there is.
	mark := w.auditMark()
	w.start("--resync-period=200ms")
	w.settle(targets...)
	w.settle(targets...)
	retries := 0
	for _, e := range w.requestsSince(mark) {
		ofTheBarrier := e.Object.Resource == "configmaps" && e.Object.Name != "" && e.Object.Name != "quiet"
		switch {
		case e.Verb == "watch", e.Object.Resource == "events", ofTheBarrier:
		case e.Object.Namespace == taken && (e.Verb == "get" || e.Verb == "create" && e.Response.Code == http.StatusConflict):
			retries++
		default:
			t.Errorf("request without need: %v", e)
		}
	}
	if retries > 20 { // two at each of the first tries, after 0, 1, 3, 7, 15 and 31 seconds
		t.Errorf("%d requests for one object that is in the way", retries)
	}
}
