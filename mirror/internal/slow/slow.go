// Package slow keeps namespaces that answer slowly from holding up the others. It cuts an ordinary call that takes
// much longer than usual, and holds the targets of slow namespaces in a queue of their own, which few workers serve.
//
// A call must be conditional: after a cut nobody knows whether the API server carried it out.
package slow

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/queue"
)

// Workers is how many workers of each pace but Ordinary serve the slow namespaces: the API server has few seats for one
// account.
const Workers = 8

// Pace is how much time a call has.
type Pace int

// The paces. Growing calls find namespaces that are quick again; Whole ones show what the API server answers at last.
const (
	Ordinary Pace = iota // several times what ordinary calls take
	Growing              // several times what the last call in the namespace took
	Whole                // the timeout of the call
)

const (
	// limitFactor is how many times the average an ordinary call may take, and minLimit the least time it has.
	limitFactor = 8
	minLimit    = 100 * time.Millisecond
	// maxAverage bounds the average: namespaces that hang must not pass for ordinary ones.
	maxAverage = time.Second
	weight     = 0.2                   // of one call in the moving average
	patience   = 2                     // how many limits a call may take while the API server answers no other call
	growth     = 4                     // how many times the last call in a slow namespace the next one may take
	moment     = time.Second           // within which the watch shows a write that was cut and was quick all the same
	longestLag = 10 * time.Second      // for how long an API server that answers no ordinary call makes no namespace slow
	manyCuts   = 32                    // in a row, where writes were quick: the API server is slow for everybody
	recheck    = 50 * time.Millisecond // between two looks at a call beyond its limit
)

// ErrCut is the error of a call that was cut. It is no failure: the target keeps its backoff.
var ErrCut = errors.New("canceled: it takes too long")

type key = types.NamespacedName

// Queue is the queue of slow namespaces, by UID. A namespace is in work once at a time, and each turn takes one of its
// targets: call Get, Next, and, after the calls of that target, EndTurn and Done.
type Queue struct {
	*queue.Queue[types.UID]

	isAnswer func(error) bool

	mu       sync.Mutex
	average  time.Duration           // of ordinary calls that succeeded
	answered time.Time               // when an ordinary call was last answered
	stall    stall                   // the last one
	cuts     int                     // of ordinary writes since then, where the one before was quick
	cutsFrom time.Time               // when the first of them was
	longAt   map[types.UID]time.Time // when an ordinary write last took too long; zero: one was quick since
	slow     map[types.UID]*namespace
	calls    map[*call]bool // in flight
}

// namespace is one that is slow, or one with a target whose read was cut.
type namespace struct {
	took    time.Duration // by the last write there; 0: the namespace is not slow
	quick   bool          // the last write of this turn was answered in time
	targets []key         // they wait for their turns
}

// stall is a time between two answers to ordinary calls in which a call could exceed its limit.
type stall struct{ from, to time.Time }

type call struct {
	namespace types.UID
	cancel    context.CancelCauseFunc
	forgotten bool // the namespace is deleted
}

// NewQueue returns an empty queue. name is the label of its metrics. isAnswer reports whether the error of a call, or
// nil, shows that the API server has answered.
func NewQueue(name string, isAnswer func(error) bool) *Queue {
	return &Queue{
		isAnswer: isAnswer,
		Queue:    queue.New[types.UID](name, nil),
		slow:     map[types.UID]*namespace{}, calls: map[*call]bool{}, longAt: map[types.UID]time.Time{},
	}
}

// limit returns how long an ordinary call may take. The mutex is held.
func (q *Queue) limit() time.Duration { return max(minLimit, limitFactor*q.average) }

// isSlow reports whether ordinary calls may not take as long as the next one in the namespace. The mutex is held.
func (q *Queue) isSlow(n *namespace) bool {
	return n != nil && n.took > 0 && growth*n.took >= q.limit()
}

// Put has a target wait for a turn of its namespace, and reports whether it does: the namespace must be slow, or the
// call at the target was cut and the namespace gets no second chance.
func (q *Queue) Put(uid types.UID, k types.NamespacedName, cut bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, known := q.longAt[uid]; !q.isSlow(q.slow[uid]) && (!cut || known) {
		return false
	}
	n := q.namespace(uid)
	if !slices.Contains(n.targets, k) {
		n.targets = append(n.targets, k)
	}
	q.add(uid, n)
	return true
}

// add has a namespace wait for a turn, before those that hang: their turns are the longest. The mutex is held.
func (q *Queue) add(uid types.UID, n *namespace) {
	if n.took < limitFactor*maxAverage {
		q.AddFirst(uid)
	} else {
		q.Add(uid)
	}
}

// namespace returns what is known of a namespace. The mutex is held.
func (q *Queue) namespace(uid types.UID) *namespace {
	n := cmp.Or(q.slow[uid], &namespace{})
	q.slow[uid] = n
	return n
}

// Next removes the target whose turn it is. ok is false if ordinary workers may serve the namespace, or nothing waits.
func (q *Queue) Next(uid types.UID) (k types.NamespacedName, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.slow[uid]
	if n == nil || len(n.targets) == 0 || n.took > 0 && !q.isSlow(n) {
		return key{}, false
	}
	n.quick = false
	k, n.targets = n.targets[0], n.targets[1:]
	return k, true
}

// EndTurn ends the turn of a namespace. It returns the targets that go back to the ordinary workers.
func (q *Queue) EndTurn(uid types.UID) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.slow[uid]
	switch {
	case n == nil:
		return nil
	case n.quick, n.took > 0 && !q.isSlow(n), n.took == 0 && len(n.targets) == 0:
		delete(q.slow, uid)
		return n.targets
	case len(n.targets) > 0:
		q.add(uid, n)
	}
	return nil
}

// Written records that the watch shows a copy in sync. If an ordinary write in its namespace was cut a moment ago, that
// was quick all the same. Written returns the targets that go back to the ordinary workers.
func (q *Queue) Written(uid types.UID) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.longAt[uid]) > moment {
		return nil
	}
	q.longAt[uid] = time.Time{}
	n := cmp.Or(q.slow[uid], &namespace{})
	delete(q.slow, uid)
	return n.targets
}

// Forget forgets a namespace that is deleted, and cuts the calls there.
func (q *Queue) Forget(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.slow, uid)
	delete(q.longAt, uid)
	for c := range q.calls {
		if c.namespace == uid {
			c.forgotten = true
			c.cancel(ErrCut)
		}
	}
}

// Known returns the number of slow namespaces, and of calls in flight. Tests find leaks by it.
func (q *Queue) Known() (slow, calls int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.slow), len(q.calls)
}

// Write runs f, which makes one call that writes in a namespace, and returns its error, or ErrCut. A write that takes
// too long makes the namespace slow, unless that is forgiven.
func (q *Queue) Write(ctx context.Context, uid types.UID, pace Pace, f func(context.Context) error) error {
	began := time.Now()
	took, err := q.call(ctx, uid, pace, f)
	if took != forgotten {
		q.learn(uid, pace, began, took, err)
	}
	return err
}

// Read is as Write, for a call that reads. It makes no namespace slow, and in a slow one it has its whole timeout.
func (q *Queue) Read(ctx context.Context, uid types.UID, pace Pace, f func(context.Context) error) error {
	if pace != Ordinary {
		pace = Whole
	}
	_, err := q.call(ctx, uid, pace, f)
	if errors.Is(err, ErrCut) {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.longAt, uid) // no second chance
	}
	return err
}

// limitOf returns how long a call may take; 0: its own timeout ends it. The mutex is held.
func (q *Queue) limitOf(uid types.UID, pace Pace) time.Duration {
	switch n := q.slow[uid]; {
	case pace == Whole:
		return 0
	case pace == Growing && n != nil:
		return max(q.limit(), growth*n.took)
	}
	return q.limit()
}

const forgotten = -1 // the duration of a call whose namespace was deleted meanwhile: nothing is learnt from it

// call makes one call, and returns how long it took.
func (q *Queue) call(ctx context.Context, uid types.UID, pace Pace, f func(context.Context) error) (
	took time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(withoutErrors(ctx))
	defer cancel(nil)
	c, began := &call{namespace: uid, cancel: cancel}, time.Now()
	q.mu.Lock()
	q.calls[c] = true
	limit := q.limitOf(uid, pace)
	q.mu.Unlock()
	if limit > 0 {
		defer q.cutAfter(c, began, limit, pace).Stop()
	}
	err = f(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.calls, c)
	took = time.Since(began)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), ErrCut):
		err = ErrCut
	case pace == Ordinary && q.isAnswer(err):
		now := time.Now()
		if now.Sub(q.answered) >= q.limit() {
			q.stall = stall{q.answered, now}
		}
		q.answered, q.cuts = now, 0
	}
	if c.forgotten {
		return forgotten, err
	}
	return took, err
}

// tookLong records that an ordinary write took too long, and reports whether that is forgiven: the one before was
// quick, or took too long at the same time or in the same stall. The mutex is held.
func (q *Queue) tookLong(uid types.UID, began time.Time) (forgiven bool) {
	longAt, known := q.longAt[uid]
	if began.Before(longAt) { // the next call decides
		return true
	}
	now := time.Now()
	q.longAt[uid] = now
	if !known || !longAt.IsZero() {
		inStall := q.answered.Before(longAt) || q.stall.from.Before(longAt) && began.Before(q.stall.to)
		return inStall && now.Sub(q.cutsFrom) < longestLag
	}
	if q.cuts++; q.cuts == 1 {
		q.cutsFrom = now
	}
	return true
}

// learn learns from a write how long writes take, and whether the namespace is slow. Writes that succeed count for the
// average. In a slow namespace they count only if no ordinary call was answered meanwhile, and up to a bound.
func (q *Queue) learn(uid types.UID, pace Pace, began time.Time, took time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := growth * q.limit()
	if q.answered.IsZero() || q.cuts >= manyCuts { // it is slow for everybody
		most = limitFactor * maxAverage
	}
	if err == nil && (pace == Ordinary || q.answered.Before(began) && took < most) {
		q.average = min(time.Duration(weight*float64(took)+(1-weight)*float64(q.average)), maxAverage)
	}
	if err == nil && took < q.limit() {
		q.longAt[uid] = time.Time{}
	}
	isLong := errors.Is(err, ErrCut) || took >= q.limit()
	switch n := q.slow[uid]; {
	case isLong && pace == Ordinary && q.tookLong(uid, began):
	case isLong:
		n = q.namespace(uid)
		if n.took, n.quick = took, false; pace == Ordinary { // it had longer while the API server answered nobody
			n.took = q.limit()
		}
	case n != nil && pace != Ordinary: // another call of this turn may be slow
		n.quick = true
	case n != nil && len(n.targets) == 0:
		delete(q.slow, uid)
	}
}

// cutAfter cuts a call after its limit. An ordinary one goes on for up to twice the limit, until the API server has
// answered another ordinary call since it began. A call in flight at the stop goes on.
func (q *Queue) cutAfter(c *call, began time.Time, limit time.Duration, pace Pace) *time.Timer {
	q.mu.Lock()
	defer q.mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(limit, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		switch {
		case q.ShuttingDown(), !q.calls[c]:
		case pace != Ordinary, q.answered.After(began), time.Since(began) >= patience*limit:
			c.cancel(ErrCut)
		default:
			timer.Reset(recheck)
		}
	})
	return timer
}

// withoutErrors returns a context whose logger logs no errors: client-go logs one for each call that is cut while its
// response is read.
func withoutErrors(ctx context.Context) context.Context {
	logger := klog.FromContext(ctx)
	if logger.GetSink() == nil { // it logs nothing
		return ctx
	}
	return klog.NewContext(ctx, logger.WithSink(noErrors{logger.GetSink()}))
}

// noErrors is a LogSink that drops errors.
type noErrors struct{ klog.LogSink }

func (noErrors) Error(error, string, ...any) {}
