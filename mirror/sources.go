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
	fanouts map[string]bool // true: asked for; false: begun
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

// takeFanout begins the fan-out of a name, if one was asked for. It ends with Done.
func (q *sourceQueue) takeFanout(name string) (begun bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if begun = q.fanouts[name]; begun {
		q.fanouts[name] = false
	}
	return begun
}

// Done ends the work on a name.
func (q *sourceQueue) Done(name string) {
	q.mu.Lock()
	if !q.fanouts[name] {
		delete(q.fanouts, name)
	}
	q.mu.Unlock()
	q.TypedDelayingInterface.Done(name)
}

// idle reports whether every fan-out that was asked for has ended.
func (q *sourceQueue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.fanouts) == 0
}
