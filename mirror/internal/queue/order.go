package queue

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// firstPerTurn is how many keys of AddFirst go before the next one of the lanes.
const firstPerTurn = 4

// order is the storage of a [Queue], and knows which key is next. The queue calls the exported methods one at a time,
// with a lock of its own.
type order[T comparable] struct {
	lane  func(T) string
	first sync.Map // keys of AddFirst that are not pushed or touched yet

	waiting map[T]bool // every key that waits; true: in a lane, false: ahead
	ahead   []T
	lanes   map[string][]T // may hold keys that have moved ahead
	turns   []string       // the names of lanes
	streak  int            // how many were popped ahead in a row
}

// nameOf is the lane of a target.
func nameOf(k types.NamespacedName) string { return k.Name }

// Push adds a key that does not wait.
func (o *order[T]) Push(k T) {
	if _, isFirst := o.first.LoadAndDelete(k); isFirst {
		o.pushAhead(k)
		return
	}
	o.waiting[k] = true
	lane := ""
	if o.lane != nil {
		lane = o.lane(k)
	}
	if len(o.lanes[lane]) == 0 {
		o.turns = append(o.turns, lane)
	}
	o.lanes[lane] = append(o.lanes[lane], k)
}

// Touch moves a key that waits in its lane, and has come by AddFirst now, ahead.
func (o *order[T]) Touch(k T) {
	if _, isFirst := o.first.LoadAndDelete(k); isFirst && o.waiting[k] {
		o.pushAhead(k)
	}
}

func (o *order[T]) pushAhead(k T) {
	o.waiting[k] = false
	o.ahead = append(o.ahead, k)
}

// Len returns the number of keys that wait.
func (o *order[T]) Len() int { return len(o.waiting) }

// Pop removes the next key. Len must not be 0.
func (o *order[T]) Pop() (k T) {
	ok := false
	if o.streak >= firstPerTurn || len(o.ahead) == 0 {
		k, ok = o.popTurn()
		o.streak = 0
	}
	if !ok {
		k, o.ahead = o.ahead[0], o.ahead[1:]
		o.streak++
	}
	delete(o.waiting, k)
	return k
}

// popTurn removes the next key of the lane whose turn it is; ok is false if there is none.
func (o *order[T]) popTurn() (k T, ok bool) {
	for len(o.turns) > 0 && !ok {
		lane := o.turns[0]
		keys := o.lanes[lane]
		for len(keys) > 0 && !ok {
			k, keys = keys[0], keys[1:]
			ok = o.waiting[k] // else it has moved ahead
		}
		o.turns, o.lanes[lane] = o.turns[1:], keys
		if len(keys) > 0 {
			o.turns = append(o.turns, lane)
		} else {
			delete(o.lanes, lane)
		}
	}
	return k, ok
}
