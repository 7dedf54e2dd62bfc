// Package delay is imported by instrumented copies of package mirror and the packages below it. Its program instrument
// writes a delay point before each statement, and the histories of package mirror decide where time passes. The product
// does not import it.
package delay

import "sync"

var atPoint = func(string) {}

// At is called before each statement. point is its file and line.
func At(point string) { atPoint(point) }

// Set has f decide what happens at each point. Call it before the controller runs.
func Set(f func(point string)) { atPoint = f }

// Mutex replaces sync.Mutex. A goroutine that waits for it lets the virtual time of testing/synctest go on, so that a
// delay may come while it is held.
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
