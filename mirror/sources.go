package mirror

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// sourceQueue is the queue of source names. Add asks for a fan-out: a comparison of all targets with the sources. addReport asks
// for a report only, whose cost does not grow with the number of targets that are in sync.
type sourceQueue struct {
	workqueue.TypedDelayingInterface[string]

	mu      sync.Mutex
	fanouts map[string]bool // that were asked for
}

func newSourceQueue() *sourceQueue {
	return &sourceQueue{
		fanouts: map[string]bool{},
		TypedDelayingInterface: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[string]{Name: queueName + "-sources"}),
	}
}

// Add queues a name for a fan-out and a report.
func (q *sourceQueue) Add(name string) {
	q.mu.Lock()
	q.fanouts[name] = true
	q.mu.Unlock()
	q.TypedDelayingInterface.Add(name)
}

// addReport queues a name for a report, after a time.
func (q *sourceQueue) addReport(name string, after time.Duration) { q.AddAfter(name, after) }

// wantsFanout reports whether a fan-out of a name was asked for.
func (q *sourceQueue) wantsFanout(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fanouts[name]
}

// beginFanout records that a fan-out begins. A later request asks for another one.
func (q *sourceQueue) beginFanout(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.fanouts, name)
}
