package mirror

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
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
	// has not. It ends by itself if there is no answer. The caller retries.
	Send(ctx context.Context, e Event) error
}

const (
	// eventWorkers is how many messages are on their way at a time. There is one
	// at most in each namespace.
	eventWorkers = 64
	// eventsEnd bounds the time in which a process that stops waits for the
	// messages on their way.
	eventsEnd = 3 * time.Second
)

// dueSources are the sources about which a message may be due, by namespace. The
// keys of the queue are namespaces, and client-go has each of them in work once
// at a time: so a webhook that is slow in one holds up no other.
type dueSources struct {
	namespaces workqueue.TypedInterface[string]

	mu          sync.Mutex
	byNamespace map[string][]key
}

// add adds a source, behind the others of its namespace.
func (d *dueSources) add(source key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := d.byNamespace[source.Namespace]
	if !slices.Contains(waiting, source) {
		d.byNamespace[source.Namespace] = append(waiting, source)
	}
	d.namespaces.Add(source.Namespace)
}

// next removes the next source of a namespace; ok is false if there is none. If
// more are left, the namespace is queued again.
func (d *dueSources) next(namespace string) (source key, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := d.byNamespace[namespace]
	switch len(waiting) {
	case 0:
		return key{}, false
	case 1:
		delete(d.byNamespace, namespace)
	default:
		d.byNamespace[namespace] = waiting[1:]
		d.namespaces.Add(namespace)
	}
	return waiting[0], true
}

// message is a message about a source.
type message struct {
	*report.Message
	about  key
	uid    types.UID // of the source; empty: no process has seen it
	sent   *report.Sent
	isGone bool // the last fan-out has not met the source
	status *sourceStatus
	lines  int // the message is made from what so many lines have announced
}

// sendNext sends one message about a source of the namespace.
func (r *reporter) sendNext(ctx context.Context, namespace string) {
	source, ok := r.due.next(namespace)
	if !ok {
		return
	}
	m := r.nextMessage(source, time.Now())
	if m == nil {
		return
	}
	if m.Log {
		klog.FromContext(ctx).Info(m.Note, "source", m.about, "type", m.Type, "reason", m.Reason)
	}
	err := r.send(ctx, m)
	r.recordSent(m, err)
	r.due.add(source) // another message about it may be due
}

// nextMessage makes the message about a source that is due now; nil if none is.
func (r *reporter) nextMessage(source key, now time.Time) *message {
	n := r.records.lock(source.Name)
	defer n.unlock()
	status := n.sources[source]
	if status == nil {
		return nil
	}
	if r.isEarly(n) {
		n.reportIn(reportDelay)
		return nil
	}
	s := r.summarize(n, map[key]*sourceStatus{source: status}, now)[source]
	sent := n.sentAbout(status)
	next, wait := sent.Next(s.Messages(now), now)
	if next == nil {
		if wait > 0 {
			n.reportIn(wait)
		}
		return nil
	}
	return &message{
		Message: next,
		about:   source,
		uid:     sent.UID(),
		sent:    sent,
		isGone:  s.Source == nil,
		status:  status,
		lines:   n.lines,
	}
}

// send sends a message, unless the namespace of the source is gone or is being
// deleted: the API server refuses events there.
func (r *reporter) send(ctx context.Context, m *message) error {
	ns := r.cache.Namespace(m.about.Namespace)
	if ns == nil && m.isGone || ns != nil && plan.Terminating(ns) {
		return nil
	}
	return r.events.Send(ctx, Event{
		Regarding:   m.about,
		UID:         m.uid,
		Type:        m.Type,
		Reason:      m.Reason,
		Note:        m.Note,
		Annotations: m.Annotations,
	})
}

// recordSent records that a message was sent, or refused. A source that is gone
// gets one try.
func (r *reporter) recordSent(m *message, err error) {
	n := r.records.lock(m.about.Name)
	defer n.unlock()
	now := time.Now()
	if m.sent.UID() != m.uid {
		// The source was created again meanwhile. It has no events yet, but messages
		// keep their spacing.
		m.sent.Record(&report.Message{Reason: m.Reason}, now)
		return
	}
	if err != nil && !m.isGone {
		m.sent.Refused(m.Message, now, refusalOf(err))
		return
	}
	m.sent.Record(m.Message, now)
	if m.Reason == plan.ReasonExpiring {
		m.status.reported = m.lines
	}
}

// refusalOf returns how the API server refused an event. One that is too busy, or
// that gave no answer, may take the event soon.
func refusalOf(err error) report.Refusal {
	if apierrors.IsTooManyRequests(err) {
		seconds, _ := apierrors.SuggestsClientDelay(err)
		return report.Refusal{RetryAfter: time.Duration(seconds) * time.Second}
	}
	return report.Refusal{Doubles: outcome.IsAnswered(err)}
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
