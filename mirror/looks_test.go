package mirror

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

var sourceKey = cache.ObjectName{Namespace: "platform", Name: "settings"}

// script answers GETs with whatever it holds at the moment and counts them. The fake clientset does not more
// than to carry them there.
type script struct {
	mu   sync.Mutex
	cm   *corev1.ConfigMap // nil: not found
	ns   *corev1.Namespace // nil: not found
	err  error             // in place of an answer
	slow time.Duration     // how long an answer takes
	gets []string          // what was asked for
}

func (s *script) client() kubernetes.Interface {
	client := &fake.Clientset{}
	client.AddReactor("*", "*", func(action clienttesting.Action) (bool, apiruntime.Object, error) {
		get, ok := action.(clienttesting.GetAction)
		if !ok {
			return true, nil, errors.New("nothing but GETs is expected here: " + action.GetVerb())
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gets = append(s.gets, get.GetResource().Resource+" "+get.GetNamespace()+"/"+get.GetName())
		time.Sleep(s.slow)
		switch {
		case s.err != nil:
			return true, nil, s.err
		case get.GetResource().Resource == "configmaps" && s.cm != nil:
			return true, s.cm.DeepCopy(), nil
		case get.GetResource().Resource == "namespaces" && s.ns != nil:
			return true, s.ns.DeepCopy(), nil
		}
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: get.GetResource().Resource}, get.GetName())
	})
	return client
}

// bubble runs f with looks that ask the script.
func bubble(t *testing.T, f func(*testing.T, *script, *looks)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		f(t, s, newLooks(s.client(), requestTimeout))
	})
}

// wantLook asks for the source and compares the answer, and how many GETs there were altogether.
func wantLook(t *testing.T, what string, l *looks, s *script, cached string, live *corev1.ConfigMap, wait time.Duration, gets int) {
	t.Helper()
	got, again, err := l.source(t.Context(), testRules(), sourceKey, cached)
	if err != nil {
		t.Errorf("%s: got error %v, want none", what, err)
	}
	if again != wait {
		t.Errorf("%s: got a wait of %v, want %v", what, again, wait)
	}
	if (got == nil) != (live == nil) || got != nil && got.UID != live.UID {
		t.Errorf("%s: got %v, want %v", what, got, live)
	}
	if len(s.gets) != gets {
		t.Errorf("%s: got %d GETs so far, want %d", what, len(s.gets), gets)
	}
}

func TestLookAtAnUnlabelledSourceSettlesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.cm = sourceCM("platform", "settings", without("mirror"), binaryData("bin", 1), managed)
		l.vanished(sourceKey)
		wantLook(t, "first", l, s, "", s.cm, 0, 1)
		wantLook(t, "second", l, s, "", s.cm, 0, 1)
		got, _, _ := l.source(t.Context(), testRules(), sourceKey, "")
		if got.Data != nil || got.BinaryData != nil || got.ManagedFields != nil {
			t.Errorf("got %v kept, want no payload", got)
		}
		if s.gets[0] != "configmaps platform/settings" {
			t.Errorf("got %s asked for, want the source", s.gets[0])
		}
	})
}

// TestOneLookForAllThatRestOnIt asks from many goroutines at the same time, as the deletions of a fan-out do: who
// finds a look under way is told to come back, and all get the answer of that one look.
func TestOneLookForAllThatRestOnIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.cm = sourceCM("platform", "settings", without("mirror"))
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				runtime.Gosched()
				live, wait, err := l.source(t.Context(), testRules(), sourceKey, "")
				for live == nil && wait == lookAnew && err == nil {
					time.Sleep(wait)
					live, wait, err = l.source(t.Context(), testRules(), sourceKey, "")
				}
				if live == nil || wait != 0 || err != nil {
					t.Errorf("got %v, %v, %v, want the source", live, wait, err)
				}
			})
		}
		callers.Wait()
		if len(s.gets) != 1 {
			t.Errorf("got %d GETs, want 1", len(s.gets))
		}
	})
}

func TestC15LookAtADeletedSource(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		l.vanished(sourceKey)
		time.Sleep(300 * time.Millisecond)
		wantLook(t, "at 0.3 s", l, s, "", nil, 700*time.Millisecond, 1)
		wantLook(t, "at 0.3 s again", l, s, "", nil, 700*time.Millisecond, 1)
		time.Sleep(500 * time.Millisecond)
		wantLook(t, "at 0.8 s: no GET in between", l, s, "", nil, 200*time.Millisecond, 1)
		time.Sleep(200*time.Millisecond - 1)
		wantLook(t, "right before the second is over", l, s, "", nil, 1, 1)
		time.Sleep(time.Nanosecond)
		wantLook(t, "at 1 s", l, s, "", nil, 0, 2)
		wantLook(t, "once it is settled", l, s, "", nil, 0, 2)
		time.Sleep(lookLifetime - 1)
		wantLook(t, "as long as that is worth something", l, s, "", nil, 0, 2)
		s.cm = sourceCM("platform", "settings", without("mirror"))
		time.Sleep(time.Nanosecond)
		wantLook(t, "C41 created anew while the watch was silent", l, s, "", s.cm, 0, 3)
	})
}

func TestC14LookAtASourceThatNobodySawGo(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		wantLook(t, "first", l, s, "", nil, time.Second, 1)
		time.Sleep(time.Second)
		wantLook(t, "a second later", l, s, "", nil, 0, 2)
	})
}

func TestLookAtASourceThatWentLongAgo(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		l.vanished(sourceKey)
		time.Sleep(5 * time.Second)
		wantLook(t, "first", l, s, "", nil, 0, 1)
	})
}

func TestC15LookAtASourceThatIsCreatedAnew(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		l.vanished(sourceKey)
		wantLook(t, "right after", l, s, "", nil, time.Second, 1)
		time.Sleep(600 * time.Millisecond)
		s.cm = sourceCM("platform", "settings")
		time.Sleep(400 * time.Millisecond)
		// There it is, but the cache does not have it yet: nothing may be deleted, and its event will come.
		wantLook(t, "a second later", l, s, "", nil, time.Second, 2)
		l.forget(sourceKey)
		wantLook(t, "once its event has come", l, s, "7", s.cm, 0, 3)
	})
}

// TestC15LookAtASourceThatIsDeletedAgain while the watch is silent: the second begins with that deletion, not with the
// first one.
func TestC15LookAtASourceThatIsDeletedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		l.vanished(sourceKey)
		wantLook(t, "right after", l, s, "", nil, time.Second, 1)
		time.Sleep(time.Second)
		s.cm = sourceCM("platform", "settings")
		wantLook(t, "created anew", l, s, "", nil, time.Second, 2)
		time.Sleep(time.Second)
		s.cm = nil
		wantLook(t, "deleted again", l, s, "", nil, time.Second, 3)
		time.Sleep(time.Second)
		wantLook(t, "a second later", l, s, "", nil, 0, 4)
	})
}

func TestC16LookAtASourceThatIsBeingDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.cm = sourceCM("platform", "settings", deleting)
		l.vanished(sourceKey)
		time.Sleep(400 * time.Millisecond)
		wantLook(t, "at 0.4 s", l, s, "7", nil, 600*time.Millisecond, 1)
		time.Sleep(600 * time.Millisecond)
		wantLook(t, "at 1 s", l, s, "7", s.cm, 0, 2)
		got, _, _ := l.source(t.Context(), testRules(), sourceKey, "7")
		if !testRules().stillUnwanted(view{}, got, namespace("team-a")) {
			t.Error("got its copies wanted, want them to go")
		}
	})
}

func TestC41LookWhileTheCacheIsBehind(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.cm = sourceCM("platform", "settings") // at 7
		for i, seconds := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
			wantLook(t, "look "+string(rune('a'+i)), l, s, "6", nil, seconds*time.Second, i+1)
			time.Sleep(seconds*time.Second - 1)
			wantLook(t, "while waiting "+string(rune('a'+i)), l, s, "6", nil, 1, i+1)
			time.Sleep(time.Nanosecond)
		}
		wantLook(t, "once the cache has caught up", l, s, "7", s.cm, 0, 10)
	})
}

func TestLookAtASourceThatTheCacheHas(t *testing.T) {
	for name, cm := range map[string]*corev1.ConfigMap{
		"C14 narrowed":                     sourceCM("platform", "settings", annotation(PrefixAnnotation, "team-b")),
		"C31 frozen":                       sourceCM("platform", "settings", annotation(PrefixAnnotation, "")),
		"C02 a copy labelled true, newer":  marked("platform", "settings", label("mirror", "true"), func(cm *corev1.ConfigMap) { cm.ResourceVersion = "99" }),
		"labelled with something newer":    sourceCM("platform", "settings", label("mirror", "no"), func(cm *corev1.ConfigMap) { cm.ResourceVersion = "99" }),
		"unlabelled, and of a new version": sourceCM("platform", "settings", without("mirror"), func(cm *corev1.ConfigMap) { cm.ResourceVersion = "99" }),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *script, l *looks) {
				s.cm = cm
				wantLook(t, "first", l, s, "7", cm, 0, 1)
			})
		})
	}
}

// TestC44LookOutsideTheSourceNamespaces: a source that only the flags keep from being ours is waited for like any
// other, and is no reason to delete.
func TestC44LookOutsideTheSourceNamespaces(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.cm = sourceCM("platform", "settings")
		r := testRules(func(o *Options) { o.SourceNamespaces = []string{"base"} })
		_, wait, err := l.source(t.Context(), r, sourceKey, "")
		if wait != behindFirst || err != nil {
			t.Errorf("got %v, %v, want to wait %v for the cache", wait, err, behindFirst)
		}
		if r.stillUnwanted(view{}, s.cm, namespace("team-a")) {
			t.Error("its copies count as unwanted")
		}
	})
}

// wantFailure asks for the source, and wants the error of the script, and so many GETs altogether.
func wantFailure(t *testing.T, what string, l *looks, s *script, gets int) {
	t.Helper()
	live, wait, err := l.source(t.Context(), testRules(), sourceKey, "")
	if err == nil || wait != 0 || live != nil {
		t.Errorf("%s: got %v, a wait of %v and error %v, want an error", what, live, wait, err)
	}
	if len(s.gets) != gets {
		t.Errorf("%s: got %d GETs so far, want %d", what, len(s.gets), gets)
	}
}

func TestC34LookThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.err = apierrors.NewInternalError(errors.New("etcd is away"))
		l.vanished(sourceKey)
		time.Sleep(5 * time.Second)
		wantFailure(t, "first", l, s, 1)
		wantFailure(t, "right after it", l, s, 1)
		time.Sleep(lookRetry - 1)
		wantFailure(t, "right before the second is over", l, s, 1)
		time.Sleep(time.Nanosecond)
		wantFailure(t, "after it", l, s, 2)
		time.Sleep(2*lookRetry - 1)
		wantFailure(t, "right before the next pause is over", l, s, 2)
		s.err = nil
		time.Sleep(time.Nanosecond)
		wantLook(t, "once it answers", l, s, "", nil, 0, 3)
	})
}

// TestC30LooksThatFailSlowDown: to once a minute where they are refused, and as writes do where the API server is away.
func TestC30LooksThatFailSlowDown(t *testing.T) {
	for what, tc := range map[string]struct {
		err  error
		most int // in the second hour
	}{
		"refused": {apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "settings", errors.New("no get")), 60},
		"away":    {errors.New("connection refused"), 240},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *script, l *looks) {
				s.err = tc.err
				ask := func() {
					for range 3600 {
						_, _, _ = l.source(t.Context(), testRules(), sourceKey, "")
						_, _, _ = l.namespace(t.Context(), at("team-a", "5"))
						time.Sleep(time.Second)
					}
				}
				ask()
				before := len(s.gets)
				ask()
				if got := len(s.gets) - before; got > 2*tc.most || got < tc.most {
					t.Errorf("got %d GETs, want %d of each", got, tc.most)
				}
			})
		})
	}
}

func TestC37LookThatIsForbiddenIsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.err = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "settings", errors.New("no get"))
		for range 3 {
			if live, wait, err := l.source(t.Context(), testRules(), sourceKey, ""); !apierrors.IsForbidden(err) || wait != 0 || live != nil {
				t.Errorf("got %v, %v, %v, want the refusal", live, wait, err)
			}
			time.Sleep(lookRetry)
		}
	})
}

func TestForgetMakesALookVoid(t *testing.T) {
	other := cache.ObjectName{Namespace: "platform", Name: "other"}
	for name, tc := range map[string]struct {
		event func(*looks)
		gets  int
	}{
		"an event about it":      {func(l *looks) { l.forget(sourceKey) }, 2},
		"its disappearance":      {func(l *looks) { l.vanished(sourceKey) }, 2},
		"an event about another": {func(l *looks) { l.forget(other); l.vanished(other) }, 1},
		"one of its name":        {func(l *looks) { l.forget(cache.ObjectName{Namespace: "base", Name: "settings"}) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *script, l *looks) {
				s.cm = sourceCM("platform", "settings", without("mirror"))
				wantLook(t, "first", l, s, "", s.cm, 0, 1)
				tc.event(l)
				wantLook(t, "after it", l, s, "", s.cm, 0, tc.gets)
			})
		})
	}
}

// TestForgetEndsAWait: whatever was waited for, the event may have changed it.
func TestForgetEndsAWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.cm = sourceCM("platform", "settings")
		for range 4 {
			_, wait, _ := l.source(t.Context(), testRules(), sourceKey, "6")
			time.Sleep(wait)
		}
		wantLook(t, "behind for long", l, s, "6", nil, 16*time.Second, 5)
		l.forget(sourceKey)
		wantLook(t, "after an event", l, s, "6", nil, time.Second, 6)
	})
}

func TestLookLifetime(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.cm = sourceCM("platform", "settings", without("mirror"))
		wantLook(t, "first", l, s, "", s.cm, 0, 1)
		time.Sleep(lookLifetime - 1)
		wantLook(t, "within its lifetime", l, s, "", s.cm, 0, 1)
		time.Sleep(time.Nanosecond)
		wantLook(t, "after it", l, s, "", s.cm, 0, 2)
		time.Sleep(lookLifetime - 1)
		wantLook(t, "within the next", l, s, "", s.cm, 0, 2)
	})
}

func TestLooksAreKeptBySource(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.cm = sourceCM("platform", "settings", without("mirror"))
		for i, key := range []cache.ObjectName{sourceKey, {Namespace: "base", Name: "settings"}, {Namespace: "platform", Name: "other"}} {
			for range 2 {
				if _, _, err := l.source(t.Context(), testRules(), key, ""); err != nil {
					t.Error(err)
				}
			}
			if want := "configmaps " + key.String(); len(s.gets) != i+1 || s.gets[i] != want {
				t.Errorf("got GETs %q, want one of %q", s.gets, want)
			}
		}
	})
}

// TestForgetMakesALookInFlightVoid: the answer may be older than the event.
func TestForgetMakesALookInFlightVoid(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.slow = time.Second
		l.vanished(sourceKey)
		time.Sleep(recreationGrace)
		answered := make(chan bool)
		go func() {
			live, wait, err := l.source(t.Context(), testRules(), sourceKey, "")
			if live != nil || wait != lookAnew || err != nil {
				t.Errorf("got %v, %v, %v, want another look in %v", live, wait, err, lookAnew)
			}
			close(answered)
		}()
		synctest.Wait() // until the API server has read that it is gone
		l.forget(sourceKey)
		<-answered
		s.slow, s.cm = 0, sourceCM("platform", "settings")
		wantLook(t, "C15 after the event", l, s, "7", s.cm, 0, 2)
	})
}

// TestC34LookThatFailsSlowly: the pause counts from the end of the look, or those who wait would ask one after
// another, and hold what they hold for that long.
func TestC34LookThatFailsSlowly(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.slow, s.err = 30*time.Second, apierrors.NewTimeoutError("nothing comes back", 0)
		if _, _, err := l.source(t.Context(), testRules(), sourceKey, ""); err == nil {
			t.Error("got no error, want one")
		}
		wantFailure(t, "right after it", l, s, 1)
		if _, _, err := l.namespace(t.Context(), at("team-a", "5")); err == nil {
			t.Error("got no error, want one")
		}
		if _, _, err := l.namespace(t.Context(), at("team-a", "5")); err == nil || len(s.gets) != 2 {
			t.Errorf("got %v and %d GETs right after it, want the same error and 2 GETs", err, len(s.gets))
		}
	})
}

// hanging is an API server to which the way is open and from which nothing comes back.
type hanging struct {
	kubernetes.Interface
	typedcorev1.CoreV1Interface
	typedcorev1.NamespaceInterface
}

func (hanging) CoreV1() typedcorev1.CoreV1Interface { return hanging{} }

func (hanging) ConfigMaps(string) typedcorev1.ConfigMapInterface { return hangingConfigMaps{} }

func (hanging) Namespaces() typedcorev1.NamespaceInterface { return hanging{} }

func (hanging) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

type hangingConfigMaps struct{ typedcorev1.ConfigMapInterface }

func (hangingConfigMaps) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*corev1.ConfigMap, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestC33LooksGiveUpWhenNothingComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooks(hanging{}, 7*time.Second)
		start := time.Now()
		if _, _, err := l.source(t.Context(), testRules(), sourceKey, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("source: got error %v, want that its time is over", err)
		}
		if waited := time.Since(start); waited != 7*time.Second {
			t.Errorf("source: got an end after %v, want 7s", waited)
		}
		start = time.Now()
		if _, _, err := l.namespace(t.Context(), namespace("team-a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("namespace: got error %v, want that its time is over", err)
		}
		if waited := time.Since(start); waited != 7*time.Second {
			t.Errorf("namespace: got an end after %v, want 7s", waited)
		}
	})
}

// at returns a namespace as the cache has it at a resourceVersion.
func at(name, rv string) *corev1.Namespace {
	ns := namespace(name)
	ns.ResourceVersion = rv
	return ns
}

func wantNamespace(t *testing.T, what string, l *looks, s *script, cached, live *corev1.Namespace, gets int) {
	t.Helper()
	got, _, err := l.namespace(t.Context(), cached)
	if err != nil {
		t.Errorf("%s: got error %v, want none", what, err)
	}
	if (got == nil) != (live == nil) || got != nil && got.Labels["n"] != live.Labels["n"] {
		t.Errorf("%s: got %v, want %v", what, got, live)
	}
	if len(s.gets) != gets {
		t.Errorf("%s: got %d GETs so far, want %d", what, len(s.gets), gets)
	}
}

func TestLookAtANamespaceIsSharedForOneState(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.ns = namespace("team-a", "n", "1")
		wantNamespace(t, "first", l, s, at("team-a", "5"), s.ns, 1)
		wantNamespace(t, "of the same state", l, s, at("team-a", "5"), s.ns, 1)
		was := s.ns
		s.ns = namespace("team-a", "n", "2")
		wantNamespace(t, "changed, of the same state", l, s, at("team-a", "5"), was, 1)
		wantNamespace(t, "C41 of another state", l, s, at("team-a", "6"), s.ns, 2)
		wantNamespace(t, "of that state", l, s, at("team-a", "6"), s.ns, 2)
		wantNamespace(t, "of the first state again", l, s, at("team-a", "5"), s.ns, 3)
		wantNamespace(t, "another namespace", l, s, at("team-b", "5"), s.ns, 4)
		if s.gets[0] != "namespaces /team-a" || s.gets[3] != "namespaces /team-b" {
			t.Errorf("got GETs %q, want those of the namespaces", s.gets)
		}
	})
}

func TestLookAtANamespaceInParallel(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.ns = namespace("team-a")
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				runtime.Gosched()
				ns, wait, err := l.namespace(t.Context(), at("team-a", "5"))
				for wait == lookAnew && err == nil {
					time.Sleep(wait)
					ns, wait, err = l.namespace(t.Context(), at("team-a", "5"))
				}
				if ns == nil || wait != 0 || err != nil {
					t.Errorf("got %v, %v, %v, want the namespace", ns, wait, err)
				}
			})
		}
		callers.Wait()
		if len(s.gets) != 1 {
			t.Errorf("got %d GETs, want 1", len(s.gets))
		}
	})
}

func TestLookAtANamespaceThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		wantNamespace(t, "first", l, s, at("team-a", "5"), nil, 1)
		wantNamespace(t, "second", l, s, at("team-a", "5"), nil, 1)
	})
}

func TestLookAtANamespaceThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.err = apierrors.NewInternalError(errors.New("etcd is away"))
		if ns, _, err := l.namespace(t.Context(), at("team-a", "5")); ns != nil || !apierrors.IsInternalError(err) {
			t.Errorf("got %v, %v, want what the API server said", ns, err)
		}
		s.err, s.ns = nil, namespace("team-a")
		if _, _, err := l.namespace(t.Context(), at("team-a", "5")); !apierrors.IsInternalError(err) || len(s.gets) != 1 {
			t.Errorf("right after an error: got %v and %d GETs, want the error again without another GET", err, len(s.gets))
		}
		time.Sleep(lookRetry)
		wantNamespace(t, "an error is no answer to keep", l, s, at("team-a", "5"), s.ns, 2)
		s.err = errors.New("away again")
		wantNamespace(t, "an answer is", l, s, at("team-a", "5"), s.ns, 2)
	})
}

func TestLookAtANamespaceLifetime(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.ns = namespace("team-a")
		wantNamespace(t, "first", l, s, at("team-a", "5"), s.ns, 1)
		time.Sleep(lookLifetime - 1)
		wantNamespace(t, "within its lifetime", l, s, at("team-a", "5"), s.ns, 1)
		time.Sleep(time.Nanosecond)
		wantNamespace(t, "after it", l, s, at("team-a", "5"), s.ns, 2)
	})
}

func TestSweepForgetsWhatIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.cm, s.ns = sourceCM("platform", "settings", without("mirror")), namespace("team-a")
		wantLook(t, "an old one", l, s, "", s.cm, 0, 1)
		wantNamespace(t, "an old one", l, s, at("team-a", "5"), s.ns, 2)
		time.Sleep(lookLifetime - time.Second)
		fresh := cache.ObjectName{Namespace: "platform", Name: "fresh"}
		if _, _, err := l.source(t.Context(), testRules(), fresh, ""); err != nil {
			t.Error(err)
		}
		wantNamespace(t, "a fresh one", l, s, at("team-b", "5"), s.ns, 4)
		l.sweep()
		if len(l.sources) != 2 || len(l.namespaces) != 2 {
			t.Errorf("before that: got %d sources and %d namespaces, want all of them, 2 and 2", len(l.sources), len(l.namespaces))
		}
		time.Sleep(2 * time.Second)
		l.sweep()
		if len(l.sources) != 1 || l.sources[fresh] == nil || len(l.namespaces) != 1 || l.namespaces["team-b"] == nil {
			t.Errorf("after it: got %v and %v, want the fresh ones", l.sources, l.namespaces)
		}
		wantNamespace(t, "a fresh one once more", l, s, at("team-b", "5"), s.ns, 4)
		time.Sleep(lookLifetime)
		l.sweep()
		if len(l.sources) != 0 || len(l.namespaces) != 0 {
			t.Errorf("at the end: got %v and %v, want nothing", l.sources, l.namespaces)
		}
	})
}

func TestSweepForgetsADisappearanceThatNobodyAskedAbout(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		l.vanished(sourceKey)
		time.Sleep(lookLifetime)
		l.sweep()
		if len(l.sources) != 1 {
			t.Errorf("got %v kept at the end of its life, want it", l.sources)
		}
		time.Sleep(time.Nanosecond)
		l.sweep()
		if len(l.sources) > 0 {
			t.Errorf("got %v kept, want nothing", l.sources)
		}
	})
}

func TestSweepForgetsALookThatFailed(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.err = errors.New("away")
		_, _, _ = l.source(t.Context(), testRules(), sourceKey, "")
		_, _, _ = l.namespace(t.Context(), at("team-a", "5"))
		l.sweep()
		if len(l.sources) != 1 || len(l.namespaces) != 1 {
			t.Errorf("got %v and %v kept right after it, want both", l.sources, l.namespaces)
		}
		time.Sleep(lookRetry + lookLifetime + time.Nanosecond)
		l.sweep()
		if len(l.sources) > 0 || len(l.namespaces) > 0 {
			t.Errorf("got %v and %v kept, want nothing", l.sources, l.namespaces)
		}
	})
}

func TestSweepLeavesALookThatIsWaitedForAlone(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		l.vanished(sourceKey)
		wantLook(t, "first", l, s, "", nil, time.Second, 1)
		l.sweep()
		wantLook(t, "after a sweep", l, s, "", nil, time.Second, 1)
	})
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.cm = sourceCM("platform", "settings") // at 7
		for range 4 {
			_, wait, _ := l.source(t.Context(), testRules(), sourceKey, "6")
			time.Sleep(wait)
		}
		wantLook(t, "behind for long", l, s, "6", nil, 16*time.Second, 5)
		time.Sleep(10 * time.Second)
		l.sweep()
		wantLook(t, "after a sweep", l, s, "6", nil, 6*time.Second, 5)
	})
}

// TestALookUnderWayIsNotWaitedFor: who asks beside it is told to come back, later and later, and keeps no slot.
func TestALookUnderWayIsNotWaitedFor(t *testing.T) {
	for what, ask := range map[string]func(*testing.T, *looks) (wait time.Duration, err error){
		"source": func(t *testing.T, l *looks) (time.Duration, error) {
			_, wait, err := l.source(t.Context(), testRules(), sourceKey, "")
			return wait, err
		},
		"namespace": func(t *testing.T, l *looks) (time.Duration, error) {
			_, wait, err := l.namespace(t.Context(), at("team-a", "5"))
			return wait, err
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *script, l *looks) {
				s.cm, s.ns, s.slow = sourceCM("platform", "settings", without("mirror")), namespace("team-a"), time.Minute
				began := time.Now()
				go func() { _, _ = ask(t, l) }()
				synctest.Wait()
				for _, want := range []time.Duration{lookAnew, lookAnew, 2 * lookAnew, 4 * lookAnew} {
					if wait, err := ask(t, l); wait != want || err != nil {
						t.Errorf("%v after it began: got a wait of %v, error %v, want %v", time.Since(began), wait, err, want)
					}
					time.Sleep(want)
				}
				if len(s.gets) != 1 {
					t.Errorf("got %d GETs, want 1", len(s.gets))
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if wait, err := ask(t, l); wait != 0 || err != nil {
					t.Errorf("after its end: got a wait of %v, error %v, want the answer", wait, err)
				}
			})
		})
	}
}

func TestSweepLeavesALookInFlightAlone(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.cm, s.ns = sourceCM("platform", "settings", without("mirror")), namespace("team-a")
		wantLook(t, "first", l, s, "", s.cm, 0, 1)
		wantNamespace(t, "first", l, s, at("team-a", "5"), s.ns, 2)
		time.Sleep(lookLifetime + 1)
		for _, ask := range []func(){
			func() { _, _, _ = l.source(t.Context(), testRules(), sourceKey, "") },
			func() { _, _, _ = l.namespace(t.Context(), at("team-a", "5")) },
		} {
			s.slow = time.Second
			go ask()
			synctest.Wait() // until the API server thinks about it
			l.sweep()
			time.Sleep(time.Second)
			synctest.Wait()
		}
		s.slow = 0
		wantLook(t, "after the sweep", l, s, "", s.cm, 0, 4)
		wantNamespace(t, "after the sweep", l, s, at("team-a", "5"), s.ns, 4)
	})
}

func TestC34AnAnswerEndsTheSlowingDownOfLooks(t *testing.T) {
	var f failure
	now := time.Now()
	away := errors.New("away")
	for _, want := range []time.Duration{lookRetry, 2 * lookRetry, 4 * lookRetry} {
		f.note(away, now)
		if !f.stands(now.Add(want-1)) || f.stands(now.Add(want)) {
			t.Errorf("got the failure until %v, want it to stand for %v", f.until.Sub(now), want)
		}
	}
	f.note(nil, now)
	if f.stands(now) {
		t.Error("got a failure that stands after an answer")
	}
	f.note(away, now)
	if f.stands(now.Add(lookRetry)) {
		t.Errorf("got the first failure after an answer until %v, want it to stand for %v", f.until.Sub(now), lookRetry)
	}
}
