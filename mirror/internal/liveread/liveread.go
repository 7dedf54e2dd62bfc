// Package liveread reads objects past the cache: the source and the namespace that a deletion depends on, which no
// precondition can guard, and objects that the cache does not show. An answer serves all deletions that ask within five
// seconds, and a failure for one second.
package liveread

import (
	"cmp"
	"context"
	"slices"
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
	// failureLifetime is how long a failure serves.
	failureLifetime = time.Second
	// concurrent bounds the reads of sources in flight, and those of other ConfigMaps, of up to 1.5 MiB each.
	concurrent = 4
	// soonest and latest bound the wait for a read of another goroutine, which is as long as the read has taken so far.
	soonest, latest = 10 * time.Millisecond, time.Second
)

// Reader makes live reads.
type Reader struct {
	client         kubernetes.Interface
	strip          func(*corev1.ConfigMap)
	timeout        time.Duration
	sources, other *semaphore.Weighted

	mu    sync.Mutex
	known map[subject]*subjectReads
}

// Call makes calls as its caller makes them: it may cut f, and returns an error then.
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
	err   error
	took  time.Duration // by the read
	until time.Time     // the answer or the error serves until then
	begun time.Time     // when the last read began
	ended chan struct{} // closed at the end of the read on its way; nil: none is
}

// New returns a reader. strip prepares a ConfigMap as the cache does. timeout bounds each read.
func New(client kubernetes.Interface, strip func(*corev1.ConfigMap), timeout time.Duration) *Reader {
	return &Reader{client: client, strip: strip, timeout: timeout, sources: semaphore.NewWeighted(concurrent),
		other: semaphore.NewWeighted(concurrent), known: map[subject]*subjectReads{}}
}

// Premise reads a source and, unless that is empty, a namespace. An answer from a read that began before notBefore does
// not count. If another goroutine reads, Premise waits for it if patient is set, and else returns the time after which
// to ask again.
func (r *Reader) Premise(ctx context.Context, call Call, source types.NamespacedName, namespace string,
	notBefore time.Time, patient bool) (a Answer, retryAfter time.Duration, err error) {
	needed := []subject{source, {Namespace: namespace}}
	if namespace == "" {
		needed = needed[:1]
	}
	for range 8 { // an answer may be too old when the other one comes
		a, missing, other, err := r.take(needed, notBefore)
		switch {
		case other != nil && !patient:
			return Answer{}, min(max(soonest, time.Since(other.begun)), latest), nil
		case other != nil:
			select {
			case <-other.ended:
				continue
			case <-ctx.Done():
				return Answer{}, 0, ctx.Err()
			}
		case len(missing) == 0:
			return a, 0, err
		}
		err = call(ctx, func(ctx context.Context) error {
			var reads errgroup.Group
			for _, s := range missing {
				reads.Go(func() error { return r.read(ctx, s) })
			}
			return cmp.Or(reads.Wait(), context.Cause(ctx))
		})
		if err != nil {
			return Answer{}, 0, err
		}
	}
	return Answer{}, soonest, nil
}

// take joins the answers about the subjects that are needed. It returns the subjects that the caller has to read now,
// or a read of another goroutine.
func (r *Reader) take(needed []subject, notBefore time.Time) (
	a Answer, missing []subject, other *subjectReads, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var longest time.Duration // of the last reads of the missing ones
	for _, s := range needed {
		switch last := cmp.Or(r.known[s], &subjectReads{}); {
		case !last.serves(notBefore) && last.ended != nil:
			return Answer{}, nil, &subjectReads{begun: last.begun, ended: last.ended}, nil
		case !last.serves(notBefore):
			missing, longest = append(missing, s), max(longest, last.took)
		case last.err != nil:
			return Answer{}, nil, nil, last.err
		default:
			a.Source, a.Namespace = cmp.Or(a.Source, last.Source), cmp.Or(a.Namespace, last.Namespace)
			if last.Began.After(a.Began) {
				a.Began = last.Began
			}
		}
	}
	for _, s := range needed { // also what is too old when the missing ones come
		isOld := len(missing) > 0 && !slices.Contains(missing, s) && time.Until(r.known[s].until) < longest
		if isOld && r.known[s].ended == nil {
			missing = append(missing, s)
		}
	}
	for _, s := range missing {
		r.known[s] = cmp.Or(r.known[s], &subjectReads{})
		r.known[s].begun, r.known[s].ended = time.Now(), make(chan struct{})
	}
	return a, missing, nil, nil
}

// ConfigMap reads a ConfigMap, and shares the answer with nobody; nil: there is no such ConfigMap.
func (r *Reader) ConfigMap(ctx context.Context, call Call, k types.NamespacedName) (cm *corev1.ConfigMap, err error) {
	err = call(ctx, func(ctx context.Context) (err error) {
		cm, err = r.getConfigMap(ctx, r.other, k)
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

// serves reports whether the answer is young enough and its read began late enough.
func (s *subjectReads) serves(notBefore time.Time) bool {
	return !s.Began.Before(notBefore) && time.Now().Before(s.until)
}

// read reads a subject and shares the answer. A read that was cut has no answer.
func (r *Reader) read(ctx context.Context, s subject) (err error) {
	var answer Answer
	if s.Name == "" {
		answer.Namespace, err = r.getNamespace(ctx, s.Namespace)
	} else {
		answer.Source, err = r.getSource(ctx, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	reads := r.known[s]
	answer.Began = reads.begun
	close(reads.ended)
	reads.ended = nil
	if ctx.Err() == nil {
		serves := map[bool]time.Duration{true: Lifetime, false: failureLifetime}[err == nil]
		reads.Answer, reads.err, reads.took, reads.until = answer, err, time.Since(reads.begun), time.Now().Add(serves)
	}
	time.AfterFunc(time.Until(reads.until)+r.timeout, func() { // how long the read took counts for the next one
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.known[s] == reads && reads.ended == nil && !time.Now().Before(reads.until.Add(r.timeout)) {
			delete(r.known, s)
		}
	})
	return err
}

// getNamespace returns a namespace, as the cache would keep it; nil if it is gone.
func (r *Reader) getNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, err := get(ctx, r, nil, r.client.CoreV1().Namespaces().Get, name)
	if ns != nil {
		plan.StripNamespace(ns)
	}
	return ns, err
}

// getSource returns a source, without payload; nil if it is gone or being deleted.
func (r *Reader) getSource(ctx context.Context, k types.NamespacedName) (*corev1.ConfigMap, error) {
	cm, err := r.getConfigMap(ctx, r.sources, k)
	if cm == nil || cm.DeletionTimestamp != nil {
		return nil, err
	}
	cm.Data, cm.BinaryData = nil, nil
	return cm, nil
}

// getConfigMap returns a ConfigMap, as the cache would keep it; nil if there is none.
func (r *Reader) getConfigMap(ctx context.Context, bound *semaphore.Weighted, k types.NamespacedName) (
	*corev1.ConfigMap, error) {
	cm, err := get(ctx, r, bound, r.client.CoreV1().ConfigMaps(k.Namespace).Get, k.Name)
	if cm != nil {
		r.strip(cm)
	}
	return cm, err
}

// get returns an object; nil if there is none. bound, unless it is nil, bounds such reads: the time in its queue is no
// time of the read.
func get[T any](ctx context.Context, r *Reader, bound *semaphore.Weighted,
	read func(context.Context, string, metav1.GetOptions) (*T, error), name string) (*T, error) {
	if bound != nil {
		if err := bound.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		defer bound.Release(1)
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	obj, err := read(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, utilerrors.FilterOut(err, apierrors.IsNotFound)
	}
	return obj, nil
}
