// Package outcome classifies the errors of calls to the API server: how soon to try again, how the target stands
// meanwhile, and how the metrics count the call. It makes no calls.
package outcome

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Outcome classifies the end of a call, or the reason why the call was not made.
type Outcome int

// The outcomes. After each one but OK the target is tried again, although no event may ask for that.
const (
	OK          Outcome = iota
	Conflict            // the cache is behind the API server, or another client wrote at the same time
	Terminating         // the API server says that the namespace is being deleted
	Claimed             // a live read shows a claim that the cache does not show
	Unavailable         // the API server gave no answer, or is too busy to decide
	Rejected            // the API server refuses the write
	Foreign             // a foreign object is in the way
	Delayed             // the call was cut, or a live read is on its way: no failure
)

// ErrAltered is the error of a write that the API server accepted and stored with other content, or without a mark of
// a copy. It counts as a rejection.
var ErrAltered = errors.New("an admission webhook or policy alters the copy")

// pace is how fast retries follow each other: after the first failure, doubling to the longest delay.
type pace struct{ first, longest time.Duration }

// The two paces: quick for failures that an event usually ends, and for an API server that is away; slow for those
// whose end causes no event, such as a raised quota.
var (
	quick = pace{50 * time.Millisecond, 15 * time.Second}
	slow  = pace{time.Second, time.Minute}
)

// outcomes has, of each outcome, its name, the result in the metrics, whether it is a failure, and the pace of retries.
var outcomes = [...]struct {
	name, result string
	failed       bool
	pace         pace
}{
	OK:          {name: "ok", result: "success"},
	Conflict:    {"conflict", "conflict", false, quick},
	Terminating: {"terminating", "terminating", false, quick},
	Claimed:     {"claimed", "conflict", false, slow},
	Unavailable: {"unavailable", "error", true, quick},
	Rejected:    {"rejected", "rejected", true, slow},
	Foreign:     {"foreign", "conflict", false, slow},
	Delayed:     {name: "delayed"},
}

// String returns the name of the outcome, for the log.
func (o Outcome) String() string { return outcomes[o].name }

// Result returns the label of a write with this outcome in the metrics.
func (o Outcome) Result() string { return outcomes[o].result }

// Failed reports whether a reconcile with this outcome counts as failed in the metrics.
func (o Outcome) Failed() bool { return outcomes[o].failed }

// Backoff returns the delay before the next try after this many failures in a row, from 1.
func (o Outcome) Backoff(failures int) time.Duration {
	p := outcomes[o].pace
	return min(p.first<<min(failures-1, 10), p.longest)
}

// Of returns the outcome of an operation that ended with this error. An answer other than 409, 429 and 503 is a
// rejection, and so is no answer within the whole timeout.
func Of(op plan.Op, err error) Outcome {
	switch {
	case err == nil:
		return OK
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause),
		op == plan.OpCreate && apierrors.IsNotFound(err):
		return Terminating
	case op == plan.OpCreate && apierrors.IsConflict(err): // two creates use the same ResourceQuota at the same time
		return Unavailable
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return Conflict
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err): // of every call alike
		return Unavailable
	case IsAnswered(err), errors.Is(err, context.DeadlineExceeded):
		return Rejected
	}
	return Unavailable
}

// IsAnswered reports whether a call that ended with this error, which may be nil, was answered by the API server.
func IsAnswered(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status) || errors.Is(err, ErrAltered)
}

// slowRefusal is how long a refusal takes that no second one needs to confirm: the default timeout of a webhook.
const slowRefusal = 10 * time.Second

// IsNews reports whether the first rejection in a row is to be reported. Others may pass: a quota that has not counted
// our own deletion yet, or a webhook that restarts.
func IsNews(err error, took time.Duration) bool {
	return errors.Is(err, ErrAltered) || errors.Is(err, context.DeadlineExceeded) || took >= slowRefusal
}
