package mirror

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// trouble is why a target is tried again although no event says so. Each has its own pace.
type trouble int

const (
	noTrouble  trouble = iota
	behind             // the cache is behind the API server, or somebody wrote at the same time
	transient          // the API server or the way to it failed
	closing            // the namespace is being deleted, by the API server's word but not yet by our cache
	refused            // quota, admission, authorization or validation refuse the write
	obstructed         // an object that is not ours is in the way
	unseen             // nothing is wrong with what is there, but the watch has not shown it
)

func (t trouble) String() string {
	return [...]string{"none", "behind", "transient", "closing", "refused", "obstructed", "unseen"}[t]
}

// maxRetryDelay caps every pace: no event tells that a quota was raised or a webhook mended.
const maxRetryDelay = time.Minute

// paces are the delays before the first and before any later try; they double in between.
//
// An event usually ends being behind long before its delay. A refusal may be over in a moment (a deleted
// object still counts in a quota until the quota is counted again), but slows down to once a minute within
// eight tries. An API server that was away should not find its copies a minute late when it is back. What is unseen
// may be all that a process missed which takes over when the API server has just restarted, and whose own watch is
// not back: it is within client-go's backoff of up to 30 seconds, and until then that server has enough to do.
var paces = map[trouble]struct{ first, max time.Duration }{
	behind:     {time.Second, maxRetryDelay},
	transient:  {50 * time.Millisecond, 15 * time.Second},
	closing:    {50 * time.Millisecond, maxRetryDelay},
	refused:    {250 * time.Millisecond, maxRetryDelay},
	obstructed: {time.Second, maxRetryDelay},
	unseen:     {30 * time.Second, maxRetryDelay},
}

// retries remembers the targets in trouble and hands each out again when its time has come. A target is
// keyed by the name of the copy there.
type retries struct {
	queue    workqueue.TypedDelayingInterface[cache.ObjectName]
	limiters map[trouble]workqueue.TypedRateLimiter[cache.ObjectName]

	mu      sync.Mutex
	targets map[cache.ObjectName]*troubled
}

// troubled is what is known of a target in trouble.
type troubled struct {
	trouble trouble
	since   time.Time // when it began
	// slow is set if the API server took its time to refuse, or did not answer at all.
	slow bool
	// mark is why the target was looked at; it is not lost until the trouble is over, or the target was read.
	mark mark
	// lookedAt is when the object in the way was last read.
	lookedAt time.Time
}

func newRetries() *retries {
	r := &retries{
		queue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[cache.ObjectName]{Name: "mirror-retries"}),
		limiters: map[trouble]workqueue.TypedRateLimiter[cache.ObjectName]{},
		targets:  map[cache.ObjectName]*troubled{},
	}
	for t, pace := range paces {
		r.limiters[t] = workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](pace.first, pace.max)
	}
	return r
}

// add notes the trouble of a target and hands it out again after a delay that grows while the trouble stays
// the same.
func (r *retries) add(target cache.ObjectName, m mark, t trouble) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.know(target, m)
	if known.trouble != t {
		r.forgetPace(target, known.trouble)
		known.trouble, known.since = t, time.Now()
	}
	r.queue.AddAfter(target, r.limiters[t].When(target))
}

// after hands a target that is not in trouble out again after a delay.
func (r *retries) after(target cache.ObjectName, m mark, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.know(target, m)
	r.queue.AddAfter(target, delay)
}

func (r *retries) know(target cache.ObjectName, m mark) *troubled {
	known := r.targets[target]
	if known == nil {
		known = &troubled{}
		r.targets[target] = known
	}
	known.mark = m.merge(known.mark)
	return known
}

// looked notes that what is at a target was read, so that it is known what came of a copy that vanished there. If something
// was found, it was not deleted, or somebody else has put something in its place.
func (r *retries) looked(target cache.ObjectName, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.targets[target]; known != nil {
		known.mark = mark{deleted: known.mark.deleted && !found}
	}
}

// next blocks until the time of a target has come and returns it with the mark it was put away with. more is
// false when the retries were shut down.
func (r *retries) next() (target cache.ObjectName, m mark, more bool) {
	target, shutdown := r.queue.Get()
	if shutdown {
		return target, mark{}, false
	}
	defer r.queue.Done(target)
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.targets[target]; known != nil {
		m = known.mark
	}
	return target, m, true
}

// settled forgets the trouble of a target, and with it the delay.
func (r *retries) settled(target cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(target)
}

// forgetNamespace forgets the troubles of a namespace that is gone: one of the same name that is created
// later begins anew.
func (r *retries) forgetNamespace(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for target := range r.targets {
		if target.Namespace == namespace {
			r.forget(target)
		}
	}
}

func (r *retries) forget(target cache.ObjectName) {
	if known := r.targets[target]; known != nil {
		r.forgetPace(target, known.trouble)
		delete(r.targets, target)
	}
}

func (r *retries) forgetPace(target cache.ObjectName, t trouble) {
	if limiter := r.limiters[t]; limiter != nil {
		limiter.Forget(target)
	}
}

// markOf returns why a target in trouble has to be looked at again.
func (r *retries) markOf(target cache.ObjectName) mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.targets[target]
	if known == nil {
		return mark{}
	}
	return known.mark
}

// is reports whether the target is in this trouble.
func (r *retries) is(target cache.ObjectName, t trouble) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.targets[target]
	return known != nil && known.trouble == t
}

// tookLong notes that the API server took its time over a target.
func (r *retries) tookLong(target cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.know(target, mark{}).slow = true
}

// holdsUp reports whether the next try at the target is likely to be in vain, or to take long.
func (r *retries) holdsUp(target cache.ObjectName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.targets[target]
	return known != nil && (known.slow || known.trouble == refused)
}

// hardened returns the trouble as which the next failure of a target counts. What the API server answers with
// an error of its own again and again, such as a webhook that it cannot call, is a refusal in the end: it is
// told, and slows down as one.
func (r *retries) hardened(target cache.ObjectName, t trouble, answered bool) trouble {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.targets[target]
	if t != transient || !answered || known == nil {
		return t
	}
	if known.trouble == refused || known.trouble == transient && time.Since(known.since) >= transientPatience {
		return refused
	}
	return t
}

// transientPatience is how long the API server may fail at a target before that is no passing trouble any more: eight
// tries, if it does so at once.
const transientPatience = 10 * time.Second

// worthALook reports whether the object should be read that is, or may be, where a create was refused, and takes
// note of it if so. The first collisions are; later on the create alone, once a minute, tells whether the object is gone,
// and a look every period finds the annotation by which its owner hands it over without our label, which no
// watch shows.
func (r *retries) worthALook(target cache.ObjectName, period time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.targets[target]
	if known == nil || known.trouble != obstructed && known.trouble != refused {
		return true
	}
	atFullPace := r.limiters[known.trouble].NumRequeues(target) <= rampTries
	if atFullPace || period > 0 && time.Since(known.lookedAt) >= period {
		known.lookedAt = time.Now()
		return true
	}
	return false
}

// rampTries is after how many tries the pace of an obstructed target is down to maxRetryDelay: 1, 2, 4, 8, 16
// and 32 seconds come before.
const rampTries = 6
