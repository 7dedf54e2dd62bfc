package delay

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestMutexLetsTimePass: a goroutine holds a mutex while time passes, and others wait for it.
func TestMutexLetsTimePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, began := &Mutex{}, time.Now()
		m.Lock()
		go func() {
			time.Sleep(time.Second)
			m.Unlock()
		}()
		m.Lock()
		if took := time.Since(began); took != time.Second {
			t.Errorf("got the mutex after %v, want it when it is unlocked", took)
		}
		m.Unlock()
	})
}
