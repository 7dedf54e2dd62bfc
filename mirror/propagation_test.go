package mirror

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestPropagation is from the first change to the last copy.
func TestPropagation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{status: newStatus()}
		d.has(sourceIn("platform"))
		const none = -1
		propagated := func() (took time.Duration) {
			d.beginFanout("settings")
			for _, sum := range d.summarize("settings", plan.NewView(d.sources)) {
				var ok bool
				if took, ok = d.propagated(sum); !ok {
					took = none
				}
			}
			return took
		}
		changed := func() { d.sourceChanged(d.sources[0].Key) }
		for i, step := range []struct {
			do   func()
			want time.Duration
		}{
			{changed, none},                  // nothing was to be written
			{func() { d.writes("a") }, none}, // a repair
			{func() { changed(); d.at(plan.StatePending, "", "b"); time.Sleep(time.Second); d.writes("a") }, none},
			{changed, none},
			{func() { d.at(plan.StateSynced, "", "b") }, time.Second}, // without a write: as of the last one
			{func() { changed(); d.at(plan.StatePending, "", "b"); d.writes("a") }, none},
			{func() { d.writes("b") }, time.Second},
			{func() { d.writes("b") }, none},
			{func() { changed(); time.Sleep(time.Second); d.at(plan.StateForeign, "", "b"); d.writes("a") }, time.Second},
		} {
			step.do()
			if got := propagated(); got != step.want {
				t.Errorf("step %d: got %v, want %v", i, got, step.want)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestPropagationOfAChangeDuringAReport: a fan-out reports what it saw, and the change that came after counts later.
func TestPropagationOfAChangeDuringAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{status: newStatus()}
		d.has(sourceIn("platform"))
		report := func() (took time.Duration, ok bool) {
			for _, sum := range d.summarize("settings", plan.NewView(d.sources)) {
				took, ok = d.propagated(sum)
			}
			return took, ok
		}
		d.beginFanout("settings")
		time.Sleep(time.Millisecond)
		d.sourceChanged(d.sources[0].Key)
		if _, ok := report(); ok {
			t.Error("got a change through that the report has not seen")
		}
		time.Sleep(time.Second)
		d.writes("a")
		d.beginFanout("settings")
		if took, ok := report(); !ok || took != time.Second {
			t.Errorf("got %v, %v, want a second", took, ok)
		}
	})
}
