package queue

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

type key = types.NamespacedName

// eventsPerTurn is how many keys that an event named go before the next key of a fan-out.
const eventsPerTurn = 4

// order is the storage of [Copies], and knows which key is next. The queue calls the exported methods one at a time,
// with a lock of its own.
type order struct {
	mu    sync.Mutex
	named map[key]bool // keys that an event has named; mu guards it

	waiting map[key]bool // every key that waits; true: by its name, false: in events
	events  []key
	perName map[string][]key // by source name; may hold keys that have moved to events
	turns   []string         // the names of perName
	streak  int              // how many of events were popped in a row
}

var _ workqueue.Queue[key] = &order{}

// addNamed remembers that an event named the key, until the key is pushed or touched.
func (o *order) addNamed(k key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.named[k] = true
}

func (o *order) takeNamed(k key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	named := o.named[k]
	delete(o.named, k)
	return named
}

// Push adds a key that does not wait.
func (o *order) Push(k key) {
	if o.takeNamed(k) {
		o.pushEvent(k)
		return
	}
	o.waiting[k] = true
	if len(o.perName[k.Name]) == 0 {
		o.turns = append(o.turns, k.Name)
	}
	o.perName[k.Name] = append(o.perName[k.Name], k)
}

// Touch moves a key that waits by its name, and that an event has named now, to the events.
func (o *order) Touch(k key) {
	if o.takeNamed(k) && o.waiting[k] {
		o.pushEvent(k)
	}
}

func (o *order) pushEvent(k key) {
	o.waiting[k] = false
	o.events = append(o.events, k)
}

// Len returns the number of keys that wait.
func (o *order) Len() int { return len(o.waiting) }

// Pop removes the next key. Len must not be 0.
func (o *order) Pop() key {
	k, ok := key{}, false
	if o.streak >= eventsPerTurn || len(o.events) == 0 {
		k, ok = o.popTurn()
		o.streak = 0
	}
	if !ok {
		k, o.events = o.events[0], o.events[1:]
		o.streak++
	}
	delete(o.waiting, k)
	return k
}

// popTurn removes the next key of the name whose turn it is; ok is false if there is none.
func (o *order) popTurn() (k key, ok bool) {
	for len(o.turns) > 0 && !ok {
		name := o.turns[0]
		keys := o.perName[name]
		for len(keys) > 0 && !ok {
			k, keys = keys[0], keys[1:]
			ok = o.waiting[k] // else it has moved to the events
		}
		o.turns, o.perName[name] = o.turns[1:], keys
		if len(keys) > 0 {
			o.turns = append(o.turns, name)
		} else {
			delete(o.perName, name)
		}
	}
	return k, ok
}
