package mirror

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// deaf is an API server whose answer to a watch of namespaces comes after a minute, also if nobody waits for it any more.
type deaf struct{ kubernetes.Interface }

func (d deaf) IsWatchListSemanticsUnSupported() bool { return true } // as of the fake clientset

func (d deaf) CoreV1() typedcorev1.CoreV1Interface { return deafCore{d.Interface.CoreV1()} }

type deafCore struct{ typedcorev1.CoreV1Interface }

func (c deafCore) Namespaces() typedcorev1.NamespaceInterface {
	return deafNamespaces{c.CoreV1Interface.Namespaces()}
}

type deafNamespaces struct{ typedcorev1.NamespaceInterface }

func (deafNamespaces) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	time.Sleep(time.Minute)
	return nil, errors.New("too late")
}

// TestResignsBeforeItsWatchesEnd: a watch that is slow to end holds up Run, but nobody who could take over. Who has lost the
// leadership has nothing to resign from.
func TestResignsBeforeItsWatchesEnd(t *testing.T) {
	for name, loses := range map[string]bool{"stopped": false, "the leadership is lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTeamController(t, deaf{fake.NewClientset(namespace("platform"), sourceCM("platform", "settings"))})
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				term, lose := context.WithCancel(context.WithoutCancel(ctx))
				defer lose()
				begun := make(chan context.Context, 1)
				begun <- term
				var resigned []time.Time
				leadership := Leadership{Begun: begun, Valid: func() bool { return true }, Resign: func() { resigned = append(resigned, time.Now()) }}
				ended := make(chan error, 1)
				go func() { ended <- c.Run(ctx, leadership) }()
				time.Sleep(time.Second)
				stopped := time.Now()
				if loses {
					lose()
				} else {
					stop()
				}
				if err := <-ended; (err != nil) != loses {
					t.Errorf("got error %v", err)
				}
				if time.Since(stopped) == 0 {
					t.Error("no watch held up the end of Run")
				}
				time.Sleep(time.Minute) // that watch has to end in the bubble
				switch {
				case loses && len(resigned) > 0:
					t.Error("resigned from what was lost")
				case !loses && (len(resigned) != 1 || !resigned[0].Equal(stopped)):
					t.Errorf("resigned at %v, want once, at %v", resigned, stopped)
				}
			})
		})
	}
}

// TestC35LossEndsWritesInFlight: a write that hangs when the leadership is lost is cut off then, not when it times out.
func TestC35LossEndsWritesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAPIServer(namespace("platform"), namespace("team-a"), sourceCM("platform", "settings"))
		h.hangs = func(c call) bool { return c.verb == "create" }
		c := newTeamController(t, h)
		term, lose := context.WithCancel(context.WithoutCancel(t.Context()))
		begun := make(chan context.Context, 1)
		begun <- term
		ended := make(chan error, 1)
		go func() {
			ended <- c.Run(t.Context(), Leadership{Begun: begun, Valid: func() bool { return true }})
		}()
		synctest.Wait()
		if n := h.hung.Load(); n != 1 {
			t.Fatalf("%d writes in flight, want 1", n)
		}
		lost := time.Now()
		lose()
		if err := <-ended; !errors.Is(err, ErrLeadershipLost) {
			t.Errorf("got error %v", err)
		}
		if took := time.Since(lost); took > 0 {
			t.Errorf("the end took %v", took)
		}
	})
}

// TestC35StopLetsWritesEnd: of a write that is cut off nobody knows whether it happened. One that hangs ends by its own time
// limit.
func TestC35StopLetsWritesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAPIServer(namespace("platform"), namespace("team-a"), sourceCM("platform", "settings"))
		h.hangs = func(c call) bool { return c.verb == "create" }
		end := runs(t, newTeamController(t, h))
		if n := h.hung.Load(); n != 1 {
			t.Fatalf("%d writes in flight, want 1", n)
		}
		stopped := time.Now()
		end()
		if took := time.Since(stopped); took < requestTimeout {
			t.Errorf("the write was cut off after %v", took)
		}
	})
}

// TestC35RunAsksBeforeItWrites: a term that has not ended is not enough.
func TestC35RunAsksBeforeItWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(namespace("platform"), namespace("team-a"), sourceCM("platform", "settings"))
		c := newTeamController(t, client)
		ctx, stop := context.WithCancel(t.Context())
		begun := make(chan context.Context, 1)
		begun <- context.WithoutCancel(ctx)
		ended := make(chan error, 1)
		asked := 0
		go func() { ended <- c.Run(ctx, Leadership{Begun: begun, Valid: func() bool { asked++; return false }}) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, a := range client.Actions() {
			if a.GetVerb() == "create" {
				t.Errorf("got %v sent", a)
			}
		}
		if asked == 0 {
			t.Error("nobody asked")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
