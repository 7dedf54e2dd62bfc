package mirror

import (
	"sync"
	"time"

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
	o := &order{named: map[key]bool{}, open: map[string]*open{}, waiting: map[key]bool{}, perName: map[string][]key{}}
	return copyQueue{order: o, TypedDelayingInterface: workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[key]{
			Name:  queueName,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[key]{Name: queueName, Queue: o}),
		})}
}

// addEvent adds a key that an event named. It does not wait behind the keys of fan-outs.
func (q copyQueue) addEvent(k key) {
	q.order.addNamed(k)
	q.Add(k)
}

// next waits for the next key, and reports whether an event named it. Every key must be passed to finish.
func (q copyQueue) next() (k key, event, shutdown bool) {
	k, shutdown = q.Get()
	return k, q.order.takeNamed(k), shutdown
}

// finish ends the work on a key.
func (q copyQueue) finish(k key) {
	q.Done(k)
	q.order.close(k.Name)
}

// contended reports whether keys wait that will be worked on.
func (q copyQueue) contended() bool { return !q.ShuttingDown() && q.Len() > 0 }

// reportable reports whether the sources of a name may be reported: no key is waiting or in work, or some have been for
// reportAfter. Targets that hang may keep a name busy all the time.
func (q copyQueue) reportable(name string) bool { return q.order.reportable(name) }

// idle reports whether no key is waiting or in work.
func (q copyQueue) idle() bool {
	q.order.mu.Lock()
	defer q.order.mu.Unlock()
	return len(q.order.open) == 0
}

// reported takes note of a report about the sources of a name.
func (q copyQueue) reported(name string) { q.order.reported(name) }

// reportAfter is how long keys of a name wait or are in work before its sources are reported all the same.
const reportAfter = 10 * time.Second

// eventsPerTurn is how many keys that an event named go before the next key of a fan-out.
const eventsPerTurn = 4

// order is the storage of the queue of copies. Keys that an event named come first, but a fan-out has every fifth turn if
// it needs it. All other keys wait by source name, and the names take turns, so that no fan-out holds up
// another one. The queue calls its methods one at a time.
type order struct {
	mu    sync.Mutex
	named map[key]bool     // keys that an event has named, until their work begins
	open  map[string]*open // by source name

	waiting map[key]bool // every key that waits; false: in events
	events  []key
	perName map[string][]key // by source name; may hold keys that have moved to events
	turns   []string         // the names of perName
	streak  int              // how many of events were popped in a row
}

// open counts the keys of one name that are waiting or in work.
type open struct {
	keys  int
	since time.Time // when there were none, or the last report
}

var _ workqueue.Queue[key] = &order{}

// addNamed remembers that an event named the key.
func (o *order) addNamed(k key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.named[k] = true
}

// takeNamed reports whether an event named the key since it was last asked.
func (o *order) takeNamed(k key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	named := o.named[k]
	delete(o.named, k)
	return named
}

// close takes a key of the name out of work.
func (o *order) close(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[name].keys--; o.open[name].keys == 0 {
		delete(o.open, name)
	}
}

func (o *order) reportable(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	open := o.open[name]
	return open == nil || time.Since(open.since) >= reportAfter
}

func (o *order) reported(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if open := o.open[name]; open != nil {
		open.since = time.Now()
	}
}

// Push adds a key that does not wait.
func (o *order) Push(k key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[k.Name] == nil {
		o.open[k.Name] = &open{since: time.Now()}
	}
	o.open[k.Name].keys++
	if o.named[k] {
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
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.named[k] && o.waiting[k] {
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
