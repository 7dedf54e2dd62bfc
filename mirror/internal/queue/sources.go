package queue

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Sources is the queue of names of sources. A name waits for a fan-out, which compares all targets with the sources, or
// for a report alone, whose cost does not grow with the number of targets that are in sync.
type Sources struct {
	workqueue.TypedDelayingInterface[string]

	mu      sync.Mutex
	fanouts map[string]bool // names that wait for a fan-out
}

// NewSources returns an empty queue. name is the label of its metrics.
func NewSources(name string) *Sources {
	return &Sources{
		fanouts: map[string]bool{},
		TypedDelayingInterface: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[string]{Name: name}),
	}
}

// Add queues a name for a fan-out and a report.
func (q *Sources) Add(name string) {
	q.mu.Lock()
	q.fanouts[name] = true
	q.mu.Unlock()
	q.TypedDelayingInterface.Add(name)
}

// AddReport queues a name for a report, after a time.
func (q *Sources) AddReport(name string, after time.Duration) { q.AddAfter(name, after) }

// WantsFanout reports whether a name waits for a fan-out.
func (q *Sources) WantsFanout(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fanouts[name]
}

// BeginFanout records that the fan-out of a name begins. An Add from then on asks for another one.
func (q *Sources) BeginFanout(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.fanouts, name)
}
