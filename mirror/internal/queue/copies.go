// Package queue holds a work queue with precedence and fair queuing. It decides
// which key is next, and does not know why a key waits.
//
// The queue is client-go's: a key waits once however often it is added, is
// never in work twice at the same time, and waits again if it is added during
// the work. A worker takes a key by Get and gives it back by Done. After
// ShutDown, Get goes on handing out the keys that wait, so workers ask their
// context.
package queue

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Queue is a queue in which keys that come by AddFirst go first. Those that
// come by Add and AddAfter have every fifth turn if they need it. Among them
// the queue is fair, as API Priority and Fairness is among requests: keys
// belong to flows, and flows take turns, so that a flow with a thousand keys
// does not hold up one with a single key.
type Queue[T comparable] struct {
	workqueue.TypedDelayingInterface[T]
	order *order[T]
}

// New returns an empty queue. name is the label of its metrics. flowOf returns
// the flow of a key. client-go's lock is held then, so flowOf must not wait;
// the functions of order.go do not.
func New[T comparable](name string, flowOf func(T) string) *Queue[T] {
	o := &order[T]{flowOf: flowOf, waiting: map[T]bool{}, flows: map[string][]T{}}
	inOrder := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: name, Queue: o})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[T]{Name: name, Queue: inOrder})
	return &Queue[T]{delaying, o}
}

// AddFirst adds a key that goes before those of Add, also if it waits already.
func (q *Queue[T]) AddFirst(k T) {
	q.order.addedFirst.Store(k, true)
	q.Add(k)
}

// Copies is the queue of targets, in which each name is a flow.
type Copies = Queue[types.NamespacedName]

// NewCopies returns an empty queue of targets. name is the label of its
// metrics.
func NewCopies(name string) *Copies {
	return New(name, byName)
}
