package outcome

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// namespaceTerminating is the API server's answer to a create in a namespace that is being deleted.
func namespaceTerminating(r schema.GroupResource) error {
	err := apierrors.NewForbidden(r, "settings", errors.New("being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestOutcomeOfEachError(t *testing.T) {
	r, why := schema.GroupResource{Resource: "configmaps"}, errors.New("why")
	for name, tc := range map[string]struct {
		err              error
		create, other    Outcome // other: of an update, a recreate and a delete
		answered, isNews bool
	}{
		"nothing":                   {nil, OK, OK, true, false},
		"namespace terminating":     {namespaceTerminating(r), Terminating, Terminating, true, false},
		"not found":                 {apierrors.NewNotFound(r, "settings"), Terminating, Conflict, true, false},
		"conflict":                  {apierrors.NewConflict(r, "settings", why), Unavailable, Conflict, true, false},
		"already exists":            {apierrors.NewAlreadyExists(r, "settings"), Conflict, Conflict, true, false},
		"forbidden":                 {apierrors.NewForbidden(r, "settings", why), Rejected, Rejected, true, false},
		"invalid":                   {apierrors.NewInvalid(schema.GroupKind{}, "", nil), Rejected, Rejected, true, false},
		"unauthorized":              {apierrors.NewUnauthorized("why"), Rejected, Rejected, true, false},
		"internal error":            {apierrors.NewInternalError(why), Rejected, Rejected, true, false},
		"timeout of the API server": {apierrors.NewTimeoutError("why", 1), Rejected, Rejected, true, false},
		"too many requests":         {apierrors.NewTooManyRequests("why", 1), Unavailable, Unavailable, true, false},
		"unavailable":               {apierrors.NewServiceUnavailable("why"), Unavailable, Unavailable, true, false},
		"altered":                   {ErrAltered, Rejected, Rejected, true, true},
		"out of time":               {context.DeadlineExceeded, Rejected, Rejected, false, true},
		"leadership lost":           {context.Canceled, Unavailable, Unavailable, false, false},
		"connection broken": {&url.Error{Op: "Put", URL: "https://x", Err: io.ErrUnexpectedEOF},
			Unavailable, Unavailable, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			all := []error{tc.err}
			if tc.err != nil {
				all = append(all, fmt.Errorf("write the copy: %w", tc.err))
			}
			for _, err := range all {
				for op, want := range map[plan.Op]Outcome{plan.OpCreate: tc.create, plan.OpUpdate: tc.other,
					plan.OpRecreate: tc.other, plan.OpDelete: tc.other} {
					if got := Of(op, err); got != want {
						t.Errorf("got %v of %v, want %v", got, op, want)
					}
				}
				if got := IsAnswered(err); got != tc.answered {
					t.Errorf("got answered %v, want %v", got, tc.answered)
				}
				if got := IsNews(err, 10*time.Second-1); got != tc.isNews {
					t.Errorf("got news %v, want %v", got, tc.isNews)
				}
				if !IsNews(err, 10*time.Second) {
					t.Error("got no news after ten seconds")
				}
			}
		})
	}
}

// TestIsRetryable: another try may help, of reads as of writes.
func TestIsRetryable(t *testing.T) {
	r, why := schema.GroupResource{Resource: "configmaps"}, errors.New("why")
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":           {nil, false},
		"not found":         {apierrors.NewNotFound(r, "settings"), true},
		"conflict":          {apierrors.NewConflict(r, "settings", why), true},
		"already exists":    {apierrors.NewAlreadyExists(r, "settings"), true},
		"too many requests": {apierrors.NewTooManyRequests("why", 1), true},
		"unavailable":       {apierrors.NewServiceUnavailable("why"), true},
		"forbidden":         {apierrors.NewForbidden(r, "settings", why), false},
		"internal error":    {apierrors.NewInternalError(why), false},
		"no answer":         {io.ErrUnexpectedEOF, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsRetryable(tc.err); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestProperties is the table of the outcomes: the result of the call in the metrics, whether the reconcile failed
// there, and the delays of retries. Quick ones double from 50 ms to 15 seconds, slow ones from a second to a minute.
func TestProperties(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	quick := []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms,
		12800 * ms, 15 * s, 15 * s}
	slow := []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}
	for o, want := range map[Outcome]struct {
		name, result string
		failed       bool
		delays       []time.Duration
	}{
		OK:          {"ok", "success", false, []time.Duration{0}},
		Conflict:    {"conflict", "conflict", false, quick},
		Terminating: {"terminating", "terminating", false, quick},
		Claimed:     {"claimed", "conflict", false, slow},
		Unavailable: {"unavailable", "error", true, quick},
		Rejected:    {"rejected", "rejected", true, slow},
		Foreign:     {"foreign", "conflict", false, slow},
		Delayed:     {"delayed", "", false, []time.Duration{0}},
	} {
		t.Run(want.name, func(t *testing.T) {
			if o.String() != want.name || o.Result() != want.result || o.Failed() != want.failed {
				t.Errorf("got %q, %q, failed %v, want %+v", o, o.Result(), o.Failed(), want)
			}
			for i, delay := range want.delays {
				if got := o.Backoff(i + 1); got != delay {
					t.Errorf("%v, failure %d: got %v, want %v", o, i+1, got, delay)
				}
			}
			if got, longest := o.Backoff(1<<40), want.delays[len(want.delays)-1]; got != longest {
				t.Errorf("%v, for ever: got %v, want %v", o, got, longest)
			}
		})
	}
}
