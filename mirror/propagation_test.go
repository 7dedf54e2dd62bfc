package mirror

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestPropagation is from the first change to the last copy, as the reports see it. Each step begins a second after
// the last one.
func TestPropagation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, source := newStatus(), parsed(sourceIn("platform"))
		n := s.lock("settings")
		n.source(source.Key) // a name with a source is kept
		n.unlock()
		changes := func() { s.sourceChanged(source.Key) }
		writes := func() { n.source(source.Key).wrote = time.Now() }
		b := func(state plan.State) {
			n.set("b", "", record{basics: basics{state: state, countsFor: source.Key}})
		}
		fansOut := func() { n.fanout = time.Now() }
		const none = -1
		for i, step := range []struct {
			do   func()
			want time.Duration
		}{
			{func() { changes(); fansOut() }, none},        // nothing was to be written
			{func() { fansOut(); writes() }, none},         // a repair
			{func() { changes(); fansOut(); writes() }, 0}, // at once
			{func() { changes(); b(plan.StatePending) }, none},
			{func() { changes(); fansOut(); writes() }, none}, // b is still pending
			{func() { b(plan.StateSynced) }, time.Second},     // from the first change to the last write
			{func() { writes() }, none},
			{func() { changes(); fansOut(); b(plan.StatePending) }, none},
			{func() { writes(); b(plan.StateForeign) }, time.Second},            // what is blocked is not waited for
			{func() { writes(); time.Sleep(time.Nanosecond); changes() }, none}, // the fan-out has not seen the change
			{func() { fansOut(); writes() }, time.Second},
		} {
			time.Sleep(time.Second)
			step.do()
			n.mu.Lock()
			sum := reporterOf(t, s).summarize(n, plan.NewView([]*plan.Source{source}), time.Now())[source.Key]
			took, ok := n.source(source.Key).propagated(sum, n.fanout)
			n.mu.Unlock()
			if !ok {
				took = none
			}
			if took != step.want {
				t.Errorf("step %d: got %v, want %v", i, took, step.want)
			}
		}
	})
}
