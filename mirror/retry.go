package mirror

import (
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// reason is why a target is retried although no event asks for it.
type reason int

const (
	noRetry     reason = iota
	conflict           // the cache is behind the API server, or another client wrote at the same time
	terminating        // the API server says that the namespace is being deleted, and our cache does not show it yet
	stale              // a live read shows a claim that the cache does not show
	transient          // the API server or the connection to it failed
	rejected           // quota, admission, authorization or validation reject the write
	foreign            // a foreign object is in the way
	later              // a slow namespace, or a live read that is on its way: no failure
)

// pace is how fast retries follow each other: after the first failure, doubling to the longest delay.
type pace struct{ first, longest time.Duration }

// The two paces. An event usually ends a quick wait early, and copies should not be late when an API server is back. A
// slow wait is for what causes no event: its longest delay is the time until a raised quota or an adoption is noticed.
var (
	quick = pace{50 * time.Millisecond, 15 * time.Second}
	slow  = pace{time.Second, time.Minute}
)

// backoff returns the delay before the next try after this many failures in a row, from 1.
func (p pace) backoff(failures int) time.Duration {
	return min(p.first<<min(failures-1, 10), p.longest)
}

// reasons says, of each reason, its name, the result of the write in the metrics, whether the reconcile counts as
// failed in the metrics, the state of the target meanwhile, and the pace of the retries.
var reasons = [...]struct {
	name, result string
	failed       bool
	state        plan.State
	pace         pace
}{
	noRetry:     {name: "none", result: "success"},
	conflict:    {"conflict", "conflict", false, plan.StatePending, quick},
	terminating: {"terminating", "terminating", false, plan.StatePending, quick},
	stale:       {"stale", "conflict", false, plan.StatePending, slow},
	transient:   {"transient", "error", true, plan.StatePending, quick},
	rejected:    {"rejected", "rejected", true, plan.StateRejected, slow},
	foreign:     {"foreign", "conflict", false, plan.StateForeign, slow},
	later:       {name: "later", state: plan.StatePending},
}

func (r reason) String() string { return reasons[r].name }

// isLasting reports whether the API server refuses the request for a reason that a retry alone does not end.
func (r reason) isLasting() bool { return reasons[r].state == plan.StateRejected }

// reasonOf classifies the error of an operation.
func reasonOf(op plan.Op, err error) reason {
	switch {
	case err == nil:
		return noRetry
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), op == plan.OpCreate && apierrors.IsNotFound(err):
		return terminating
	case op == plan.OpCreate && apierrors.IsConflict(err): // two creates use the same ResourceQuota at the same time
		return transient
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return conflict
	case errors.Is(err, errUnmarked), apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsRequestEntityTooLargeError(err), apierrors.IsMethodNotSupported(err):
		return rejected
	}
	return transient
}

// answered reports whether the error is the API server's answer to that one request. A broken connection is none, nor
// is a server that has no time for anybody.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err)
}

// isUncounted reports whether a quota refuses a create because it has not counted our own deletion yet. before is the
// retry up to now, of the re-creation of which the create is a part.
func isUncounted(op plan.Op, before retry, err error) bool {
	return (op == plan.OpRecreate || op == plan.OpCreate && before.reason == transient) &&
		apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// Another client that changes a copy back each time must not make the controller write in a circle. The first
// freeRepairs happen at once: that is a person trying things. Each further one waits, from firstHold on, doubling to
// maxHold. A target that is left alone for calm begins anew: GitOps tools restore every 3 or 10 minutes by default.
const (
	freeRepairs = 10
	firstHold   = time.Second
	maxHold     = time.Minute
	calm        = 15 * time.Minute
)

// hold returns how long the next repair waits after this many.
func hold(repairs int) time.Duration {
	if repairs < freeRepairs {
		return 0
	}
	return min(firstHold<<min(repairs-freeRepairs, 8), maxHold)
}
