package apitest

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Interruption is a way in which the watch of a resource is interrupted.
type Interruption struct {
	Cuts    time.Duration // after which a stream ends, before the end of its list
	Refuses error         // is the answer to lists and watches
	Hangs   bool          // there is no answer to them
}

// Interruptions are the ways that are known.
var Interruptions = map[string]Interruption{
	"the end of the list is lost": {Cuts: 24 * time.Hour},
	"cut every 8 s":               {Cuts: 8 * time.Second},
	"cut every 13 s":              {Cuts: 13 * time.Second},
	"cut every half second":       {Cuts: 500 * time.Millisecond},
	"answered with 429":           {Refuses: apierrors.NewTooManyRequests("storage is (re)initializing", 1)},
	"answered with 403": {
		Refuses: apierrors.NewForbidden(corev1.Resource("any"), "", errors.New("no permission")),
	},
	"answered with 500": {Refuses: apierrors.NewInternalError(errors.New("etcd has no leader"))},
	"no answer":         {Hangs: true},
}

// Lists reports whether pages can be listed all the same.
func (i Interruption) Lists() bool { return i.Cuts > 0 }

// Of returns a change of hooks that interrupts the watch of a resource this way.
func (i Interruption) Of(resource string) func(*Hooks) {
	reads := func(c Call) bool {
		return c.Resource == resource && (c.Verb == "list" || c.Verb == "watch")
	}
	return func(h *Hooks) {
		h.Cuts = func(of string) time.Duration {
			if of == resource {
				return i.Cuts
			}
			return 0
		}
		h.Hangs = func(c Call) bool { return i.Hangs && reads(c) }
		h.Refuses = func(c Call) error {
			if reads(c) {
				return i.Refuses
			}
			return nil
		}
	}
}
