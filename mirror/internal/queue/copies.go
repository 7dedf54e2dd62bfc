// Package queue holds a work queue with precedence. It decides which key is next, and does not know why a key waits.
//
// The queue is client-go's: a key waits once however often it is added, is never in work twice at the same time, and
// waits again if it is added during the work. A worker takes a key by Get and gives it back by Done. After ShutDown,
// Get goes on handing out the keys that wait, so workers ask their context.
package queue

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Queue is a queue in which keys that come by AddFirst go first, but those that come by Add and AddAfter have every
// fifth turn if they need it. These take turns by their lanes, so that no lane holds up another one.
type Queue[T comparable] struct {
	workqueue.TypedDelayingInterface[T]
	order *order[T]
}

// New returns an empty queue. name is the label of its metrics. lane is nil if all keys share one lane.
func New[T comparable](name string, lane func(T) string) *Queue[T] {
	o := &order[T]{lane: lane, waiting: map[T]bool{}, lanes: map[string][]T{}}
	return &Queue[T]{order: o, TypedDelayingInterface: workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[T]{
			Name:  name,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: name, Queue: o}),
		})}
}

// AddFirst adds a key that goes before those of Add, also if it waits already.
func (q *Queue[T]) AddFirst(k T) {
	q.order.first.Store(k, true)
	q.Add(k)
}

// Copies is the queue of targets, with a lane for each name. Keys that an event named come first.
type Copies = Queue[types.NamespacedName]

// NewCopies returns an empty queue of targets. name is the label of its metrics.
func NewCopies(name string) *Copies {
	return New(name, nameOf)
}
