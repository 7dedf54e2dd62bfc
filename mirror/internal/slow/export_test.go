package slow

// Known returns the number of slow namespaces, and of calls in flight.
func (q *Queue) Known() (slow, calls int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.namespaces), len(q.inFlight)
}
