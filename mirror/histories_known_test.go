package mirror

import (
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/internal/delay"
)

// knownFaults are faults of the controller that are not mended yet. TestHistories passes over what they show.
var knownFaults = []struct {
	name  string
	kind  string
	shows *regexp.Regexp
	when  func(*history) bool
	seeds []uint64 // of histories that show it
}{
	{
		name: "a copy is not deleted while live reads take more than 5 s",
		kind: outOfSync, shows: regexp.MustCompile(`: delete is due`),
		when:  func(h *history) bool { return h.latest+10*h.latestDelay >= answerLifetime },
		seeds: []uint64{130028, 130183, 130186},
	}, {
		name: "a problem counts for a source that no longer has the target",
		kind: wrongStatus, shows: regexp.MustCompile(`: (foreign|failed|fight|superseded) counts for `),
		when:  func(*history) bool { return true },
		seeds: []uint64{131249, 137475},
	}, {
		name: "a write that a webhook altered counts as done if the watch is late",
		kind: outOfSync, shows: regexp.MustCompile(`: (create|update|recreate) is due`),
		when:  func(h *history) bool { return h.altered },
		seeds: []uint64{134452, 128084, 202611231531},
	}, {
		name: "a problem that is over stays counted while a copy is terminating",
		kind: wrongStatus, shows: regexp.MustCompile(`got (foreign|failed|fight) of .*, want pending of `),
		when:  func(*history) bool { return true },
		seeds: []uint64{130668, 131019, 131516},
	}, {
		name: "a re-creation that a webhook alters, and whose answer is lost, repeats at once",
		kind: hotLoop, shows: regexp.MustCompile(``),
		when:  func(h *history) bool { return h.altered },
		seeds: []uint64{122752, 124003, 124591},
	},
}

// isKnown reports whether a finding comes of a known fault.
func (h *history) isKnown(f finding) bool {
	for _, k := range knownFaults {
		if k.kind == f.kind && k.shows.MatchString(f.detail) && k.when(h) {
			return true
		}
	}
	return false
}

// TestKnownFaults plays histories that show the known faults. A fault that none of them shows any more is mended: it leaves the
// list.
func TestKnownFaults(t *testing.T) {
	if play(t, 1); delay.Reached() == 0 {
		t.Skip("the histories need delay points: run make histories")
	}
	for _, k := range knownFaults {
		t.Run(k.name, func(t *testing.T) {
			for _, seed := range k.seeds {
				h := (*history)(nil)
				t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { h = play(t, seed) })
				if slices.ContainsFunc(h.findings, func(f finding) bool { return f.kind == k.kind && k.shows.MatchString(f.detail) }) {
					return
				}
			}
			t.Error("no history shows it any more: remove it from the list")
		})
	}
}
