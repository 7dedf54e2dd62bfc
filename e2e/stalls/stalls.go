// Package stalls tells when the machine ran no process at all. At such a moment no program can keep a promised time, or an order
// that depends on leases.
package stalls

import (
	"context"
	"sync"
	"time"
)

// tick is the time between two looks at the clock, late how much more than that is a stall.
const (
	tick = 100 * time.Millisecond
	late = 250 * time.Millisecond
)

// Log is a list of stalls. Its zero value is empty. It can be used by several goroutines.
type Log struct {
	mu   sync.Mutex
	list []stall
}

type stall struct {
	end  time.Time
	took time.Duration
}

// Follow looks at the clock until ctx ends, and adds the times in which it did not get to.
func (l *Log) Follow(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		if took := now.Sub(last); took > tick+late {
			l.Add(now, took)
		}
		last = now
	}
}

// Add adds a stall that ended then.
func (l *Log) Add(end time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, stall{end, took})
}

// Between returns how long those took in all that were at any moment between the two.
func (l *Log) Between(from, to time.Time) (took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.list {
		if !one.end.Before(from) && !one.end.Add(-one.took).After(to) {
			took += one.took
		}
	}
	return took
}
