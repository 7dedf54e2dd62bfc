// Package outbox hands events over at the pace that a recorder takes. client-go's recorder holds 1,000 events, and
// drops the others without a log line. Announcements of deletions go first, and events Restored go last. Of the other
// events of one ConfigMap and reason only the newest goes.
package outbox

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// handOverRate is how many events a second go to the recorder.
	handOverRate = 50
	// handOverBurst is how many events go to the recorder at once.
	handOverBurst = 100
	// maxRestored is how many events Restored wait at most. A client may edit thousands of copies at once.
	maxRestored = 100
)

// Event is one event about a ConfigMap. Type, Reason, Note and Annotations are those of the Kubernetes event.
type Event struct {
	Regarding          types.NamespacedName
	UID                types.UID // of the ConfigMap; empty if it was never seen
	Type, Reason, Note string
	Annotations        map[string]string
}

// Outbox holds the events that wait.
type Outbox struct {
	record  func(Event)
	limiter *rate.Limiter
	added   chan struct{} // an event may wait

	mu      sync.Mutex
	waiting map[topic]*letter
	queues  [3][]*letter // announcements of deletions, other events of sources, events of copies
}

// topic is a ConfigMap and a reason: the newest event of a topic replaces one that waits.
type topic struct {
	regarding types.NamespacedName
	uid       types.UID
	reason    string
}

// letter is an event that waits.
type letter struct {
	Event
	replaced bool
}

func (l *letter) topic() topic { return topic{l.Regarding, l.UID, l.Reason} }

// queue returns the index of the queue of the event.
func (l *letter) queue() int {
	switch l.Reason {
	case plan.ReasonExpiring:
		return 0
	case plan.ReasonRestored:
		return 2
	}
	return 1
}

// New returns an empty outbox. record passes an event to the recorder, and may wait for a moment: only other events
// wait for it.
func New(record func(Event)) *Outbox {
	return &Outbox{record: record, limiter: rate.NewLimiter(handOverRate, handOverBurst), added: make(chan struct{}, 1),
		waiting: map[topic]*letter{}}
}

// Put adds an event, and does not wait. An event Deleted replaces no other one, because it counts. If 100 events
// Restored wait, another one is dropped.
func (o *Outbox) Put(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := &letter{Event: e}
	queue := &o.queues[l.queue()]
	if l.Reason == plan.ReasonRestored && len(*queue) >= maxRestored {
		return
	}
	if older := o.waiting[l.topic()]; older != nil && l.Reason != plan.ReasonDeleted {
		older.replaced = true // the newer one comes after all events that wait by now
	}
	o.waiting[l.topic()] = l
	*queue = append(*queue, l)
	select {
	case o.added <- struct{}{}:
	default:
	}
}

// Work hands events over, 50 a second after the first 100, until ctx ends.
func (o *Outbox) Work(ctx context.Context) {
	for o.limiter.Wait(ctx) == nil {
		l := o.take()
		for l == nil {
			select {
			case <-ctx.Done():
				return
			case <-o.added:
				l = o.take()
			}
		}
		o.record(l.Event)
	}
}

// Flush hands over up to 100 of the waiting events at once: as many as the recorder can write in a few seconds. Call it
// after Work has ended. The log has the lines of the rest.
func (o *Outbox) Flush(ctx context.Context) {
	for range handOverBurst {
		l := o.take()
		if l == nil {
			return
		}
		o.record(l.Event)
	}
	dropped := 0
	for _, queue := range o.queues {
		dropped += len(queue)
	}
	if dropped > 0 {
		klog.FromContext(ctx).Info("Events are not written because the process stops", "events", dropped)
	}
}

// take removes the next event; nil if none waits.
func (o *Outbox) take() *letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.queues {
		from := &o.queues[i]
		for len(*from) > 0 {
			l := (*from)[0]
			*from = (*from)[1:]
			if l.replaced {
				continue
			}
			if o.waiting[l.topic()] == l {
				delete(o.waiting, l.topic())
			}
			return l
		}
	}
	return nil
}
