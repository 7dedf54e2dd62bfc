// Package queue holds the work queue of targets. It decides which key is next, and does not know why a key waits.
//
// The queue is client-go's: a key waits once however often it is added, is never in work twice at the same time, and
// waits again if it is added during the work. A worker takes a key by Get and gives it back by Done. After ShutDown,
// Get goes on handing out the keys that wait, so workers ask their context.
package queue

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Copies is the queue of targets: the namespace of each key is a target, and its name is that of the sources. Keys that
// an event named go first, but a fan-out has every fifth turn if it needs it. The keys of fan-outs take turns by their
// names, so that no fan-out holds up another one.
type Copies struct {
	workqueue.TypedDelayingInterface[types.NamespacedName]
	order *order
}

// NewCopies returns an empty queue. name is the label of its metrics.
func NewCopies(name string) *Copies {
	o := &order{named: map[key]bool{}, waiting: map[key]bool{}, perName: map[string][]key{}}
	return &Copies{order: o, TypedDelayingInterface: workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[key]{
			Name:  name,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[key]{Name: name, Queue: o}),
		})}
}

// AddEvent adds a key that an event named. It goes before the keys of fan-outs and retries, which come by Add and
// AddAfter, but for every fifth turn.
func (q *Copies) AddEvent(k types.NamespacedName) {
	q.order.addNamed(k)
	q.Add(k)
}
