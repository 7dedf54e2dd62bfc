package slow

import (
	"errors"
	"time"
)

const (
	// limitFactor is how many times the average an ordinary call may take. It
	// is generous, because a cut makes a call twice.
	limitFactor = 8
	// minLimit is the least limit. With 250 ms, 5,000 namespaces that hang hold
	// up a first contact for a minute.
	minLimit = 100 * time.Millisecond
	// From longLimit on the limit grows as longFactor times the average. Eight
	// times ten seconds, which a webhook takes that is down and ignored, would
	// hold a worker for the whole timeout at each namespace that hangs.
	longLimit  = 8 * time.Second
	longFactor = 2
	// weight is the weight of one call in the moving average.
	weight = 0.2
	// shownWithin is how soon after a cut the watch must show that the API
	// server carried the write out, if the namespace is to count as quick.
	shownWithin = time.Second
	// longestStall is for how long no namespace becomes slow while the API
	// server answers no ordinary call.
	longestStall = 10 * time.Second
	// manyCuts is how many cuts show that the API server is slow for everybody:
	// in a row, and all of them where the write before was quick.
	manyCuts = 32
)

// ordinary holds measurements of ordinary calls.
type ordinary struct {
	average  time.Duration // of writes that succeeded
	answered time.Time     // when a call was last answered, be it a read or a write
	written  time.Time     // when a write was last answered
	cuts     int           // since then, of writes where the one before was quick
	cutsFrom time.Time     // when the first of these cuts was; longestStall counts from then on

	lastStall stall
}

// stall is a time in which no call was answered, and in which a call could exceed
// its limit.
type stall struct{ from, to time.Time }

// covers reports whether two writes of a namespace fell into the stall: the first one
// was found to take too long after its begin, and the next one began before its end.
func (s stall) covers(longAt, nextBegan time.Time) bool {
	return s.from.Before(longAt) && nextBegan.Before(s.to)
}

// lastWrite describes the last ordinary write in a namespace. The zero value: none
// is known.
type lastWrite struct {
	inTime bool      // it was answered in time, or the watch showed it soon
	longAt time.Time // it was found to take too long then
}

// limit returns how long a call may take.
func (o *ordinary) limit() time.Duration {
	return max(minLimit, min(limitFactor*o.average, longLimit), longFactor*o.average)
}

// answer records that a call was answered just now.
func (o *ordinary) answer() {
	now := time.Now()
	if now.Sub(o.answered) >= o.limit() {
		o.lastStall = stall{from: o.answered, to: now}
	}
	o.answered = now
}

// learn learns from a write how long writes take, and whether its namespace is
// slow. The mutex is held.
func (q *Queue) learn(c *call, err error) {
	took := time.Since(c.began)
	if c.pace == Ordinary && q.isAnswer(err) {
		q.ordinary.written = time.Now()
		q.ordinary.cuts = 0
	}
	if err == nil && q.ordinary.represents(c, took) {
		average := weight*float64(took) + (1-weight)*float64(q.ordinary.average)
		q.ordinary.average = time.Duration(average)
	}
	n := q.namespaces[c.namespace]
	switch {
	case errors.Is(err, ErrCut), took >= q.ordinary.limit():
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
// writes take. In a slow namespace it does so only if no ordinary write was
// answered meanwhile, and either the API server is slow for everybody, or the
// write took not much longer than ordinary ones. Else namespaces whose writes
// succeed after five seconds would pass for ordinary ones.
func (o *ordinary) represents(c *call, took time.Duration) bool {
	if c.pace == Ordinary {
		return true
	}
	isSlowForAll := o.written.IsZero() || o.cuts >= manyCuts
	isModerate := took < growthFactor*o.limit()
	return o.written.Before(c.began) && (isSlowForAll || isModerate)
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
// time or in the same stall, which may go on. The mutex is held.
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
	sinceAnswer := stall{from: o.answered, to: now}
	isSameStall := sinceAnswer.covers(last.longAt, c.began) || o.lastStall.covers(last.longAt, c.began)
	return isSameStall && now.Sub(o.cutsFrom) < longestStall
}
