// Package liveread reads objects past the cache: the source and the namespace that a deletion depends on, which no
// precondition can guard, and objects that the cache does not show.
//
// Many deletions depend on one source. One of them reads it, and the answer serves all that ask within five seconds. A
// failure serves all, too, until its backoff is over.
package liveread

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// Lifetime is how long an answer serves after it arrived. Deletions in thousands of namespaces take some seconds.
	Lifetime = 5 * time.Second
	// concurrent bounds the reads of sources in flight, and those of other ConfigMaps: each has up to 1.5 MiB, and its
	// owner decides about that.
	concurrent = 4
	// soonest and latest bound the wait for a read of another goroutine. The wait is as long as the read has taken up
	// to now.
	soonest, latest = 10 * time.Millisecond, time.Second
	// failuresCount is how long the failures of a subject count after the last one.
	failuresCount = time.Minute
	// tries bounds the reads of one Premise.
	tries = 4
)

// Reader makes live reads.
type Reader struct {
	client         kubernetes.Interface
	strip          func(*corev1.ConfigMap)
	timeout        time.Duration
	backoff        func(err error, failures int) time.Duration
	sources, other *semaphore.Weighted

	mu    sync.Mutex
	known map[subject]*subjectReads
}

// Call makes one call in a slot of its caller: f reads an object of a namespace, or the namespace itself if object is
// empty.
type Call func(ctx context.Context, namespace, object string, f func(context.Context) error) error

// Answer holds the objects as the API server has them.
type Answer struct {
	Source    *corev1.ConfigMap // without payload; nil: gone, or being deleted
	Namespace *corev1.Namespace // nil: gone, or not asked for
	Began     time.Time         // when the last of its reads began
}

// subject names the object to read: a source, or a namespace.
type subject struct {
	source    types.NamespacedName
	namespace string
}

// home returns the namespace of the source, or the namespace itself.
func (s subject) home() string { return cmp.Or(s.namespace, s.source.Namespace) }

// subjectReads is the last answer about a subject, and the read that is on its way. The mutex of the reader guards it.
type subjectReads struct {
	Answer
	err      error
	until    time.Time // the answer or the error serves until then
	reading  time.Time // the begin of the read that is on its way; zero: there is none
	failures int       // in a row
}

// New returns a reader. strip prepares a ConfigMap as the cache does. timeout bounds each read. backoff returns how
// long a failure serves, after this many in a row.
func New(client kubernetes.Interface, strip func(*corev1.ConfigMap), timeout time.Duration,
	backoff func(err error, failures int) time.Duration) *Reader {
	return &Reader{client: client, strip: strip, timeout: timeout, backoff: backoff,
		sources: semaphore.NewWeighted(concurrent), other: semaphore.NewWeighted(concurrent),
		known: map[subject]*subjectReads{}}
}

// Premise reads a source, and a namespace unless that is empty. An answer from a read that began before notBefore does
// not count. If another goroutine reads, Premise does not wait: it returns the time after which to ask again.
func (r *Reader) Premise(ctx context.Context, call Call, source types.NamespacedName, namespace string,
	notBefore time.Time) (a Answer, retryAfter time.Duration, err error) {
	needed := []subject{{source: source}}
	if namespace != "" {
		needed = append(needed, subject{namespace: namespace})
	}
	for try := range tries {
		a, missing, wait, err := r.answers(needed, notBefore)
		switch {
		case err != nil || wait > 0 || len(missing) == 0:
			return a, wait, err
		case try > 0: // one answer was too old when the other one came: read both again
			missing = needed
		}
		err = call(ctx, missing[0].home(), missing[0].source.Name, func(ctx context.Context) error {
			return cmp.Or(r.readAll(ctx, missing, needed, notBefore), context.Cause(ctx))
		})
		if err != nil {
			return Answer{}, 0, err
		}
	}
	return Answer{}, soonest, nil
}

// ConfigMap reads a ConfigMap, and shares the answer with nobody; nil: there is no such ConfigMap.
func (r *Reader) ConfigMap(ctx context.Context, call Call, k types.NamespacedName) (cm *corev1.ConfigMap, err error) {
	err = call(ctx, k.Namespace, k.Name, func(ctx context.Context) error {
		if err := r.other.Acquire(ctx, 1); err != nil {
			return err
		}
		defer r.other.Release(1)
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		if cm, err = r.get(ctx, k); cm != nil {
			r.strip(cm)
		}
		return err
	})
	return cm, err
}

// Known returns the number of subjects with an answer, a failure or a read on its way. Tests find leaks by it.
func (r *Reader) Known() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.known)
}

// answers joins the answers about these subjects, and returns the subjects without one. It returns the error of a read
// that failed, or how long to wait for a read that is on its way.
func (r *Reader) answers(subjects []subject, notBefore time.Time) (
	a Answer, missing []subject, wait time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range subjects {
		switch last := r.known[s]; {
		case last == nil:
			missing = append(missing, s)
		case last.serves(notBefore) && last.err != nil:
			err = last.err
		case last.serves(notBefore):
			a.add(last.Answer)
		case !last.reading.IsZero():
			wait = max(wait, min(max(soonest, time.Since(last.reading)), latest))
		default:
			missing = append(missing, s)
		}
	}
	return a, missing, wait, err
}

// serves reports whether the answer is young enough and its read began late enough.
func (s *subjectReads) serves(notBefore time.Time) bool {
	return !s.Began.Before(notBefore) && time.Now().Before(s.until)
}

// add adds the answer about another subject.
func (a *Answer) add(b Answer) {
	a.Source, a.Namespace = cmp.Or(a.Source, b.Source), cmp.Or(a.Namespace, b.Namespace)
	if b.Began.After(a.Began) {
		a.Began = b.Began
	}
}

// readAll reads these subjects at the same time, but for those that another goroutine reads, until there is an answer
// about all that are needed. It returns the error of a read.
func (r *Reader) readAll(ctx context.Context, subjects, needed []subject, notBefore time.Time) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reads, ended := 0, make(chan struct{})
	for _, s := range subjects {
		if reading := r.begin(s); reading != nil {
			reads++
			go func() {
				r.read(ctx, s, reading)
				ended <- struct{}{}
			}()
		}
	}
	for range reads {
		<-ended
		_, missing, wait, failed := r.answers(needed, notBefore)
		if err = cmp.Or(err, failed); failed == nil && wait == 0 && len(missing) == 0 {
			stop()
		}
	}
	return err
}

// begin begins a read, unless another one is on its way. The last answer serves until the new one comes.
func (r *Reader) begin(s subject) *subjectReads {
	r.mu.Lock()
	defer r.mu.Unlock()
	reads := r.known[s]
	if reads == nil {
		reads = &subjectReads{}
		r.known[s] = reads
	}
	if !reads.reading.IsZero() {
		return nil
	}
	reads.reading = time.Now()
	return reads
}

// read reads a subject and publishes the answer. A read that was cut has no answer.
func (r *Reader) read(ctx context.Context, s subject, reads *subjectReads) {
	callCtx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	answer, err := r.getSubject(callCtx, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	answer.Began = reads.reading
	reads.reading = time.Time{}
	serves := Lifetime
	switch {
	case ctx.Err() != nil:
		r.forget(s, reads)
		return
	case err != nil:
		reads.failures++
		serves = r.backoff(err, reads.failures)
	default:
		reads.failures = 0
	}
	reads.Answer, reads.err, reads.until = answer, err, time.Now().Add(serves)
	time.AfterFunc(serves+failuresCount, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.forget(s, reads)
	})
}

// forget removes an answer that serves nobody any more. The mutex is held.
func (r *Reader) forget(s subject, reads *subjectReads) {
	if r.known[s] == reads && reads.reading.IsZero() && !time.Now().Before(reads.until.Add(failuresCount)) {
		delete(r.known, s)
	}
}

// getSubject returns the answer about a subject, without the time of the read.
func (r *Reader) getSubject(ctx context.Context, s subject) (a Answer, err error) {
	if s.namespace == "" {
		a.Source, err = r.getSource(ctx, s.source)
		return a, err
	}
	ns, err := r.client.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return a, nil
	case err != nil:
		return a, err
	}
	plan.StripNamespace(ns)
	a.Namespace = ns
	return a, nil
}

// getSource returns a source; nil if it is gone or being deleted.
func (r *Reader) getSource(ctx context.Context, k types.NamespacedName) (*corev1.ConfigMap, error) {
	if err := r.sources.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer r.sources.Release(1)
	cm, err := r.get(ctx, k)
	if cm == nil || cm.DeletionTimestamp != nil {
		return nil, err
	}
	cm.Data, cm.BinaryData = nil, nil
	r.strip(cm)
	return cm, nil
}

// get returns a ConfigMap; nil: there is no such ConfigMap.
func (r *Reader) get(ctx context.Context, k types.NamespacedName) (*corev1.ConfigMap, error) {
	cm, err := r.client.CoreV1().ConfigMaps(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return cm, nil
}
