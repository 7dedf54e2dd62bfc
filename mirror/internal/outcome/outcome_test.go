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

var configMapResource = schema.GroupResource{Resource: "configmaps"}

// namespaceTerminating is the API server's answer to a create in a namespace that is being deleted.
func namespaceTerminating() error {
	err := apierrors.NewForbidden(configMapResource, "settings", errors.New("being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestOutcomeOfEachError(t *testing.T) {
	why := errors.New("why")
	for name, tc := range map[string]struct {
		err                    error
		create, update, delete Outcome // that of a recreate is the one of an update
		answered               bool
	}{
		"nothing":               {nil, OK, OK, OK, false},
		"namespace terminating": {namespaceTerminating(), Terminating, Terminating, Terminating, true},
		"not found": {apierrors.NewNotFound(configMapResource, "settings"), Terminating,
			Conflict, Conflict, true},
		"conflict": {apierrors.NewConflict(configMapResource, "settings", why), Transient,
			Conflict, Conflict, true},
		"already exists": {apierrors.NewAlreadyExists(configMapResource, "settings"), Conflict,
			Conflict, Conflict, true},
		"forbidden": {apierrors.NewForbidden(configMapResource, "settings", why), Rejected,
			Rejected, Rejected, true},
		"invalid": {apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "settings", nil), Rejected,
			Rejected, Rejected, true},
		"bad request": {apierrors.NewBadRequest("why"), Rejected, Rejected, Rejected, true},
		"too large":   {apierrors.NewRequestEntityTooLargeError("why"), Rejected, Rejected, Rejected, true},
		"method not supported": {apierrors.NewMethodNotSupported(configMapResource, "create"), Rejected,
			Rejected, Rejected, true},
		"too many requests":         {apierrors.NewTooManyRequests("why", 1), Transient, Transient, Transient, false},
		"unavailable":               {apierrors.NewServiceUnavailable("why"), Transient, Transient, Transient, false},
		"internal error":            {apierrors.NewInternalError(why), Transient, Transient, Transient, true},
		"timeout of the API server": {apierrors.NewTimeoutError("why", 1), Transient, Transient, Transient, true},
		"unauthorized":              {apierrors.NewUnauthorized("why"), Transient, Transient, Transient, true},
		"connection broken": {&url.Error{Op: "Put", URL: "https://x", Err: io.ErrUnexpectedEOF}, Transient,
			Transient, Transient, false},
		"out of time": {context.DeadlineExceeded, Transient, Transient, Transient, false},
		"leadership lost": {errors.New("the leadership was not renewed in time"), Transient,
			Transient, Transient, false},
	} {
		t.Run(name, func(t *testing.T) {
			all := []error{tc.err}
			if tc.err != nil {
				all = append(all, fmt.Errorf("write the copy: %w", tc.err))
			}
			for _, err := range all {
				for op, want := range map[plan.Op]Outcome{plan.OpCreate: tc.create, plan.OpUpdate: tc.update,
					plan.OpRecreate: tc.update, plan.OpDelete: tc.delete} {
					if got := Of(op, err); got != want {
						t.Errorf("%v of %v: got %v, want %v", err, op, got, want)
					}
				}
				if got := IsAnswer(err); got != tc.answered {
					t.Errorf("%v: got answered %v, want %v", err, got, tc.answered)
				}
			}
		})
	}
}

// TestWaitsDouble: quick ones double from 50 ms to 15 seconds, and slow ones from a second to a minute.
func TestWaitsDouble(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	quick := []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms,
		12800 * ms, 15 * s, 15 * s}
	slow := []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}
	for o, want := range map[Outcome][]time.Duration{Conflict: quick, Terminating: quick, Transient: quick,
		Rejected: slow, Foreign: slow} {
		for i, delay := range want {
			if got := o.Backoff(i + 1); got != delay {
				t.Errorf("%v, failure %d: got %v, want %v", o, i+1, got, delay)
			}
		}
		if got, longest := o.Backoff(1<<40), want[len(want)-1]; got != longest {
			t.Errorf("%v, for ever: got %v, want %v", o, got, longest)
		}
	}
}
