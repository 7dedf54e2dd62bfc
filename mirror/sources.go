package mirror

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// sourceQueue is the queue of source names. Add asks for a fan-out: a comparison of all targets with the sources. addReport asks
// for a report only, whose cost does not grow with the number of targets that are in sync.
type sourceQueue struct {
	workqueue.TypedDelayingInterface[string]

	mu      sync.Mutex
	fanouts map[string]bool // names whose targets are to be compared
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
	q.addReport(name)
}

// addReport queues a name for a report.
func (q *sourceQueue) addReport(name string) { q.TypedDelayingInterface.Add(name) }

// takeFanout reports whether a fan-out of the name was asked for since the last call.
func (q *sourceQueue) takeFanout(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	due := q.fanouts[name]
	delete(q.fanouts, name)
	return due
}
