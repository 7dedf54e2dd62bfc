package mirror

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// recreationGrace is how long copies outlive their deleted source: tools that replace an object by deleting and
	// creating it do so within a second.
	recreationGrace = time.Second
	// answerLifetime is how long a live read serves the deletions that depend on it: a fan-out of deletions to thousands of
	// namespaces takes a second or two. No event ends it earlier while our watch is silent.
	answerLifetime = 5 * time.Second
	// concurrentReads bounds the live reads in flight of a kind: each object has up to 1.5 MiB, and its owner decides about that.
	concurrentReads = 4
)

// confirmer reads live what a deletion depends on and no precondition can guard. It reads each source or namespace once for
// all deletions, in the background, and queues their keys again when it has the answer.
type confirmer struct {
	client kubernetes.Interface
	rules  *plan.Rules
	cached func(key) *corev1.ConfigMap
	wake   func(key)

	running sync.WaitGroup
	reads   slots
	refused rate.Sometimes // limits the log about reads that are refused

	mu       sync.Mutex
	subjects map[subject]*inquiry
}

// subject is what is read: a ConfigMap, or a namespace.
type subject struct {
	configMap key
	namespace string
}

// inquiry is one live read and its repetitions. The mutex of confirmer guards it. An inquiry ends answerLifetime after its
// answer, or with an event about its source.
type inquiry struct {
	version  string // of the namespace in the cache; the answer serves no later one
	cancel   context.CancelFunc
	waiting  map[key]bool // until there is an answer
	answered bool
	source   *corev1.ConfigMap // without payload; nil: gone
	ns       *corev1.Namespace // nil: gone
	goneAt   time.Time         // when the source was first read to be gone
}

// errStale is the error of a live read that finds a source which the cache does not show.
var errStale = errors.New("the cache is behind the API server")

// read is one live read. It returns how long to wait for the next one, 0 if there is an answer.
type read func(context.Context, *inquiry) (requeueAfter time.Duration, err error)

func newConfirmer(client kubernetes.Interface, rules *plan.Rules, cached func(key) *corev1.ConfigMap, wake func(key)) *confirmer {
	return &confirmer{client: client, rules: rules, cached: cached, wake: wake, subjects: map[subject]*inquiry{}, reads: make(slots, concurrentReads), refused: rate.Sometimes{Interval: time.Minute}}
}

// confirm reports whether the premise of a change holds, by live reads. If an answer is not known yet, the key is queued when
// it is.
func (c *confirmer) confirm(ctx context.Context, v *plan.View, t plan.Target, change plan.Change) (holds, known bool) {
	if change.Premise == (plan.Premise{}) {
		return true, true
	}
	var source *corev1.ConfigMap // without a premise about it, only the namespace decides
	if change.Premise.Source {
		if source, known = c.source(ctx, change.CopyOf, change.Key); !known {
			return false, false
		}
	}
	ns := t.Namespace
	if change.Premise.Namespace {
		if ns, known = c.namespace(ctx, t.Namespace, change.Key); !known {
			return false, false
		}
	}
	return ns != nil && !plan.Terminating(ns) && c.rules.StillUnwanted(v, source, ns), true
}

// source returns a source as the API server has it, nil if it is gone. If the answer is not known yet, ok is false, and k is
// queued when it is.
func (c *confirmer) source(ctx context.Context, source, k key) (live *corev1.ConfigMap, ok bool) {
	q, ok := c.ask(ctx, subject{configMap: source}, "", k, func(ctx context.Context, q *inquiry) (time.Duration, error) {
		return c.readSource(ctx, source, q)
	})
	return q.source, ok
}

// namespace is like source, for a namespace. The answer serves all that doubt the same state of the cache.
func (c *confirmer) namespace(ctx context.Context, cached *corev1.Namespace, k key) (live *corev1.Namespace, ok bool) {
	q, ok := c.ask(ctx, subject{namespace: cached.Name}, cached.ResourceVersion, k, func(ctx context.Context, q *inquiry) (time.Duration, error) {
		return 0, c.readNamespace(ctx, cached.Name, q)
	})
	return q.ns, ok
}

// sourceChanged makes the answer about a source void, because of an event about it.
func (c *confirmer) sourceChanged(source key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(subject{configMap: source})
}

// end forgets the inquiry about a subject, if there is one, and queues the keys that wait for it.
func (c *confirmer) end(s subject) {
	if q := c.subjects[s]; q != nil {
		delete(c.subjects, s)
		q.cancel()
		c.wakeAll(q)
	}
}

func (c *confirmer) wakeAll(q *inquiry) {
	for k := range q.waiting {
		c.wake(k)
	}
	q.waiting = nil
}

// ask returns the inquiry about a subject in this version, and whether it is answered. It starts the inquiry if there is none.
func (c *confirmer) ask(ctx context.Context, s subject, version string, k key, read read) (inquiry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.subjects[s]
	if q != nil && q.version != version {
		c.end(s)
		q = nil
	}
	if q == nil {
		q = &inquiry{version: version, waiting: map[key]bool{}}
		c.subjects[s] = q
		ctx, q.cancel = context.WithCancel(ctx)
		c.running.Go(func() { c.inquire(ctx, s, q, read) })
	}
	if q.answered {
		return *q, true
	}
	q.waiting[k] = true
	return inquiry{}, false
}

// inquire reads until there is an answer, keeps it for answerLifetime, and ends the inquiry.
func (c *confirmer) inquire(ctx context.Context, s subject, q *inquiry, read read) {
	for failures := 1; ; failures++ {
		wait, err := c.readOnce(ctx, q, read)
		if err != nil {
			c.log(ctx, s, err)
			wait = confirmBackoff(err, failures)
		}
		if wait == 0 {
			break
		}
		if !sleep(ctx, wait) {
			return
		}
	}
	if sleep(ctx, answerLifetime) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.subjects[s] == q {
			c.end(s)
		}
	}
}

// log logs why a deletion has to wait. A missing permission is an error, at most once a minute.
func (c *confirmer) log(ctx context.Context, s subject, err error) {
	logger := klog.FromContext(ctx).WithValues("source", s.configMap, "namespace", s.namespace)
	if reasonOf(plan.OpDelete, err).isLasting() {
		c.refused.Do(func() {
			logger.Error(clipError(err), "Cannot confirm a deletion by a live read, retrying")
		})
		return
	}
	logger.V(2).Info("Cannot confirm a deletion yet, retrying", "err", clipError(err))
}

// readOnce reads once, and queues the waiting keys if there is an answer.
func (c *confirmer) readOnce(ctx context.Context, q *inquiry, read read) (requeueAfter time.Duration, err error) {
	if !c.reads.acquire(ctx) {
		return 0, ctx.Err()
	}
	defer c.reads.release()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	requeueAfter, err = read(ctx, q)
	if err != nil || requeueAfter > 0 {
		return requeueAfter, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q.answered = true
	c.wakeAll(q)
	return 0, nil
}

func confirmBackoff(err error, failures int) time.Duration {
	if errors.Is(err, errStale) {
		return slow.backoff(failures)
	}
	return reasons[reasonOf(plan.OpDelete, err)].pace.backoff(failures)
}

// sleep returns false if ctx ends before the time is over.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// readSource reads a source. A source that is gone may come back within recreationGrace, and is read again then.
func (c *confirmer) readSource(ctx context.Context, source key, q *inquiry) (requeueAfter time.Duration, err error) {
	live, err := c.client.CoreV1().ConfigMaps(source.Namespace).Get(ctx, source.Name, metav1.GetOptions{})
	gone := apierrors.IsNotFound(err) || err == nil && live.DeletionTimestamp != nil
	if err != nil && !gone {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if gone {
		if q.goneAt.IsZero() {
			q.goneAt = time.Now()
		}
		q.source = nil
		return max(0, time.Until(q.goneAt.Add(recreationGrace))), nil
	}
	q.goneAt = time.Time{}
	// The cache as it is now: the decision may rest on an older state.
	if cached := c.cached(source); c.rules.AsksToBeMirrored(live) && (cached == nil || cached.ResourceVersion != live.ResourceVersion) {
		return 0, errStale
	}
	live.Data, live.BinaryData = nil, nil
	c.rules.Strip(live)
	q.source = live
	return 0, nil
}

func (c *confirmer) readNamespace(ctx context.Context, name string, q *inquiry) error {
	live, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		live, err = nil, nil
	}
	if err != nil {
		return err
	}
	if live != nil {
		plan.StripNamespace(live)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q.ns = live
	return nil
}
