package main

import (
	"context"
	"sync"
	"time"
)

// tick is the time between two looks at the clock, tickLate how much more than that means that the machine has no time
// for anybody: a lease may then be lost, and a request take long, by no fault of anybody's.
const (
	tick     = 100 * time.Millisecond
	tickLate = 250 * time.Millisecond
	// slowAnswer is how long the API server takes for a request when it has no time.
	slowAnswer = 500 * time.Millisecond
)

// stalls are the moments in which the machine had no time.
type stalls struct {
	mu   sync.Mutex
	list []stall
}

type stall struct {
	at   time.Time // its end
	took time.Duration
}

// follow looks at the clock until ctx ends.
func (s *stalls) follow(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		if now.Sub(last) > tick+tickLate {
			s.add(stall{now, now.Sub(last)})
		}
		last = now
	}
}

func (s *stalls) add(one stall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, one)
}

// since returns how many there were since then, and how long they took in all.
func (s *stalls) since(then time.Time) (n int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.list {
		if one.at.After(then) {
			n++
			took += one.took
		}
	}
	return n, took
}
