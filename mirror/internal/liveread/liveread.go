// Package liveread reads objects past the cache: the source and the namespace that a deletion depends on, which no
// precondition can guard, and objects that the cache does not show. An answer serves all deletions that ask within five
// seconds, and a failure until its backoff is over.
package liveread

import (
	"cmp"
	"context"
	"slices"
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
	until   time.Time         // the answer or the error serves until then
	waiting []chan<- struct{} // for the end of the read on its way; nil: none is
}

// New returns a reader. strip prepares a ConfigMap as the cache does. timeout bounds each read.
func New(client kubernetes.Interface, strip func(*corev1.ConfigMap), timeout time.Duration) *Reader {
	return &Reader{client: client, strip: strip, timeout: timeout,
		sources: semaphore.NewWeighted(concurrent), other: semaphore.NewWeighted(concurrent),
		known: map[subject]*subjectReads{}}
}

// Premise returns a source and, if that is to be read, a namespace. An answer from a read that began before notBefore
// does not count. Premise reads what it lacks, or waits for the reads of others, until ctx ends. Its own reads serve others, too, and go on
// until reads ends.
func (r *Reader) Premise(ctx, reads context.Context, source types.NamespacedName, namespace string,
	readsNamespace bool, notBefore time.Time) (Answer, error) {
	needed, ended := []subject{source, {Namespace: namespace}}, make(chan struct{}, 1)
	if !readsNamespace {
		needed = needed[:1]
	}
	for isFirst := true; ; isFirst = false {
		a, complete, err := r.answers(reads, needed, notBefore, isFirst, ended)
		if err != nil || complete {
			return a, err
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return Answer{}, context.Cause(ctx)
		}
	}
}

// answers joins the answers about the subjects that are needed. It begins the reads that lack: of all subjects if one
// answer was too old when another one came, or reads that take long would never be young together. It sends to ended
// at the end of each read.
func (r *Reader) answers(ctx context.Context, needed []subject, notBefore time.Time, isFirst bool,
	ended chan<- struct{}) (a Answer, complete bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var missing []subject
	for _, s := range needed {
		switch last := r.known[s]; {
		case last == nil || !last.serves(notBefore):
			missing = append(missing, s)
		case last.err != nil:
			return Answer{}, false, last.err
		default:
			a.Source, a.Namespace = cmp.Or(a.Source, last.Source), cmp.Or(a.Namespace, last.Namespace)
			if last.Began.After(a.Began) {
				a.Began = last.Began
			}
		}
	}
	isRead := func(s subject) bool { return r.known[s] != nil && r.known[s].waiting != nil }
	if len(missing) > 0 && !isFirst && !slices.ContainsFunc(missing, isRead) {
		missing = needed
	}
	for _, s := range missing {
		r.await(ctx, s, ended)
	}
	return a, len(missing) == 0, nil
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

// await sends to ended at the end of the read of a subject, which it begins unless that is on its way. The last answer
// serves until the new one comes. The mutex is held.
func (r *Reader) await(ctx context.Context, s subject, ended chan<- struct{}) {
	reads := cmp.Or(r.known[s], &subjectReads{})
	r.known[s] = reads
	if reads.waiting == nil {
		go r.read(ctx, s, reads, time.Now())
	}
	if !slices.Contains(reads.waiting, ended) {
		reads.waiting = append(reads.waiting, ended)
	}
}

// read reads a subject and shares the answer.
func (r *Reader) read(ctx context.Context, s subject, reads *subjectReads, began time.Time) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	answer, serves := Answer{Began: began}, Lifetime
	var err error
	if s.Name == "" {
		answer.Namespace, err = r.getNamespace(ctx, s.Namespace)
	} else {
		answer.Source, err = r.getSource(ctx, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ended := range reads.waiting {
		select {
		case ended <- struct{}{}:
		default: // it has not seen the end of another one yet
		}
	}
	if err != nil {
		serves = FailureLifetime
	}
	reads.Answer, reads.err, reads.until, reads.waiting = answer, err, time.Now().Add(serves), nil
	time.AfterFunc(serves, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.known[s] == reads && reads.waiting == nil && !time.Now().Before(reads.until) {
			delete(r.known, s)
		}
	})
}

// ConfigMap reads a ConfigMap, and shares the answer with nobody; nil: there is no such ConfigMap.
func (r *Reader) ConfigMap(ctx context.Context, k types.NamespacedName) (*corev1.ConfigMap, error) {
	return r.get(ctx, r.other, k)
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
