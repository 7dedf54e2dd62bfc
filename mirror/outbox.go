package mirror

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// EventRecorder records events on sources, as the recorders of client-go's tools/record do. A call may
// wait for a moment: only other events wait for it.
type EventRecorder interface {
	AnnotatedEventf(regarding runtime.Object, annotations map[string]string, eventtype, reason, format string, args ...any)
}

const (
	// handOverRate is how many events a second go to the recorder. client-go's drops what exceeds 1,000 that wait.
	handOverRate = 50
	// handOverBurst is how many events go to the recorder at once.
	handOverBurst = 100
)

// outbox hands events over to the recorder, announcements first. It keeps the newest event of each source and reason.
type outbox struct {
	recorder EventRecorder
	limiter  *rate.Limiter
	added    chan struct{}

	mu           sync.Mutex
	waiting      map[topic]*letter
	urgent, rest []*letter
}

// topic is a source and a reason: the newest event of a topic replaces one that waits.
type topic struct {
	source key
	uid    types.UID
	reason string
}

// letter is an event that waits.
type letter struct {
	topic    topic
	message  message
	replaced bool
}

func newOutbox(recorder EventRecorder) *outbox {
	return &outbox{recorder: recorder, limiter: rate.NewLimiter(handOverRate, handOverBurst), added: make(chan struct{}, 1),
		waiting: map[topic]*letter{}}
}

// put adds an event about a source. An event Deleted replaces none, because it counts.
func (o *outbox) put(source key, uid types.UID, m message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := &letter{topic: topic{source, uid, m.reason}, message: m}
	if older := o.waiting[l.topic]; older != nil && m.reason != plan.ReasonDeleted {
		older.replaced = true // the newer one comes after what was said meanwhile
	}
	o.waiting[l.topic] = l
	if m.reason == plan.ReasonExpiring {
		o.urgent = append(o.urgent, l)
	} else {
		o.rest = append(o.rest, l)
	}
	select {
	case o.added <- struct{}{}:
	default:
	}
}

// work hands events over until ctx ends.
func (o *outbox) work(ctx context.Context) {
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
		o.handOver(l)
	}
}

func (o *outbox) handOver(l *letter) {
	m, about := l.message, objectOf(l.topic.source, l.topic.uid)
	o.recorder.AnnotatedEventf(about, m.annotations, m.kind, m.reason, "%s", m.note)
}

// flush hands over the waiting events at once after the last write, as far as the recorder can write it in a few seconds. The log has
// the lines of the rest.
func (o *outbox) flush(ctx context.Context) {
	for range handOverBurst {
		l := o.take()
		if l == nil {
			return
		}
		o.handOver(l)
	}
	if dropped := len(o.urgent) + len(o.rest); dropped > 0 {
		klog.FromContext(ctx).Info("Events are not written because the process stops", "events", dropped)
	}
}

// take removes the next event; nil if none waits.
func (o *outbox) take() *letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, from := range []*[]*letter{&o.urgent, &o.rest} {
		for len(*from) > 0 {
			l := (*from)[0]
			*from = (*from)[1:]
			if l.replaced {
				continue
			}
			if o.waiting[l.topic] == l {
				delete(o.waiting, l.topic)
			}
			return l
		}
	}
	return nil
}
