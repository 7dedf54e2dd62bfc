package e2e

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Sources that go, and controllers that were away: cases C14, C15 and C18.

// TestC14WhileDown changes sources and flags while no controller runs: at the start the copies that are no longer
// wanted go, and no other is touched.
func TestC14WhileDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	w.labelNamespace(a, "tier", "front")
	elsewhere := w.elsewhere("elsewhere")
	p := w.start()
	for _, name := range []string{"deleted", "unlabelled", "relabelled", "narrowed", "selective", "kept"} {
		w.waitInSync(w.createSource(w.home, name), a, b, c)
	}
	w.waitInSync(w.createSource(elsewhere, "elsewhere"), a, b, c)
	w.stop(p)

	w.delete(w.home, "deleted")
	w.edit(w.home, "unlabelled", withoutLabel(w.label))
	w.edit(w.home, "relabelled", withLabel(w.label, "off"))
	w.edit(w.home, "narrowed", withAnnotation(plan.PrefixAnnotation, a))
	w.edit(w.home, "selective", withAnnotation(plan.SelectorAnnotation, "tier=front"))
	stay := append(w.copies("kept", a, b), w.live(a, "narrowed"), w.live(a, "selective"))
	p = w.start("--exclude-namespace="+c, "--source-namespace="+w.home, "--prune-limit=70%") // 6 of 10
	w.waitGone("deleted", a, b, c)
	w.waitGone("unlabelled", a, b, c)
	w.waitGone("relabelled", a, b, c)
	w.waitGone("narrowed", b, c)
	w.waitGone("selective", b, c)
	w.waitGone("kept", c)
	w.waitGone("elsewhere", a, b, c)
	w.settle(a, b)
	w.allUntouched(stay)
	w.stop(p)

	w.startExactly("--namespace-prefix=" + a)
	w.waitGone("kept", b)
	w.settle(a)
	w.allUntouched([]*corev1.ConfigMap{stay[0], stay[2], stay[3]})
}

// TestC14ManyAfterRestart covers C14 for many copies at once: source deleted while nobody watches.
func TestC14ManyAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(100)
	p := w.start()
	src := w.createSource(w.home, "settings")
	w.waitInSync(src, targets...)
	w.stop(p)
	w.delete(w.home, "settings")
	began, mark := time.Now(), w.auditMark()
	w.start()
	w.waitGone("settings", targets...)
	reads := 0
	for _, e := range w.requestsSince(mark) {
		if e.Object.Resource == "configmaps" && e.Verb == "get" && e.Response.Code == http.StatusNotFound {
			reads++
		}
	}
	// An answer serves for five seconds, and all deletions share it. As a rule they take a fraction of one.
	if most := 2 + int(time.Since(began)/(5*time.Second)); reads > most {
		t.Errorf("%d live reads of one source that is gone, want %d at most", reads, most)
	}
}

// TestC15SourceRecreated deletes a source and creates it anew at once, a hundred times: with the same data not one
// copy is deleted, not one is written; with other data they are updated where they are. On a slow machine a source may come too
// late, and says nothing then.
func TestC15SourceRecreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	w.start()
	w.waitInSync(w.createSource(w.home, "settings"), a, b, c)
	copies, late := w.copies("settings", a, b, c), 0
	for i := range 100 {
		source, inTime := w.replaceSource("settings")
		w.tick(i, a, b, c)
		if !inTime {
			w.waitInSync(source, a, b, c)
			copies = w.copies("settings", a, b, c)
			late++
		}
		w.allUntouched(copies)
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	for i := range 20 {
		source, inTime := w.replaceSource("settings", withData(map[string]string{"round": string(rune('a' + i))}))
		w.waitInSync(source, a, b, c)
		if !inTime {
			copies = w.copies("settings", a, b, c)
			late++
		}
	}
	t.Logf("%d of 120 sources came back too late to count", late)
	// Until those are gone whose second began after the last round.
	w.waitInSync(w.createSource(w.home, "last"), a, b, c)
	w.delete(w.home, "last")
	w.waitGone("last", a, b, c)
	w.sameObjects(copies)
	deletions := 0
	for _, e := range writesTo(w.requests(), "settings") {
		if e.Verb == "delete" && e.Response.Code < 300 {
			deletions++
		}
	}
	if deletions > 3*late {
		t.Errorf("%d copies were deleted, want those of %d sources that came too late at most", deletions, late)
	}
}

// TestC18Reinstalled takes the controller away, once by force, and installs it again: the copies are kept,
// recognised, and not written. The new controller applies the changes that it missed.
func TestC18Reinstalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	p := w.start("--copy-label=team")
	source := w.createSource(w.home, "settings", withLabel("team", "red"))
	fixed := w.createSource(w.home, "fixed", setImmutable)
	w.waitInSync(source, a, b)
	w.waitInSync(fixed, a, b)
	w.settle(a, b)
	copies := append(w.copies("settings", a, b), w.copies("fixed", a, b)...)
	for round := range 4 {
		if round%2 == 0 {
			p.Kill()
		} else {
			w.stop(p)
		}
		w.allUntouched(copies)
		mark := w.auditMark()
		p = w.start("--copy-label=team")
		w.settle(a, b)
		for _, name := range []string{"settings", "fixed"} {
			if writes := writesTo(w.requestsSince(mark), name); len(writes) > 0 {
				t.Errorf("the restart wrote: %v", writes)
			}
		}
	}
	w.allUntouched(copies)
	w.stop(p)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	c := w.createNamespace(w.ns("c"), nil).Name
	w.start("--copy-label=team")
	w.waitInSync(source, a, b, c)
	w.waitInSync(fixed, c)
	w.sameObjects(copies)
}
