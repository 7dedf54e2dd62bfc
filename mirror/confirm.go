package mirror

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/lanes"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// answerLifetime is how long after its arrival a live read serves the deletions that depend on it. Deletions in
	// thousands of namespaces take some seconds.
	answerLifetime = 5 * time.Second
	// concurrentReads bounds the live reads in flight of a kind: each object has up to 1.5 MiB, and its owner decides
	// about that.
	concurrentReads = 4
	// soonest and latest bound the wait for a live read that another reconcile makes: as long as it has taken up to now.
	soonest, latest = 10 * time.Millisecond, time.Second
)

// confirmer reads live what a deletion depends on and no precondition can guard. One reconcile reads, and the answer
// serves all.
type confirmer struct {
	client  kubernetes.Interface
	rules   *plan.Rules
	reads   *semaphore.Weighted // for sources
	refused rate.Sometimes      // limits the log about reads that are refused

	mu    sync.Mutex
	known map[subject]*liveRead
}

// subject is what is read: a ConfigMap, or a namespace.
type subject struct {
	configMap key
	namespace string
}

// home returns the namespace of the subject, or itself.
func (s subject) home() string { return cmp.Or(s.namespace, s.configMap.Namespace) }

// liveRead is the last answer about a subject, and the read that is on its way. The mutex of confirmer guards it.
type liveRead struct {
	answer
	reading  time.Time // the begin of the read that is on its way; zero: there is none
	failures int       // in a row
}

// answer is the answer to one live read.
type answer struct {
	began  time.Time
	until  time.Time         // it serves until then
	source *corev1.ConfigMap // without payload; nil: gone
	ns     *corev1.Namespace // nil: gone
	err    error
}

func newConfirmer(client kubernetes.Interface, rules *plan.Rules) *confirmer {
	return &confirmer{client: client, rules: rules, known: map[subject]*liveRead{},
		reads: semaphore.NewWeighted(concurrentReads), refused: rate.Sometimes{Interval: time.Minute}}
}

// confirm reads the source live, and the namespace if its labels matter, and reports whether the copy may be deleted.
// An answer to a read that began before notBefore does not count. If a source claims the copy, claimed is the time of
// the read. If another reconcile reads, requeueAfter is the time after which to ask again.
func (c *confirmer) confirm(ctx context.Context, p *lanes.Place, x *decision, notBefore time.Time) (
	holds bool, claimed time.Time, requeueAfter time.Duration, err error) {
	subjects := []subject{{configMap: x.change.CopyOf}}
	if x.change.ByLabels {
		subjects = append(subjects, subject{namespace: x.change.Key.Namespace})
	}
	for try := range 4 {
		found, missing, wait, err := c.answers(subjects, notBefore)
		switch {
		case err != nil || wait > 0:
			return false, claimed, wait, err
		case len(missing) == 0 && !x.change.ByLabels && c.rules.DependsOnLabels(found[subjects[0]].source, x.target.Namespace):
			x.change.ByLabels = true // the cache did not show this source
			subjects = append(subjects, subject{namespace: x.change.Key.Namespace})
			continue
		case len(missing) == 0:
			holds, claimed = c.judge(x, found)
			return holds, claimed, 0, nil
		case try > 0: // one answer was too old when the other one came: read both again
			missing = subjects
		}
		err = p.Read(ctx, missing[0].home(), missing[0].configMap.Name, func(ctx context.Context) error {
			return cmp.Or(c.readAll(ctx, missing, subjects, notBefore), context.Cause(ctx))
		})
		if off := (lanes.PutOffError{}); errors.As(err, &off) || ctx.Err() != nil {
			return false, claimed, 0, err
		}
	}
	return false, claimed, soonest, nil
}

// answers returns the answers about these subjects, and the subjects without one. It returns the error of an answer, or
// how long to wait for a read that is on its way.
func (c *confirmer) answers(subjects []subject, notBefore time.Time) (found map[subject]answer, missing []subject, wait time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found = map[subject]answer{}
	for _, s := range subjects {
		switch r := c.known[s]; {
		case r == nil:
			missing = append(missing, s)
		case r.serves(notBefore) && r.err != nil:
			err = r.err
		case r.serves(notBefore):
			found[s] = r.answer
		case !r.reading.IsZero():
			wait = max(wait, min(max(soonest, time.Since(r.reading)), latest))
		default:
			missing = append(missing, s)
		}
	}
	return found, missing, wait, err
}

func (a *answer) serves(notBefore time.Time) bool {
	return !a.began.Before(notBefore) && time.Now().Before(a.until)
}

// judge reports whether a copy is still unwanted, by the answers, and when the last of their reads began.
func (c *confirmer) judge(x *decision, found map[subject]answer) (unwanted bool, began time.Time) {
	for _, a := range found {
		if a.began.After(began) {
			began = a.began
		}
	}
	source, ns := found[subject{configMap: x.change.CopyOf}].source, x.target.Namespace
	if x.change.ByLabels {
		ns = found[subject{namespace: ns.Name}].ns
	}
	return ns != nil && !plan.Terminating(ns) && c.rules.StillUnwanted(x.change, x.view, source, ns), began
}

// readAll reads these subjects at the same time, but for those that another reconcile reads by now, until there is an
// answer about all that are needed. It returns the error of a read.
func (c *confirmer) readAll(ctx context.Context, subjects, needed []subject, notBefore time.Time) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reads, ended := 0, make(chan struct{})
	for _, s := range subjects {
		if r := c.begin(s); r != nil {
			reads++
			go func() {
				c.read(ctx, s, r)
				ended <- struct{}{}
			}()
		}
	}
	for range reads {
		<-ended
		found, _, _, failed := c.answers(needed, notBefore)
		if err = cmp.Or(err, failed); len(found) == len(needed) {
			stop()
		}
	}
	return err
}

// begin begins a read, unless another one is on its way. The last answer serves until the new one comes.
func (c *confirmer) begin(s subject) *liveRead {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.known[s]
	if r == nil {
		r = &liveRead{}
		c.known[s] = r
	}
	if !r.reading.IsZero() {
		return nil
	}
	r.reading = time.Now()
	return r
}

// read reads a subject, and publishes the answer. A read that was cut has none.
func (c *confirmer) read(ctx context.Context, s subject, r *liveRead) {
	callCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	source, ns, err := c.get(callCtx, s)
	c.mu.Lock()
	defer c.mu.Unlock()
	began := r.reading
	r.reading = time.Time{}
	lives := answerLifetime
	switch {
	case ctx.Err() != nil:
		c.forget(s, r)
		return
	case err != nil:
		r.failures++
		lives = reasons[reasonOf(plan.OpDelete, err)].pace.backoff(r.failures)
		c.log(ctx, s, err)
	default:
		r.failures = 0
	}
	r.answer = answer{began, time.Now().Add(lives), source, ns, err}
	time.AfterFunc(lives+slow.longest, func() { // until then the failures count
		c.mu.Lock()
		defer c.mu.Unlock()
		c.forget(s, r)
	})
}

// forget removes what serves nobody any more.
func (c *confirmer) forget(s subject, r *liveRead) {
	if c.known[s] == r && r.reading.IsZero() && !time.Now().Before(r.until.Add(slow.longest)) {
		delete(c.known, s)
	}
}

func (c *confirmer) get(ctx context.Context, s subject) (source *corev1.ConfigMap, ns *corev1.Namespace, err error) {
	if s.namespace == "" {
		source, err = c.getSource(ctx, s.configMap)
	} else if ns, err = c.client.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{}); err == nil {
		plan.StripNamespace(ns)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	return source, ns, err
}

// getSource returns a source; nil if it is being deleted.
func (c *confirmer) getSource(ctx context.Context, k key) (*corev1.ConfigMap, error) {
	if err := c.reads.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer c.reads.Release(1)
	live, err := c.client.CoreV1().ConfigMaps(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
	if err != nil || live.DeletionTimestamp != nil {
		return nil, err
	}
	live.Data, live.BinaryData = nil, nil
	c.rules.Strip(live)
	return live, nil
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
