// Package outcome says what the error of a call to the API server means: whether to try again and how soon, how the
// target stands meanwhile, and how the metrics count the call. It makes no calls.
package outcome

import (
	"errors"
	"strings"
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
	Stale               // a live read shows a claim that the cache does not show
	Transient           // the API server or the connection to it failed
	Rejected            // quota, admission, authorization or validation reject the write
	Foreign             // a foreign object is in the way
	PutOff              // the namespace is slow, or a live read is on its way: no failure
)

// ErrUnmarked is the error of a write that the API server accepted and stored without a mark of a copy. It counts as a
// rejection.
var ErrUnmarked = errors.New("an admission webhook or policy removes a mark of the copy")

// pace is how fast retries follow each other: after the first failure, doubling to the longest delay.
type pace struct{ first, longest time.Duration }

// The two paces. A quick retry suits failures that an event usually ends, and an API server that is away: copies
// should not be late when it is back. A slow retry suits failures whose end causes no event: its longest delay is the
// time until a raised quota or an adoption is noticed.
var (
	quick = pace{50 * time.Millisecond, 15 * time.Second}
	slow  = pace{time.Second, time.Minute}
)

// outcomes has the properties of each outcome: its name, the result of the write in the metrics, whether the reconcile
// counts as failed in the metrics, the state of the target meanwhile, and the pace of the retries.
var outcomes = [...]struct {
	name, result string
	failed       bool
	state        plan.State
	pace         pace
}{
	OK:          {name: "ok", result: "success"},
	Conflict:    {"conflict", "conflict", false, plan.StatePending, quick},
	Terminating: {"terminating", "terminating", false, plan.StatePending, quick},
	Stale:       {"stale", "conflict", false, plan.StatePending, slow},
	Transient:   {"transient", "error", true, plan.StatePending, quick},
	Rejected:    {"rejected", "rejected", true, plan.StateRejected, slow},
	Foreign:     {"foreign", "conflict", false, plan.StateForeign, slow},
	PutOff:      {name: "put off", state: plan.StatePending},
}

// String returns the name of the outcome, for the log.
func (o Outcome) String() string { return outcomes[o].name }

// Result returns the label of a write with this outcome in the metrics.
func (o Outcome) Result() string { return outcomes[o].result }

// Failed reports whether a reconcile with this outcome counts as failed in the metrics.
func (o Outcome) Failed() bool { return outcomes[o].failed }

// State returns how the target stands until it is tried again.
func (o Outcome) State() plan.State { return outcomes[o].state }

// Backoff returns the delay before the next try after this many failures in a row, from 1.
func (o Outcome) Backoff(failures int) time.Duration {
	p := outcomes[o].pace
	return min(p.first<<min(failures-1, 10), p.longest)
}

// Of returns the outcome of an operation that ended with this error.
func Of(op plan.Op, err error) Outcome {
	switch {
	case err == nil:
		return OK
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), op == plan.OpCreate && apierrors.IsNotFound(err):
		return Terminating
	case op == plan.OpCreate && apierrors.IsConflict(err): // two creates use the same ResourceQuota at the same time
		return Transient
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return Conflict
	case errors.Is(err, ErrUnmarked), apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsRequestEntityTooLargeError(err), apierrors.IsMethodNotSupported(err):
		return Rejected
	}
	return Transient
}

// IsAnswer reports whether the error is the API server's answer to that one call. A broken connection gives no answer,
// and a server that is too busy answers every call alike.
func IsAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err)
}

// ExceedsQuota reports whether a quota refuses a create. After our own deletion the quota may not have counted that
// yet.
func ExceedsQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}
