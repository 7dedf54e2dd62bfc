package mirror

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	// recreationGrace is how long the copies outlive their deleted source: tools that replace an object by
	// deleting it and creating it anew do so within a second.
	recreationGrace = time.Second
	// lookLifetime is how long an answer serves the deletions that rest on it: a fan-out of deletions to thousands of
	// namespaces takes a second or two. No event would end it earlier while our watch is silent.
	lookLifetime = 5 * time.Second
	// lookAnew is the time before a look is tried again that somebody else has under way, or whose answer an event
	// has made void: about one round trip, as deletions that rest on a look wait for this.
	lookAnew = 2 * time.Millisecond
	// lookRetry is the time before the first repetition of a look that failed. It doubles, to the longest pace of the
	// trouble that the error stands for.
	lookRetry = time.Second
	// behindFirst and behindMax bound the time between two live looks at a source that the API server has
	// and the cache does not; it doubles in between.
	behindFirst, behindMax = time.Second, time.Minute
)

// looks asks the API server, live, for what a deletion rests on and no precondition can guard: that the
// source is gone, or that the namespace no longer qualifies. The answers serve all deletions that rest on
// them: that of a source until there is an event about it, that of a namespace as long as the cache has the same
// state of it, and neither for longer than lookLifetime.
type looks struct {
	client  kubernetes.Interface
	timeout time.Duration

	mu         sync.Mutex
	sources    map[cache.ObjectName]*sourceLook
	namespaces map[string]*namespaceLook
}

// sourceLook is guarded by the mutex of looks.
type sourceLook struct {
	asking     time.Time         // when the look that goes on began; zero: none does
	vanishedAt time.Time         // when its disappearance was seen
	settledAt  time.Time         // when live was settled; zero: it is not
	live       *corev1.ConfigMap // without payload; nil: gone
	notBefore  time.Time         // the next look
	behind     time.Duration
	failure
}

// namespaceLook is guarded by the mutex of looks.
type namespaceLook struct {
	asking  time.Time         // when the look that goes on began; zero: none does
	rv      string            // of the cached namespace that was doubted
	live    *corev1.Namespace // nil: gone
	askedAt time.Time
	failure
}

// failure is that of the last look, and for how long it stands for the next.
type failure struct {
	err   error // nil: it was answered
	pause time.Duration
	until time.Time
}

// note notes what came of a look.
func (f *failure) note(err error, now time.Time) {
	if err == nil {
		*f = failure{}
		return
	}
	longest := paces[troubleOf(opDelete, err)].max
	f.err, f.pause = err, min(max(lookRetry, 2*f.pause), longest)
	f.until = now.Add(f.pause)
}

// stands reports whether the failure is still the answer.
func (f *failure) stands(now time.Time) bool { return f.err != nil && now.Before(f.until) }

func newLooks(client kubernetes.Interface, timeout time.Duration) *looks {
	return &looks{
		client: client, timeout: timeout,
		sources:    map[cache.ObjectName]*sourceLook{},
		namespaces: map[string]*namespaceLook{},
	}
}

// forget makes void what is known of a source, because there is an event about it.
func (l *looks) forget(key cache.ObjectName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sources, key)
}

// vanished notes that a source disappeared from the watch just now.
func (l *looks) vanished(key cache.ObjectName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sources[key] = &sourceLook{vanishedAt: time.Now()}
}

// source returns the source as the API server has it, without its payload, or nil if it is gone. A wait above
// zero means that there is no answer yet and when to ask again: somebody else is asking (who waited for that here
// would keep a slot that others can use), the second in which a deleted source may come back is not over, or the
// cache, which has the source at resourceVersion cached (empty: not at all), is behind. The error of a look that
// failed is also that of those who ask soon after.
func (l *looks) source(ctx context.Context, r *rules, key cache.ObjectName, cached string) (live *corev1.ConfigMap, wait time.Duration, err error) {
	e, live, wait, err := l.begin(key)
	if e == nil {
		return live, wait, err
	}
	live, err = l.get(ctx, key)
	l.mu.Lock()
	defer l.mu.Unlock()
	e.asking = time.Time{}
	if e.note(err, time.Now()); err != nil {
		return nil, 0, err
	}
	if l.sources[key] != e {
		return nil, lookAnew, nil // there was an event about the source meanwhile
	}
	wait = e.judge(r, live, cached, time.Now())
	e.notBefore = time.Now().Add(wait)
	return e.live, wait, nil
}

// begin returns the look that the caller has to make now, or nil with what is known, or with how long to wait.
func (l *looks) begin(key cache.ObjectName) (e *sourceLook, live *corev1.ConfigMap, wait time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e = l.sources[key]
	if e == nil {
		e = &sourceLook{}
		l.sources[key] = e
	}
	now := time.Now()
	switch {
	case !e.settledAt.IsZero() && now.Sub(e.settledAt) < lookLifetime:
		return nil, e.live, 0, nil
	case !e.asking.IsZero():
		return nil, nil, max(lookAnew, now.Sub(e.asking)), nil
	case e.stands(now):
		return nil, nil, 0, e.err
	case e.notBefore.After(now):
		return nil, nil, e.notBefore.Sub(now), nil
	}
	e.asking = now
	return e, nil, 0, nil
}

// judge settles the look by what the API server said, or returns how long to wait for that.
func (e *sourceLook) judge(r *rules, live *corev1.ConfigMap, cached string, now time.Time) (wait time.Duration) {
	if live == nil || live.DeletionTimestamp != nil {
		if e.vanishedAt.IsZero() {
			e.vanishedAt = now
		}
		if wait := recreationGrace - now.Sub(e.vanishedAt); wait > 0 {
			return wait
		}
	} else {
		e.vanishedAt = time.Time{}
		if r.asksToBeMirrored(live) && live.ResourceVersion != cached {
			e.behind = min(max(behindFirst, 2*e.behind), behindMax)
			return e.behind
		}
	}
	e.live, e.settledAt = live, now
	return 0
}

// get reads one ConfigMap live, without its payload; nil if there is none.
func (l *looks) get(ctx context.Context, key cache.ObjectName) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	cm, err := l.client.CoreV1().ConfigMaps(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cm.Data, cm.BinaryData, cm.ManagedFields = nil, nil, nil
	return cm, nil
}

// namespace returns the namespace as the API server has it, or nil if it is gone. The answer is kept for all
// who doubt the same state of the cache. A wait above zero means, as for a source, that somebody else is asking.
func (l *looks) namespace(ctx context.Context, cached *corev1.Namespace) (live *corev1.Namespace, wait time.Duration, err error) {
	e, live, wait, err := l.beginNamespace(cached)
	if e == nil {
		return live, wait, err
	}
	live, err = l.getNamespace(ctx, cached.Name)
	l.mu.Lock()
	defer l.mu.Unlock()
	e.asking = time.Time{}
	if e.note(err, time.Now()); err != nil {
		return nil, 0, err
	}
	e.live, e.rv, e.askedAt = live, cached.ResourceVersion, time.Now()
	return live, 0, nil
}

// beginNamespace returns the look that the caller has to make now, or nil with what is known, or with how long to wait.
func (l *looks) beginNamespace(cached *corev1.Namespace) (e *namespaceLook, live *corev1.Namespace, wait time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e = l.namespaces[cached.Name]
	if e == nil {
		e = &namespaceLook{}
		l.namespaces[cached.Name] = e
	}
	now := time.Now()
	switch {
	case e.rv == cached.ResourceVersion && now.Sub(e.askedAt) < lookLifetime:
		return nil, e.live, 0, nil
	case !e.asking.IsZero():
		return nil, nil, max(lookAnew, now.Sub(e.asking)), nil
	case e.stands(now):
		return nil, nil, 0, e.err
	}
	e.asking = now
	return e, nil, 0, nil
}

func (l *looks) getNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	ns, err := l.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ns, nil
}

// sweep forgets answers that nobody may use any more, but no look that goes on.
func (l *looks) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := time.Now().Add(-lookLifetime)
	for key, e := range l.sources {
		if e.asking.IsZero() && e.settledAt.Before(old) && e.vanishedAt.Before(old) && e.notBefore.Before(old) && e.until.Before(old) {
			delete(l.sources, key)
		}
	}
	for name, e := range l.namespaces {
		if e.asking.IsZero() && e.askedAt.Before(old) && e.until.Before(old) {
			delete(l.namespaces, name)
		}
	}
}
