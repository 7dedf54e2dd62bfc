package mirror

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Somebody who changes a copy back each time we put it right must not make us write in a circle. The first
// freeRepairs of a target go at once: that is a person trying things. Each further one waits, from firstHold
// on, doubling to maxHold. A target that was left in peace for calm beyond its last hold begins anew: that is longer than
// the tools take that set things right from time to time (3 and 10 minutes are what GitOps tools come with). A target
// that had to be written only once, as a rule because it is new, is forgotten after fresh.
const (
	freeRepairs = 10
	firstHold   = time.Second
	maxHold     = time.Minute
	calm        = 15 * time.Minute
	fresh       = 30 * time.Second
)

// fights remembers how often the same content had to be written to a target again.
type fights struct {
	mu sync.Mutex
	at map[cache.ObjectName]*fight
}

// fight is the history of one target.
type fight struct {
	content string // what was written last; see contentOf
	repairs int    // how often the same was written again
	last    time.Time
}

func newFights() *fights { return &fights{at: map[cache.ObjectName]*fight{}} }

// contentOf tells one wanted state of a target from another.
func contentOf(c change) string {
	if c.source == nil {
		return "none"
	}
	return c.source.key.String() + " " + c.source.checksum
}

// wrote notes a write. repair is set if it puts right what others did; a write of what was written there before is one in
// any case.
func (f *fights) wrote(target cache.ObjectName, content string, repair bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	known := f.at[target]
	if known == nil || known.content != content || known.over(now) {
		known = &fight{content: content}
		f.at[target] = known
	} else {
		repair = true
	}
	if repair {
		known.repairs++
	}
	known.last = now
}

// hold returns how long to wait before the same content is written to the target again.
func (f *fights) hold(target cache.ObjectName, content string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.at[target]
	if known == nil || known.content != content {
		return 0
	}
	return max(0, time.Until(known.last.Add(known.hold())))
}

// calmIn returns how long a target, over which there is a fight, has to be left in peace for the fight to be
// over; 0 if there is no fight.
func (f *fights) calmIn(target cache.ObjectName) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.at[target]
	if known == nil || known.hold() == 0 {
		return 0
	}
	return max(0, time.Until(known.last.Add(known.hold()+calm)))
}

// forgetNamespace forgets the fights in a namespace that is gone: one of the same name begins anew.
func (f *fights) forgetNamespace(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for target := range f.at {
		if target.Namespace == namespace {
			delete(f.at, target)
		}
	}
}

// sweep forgets the targets that were left in peace.
func (f *fights) sweep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for target, known := range f.at {
		if known.over(now) {
			delete(f.at, target)
		}
	}
}

// hold is the time between the last write and the next one.
func (f *fight) hold() time.Duration {
	if f.repairs < freeRepairs {
		return 0
	}
	// Eight doublings are beyond maxHold.
	return min(firstHold<<min(f.repairs-freeRepairs, 8), maxHold)
}

func (f *fight) over(now time.Time) bool {
	if f.repairs == 0 {
		return now.Sub(f.last) > fresh
	}
	return now.Sub(f.last) > f.hold()+calm
}
