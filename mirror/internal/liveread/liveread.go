// Package liveread reads objects past the cache: the source and the namespace that a deletion depends on, which no
// precondition can guard, and objects that the cache does not show. An answer serves all deletions that ask within five
// seconds, and a failure until its backoff is over.
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
	// Lifetime is how long an answer serves after it arrived.
	Lifetime = 5 * time.Second
	// concurrent bounds the reads of sources in flight, and those of other ConfigMaps, of up to 1.5 MiB each.
	concurrent = 4
	// soonest and latest bound the wait for a read of another goroutine, which is as long as the read has taken so far.
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

// Call makes one call as its caller makes calls: it may cut f, and returns an error then.
type Call func(ctx context.Context, f func(context.Context) error) error

// Answer holds the objects as the API server has them.
type Answer struct {
	Source    *corev1.ConfigMap // without payload; nil: gone, or being deleted
	Namespace *corev1.Namespace // nil: gone
	Began     time.Time         // when the last of its reads began
}

// subject names the object to read: a source or, without a name, a namespace.
type subject = types.NamespacedName

// subjectReads is the last answer about a subject, and the read on its way. The mutex of the reader guards it.
type subjectReads struct {
	Answer
	err      error
	until    time.Time // the answer or the error serves until then
	reading  *reading  // nil: no read is on its way
	failures int       // in a row
}

// reading is a read that is on its way.
type reading struct {
	began time.Time
	ended chan struct{}
}

// New returns a reader. strip prepares a ConfigMap as the cache does. timeout bounds each read. backoff returns how
// long a failure serves, after this many in a row.
func New(client kubernetes.Interface, strip func(*corev1.ConfigMap), timeout time.Duration,
	backoff func(err error, failures int) time.Duration) *Reader {
	return &Reader{client: client, strip: strip, timeout: timeout, backoff: backoff,
		sources: semaphore.NewWeighted(concurrent), other: semaphore.NewWeighted(concurrent),
		known: map[subject]*subjectReads{}}
}

// Premise reads a source and a namespace. An answer from a read that began before notBefore does not count. If another
// goroutine reads, Premise waits for it if patient is set, and else returns the time after which to ask again.
func (r *Reader) Premise(ctx context.Context, call Call, source types.NamespacedName, namespace string,
	notBefore time.Time, patient bool) (a Answer, retryAfter time.Duration, err error) {
	needed := []subject{source, {Namespace: namespace}}
	for try := 0; try < tries && ctx.Err() == nil; {
		a, missing, other, err := r.answers(needed, notBefore)
		switch {
		case err != nil || len(missing) == 0 && other == nil:
			return a, 0, err
		case other != nil && !patient:
			return a, min(max(soonest, time.Since(other.began)), latest), nil
		case other != nil:
			select {
			case <-ctx.Done():
			case <-other.ended:
			}
			continue
		case try > 0: // one answer was too old when the other one came: read both again
			missing = needed
		}
		try++
		err = call(ctx, func(ctx context.Context) error {
			return cmp.Or(r.readAll(ctx, missing, needed, notBefore), context.Cause(ctx))
		})
		if err != nil {
			return Answer{}, 0, err
		}
	}
	return Answer{}, soonest, ctx.Err()
}

// ConfigMap reads a ConfigMap, and shares the answer with nobody; nil: there is no such ConfigMap.
func (r *Reader) ConfigMap(ctx context.Context, call Call, k types.NamespacedName) (cm *corev1.ConfigMap, err error) {
	err = call(ctx, func(ctx context.Context) (err error) {
		cm, err = r.get(ctx, r.other, k)
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

// answers joins the answers about these subjects. It returns the subjects without one, the first read that is on its
// way, and the error of a read that failed.
func (r *Reader) answers(subjects []subject, notBefore time.Time) (
	a Answer, missing []subject, first *reading, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range subjects {
		switch last := r.known[s]; {
		case last == nil:
			missing = append(missing, s)
		case last.serves(notBefore) && last.err != nil:
			err = last.err
		case last.serves(notBefore):
			a.Source, a.Namespace = cmp.Or(a.Source, last.Source), cmp.Or(a.Namespace, last.Namespace)
			if last.Began.After(a.Began) {
				a.Began = last.Began
			}
		case last.reading != nil:
			first = cmp.Or(first, last.reading)
		default:
			missing = append(missing, s)
		}
	}
	return a, missing, first, err
}

// serves reports whether the answer is young enough and its read began late enough.
func (s *subjectReads) serves(notBefore time.Time) bool {
	return !s.Began.Before(notBefore) && time.Now().Before(s.until)
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
		_, missing, other, failed := r.answers(needed, notBefore)
		if err = cmp.Or(err, failed); failed == nil && len(missing) == 0 && other == nil {
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
	if reads.reading != nil {
		return nil
	}
	reads.reading = &reading{time.Now(), make(chan struct{})}
	return reads
}

// read reads a subject and shares the answer. A read that was cut has no answer.
func (r *Reader) read(ctx context.Context, s subject, reads *subjectReads) {
	callCtx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var answer Answer
	var err error
	if s.Name == "" {
		answer.Namespace, err = r.getNamespace(callCtx, s.Namespace)
	} else {
		answer.Source, err = r.getSource(callCtx, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	answer.Began = reads.reading.began
	close(reads.reading.ended)
	reads.reading = nil
	if ctx.Err() == nil {
		serves := Lifetime
		if err == nil {
			reads.failures = 0
		} else {
			reads.failures++
			serves = r.backoff(err, reads.failures)
		}
		reads.Answer, reads.err, reads.until = answer, err, time.Now().Add(serves)
	}
	time.AfterFunc(time.Until(reads.until)+failuresCount, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.known[s] == reads && reads.reading == nil && !time.Now().Before(reads.until.Add(failuresCount)) {
			delete(r.known, s)
		}
	})
}

// getNamespace returns a namespace, as the cache would keep it; nil if it is gone.
func (r *Reader) getNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, err := found(r.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}))
	if ns != nil {
		plan.StripNamespace(ns)
	}
	return ns, err
}

// getSource returns a source, without payload; nil if it is gone or being deleted.
func (r *Reader) getSource(ctx context.Context, k types.NamespacedName) (*corev1.ConfigMap, error) {
	cm, err := r.get(ctx, r.sources, k)
	if cm == nil || cm.DeletionTimestamp != nil {
		return nil, err
	}
	cm.Data, cm.BinaryData = nil, nil
	return cm, nil
}

// get returns a ConfigMap, as the cache would keep it; nil if there is none. bound bounds such reads.
func (r *Reader) get(ctx context.Context, bound *semaphore.Weighted, k types.NamespacedName) (
	*corev1.ConfigMap, error) {
	if err := bound.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer bound.Release(1)
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	cm, err := found(r.client.CoreV1().ConfigMaps(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{}))
	if cm != nil {
		r.strip(cm)
	}
	return cm, err
}

// found returns what a read found; nil if there is nothing.
func found[T any](obj *T, err error) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return obj, nil
}
