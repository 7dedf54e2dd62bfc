// Package outcome classifies the errors of calls to the API server: how soon to
// try again, and how the metrics count the call. It makes no calls.
package outcome

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Outcome classifies the end of a call, or the reason why the call was not
// made.
type Outcome int

// The outcomes. After each one but OK the target is tried again, although no
// event may ask for that, unless its namespace is being deleted.
const (
	OK          Outcome = iota
	Conflict            // the cache is behind, or another client wrote at the same time
	Terminating         // the API server says that the namespace is being deleted
	Claimed             // a live read shows a claim that the cache does not show
	Unavailable         // the API server gave no answer, or is too busy to decide
	Rejected            // the API server refuses the write
	Foreign             // a foreign object is in the way
	Delayed             // the call was cut, or a live read is in flight: no failure
)

// ErrAltered is the error of a write that the API server accepted and stored
// with other content, or without a mark of a copy. It counts as a rejection.
var ErrAltered = errors.New("an admission webhook or policy alters the copy")

// backoff is the delay of a retry: first after one failure, doubled after each
// further one, up to longest.
type backoff struct{ first, longest time.Duration }

var (
	// soon is for failures that an event usually ends, and for an API server
	// that is away.
	soon = backoff{50 * time.Millisecond, 15 * time.Second}
	// late is for failures whose end causes no event, such as a raised quota.
	late = backoff{time.Second, time.Minute}
)

// outcomes has the properties of each outcome.
var outcomes = [...]struct {
	name    string
	result  string // of the call, in the metrics
	failed  bool   // the reconcile failed, in the metrics
	backoff backoff
}{
	OK:          {name: "ok", result: "success"},
	Conflict:    {"conflict", "conflict", false, soon},
	Terminating: {"terminating", "terminating", false, soon},
	Claimed:     {"claimed", "conflict", false, late},
	Unavailable: {"unavailable", "error", true, soon},
	Rejected:    {"rejected", "rejected", true, late},
	Foreign:     {"foreign", "conflict", false, late},
	Delayed:     {name: "delayed"},
}

// String returns the name of the outcome, for the log.
func (o Outcome) String() string { return outcomes[o].name }

// Result returns the label of a write with this outcome in the metrics.
func (o Outcome) Result() string { return outcomes[o].result }

// Failed reports whether a reconcile with this outcome counts as failed in the
// metrics.
func (o Outcome) Failed() bool { return outcomes[o].failed }

// Backoff returns the delay before the next try after this many failures in a
// row, from 1.
func (o Outcome) Backoff(failures int) time.Duration {
	b := outcomes[o].backoff
	return min(b.first<<min(failures-1, 10), b.longest) // no shift overflows
}

// Of returns the outcome of an operation that ended with this error. An answer
// other than 404, 409, 429 and 503 is a rejection, and so is no answer within the
// whole timeout.
func Of(op plan.Op, err error) Outcome {
	isCreate := op == plan.OpCreate
	switch {
	case err == nil:
		return OK
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause),
		isCreate && apierrors.IsNotFound(err): // the namespace is gone
		return Terminating
	case isCreate && apierrors.IsConflict(err):
		// Two creates use the same ResourceQuota at the same time.
		return Unavailable
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return Conflict
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
		// The API server answers so to every call, whatever it holds.
		return Unavailable
	case IsAnswered(err), errors.Is(err, context.DeadlineExceeded):
		return Rejected
	}
	return Unavailable
}

// IsAnswered reports whether a call that ended with this error, which may be
// nil, was answered by the API server.
func IsAnswered(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status) || errors.Is(err, ErrAltered)
}

// IsRetryable reports whether the API server answered a call with 409, 429, 503 or
// 404: another try may help. A webhook may deny with such a code, too, for ever.
func IsRetryable(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}

// slowRefusal is how long a refusal takes that no second one needs to confirm:
// the default timeout of a webhook.
const slowRefusal = 10 * time.Second

// IsNews reports whether the first rejection in a row is to be reported. Others
// may pass: a quota that has not counted our own deletion yet, or a webhook
// that restarts.
func IsNews(err error, took time.Duration) bool {
	return errors.Is(err, ErrAltered) || errors.Is(err, context.DeadlineExceeded) ||
		took >= slowRefusal
}
