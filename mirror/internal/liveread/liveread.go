// Package liveread reads objects past the cache: the source and the namespace that a deletion depends on, which no
// precondition can guard, and objects that the cache does not show. An answer serves all deletions that ask within five
// seconds, and a failure for one.
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
	// Lifetime is how long an answer serves after it arrived, and FailureLifetime is that of a failure.
	Lifetime, FailureLifetime = 5 * time.Second, time.Second
	// concurrent bounds the reads of sources in flight, and those of other ConfigMaps, of up to 1.5 MiB each.
	concurrent = 4
	// concurrentNamespaces bounds the reads of namespaces in flight: as many as there are writes by default.
	concurrentNamespaces = 32
	// soonest and latest bound the wait for a read on its way, which is as long as the read has taken so far.
	soonest, latest = 10 * time.Millisecond, time.Second
)

// Reader makes live reads. It waits for none.
type Reader struct {
	client                     kubernetes.Interface
	strip                      func(*corev1.ConfigMap)
	timeout                    time.Duration
	sources, namespaces, other *semaphore.Weighted

	mu    sync.Mutex
	known map[subject]*subjectReads
}

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
	err     error
	took    time.Duration // by the read
	until   time.Time     // the answer or the error serves until then
	reading time.Time     // when the read on its way began; zero: none is
}

// New returns a reader. strip prepares a ConfigMap as the cache does. timeout bounds each read.
func New(client kubernetes.Interface, strip func(*corev1.ConfigMap), timeout time.Duration) *Reader {
	return &Reader{client: client, strip: strip, timeout: timeout,
		sources: semaphore.NewWeighted(concurrent), namespaces: semaphore.NewWeighted(concurrentNamespaces),
		other: semaphore.NewWeighted(concurrent), known: map[subject]*subjectReads{}}
}

// Premise returns a source and, if that is to be read, a namespace. An answer from a read that began before notBefore
// does not count. If an answer is missing, Premise begins the read, unless it is on its way, and returns the time after
// which to ask again. A read serves all that ask, and goes on until ctx ends.
func (r *Reader) Premise(ctx context.Context, source types.NamespacedName, namespace string, readsNamespace bool,
	notBefore time.Time) (a Answer, retryAfter time.Duration, err error) {
	needed := []subject{source, {Namespace: namespace}}
	if !readsNamespace {
		needed = needed[:1]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var took time.Duration // by the longest read
	for _, s := range needed {
		last := cmp.Or(r.known[s], &subjectReads{})
		took = max(took, last.took)
		switch {
		case !last.serves(notBefore):
			retryAfter = max(retryAfter, min(max(soonest, time.Since(r.begin(ctx, s))), latest))
		case last.err != nil:
			return Answer{}, 0, last.err
		default:
			a.Source, a.Namespace = cmp.Or(a.Source, last.Source), cmp.Or(a.Namespace, last.Namespace)
			if last.Began.After(a.Began) {
				a.Began = last.Began
			}
		}
	}
	for _, s := range needed { // an answer that is too old when the other one comes is of no use
		if retryAfter > 0 && time.Until(r.known[s].until) < took {
			r.begin(ctx, s)
		}
	}
	return a, retryAfter, nil
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

// begin begins the read of a subject, unless that is on its way, and returns when it began. The last answer serves until
// the new one comes. The mutex is held.
func (r *Reader) begin(ctx context.Context, s subject) time.Time {
	reads := cmp.Or(r.known[s], &subjectReads{})
	r.known[s] = reads
	if reads.reading.IsZero() {
		reads.reading = time.Now()
		go r.read(ctx, s, reads, reads.reading)
	}
	return reads.reading
}

// read reads a subject and shares the answer.
func (r *Reader) read(ctx context.Context, s subject, reads *subjectReads, began time.Time) {
	answer, serves := Answer{Began: began}, Lifetime
	var err error
	if s.Name == "" {
		answer.Namespace, err = r.getNamespace(ctx, s.Namespace)
	} else {
		answer.Source, err = r.getSource(ctx, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		serves = FailureLifetime
	}
	reads.Answer, reads.err, reads.took = answer, err, time.Since(began)
	reads.until, reads.reading = time.Now().Add(serves), time.Time{}
	time.AfterFunc(serves, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.known[s] == reads && reads.reading.IsZero() && !time.Now().Before(reads.until) {
			delete(r.known, s)
		}
	})
}

// ConfigMap reads a ConfigMap, and shares the answer with nobody; nil: there is no such ConfigMap.
func (r *Reader) ConfigMap(ctx context.Context, k types.NamespacedName) (*corev1.ConfigMap, error) {
	return r.getConfigMap(ctx, r.other, k)
}

// getNamespace returns a namespace, as the cache would keep it; nil if it is gone.
func (r *Reader) getNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, err := get(ctx, r, r.namespaces, r.client.CoreV1().Namespaces().Get, name)
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

// get returns an object; nil if there is none. bound bounds such reads: the time in its queue is no time of the read.
func get[T any](ctx context.Context, r *Reader, bound *semaphore.Weighted,
	read func(context.Context, string, metav1.GetOptions) (*T, error), name string) (*T, error) {
	if err := bound.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer bound.Release(1)
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	obj, err := read(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return obj, nil
}
