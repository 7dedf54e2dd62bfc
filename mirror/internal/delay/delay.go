// Package delay is what instrumented copies of package mirror import: its program instrument writes a delay point before each
// statement, and the histories of package mirror decide where time passes. The product imports nothing of it.
package delay

import "sync"

// At is called before each statement. point is its file and line. A test sets it before the controller runs.
var At = func(point string) {}

// Mutex replaces sync.Mutex. A goroutine that waits for it lets the virtual time of testing/synctest go on, so that a delay may
// come while it is held.
type Mutex struct {
	made sync.Mutex
	held chan struct{}
}

// Lock locks m.
func (m *Mutex) Lock() {
	m.made.Lock()
	if m.held == nil {
		m.held = make(chan struct{}, 1)
	}
	m.made.Unlock()
	m.held <- struct{}{}
}

// Unlock unlocks m.
func (m *Mutex) Unlock() { <-m.held }
