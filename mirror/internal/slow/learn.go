package slow

import (
	"errors"
	"time"
)

const (
	// limitFactor is how many times the average an ordinary call may take.
	// A cut makes a call twice, so the limit is generous.
	limitFactor = 8
	// minLimit is the least time that an ordinary call has. With 250 ms, 5,000
	// namespaces that hang hold up a first contact for a minute.
	minLimit = 100 * time.Millisecond
	// maxAverage bounds the average: namespaces that hang must not pass for
	// ordinary ones.
	maxAverage = time.Second
	// weight is the weight of one call in the moving average.
	weight = 0.2
	// shownWithin is how soon after a cut the watch shows a write that the API
	// server has carried out quickly all the same.
	shownWithin = time.Second
	// longestStall is for how long an API server that answers no ordinary call
	// makes no namespace slow.
	longestStall = 10 * time.Second
	// manyCuts is after how many cuts in a row, all where writes were quick
	// before, the API server is slow for everybody.
	manyCuts = 32
)

// ordinary is what the queue knows of ordinary calls. Only writes count for the
// average, but each answer shows that the API server does not stall.
type ordinary struct {
	average  time.Duration // of writes that succeeded
	answered time.Time     // when a call was last answered
	stall    stall         // the last one
	cuts     int           // since answered, of writes where the one before was quick
	cutsFrom time.Time     // when the first of them was
}

// stall is a time between two answers in which a call could exceed its limit.
type stall struct{ from, to time.Time }

// lastWrite is what the last ordinary write in a namespace showed. The zero
// value: none is known, or a read was cut since then.
type lastWrite struct {
	inTime bool      // it was answered in time, or the watch showed it soon
	longAt time.Time // it was found to take too long then
}

// limit returns how long a call may take.
func (o *ordinary) limit() time.Duration { return max(minLimit, limitFactor*o.average) }

// answer records that a call was answered just now.
func (o *ordinary) answer() {
	now := time.Now()
	if now.Sub(o.answered) >= o.limit() {
		o.stall = stall{from: o.answered, to: now}
	}
	o.answered = now
	o.cuts = 0
}

// learn learns from a write how long writes take, and whether its namespace is
// slow. The mutex is held.
func (q *Queue) learn(c *call, err error) {
	took := time.Since(c.began)
	if err == nil && q.ordinary.represents(c, took) {
		average := weight*float64(took) + (1-weight)*float64(q.ordinary.average)
		q.ordinary.average = min(time.Duration(average), maxAverage)
	}
	limit := q.ordinary.limit()
	n := q.namespaces[c.namespace]
	switch {
	case errors.Is(err, ErrCut), took >= limit:
		q.tookLong(c, took)
		return
	case n != nil && c.pace != Ordinary:
		n.inTime = true // another call of this turn may still be slow
	case n != nil && len(n.targets) == 0:
		delete(q.namespaces, c.namespace)
	}
	if err == nil {
		q.lastWrites[c.namespace] = lastWrite{inTime: true}
	}
}

// represents reports whether a write that succeeded shows how long ordinary
// calls take. In a slow namespace it does so only if no ordinary call was
// answered meanwhile, and if it did not take much longer than those have: else
// namespaces that succeed after five seconds would pass for ordinary ones.
func (o *ordinary) represents(c *call, took time.Duration) bool {
	if c.pace == Ordinary {
		return true
	}
	most := growthFactor * o.limit()
	isSlowForAll := o.answered.IsZero() || o.cuts >= manyCuts
	if isSlowForAll {
		most = limitFactor * maxAverage
	}
	return o.answered.Before(c.began) && took < most
}

// tookLong records that a write took too long, which makes its namespace slow
// unless it is forgiven. The mutex is held.
func (q *Queue) tookLong(c *call, took time.Duration) {
	if c.pace == Ordinary {
		if q.forgives(c) {
			return
		}
		// The call may have had more time than its limit in a stall.
		took = q.ordinary.limit()
	}
	n := q.namespace(c.namespace)
	n.took = took
	n.inTime = false
}

// forgives records that an ordinary write took too long, and reports whether
// that is forgiven: the write before was quick, or it took too long at the same
// time or in the same stall. The mutex is held.
func (q *Queue) forgives(c *call) bool {
	o := &q.ordinary
	last := q.lastWrites[c.namespace]
	if c.began.Before(last.longAt) {
		return true // both were in flight at once, and count as one
	}
	now := time.Now()
	q.lastWrites[c.namespace] = lastWrite{longAt: now}
	if last.inTime {
		o.cuts++
		if o.cuts == 1 {
			o.cutsFrom = now
		}
		return true
	}
	isStalling := o.answered.Before(last.longAt)
	wasStalling := o.stall.from.Before(last.longAt) && c.began.Before(o.stall.to)
	return (isStalling || wasStalling) && now.Sub(o.cutsFrom) < longestStall
}
