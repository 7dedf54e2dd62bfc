package mirror

import (
	"errors"
	"fmt"
	"sync"
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
	for name, happens := range map[string]func(scene){
		"unlabelled": func(s scene) { s.edit("platform", plantest.Without("mirror")) },
		"deleted":    func(s scene) { s.remove("platform") },
	} {
		t.Run(name, func(t *testing.T) {
			cluster(t, append(teams(n, "team-"), source()), func(t *testing.T, s scene) {
				s.delay(func(apitest.Call) time.Duration { return 20 * time.Millisecond })
				happens(s)
				time.Sleep(3 * time.Second)
				if reads, left := s.Count("get", "configmaps", "platform"), s.copied("team-", "value"); reads != 1 || left > 0 {
					t.Errorf("got %d reads and %d copies left, want 1 and none", reads, left)
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

// TestLiveReadFails: it is no answer, and nothing is deleted until there is one. It slows down to once a minute where the API
// server refuses it, and as writes do where the API server is away. All deletions share the failure.
func TestLiveReadFails(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		most int // in an hour
	}{
		"C37 refused":       {apierrors.NewForbidden(corev1.Resource("configmaps"), "settings", errors.New("no get")), 60},
		"C34 fails":         {apierrors.NewInternalError(errors.New("etcd")), 60},
		"C34 away":          {errors.New("connection refused"), 240},
		"C33 never answers": {nil, 80},
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

// silently does something in platform that the watch does not show before a relist.
func (s scene) silently(f func()) {
	s.t.Helper()
	s.Stall("platform")
	f()
}

// TestC41CacheIsBehind: the live read finds a source that the cache does not show. Nothing is deleted, also hours later, and
// each read begins the grace anew.
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
		if n := s.Count("get", "configmaps", "platform") - before; n > 65 || n < 50 {
			t.Errorf("got %d reads in an hour, want one a minute for all copies together", n)
		}
		s.Relist()
		time.Sleep(time.Minute)
		if n, copies := s.CountAll("team-", "delete", "update"), s.copied("team-", "value"); n > 0 || copies != 3 {
			t.Errorf("got %d writes and %d copies, want none and 3", n, copies)
		}
	})
}

// TestC15DeletedTwice: the grace begins anew with the second disappearance. If the cache shows neither that nor that the source
// was back, it begins anew with the live read that finds the source.
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
				time.Sleep(450 * time.Millisecond)
				s.wantCopy("team-000", "value")
				time.Sleep(5 * time.Second)
				s.wantNone("team-000")
			})
		})
	}
}

// TestSlowLiveReads are made at the same time, and end in the deletion. An answer outlives the slower one, or is read again.
func TestSlowLiveReads(t *testing.T) {
	for _, tc := range []struct{ source, namespace, limit time.Duration }{
		{6 * time.Second, 6 * time.Second, 8 * time.Second},
		{20 * time.Second, 20 * time.Second, 22 * time.Second},
		{0, 20 * time.Second, time.Minute},
	} {
		t.Run(fmt.Sprint(tc.source, " and ", tc.namespace), func(t *testing.T) {
			cluster(t, append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
				s.delay(func(c apitest.Call) time.Duration {
					switch {
					case c == readSource:
						return tc.source
					case c.Resource == "namespaces" && c.Verb == "get":
						return tc.namespace
					}
					return 0
				})
				s.setNamespace(plantest.Namespace("team-000", "mirror", "false"))
				s.within(tc.limit, "deletion", func() bool { return s.get("team-000") == nil })
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
			time.Sleep(1500 * time.Millisecond)
			s.wantNone("team-000")
			s.setNamespace(plantest.Namespace("team-000"))
			s.wantCopy("team-000", "value")
			if n := s.Count("get", "namespaces", "team-000"); n != i+1 {
				t.Errorf("got %d reads, want %d", n, i+1)
			}
		}
	})
}
