package mirror

import "context"

// slots bound how many of something happen at once.
type slots chan struct{}

// acquire waits for a slot. It returns false if ctx ends first.
func (s slots) acquire(ctx context.Context) bool {
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s slots) release() { <-s }
