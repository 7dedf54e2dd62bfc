// Package liveread reads objects past the cache.
//
// No precondition of a delete can guard its premise: that the source is gone,
// or that labels rule the namespace out. So a deletion reads both live. As a
// thousand deletions may depend on one source, they share its reads: an answer
// serves all that ask within five seconds, and a failure all within one second.
// The package also reads objects that the cache does not show, for one caller.
package liveread

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// Lifetime is how long an answer serves after it arrived.
	Lifetime = 5 * time.Second
	// failureLifetime is how long a failure serves: else each deletion would
	// send a read of its own that fails.
	failureLifetime = time.Second
	// concurrent bounds the reads of sources in flight, and those of other
	// ConfigMaps, of up to 1.5 MiB each.
	concurrent = 4
	// maxSteps bounds the reads and waits of one call of Premise. It needs two,
	// unless an answer is too old when the other one comes.
	maxSteps = 8
	// soonest and latest bound the pause before a caller asks again that does
	// not wait for the read of another one.
	soonest = 10 * time.Millisecond
	latest  = time.Second
)

// Reader makes live reads.
type Reader struct {
	client  kubernetes.Interface
	strip   func(*corev1.ConfigMap)
	timeout time.Duration
	sources *semaphore.Weighted
	other   *semaphore.Weighted

	mu    sync.Mutex // guards known, and what it holds
	known map[subject]*reads
}

// Call makes calls as its caller makes them: it may cut f, and returns an error
// then.
type Call func(ctx context.Context, f func(context.Context) error) error

// Answer holds the objects as the API server has them.
type Answer struct {
	Source    *corev1.ConfigMap // without payload; nil: gone, or being deleted
	Namespace *corev1.Namespace // nil: gone
	Began     time.Time         // when the last of its reads began
}

// subject names the object to read: a source or, without a name, a namespace.
type subject = types.NamespacedName

// reads are the last read of a subject that ended, and the one in flight.
type reads struct {
	Answer
	err      error
	took     time.Duration
	until    time.Time // the answer or the error serves until then
	inFlight *flight   // nil: no read is
	passedOn time.Time // a read was cut then for which another caller waited
}

// flight is a read in flight.
type flight struct {
	began     time.Time
	ended     chan struct{} // closed at the end
	isAwaited bool          // a caller waits for the end
}

// step is the next step of Premise, one of four. It waits for a read that another
// goroutine has in flight, or returns when to ask again. It reads the subjects that
// no goroutine reads. Or it returns the answer or the error.
type step struct {
	inFlight   *flight
	retryAfter time.Duration
	read       []subject
	answer     Answer
	err        error
}

// New returns a reader. strip prepares a ConfigMap as the cache does. timeout
// bounds each read.
func New(
	client kubernetes.Interface, strip func(*corev1.ConfigMap), timeout time.Duration) *Reader {
	return &Reader{
		client:  client,
		strip:   strip,
		timeout: timeout,
		sources: semaphore.NewWeighted(concurrent),
		other:   semaphore.NewWeighted(concurrent),
		known:   map[subject]*reads{},
	}
}

// Premise reads a source and, unless its name is empty, a namespace. An answer
// from a read that began before notBefore does not count. If another goroutine
// reads, Premise waits for the end of that if mayWait is set. Else it returns
// the time after which to ask again.
func (r *Reader) Premise(ctx context.Context, call Call, source types.NamespacedName,
	namespace string, notBefore time.Time, mayWait bool) (
	a Answer, retryAfter time.Duration, err error) {
	needed := []subject{source}
	if namespace != "" {
		needed = append(needed, subject{Namespace: namespace})
	}
	for range maxSteps {
		next := r.next(needed, notBefore, mayWait)
		switch {
		case next.retryAfter > 0:
			return a, next.retryAfter, nil
		case next.inFlight != nil:
			err = next.inFlight.wait(ctx)
		case len(next.read) > 0:
			err = call(ctx, func(ctx context.Context) error { return r.readAll(ctx, next.read) })
		default:
			return next.answer, 0, next.err
		}
		if err != nil {
			return a, 0, err
		}
	}
	return a, soonest, nil
}

// next returns what to do next about the subjects that are needed. Those that
// the caller is to read are in flight from then on.
//
// If a read was cut for which another caller waited, that caller makes the next one,
// because it may have more time. The others leave it to that caller for a moment.
// Otherwise they could read in turns, and each read would be cut.
func (r *Reader) next(needed []subject, notBefore time.Time, mayWait bool) step {
	r.mu.Lock()
	defer r.mu.Unlock()
	var answer Answer
	var missing, served []subject
	var longest time.Duration // that the last read of a missing one took
	for _, s := range needed {
		last := cmp.Or(r.known[s], &reads{})
		switch {
		case last.serves(notBefore) && last.err != nil:
			return step{err: last.err}
		case last.serves(notBefore):
			served = append(served, s)
			answer.add(last.Answer)
		case last.inFlight != nil && mayWait:
			last.inFlight.isAwaited = true
			return step{inFlight: last.inFlight}
		case last.inFlight != nil:
			return step{retryAfter: last.inFlight.retryAfter()}
		case !mayWait && time.Since(last.passedOn) < soonest:
			return step{retryAfter: soonest}
		default:
			missing = append(missing, s)
			longest = max(longest, last.took)
		}
	}
	// A subject whose answer will be too old when the missing ones come is read
	// again at the same time. Otherwise the answers could take turns at being too
	// old, and would never serve together.
	for _, s := range served {
		last := r.known[s]
		if last.inFlight == nil && time.Until(last.until) < longest {
			missing = append(missing, s)
		}
	}
	for _, s := range missing {
		r.known[s] = cmp.Or(r.known[s], &reads{})
		r.known[s].inFlight = &flight{began: time.Now(), ended: make(chan struct{})}
	}
	return step{read: missing, answer: answer}
}

// serves reports whether the answer is young enough and its read began late
// enough.
func (last *reads) serves(notBefore time.Time) bool {
	return !last.Began.Before(notBefore) && time.Now().Before(last.until)
}

// add adds the object of an answer about another subject.
func (a *Answer) add(other Answer) {
	a.Source = cmp.Or(a.Source, other.Source)
	a.Namespace = cmp.Or(a.Namespace, other.Namespace)
	if other.Began.After(a.Began) {
		a.Began = other.Began
	}
}

// wait waits for the end of the read.
func (f *flight) wait(ctx context.Context) error {
	select {
	case <-f.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retryAfter returns the pause of a caller that does not wait for the read:
// as long as it has taken so far.
func (f *flight) retryAfter() time.Duration {
	return min(max(soonest, time.Since(f.began)), latest)
}

// readAll reads the subjects at once. It fails if a read fails, or if the reads
// are cut.
func (r *Reader) readAll(ctx context.Context, subjects []subject) error {
	var all errgroup.Group
	for _, s := range subjects {
		all.Go(func() error { return r.read(ctx, s) })
	}
	return cmp.Or(all.Wait(), context.Cause(ctx))
}

// read reads a subject and shares the answer. A read that was cut has none.
func (r *Reader) read(ctx context.Context, s subject) (err error) {
	var answer Answer
	if s.Name == "" {
		answer.Namespace, err = r.getNamespace(ctx, s.Namespace)
	} else {
		answer.Source, err = r.getSource(ctx, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.known[s]
	ended := last.inFlight
	answer.Began = ended.began
	close(ended.ended)
	last.inFlight = nil
	switch {
	case ctx.Err() == nil:
		lifetime := Lifetime
		if err != nil {
			lifetime = failureLifetime
		}
		last.Answer = answer
		last.err = err
		last.took = time.Since(answer.Began)
		last.until = time.Now().Add(lifetime)
	case ended.isAwaited:
		last.passedOn = time.Now()
		last.until = last.passedOn // the record is kept, and serves nobody
	}
	// It is kept for longer: how long this read took counts for the next one.
	time.AfterFunc(time.Until(last.until)+r.timeout, func() { r.forget(s) })
	return err
}

// forget forgets a subject whose last answer has been too old for as long as a
// read may take.
func (r *Reader) forget(s subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.known[s]
	if last != nil && last.inFlight == nil && time.Since(last.until) >= r.timeout {
		delete(r.known, s)
	}
}

// ConfigMap reads a ConfigMap, and shares the answer with nobody; nil: there is
// no such ConfigMap.
func (r *Reader) ConfigMap(
	ctx context.Context, call Call, k types.NamespacedName) (cm *corev1.ConfigMap, err error) {
	err = call(ctx, func(ctx context.Context) (err error) {
		cm, err = r.getConfigMap(ctx, r.other, k)
		return err
	})
	return cm, err
}

// getNamespace returns a namespace, as the cache would keep it; nil if it is
// gone.
func (r *Reader) getNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	ns, err := r.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, utilerrors.FilterOut(err, apierrors.IsNotFound)
	}
	plan.StripNamespace(ns)
	return ns, nil
}

// getSource returns a source, without payload; nil if it is gone or being
// deleted.
func (r *Reader) getSource(ctx context.Context, k types.NamespacedName) (*corev1.ConfigMap, error) {
	cm, err := r.getConfigMap(ctx, r.sources, k)
	if cm == nil || cm.DeletionTimestamp != nil {
		return nil, err
	}
	cm.Data = nil
	cm.BinaryData = nil
	return cm, nil
}

// getConfigMap returns a ConfigMap, as the cache would keep it; nil if there is
// none. bound bounds such reads.
func (r *Reader) getConfigMap(ctx context.Context, bound *semaphore.Weighted,
	k types.NamespacedName) (*corev1.ConfigMap, error) {
	if err := bound.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer bound.Release(1)
	ctx, cancel := context.WithTimeout(ctx, r.timeout) // without the time in the queue
	defer cancel()
	cm, err := r.client.CoreV1().ConfigMaps(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
	if err != nil {
		return nil, utilerrors.FilterOut(err, apierrors.IsNotFound)
	}
	r.strip(cm)
	return cm, nil
}
