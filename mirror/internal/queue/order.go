package queue

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Every function of this file runs with client-go's lock of the queue, so none
// of them may wait: all who add or take a key would wait with it. The functions
// that return the flow of a key stand here, too, and not with their callers: tests
// in virtual time pass time between the statements of all files but this one.

// firstInARow is how many keys of AddFirst go before the next one of the flows.
const firstInARow = 4

// order is the storage of a [Queue], and knows which key is next. client-go
// calls its exported methods one at a time.
type order[T comparable] struct {
	flowOf     func(T) string
	addedFirst sync.Map // keys of AddFirst that client-go has not pushed or touched yet

	waiting map[T]bool // every key that waits; true: in its flow, false: in first
	first   []T
	popped  int            // how many of first in a row
	flows   map[string][]T // may hold keys that have moved to first
	turns   []string       // the flows, in the order of their turns
}

// byName makes each name a flow.
func byName(k types.NamespacedName) string { return k.Name }

// OneFlow makes one flow of all keys.
func OneFlow[T any](T) string { return "" }

// Push adds a key that does not wait.
func (o *order[T]) Push(k T) {
	if _, isFirst := o.addedFirst.LoadAndDelete(k); isFirst {
		o.pushFirst(k)
		return
	}
	o.waiting[k] = true
	flow := o.flowOf(k)
	if len(o.flows[flow]) == 0 {
		o.turns = append(o.turns, flow)
	}
	o.flows[flow] = append(o.flows[flow], k)
}

// Touch is called when a key is added that waits already. If it waits in its
// flow, and has come by AddFirst now, it moves to the first.
func (o *order[T]) Touch(k T) {
	if _, isFirst := o.addedFirst.LoadAndDelete(k); isFirst && o.waiting[k] {
		o.pushFirst(k)
	}
}

func (o *order[T]) pushFirst(k T) {
	o.waiting[k] = false
	o.first = append(o.first, k)
}

// Len returns the number of keys that wait.
func (o *order[T]) Len() int { return len(o.waiting) }

// Pop removes the next key. Len must not be 0.
func (o *order[T]) Pop() (k T) {
	isPopped := false
	if o.popped >= firstInARow || len(o.first) == 0 {
		k, isPopped = o.popTurn()
		o.popped = 0
	}
	if !isPopped {
		k = o.first[0]
		o.first = o.first[1:]
		o.popped++
	}
	delete(o.waiting, k)
	return k
}

// popTurn removes the next key of the flow whose turn it is; ok is false if
// there is none.
func (o *order[T]) popTurn() (k T, ok bool) {
	for len(o.turns) > 0 && !ok {
		flow := o.turns[0]
		o.turns = o.turns[1:]
		keys := o.flows[flow]
		for len(keys) > 0 && !ok {
			k = keys[0]
			keys = keys[1:]
			ok = o.waiting[k] // else it has moved to the first
		}
		if len(keys) > 0 {
			o.flows[flow] = keys
			o.turns = append(o.turns, flow)
		} else {
			delete(o.flows, flow)
		}
	}
	return k, ok
}
