package mirror

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// A key of the queue of copies is a target namespace and the name of a source.
type key = types.NamespacedName

// queueName is the label of the queue's metrics.
const queueName = "mirror"

// copyQueue is the queue of copies. Its order is that of [order].
type copyQueue struct {
	workqueue.TypedDelayingInterface[key]
	order *order
}

func newCopyQueue() copyQueue {
	o := &order{named: map[key]bool{}, popped: map[key]bool{}, open: map[string]int{}, waiting: map[key]bool{}, lanes: map[string][]key{}}
	return copyQueue{order: o, TypedDelayingInterface: workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[key]{
			Name:  queueName,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[key]{Name: queueName, Queue: o}),
		})}
}

// addEvent adds a key that an event named. It does not wait behind the keys of fan-outs.
func (q copyQueue) addEvent(k key) {
	q.order.name(k)
	q.Add(k)
}

// next waits for the next key, and reports whether an event named it. Every key must be passed to finish.
func (q copyQueue) next() (k key, event, shutdown bool) {
	k, shutdown = q.Get()
	return k, q.order.takeEvent(k), shutdown
}

// finish ends the work on a key. It reports whether no other key of its name is waiting or in work.
func (q copyQueue) finish(k key) (idle bool) {
	q.Done(k)
	return q.order.close(k.Name)
}

// contended reports whether keys wait that will be worked on.
func (q copyQueue) contended() bool { return !q.ShuttingDown() && q.Len() > 0 }

// idle reports whether no key of the name is waiting or in work.
func (q copyQueue) idle(name string) bool { return q.order.idle(name) }

// eventsPerTurn is how many keys that an event named go before the next key of a fan-out.
const eventsPerTurn = 4

// order is the storage of the queue of copies. Keys that an event named come first, but a fan-out has every fifth turn if
// it needs it. All other keys wait in a lane for each source name, and the lanes take turns, so that no fan-out holds up
// another one. The queue calls its methods one at a time.
type order struct {
	mu     sync.Mutex
	named  map[key]bool   // keys that an event has named, until they wait
	popped map[key]bool   // keys that were popped from the events, until their work begins
	open   map[string]int // by source name: how many keys are waiting or in work

	waiting map[key]bool // every key that waits, and whether it waits in a lane
	events  []key
	lanes   map[string][]key // by source name; may hold keys that have moved to events
	turns   []string         // the lanes that are not empty
	streak  int              // how many of events were popped in a row
}

var _ workqueue.Queue[key] = &order{}

// name remembers that an event named the key.
func (o *order) name(k key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.named[k] = true
}

// takeName reports whether an event named the key since it was last asked.
func (o *order) takeName(k key) bool { return o.take(o.named, k) }

// takeEvent reports whether the key in work was popped from the events.
func (o *order) takeEvent(k key) bool { return o.take(o.popped, k) }

// take removes the key from a set and reports whether it was there.
func (o *order) take(set map[key]bool, k key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := set[k]
	delete(set, k)
	return found
}

// close takes a key of the name out of work, and reports whether it was the last one.
func (o *order) close(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[name]--; o.open[name] > 0 {
		return false
	}
	delete(o.open, name)
	return true
}

func (o *order) idle(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open[name] == 0
}

// Push adds a key that does not wait.
func (o *order) Push(k key) {
	named := o.takeName(k)
	o.mu.Lock()
	o.open[k.Name]++
	o.mu.Unlock()
	if named {
		o.pushEvent(k)
		return
	}
	o.waiting[k] = true
	if len(o.lanes[k.Name]) == 0 {
		o.turns = append(o.turns, k.Name)
	}
	o.lanes[k.Name] = append(o.lanes[k.Name], k)
}

// Touch moves a key that waits in a lane, and that an event has named now, to the events.
func (o *order) Touch(k key) {
	if o.takeName(k) && o.waiting[k] {
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
		k, ok = o.popLane()
		o.streak = 0
	}
	if !ok {
		k = o.popEvent()
	}
	delete(o.waiting, k)
	return k
}

func (o *order) popEvent() (k key) {
	k, o.events = o.events[0], o.events[1:]
	o.streak++
	o.mu.Lock()
	defer o.mu.Unlock()
	o.popped[k] = true
	return k
}

// popLane removes the next key of the next lane; ok is false if there is none.
func (o *order) popLane() (k key, ok bool) {
	for len(o.turns) > 0 && !ok {
		name := o.turns[0]
		lane := o.lanes[name]
		for len(lane) > 0 && !ok {
			k, lane = lane[0], lane[1:]
			ok = o.waiting[k] // else it has moved to the events
		}
		o.turns, o.lanes[name] = o.turns[1:], lane
		if len(lane) > 0 {
			o.turns = append(o.turns, name)
		} else {
			delete(o.lanes, name)
		}
	}
	return k, ok
}
