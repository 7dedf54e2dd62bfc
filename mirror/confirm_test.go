package mirror

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

var readSource = request("get", "configmaps", "platform")

// TestOneLiveReadForAll deletions that depend on it.
func TestOneLiveReadForAll(t *testing.T) {
	const n = 100
	unlabelled := plantest.Without("mirror")
	for name, tc := range map[string]struct {
		happens func(scene)
		reads   int
	}{
		"unlabelled": {func(s scene) { s.edit("platform", unlabelled) }, 1},
		"deleted":    {func(s scene) { s.remove("platform") }, 2}, // it may come back within a second
	} {
		t.Run(name, func(t *testing.T) {
			cluster(t, append(teams(n, "team-"), source()), func(t *testing.T, s scene) {
				s.delay(func(apitest.Call) time.Duration { return 20 * time.Millisecond })
				tc.happens(s)
				time.Sleep(3 * time.Second)
				if reads, left := s.Count("get", "configmaps", "platform"), s.copied("team-", "value"); reads != tc.reads || left > 0 {
					t.Errorf("got %d reads and %d copies left, want %d and none", reads, left, tc.reads)
				}
			})
		})
	}
	t.Run("of a namespace", func(t *testing.T) {
		objects := teams(1, "team-")
		for i := range n {
			objects = append(objects, plantest.Source("platform", fmt.Sprintf("settings-%d", i)))
		}
		cluster(t, objects, func(t *testing.T, s scene) {
			s.delay(func(apitest.Call) time.Duration { return 20 * time.Millisecond })
			s.setNamespace(plantest.Namespace("team-000", "mirror", "false"))
			time.Sleep(3 * time.Second)
			list, err := s.configMaps("team-000").List(t.Context(), metav1.ListOptions{})
			s.noted(err)
			if reads := s.Count("get", "namespaces", "team-000"); reads != 1 || len(list.Items) > 0 {
				t.Errorf("got %d reads and %d copies left, want 1 and none", reads, len(list.Items))
			}
		})
	})
}

// TestLiveReadFails: it is no answer, and nothing is deleted until there is one. It slows down to once a minute where it is
// refused, and as writes do where the API server is away.
func TestLiveReadFails(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		most int // in an hour
	}{
		"C37 refused":       {apierrors.NewForbidden(corev1.Resource("configmaps"), "settings", errors.New("no get")), 60},
		"C34 fails":         {apierrors.NewInternalError(errors.New("etcd")), 240},
		"C34 away":          {errors.New("connection refused"), 240},
		"C33 never answers": {nil, 72},
	} {
		t.Run(name, func(t *testing.T) {
			cluster(t, append(teams(3, "team-"), source()), func(t *testing.T, s scene) {
				s.refuse(func(c apitest.Call) error {
					if c == readSource {
						return tc.err
					}
					return nil
				})
				s.hang(func(c apitest.Call) bool { return c == readSource && tc.err == nil })
				s.edit("platform", plantest.Without("mirror"))
				time.Sleep(time.Hour)
				before := s.Count("get", "configmaps", "platform")
				time.Sleep(time.Hour)
				if n := s.Count("get", "configmaps", "platform") - before; n > tc.most || n < tc.most/2 {
					t.Errorf("got %d reads in an hour, want up to %d", n, tc.most)
				}
				if n := s.CountAll("team-", "delete"); n > 0 {
					t.Errorf("got %d deletions without an answer", n)
				}
				s.write(plantest.Source("platform", "other"))
				synctest.Wait()
				if n := s.value("mirror_copies", "synced"); n != 3 {
					t.Errorf("got %v copies of another source, want 3", n)
				}
				s.refuse(func(apitest.Call) error { return nil })
				s.hang(func(apitest.Call) bool { return false })
				time.Sleep(time.Minute)
				s.wantNone("team-000")
			})
		})
	}
}

// TestLiveReadIsVoid: an event that comes while the answer is on its way is newer than the answer, and nothing is deleted.
func TestLiveReadIsVoid(t *testing.T) {
	unlabel := func(s scene) { s.edit("platform", plantest.Without("mirror")) }
	remove := func(s scene) { s.remove("platform") }
	for name, tc := range map[string]struct {
		happens func(scene)
		read    int // the one during which it is undone
		undo    func(scene)
		data    string
	}{
		"labelled again":     {unlabel, 1, func(s scene) { s.edit("platform", plantest.Label("mirror", "true")) }, "value"},
		"C15 created again":  {remove, 2, func(s scene) { s.write(source()) }, "value"},
		"C03 a new namesake": {remove, 2, func(s scene) { s.write(plantest.Source("shared", "settings", plantest.Data("key", "shared"))) }, "shared"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster(t, append(teams(3, "team-"), plantest.Namespace("shared"), source()), func(t *testing.T, s scene) {
				time.Sleep(time.Second)
				s.afterCall(func(c apitest.Call) {
					if c == readSource && s.Count("get", "configmaps", "platform") == tc.read {
						tc.undo(s)
						time.Sleep(50 * time.Millisecond) // the cache moves before the answer comes
					}
				})
				tc.happens(s)
				time.Sleep(time.Minute)
				if n, copies := s.CountAll("team-", "delete"), s.copied("team-", tc.data); n > 0 || copies != 3 {
					t.Errorf("got %d deletions and %d copies with %q, want none and 3", n, copies, tc.data)
				}
				if n := s.Count("get", "configmaps", "platform"); n < tc.read {
					t.Errorf("got %d live reads, want %d", n, tc.read)
				}
			})
		})
	}
}

// silently does something in platform that the watch does not show before a relist.
func (s scene) silently(f func()) {
	s.t.Helper()
	s.Stall("platform")
	f()
}

// TestC41CacheIsBehind: the live read finds a source that the cache does not show. Nothing is deleted, also hours later, and
// the API server is asked ever more rarely.
func TestC41CacheIsBehind(t *testing.T) {
	cluster(t, append(teams(3, "team-"), source()), func(t *testing.T, s scene) {
		var once sync.Once
		s.beforeCall(func(c apitest.Call) {
			if c == readSource {
				once.Do(func() { s.silently(func() { s.edit("platform", plantest.Label("mirror", "true")) }) })
			}
		})
		s.edit("platform", plantest.Without("mirror"))
		time.Sleep(time.Hour)
		before := s.Count("get", "configmaps", "platform")
		time.Sleep(time.Hour)
		if n := s.Count("get", "configmaps", "platform") - before; n > 60 || n < 50 {
			t.Errorf("got %d reads in an hour, want one a minute", n)
		}
		s.Relist()
		time.Sleep(time.Minute)
		if n, copies := s.CountAll("team-", "delete", "update"), s.copied("team-", "value"); n > 0 || copies != 3 {
			t.Errorf("got %d writes and %d copies, want none and 3", n, copies)
		}
	})
}

// TestC41CacheCatchesUp: an answer rests on the cache as it is then, and not as it was when the first deletion asked.
func TestC41CacheCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, woken := source(), false
		var cached atomic.Pointer[corev1.ConfigMap]
		c := newConfirmer(apitest.NewServer(live), teamRules(), func(key) *corev1.ConfigMap { return cached.Load() }, func(key) { woken = true })
		if _, ok := c.source(t.Context(), settings("platform"), settings("team-a")); ok {
			t.Fatal("got an answer without a read")
		}
		time.Sleep(500 * time.Millisecond)
		if woken {
			t.Fatal("got an answer although the cache does not show the source")
		}
		got, err := apitest.NewServer(live).CoreV1().ConfigMaps("platform").Get(t.Context(), "settings", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cached.Store(got)
		time.Sleep(time.Second)
		if _, ok := c.source(t.Context(), settings("platform"), settings("team-a")); !ok || !woken {
			t.Error("got no answer although the cache shows the source as it is")
		}
		time.Sleep(answerLifetime)
	})
}

// TestC15DeletedTwice: the second begins with the last disappearance, whether the watch shows what happened or not.
func TestC15DeletedTwice(t *testing.T) {
	for name, silent := range map[string]bool{"seen": false, "unseen": true} {
		t.Run(name, func(t *testing.T) {
			cluster(t, append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
				time.Sleep(time.Second)
				s.remove("platform")
				time.Sleep(500 * time.Millisecond)
				if silent {
					s.Stall("platform")
				}
				s.write(source())
				time.Sleep(time.Second)
				s.remove("platform")
				time.Sleep(950 * time.Millisecond)
				s.wantCopy("team-000", "value")
				time.Sleep(5 * time.Second)
				s.wantNone("team-000")
			})
		})
	}
}

// TestC41AnswerGrowsOld: a deletion that is refused for longer than an answer is good for reads again. The source is back by
// then, and the watch is silent about it.
func TestC41AnswerGrowsOld(t *testing.T) {
	cluster(t, append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
		began := time.Now()
		s.refuse(func(c apitest.Call) error {
			if c.Verb == "delete" && time.Since(began) < 9*time.Second {
				return apierrors.NewInternalError(errors.New("etcd"))
			}
			return nil
		})
		s.remove("platform")
		time.Sleep(3 * time.Second)
		if s.CountAll("team-", "delete") == 0 {
			t.Error("got no deletion tried within 3 s")
		}
		s.silently(func() { s.write(source()) })
		time.Sleep(time.Hour)
		s.wantCopy("team-000", "value")
	})
}

// TestC41AnswersAreForOneStateOfANamespace: an opt-out that follows another one soon is read anew.
func TestC41AnswersAreForOneStateOfANamespace(t *testing.T) {
	objects := []runtime.Object{plantest.Namespace("team-000"), source()}
	cluster(t, objects, func(t *testing.T, s scene) {
		for i := range 3 {
			s.setNamespace(plantest.Namespace("team-000", "mirror", "false"))
			s.wantNone("team-000")
			s.setNamespace(plantest.Namespace("team-000"))
			s.wantCopy("team-000", "value")
			if n := s.Count("get", "namespaces", "team-000"); n != i+1 {
				t.Errorf("got %d reads, want %d", n, i+1)
			}
		}
	})
}
