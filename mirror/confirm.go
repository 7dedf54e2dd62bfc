package mirror

import (
	"context"
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
	// answerLifetime is how long a live read serves the deletions that depend on it, and as long again as it took, so that it
	// outlives the slowest read that it is combined with. Deletions in thousands of namespaces take some seconds.
	answerLifetime = 5 * time.Second
	// concurrentReads bounds the live reads in flight of a kind: each object has up to 1.5 MiB, and its owner decides about that.
	concurrentReads = 4
	// soonest and latest bound the wait for a live read that another reconcile makes: as long as it has taken up to now.
	soonest, latest = 10 * time.Millisecond, time.Second
)

// confirmer reads live what a deletion depends on and no precondition can guard. One reconcile reads, and the answer serves all.
type confirmer struct {
	client  kubernetes.Interface
	rules   *plan.Rules
	reads   slots          // for sources
	refused rate.Sometimes // limits the log about reads that are refused

	mu      sync.Mutex
	answers map[subject]*answer
}

// subject is what is read: a ConfigMap, or a namespace.
type subject struct {
	configMap key
	namespace string
}

func (s subject) String() string {
	if s.namespace != "" {
		return "/" + s.namespace
	}
	return s.configMap.String()
}

// answer is one live read. The mutex of confirmer guards it.
type answer struct {
	began    time.Time
	until    time.Time         // it serves until then; zero: the read is on its way
	source   *corev1.ConfigMap // without payload; nil: gone
	ns       *corev1.Namespace // nil: gone
	err      error
	failures int // in a row
}

func newConfirmer(client kubernetes.Interface, rules *plan.Rules) *confirmer {
	return &confirmer{client: client, rules: rules, answers: map[subject]*answer{}, reads: make(slots, concurrentReads),
		refused: rate.Sometimes{Interval: time.Minute}}
}

// confirm reports whether the premise of a deletion holds, by live reads that began at the time after or later. If it does not,
// a source claimed the copy when they began, at claimed. If another reconcile reads, requeueAfter is the time after which to
// ask again.
func (c *confirmer) confirm(ctx context.Context, p *place, x *decision, after time.Time) (holds bool, claimed time.Time, requeueAfter time.Duration, err error) {
	var subjects []subject
	if x.change.Premise.Source {
		subjects = append(subjects, subject{configMap: x.change.CopyOf})
	}
	if x.change.Premise.Namespace {
		subjects = append(subjects, subject{namespace: x.change.Key.Namespace})
	}
	for range 4 {
		found, missing, wait, err := c.known(subjects, after)
		switch {
		case err != nil || wait > 0:
			return false, claimed, wait, err
		case len(missing) == 0:
			holds, claimed = c.judge(x, found)
			return holds, claimed, 0, nil
		}
		err = p.readLive(ctx, missing[0].String(), func(ctx context.Context) error {
			c.readAll(ctx, missing, after)
			return context.Cause(ctx)
		})
		if err != nil {
			return false, claimed, 0, err
		}
	}
	return false, claimed, soonest, nil
}

// known returns the answers about these subjects, and the subjects without one. It returns the error of an answer, or how long
// to wait for those on their way.
func (c *confirmer) known(subjects []subject, after time.Time) (found map[subject]answer, missing []subject, wait time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found = map[subject]answer{}
	for _, s := range subjects {
		switch a := c.answers[s]; {
		case a == nil || !a.until.IsZero() && !a.serves(after):
			missing = append(missing, s)
		case a.until.IsZero():
			wait = max(wait, min(max(soonest, time.Since(a.began)), latest))
		case a.err != nil:
			err = a.err
		default:
			found[s] = *a
		}
	}
	return found, missing, wait, err
}

func (a *answer) serves(after time.Time) bool {
	return !a.began.Before(after) && time.Now().Before(a.until)
}

// judge reports whether a copy is still unwanted, by the answers, and when the last of their reads began.
func (c *confirmer) judge(x *decision, found map[subject]answer) (unwanted bool, began time.Time) {
	for _, a := range found {
		if a.began.After(began) {
			began = a.began
		}
	}
	var source *corev1.ConfigMap // without a premise about it, only the namespace decides
	if x.change.Premise.Source {
		source = found[subject{configMap: x.change.CopyOf}].source
	}
	ns := x.target.Namespace
	if x.change.Premise.Namespace {
		ns = found[subject{namespace: ns.Name}].ns
	}
	return ns != nil && !plan.Terminating(ns) && c.rules.StillUnwanted(x.view, source, ns), began
}

// readAll reads these subjects at the same time, but for those that another reconcile reads by now.
func (c *confirmer) readAll(ctx context.Context, subjects []subject, after time.Time) {
	var reads sync.WaitGroup
	for _, s := range subjects {
		if a := c.claim(s, after); a != nil {
			reads.Go(func() { c.read(ctx, s, a) })
		}
	}
	reads.Wait()
}

// claim begins a read, unless another one is on its way or has ended.
func (c *confirmer) claim(s subject, after time.Time) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, failures := c.answers[s], 0
	if a != nil && (a.until.IsZero() || a.serves(after)) {
		return nil
	}
	if a != nil {
		failures = a.failures
	}
	a = &answer{began: time.Now(), failures: failures}
	c.answers[s] = a
	return a
}

// read reads a subject, and publishes the answer. A read that was cut has none.
func (c *confirmer) read(ctx context.Context, s subject, a *answer) {
	callCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	source, ns, err := c.get(callCtx, s)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		delete(c.answers, s)
		return
	}
	a.source, a.ns, a.err = source, ns, err
	lives := answerLifetime + time.Since(a.began)
	if a.failures = 0; err != nil {
		a.failures++
		lives = reasons[reasonOf(plan.OpDelete, err)].pace.backoff(a.failures)
		c.log(ctx, s, err)
	}
	a.until = time.Now().Add(lives)
	time.AfterFunc(lives+slow.longest, func() { // until then the failures count
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.answers[s] == a {
			delete(c.answers, s)
		}
	})
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
	if !c.reads.acquire(ctx) {
		return nil, ctx.Err()
	}
	defer c.reads.release()
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

// sleep returns false if ctx ends before the time is over.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
