package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror"
)

// Copies out of scope of the flags: cases C17, C44 and C50.

// TestC17PruneLimit starts the controller with a typo in the prefix: it deletes nothing, says so, and goes on mirroring, also
// the deletion of sources. The right prefix finds everything in place. The typo with --prune-limit=100% is believed.
func TestC17PruneLimit(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "typo-a")
	targets, typo := w.CreateMany(12), w.NS("typo-a")
	right, wrong := "--namespace-prefix="+w.NS("n"), "--namespace-prefix="+w.NS("typo-")
	p := w.StartExactly(right)
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, targets...)
	w.WaitInSync(w.CreateSource(w.Home, "temporary"), targets...)
	copies := w.Copies("settings", targets...)
	w.Stop(p)

	const served = "--metrics-bind-address=127.0.0.1:0"
	blocked := func(copies float64) map[string]float64 { return map[string]float64{`mirror_prune_blocked`: copies} }
	p = w.StartExactly(wrong, served, "--resync-period=200ms", "--health-probe-bind-address=127.0.0.1:0")
	w.WaitInSync(source, typo)
	w.Until("ready while the limit blocks", func() error { return w.Probe(p, "/readyz") })
	w.WaitEvent(w.Home, "settings", "PruneBlocked")
	w.WaitMetrics("the copies of both sources", p, blocked(2*12))
	w.Delete(w.Home, "temporary")
	w.WaitGone("temporary", append(targets, typo)...)
	w.Passes(3, typo)
	w.AllUntouched(copies)
	w.WaitMetrics("the copies of one source", p, blocked(12))
	w.Stop(p)

	p = w.StartExactly(right, served)
	w.WaitGone("settings", typo)
	w.Settle(targets...)
	w.AllUntouched(copies)
	w.WaitMetrics("the right prefix", p, blocked(0))
	if writes := w.WaitWrites("settings", 12+2); len(writes) != 12+2 || writes[13] != "delete "+typo {
		t.Errorf("writes: %q, want 12 creates with the right prefix, 1 with the wrong one, and that it goes again", writes)
	}
	w.Stop(p)

	p = w.StartExactly(wrong, served, "--prune-limit=100%")
	w.WaitGone("settings", targets...)
	w.WaitInSync(source, typo)
	w.WaitMetrics("the wrong prefix is believed", p, blocked(0))
}

// TestC44SharedInstance runs two controllers of one instance with different prefixes: each leaves the copies of the other
// alone, reports them, and nothing is emptied.
func TestC44SharedInstance(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	ours, theirs := createNamed(w, "ours-", 15), createNamed(w, "theirs-", 15)
	const served = "--metrics-bind-address=127.0.0.1:0"
	first := w.StartExactly("--namespace-prefix="+w.NS("ours-"), served)
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, ours...)
	second := w.StartExactly("--namespace-prefix="+w.NS("theirs-"), served)
	w.WaitInSync(source, theirs...)
	if note := w.WaitEvent(w.Home, "settings", mirror.ReasonPruneBlocked); !strings.Contains(note, "15 of 30") {
		t.Errorf("the event does not say how many: %s", note)
	}
	w.WaitEvent(w.Home, "settings", mirror.ReasonOutOfScope)
	for who, p := range map[string]*shipped.Process{"first": first, "second": second} {
		w.WaitMetrics("the "+who, p, map[string]float64{
			`mirror_copies{state="synced"}`:       15,
			`mirror_copies{state="out_of_scope"}`: 15,
			`mirror_copies{state="foreign"}`:      0,
		})
	}
	source = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
	w.WaitInSync(source, slices.Concat(ours, theirs)...)
	for _, e := range suite.WritesTo(w.Requests(), "settings") {
		if e.Verb == "delete" {
			t.Errorf("one deleted a copy of the other: %v", e)
		}
	}
}

// createNamed creates n target namespaces whose names begin so.
func createNamed(w *suite.World, prefix string, n int) (names []string) {
	w.Helper()
	for i := range n {
		names = append(names, w.CreateNamespace(w.NS(fmt.Sprint(prefix, i)), nil).Name)
	}
	return names
}
