package mirror

import (
	"context"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// Event is one event about a ConfigMap. Type, Reason, Note and Annotations are
// those of the Kubernetes event.
type Event struct {
	Regarding          types.NamespacedName
	UID                types.UID // of the ConfigMap; empty if it was never seen
	Type, Reason, Note string
	Annotations        map[string]string
}

// EventSender sends events to the API server.
type EventSender interface {
	// Send returns when the API server has the event, or the error for which it
	// has not. The caller retries.
	Send(ctx context.Context, e Event) error
}

const (
	// restoredRate bounds the events about restored copies, a second: a client may
	// edit thousands of copies.
	restoredRate = 20
	// restoredBurst is how many of them may come at once, and how many may wait.
	restoredBurst = 100
)

// restored are the events about restored copies that wait to be sent. They are
// best effort.
type restored chan Event

// put adds an event, and does not wait. It drops the event if too many wait.
func (r restored) put(e Event) {
	select {
	case r <- e:
	default:
	}
}

// work sends events until ctx ends.
func (r restored) work(ctx context.Context, events EventSender) {
	limiter := rate.NewLimiter(restoredRate, restoredBurst)
	for limiter.Wait(ctx) == nil {
		select {
		case <-ctx.Done():
		case e := <-r:
			_ = events.Send(ctx, e) // the copy is restored, and its owner can do without the event
		}
	}
}
