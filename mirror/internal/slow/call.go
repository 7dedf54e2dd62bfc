package slow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pace is the class of a call's deadline.
type Pace int

// The paces. Growing calls find namespaces that have become quick again. Whole
// ones show what the API server answers in the end, and let slow ones succeed.
const (
	Ordinary Pace = iota // several times what ordinary calls take
	Growing              // several times what the last write in the namespace took
	Whole                // the timeout of the call itself
)

const (
	// growthFactor is how many times the last write in a slow namespace a
	// Growing call may take. 100 ms become 30 s within five turns.
	growthFactor = 4
	// noLimit is the limit of a call that its own timeout ends.
	noLimit = math.MaxInt64
)

// ErrCut is the error of a call that was cut. It is no failure: the target
// keeps its backoff.
var ErrCut = errors.New("canceled: it takes too long")

// ErrReadCut is the ErrCut of a call that reads.
var ErrReadCut = fmt.Errorf("the read was %w", ErrCut)

// call is a call in flight.
type call struct {
	namespace types.UID
	pace      Pace
	began     time.Time
	timer     *time.Timer // of its limit
	extended  bool        // its limit has been doubled
	cancel    context.CancelCauseFunc
}

// Write runs f, which makes one call that writes in a namespace, and returns
// its error, or ErrCut. A write that takes too long makes the namespace slow,
// unless that is forgiven.
func (q *Queue) Write(
	ctx context.Context, uid types.UID, pace Pace, f func(context.Context) error) error {
	return q.call(ctx, uid, pace, f, q.learn)
}

// Read is as Write, for a call that reads, and returns ErrReadCut after a cut. A
// read makes no namespace slow: after a cut only its own target waits for a turn.
// In a slow namespace it has its whole timeout.
func (q *Queue) Read(
	ctx context.Context, uid types.UID, pace Pace, f func(context.Context) error) error {
	if pace != Ordinary {
		pace = Whole
	}
	err := q.call(ctx, uid, pace, f, func(*call, error) {})
	if errors.Is(err, ErrCut) {
		return ErrReadCut
	}
	return err
}

// call runs f, and cuts it after its limit. At the end it calls learn, which
// needs the mutex, unless the namespace was forgotten meanwhile.
func (q *Queue) call(ctx context.Context, uid types.UID, pace Pace,
	f func(context.Context) error, learn func(*call, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &call{namespace: uid, pace: pace, began: time.Now(), cancel: cancel}

	q.mu.Lock()
	q.inFlight[c] = true
	limit := q.limit(c)
	c.timer = time.AfterFunc(limit, func() { q.cut(c, limit) })
	q.mu.Unlock()

	err := f(ctx)

	q.mu.Lock()
	defer q.mu.Unlock()
	c.timer.Stop()
	isKnown := q.inFlight[c]
	delete(q.inFlight, c)
	if err != nil && errors.Is(context.Cause(ctx), ErrCut) {
		err = ErrCut
	}
	if pace == Ordinary && q.isAnswer(err) {
		q.ordinary.answer()
	}
	if isKnown {
		learn(c, err)
	}
	return err
}

// limit returns how long a call may take. The mutex is held.
func (q *Queue) limit(c *call) time.Duration {
	limit := q.ordinary.limit()
	n := q.namespaces[c.namespace]
	switch {
	case c.pace == Whole:
		return noLimit
	case c.pace == Growing && n != nil:
		return max(limit, growthFactor*n.took)
	}
	return limit
}

// cut cuts a call that has reached its limit. While the API server answers no
// ordinary call, it may be slow for everybody, and an ordinary call has twice
// its limit. A call in flight at the stop of the process goes on.
func (q *Queue) cut(c *call, limit time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	mayGoOn := c.pace == Ordinary && !c.extended && !q.ordinary.answered.After(c.began)
	switch {
	case q.ShuttingDown():
	case mayGoOn:
		c.extended = true
		c.timer.Reset(limit)
	default:
		c.cancel(ErrCut)
	}
}
