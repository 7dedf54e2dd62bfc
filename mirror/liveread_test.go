package mirror

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

var readSource = request("get", "configmaps", "platform")

// sourceReads returns how many live reads of the source come in an hour, after a first hour.
func (s scene) sourceReads() int {
	time.Sleep(time.Hour)
	before := s.CountAll("platform", "get")
	time.Sleep(time.Hour)
	return s.CountAll("platform", "get") - before
}

// TestLiveReadFails: it is no answer, and nothing is deleted until there is one. It slows down to once a minute where
// the API server refuses it, and as writes do where the API server is away. All deletions share the failure.
func TestLiveReadFails(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		most int // in an hour
	}{
		"C37 refused":       {rejected("no get"), 65},
		"C34 fails":         {apierrors.NewInternalError(errors.New("etcd")), 65},
		"C34 away":          {errAway, 250},
		"C33 never answers": {nil, 80},
	} {
		t.Run(name, inScene(append(teams(3, "team-"), source()), func(t *testing.T, s scene) {
			s.refuse(on(tc.err, readSource))
			s.hang(on(tc.err == nil, readSource))
			s.edit("platform", unlabelled)
			if n := s.sourceReads(); n > tc.most || n < tc.most/2 {
				t.Errorf("got %d reads in an hour, want up to %d", n, tc.most)
			}
			if n := s.CountAll("team-", "delete"); n > 0 {
				t.Errorf("got %d deletions without an answer", n)
			}
			s.write(plantest.Source("platform", "other"))
			s.wantMetric(3, "mirror_copies", "synced")
			s.refuse(on[error](nil))
			s.hang(on(false))
			time.Sleep(time.Minute)
			s.wantNone("team-000")
		}))
	}
}

// TestC41CacheIsBehind: the live read finds a source that the cache does not show. Nothing is deleted, also hours
// later. Each read begins the grace anew, and announces nothing. Case C65.
func TestC41CacheIsBehind(t *testing.T) {
	inScene(append(teams(3, "team-"), source()), func(t *testing.T, s scene) {
		var once sync.Once
		s.beforeCall(func(c apitest.Call) {
			if c == readSource {
				once.Do(func() {
					s.Stall("platform")
					s.edit("platform", plantest.Label("mirror", "true"))
				})
			}
		})
		s.edit("platform", unlabelled)
		if n := s.sourceReads(); n > 65 || n < 50 {
			t.Errorf("got %d reads in an hour, want one a minute for all copies together", n)
		}
		if n := s.countEvents(plan.ReasonExpiring); n > 2 {
			t.Errorf("got %d announcements, all but the first after a live read showed that the source is there", n)
		}
		s.Relist()
		time.Sleep(time.Minute)
		s.wantCopies(3, "team-", "value")
		s.wantWrites(3, "team-")
	})(t)
}

// TestC41CopyThatTheCacheLacks: a create finds a copy of a frozen source, which ranks first and claims its copy. The
// watch does not show that copy: the create is tried again as after any conflict, and not in a loop.
func TestC41CopyThatTheCacheLacks(t *testing.T) {
	first := source(prefixes("none-"))
	inScene(append(teams(1, "team-"), plantest.Namespace("base"), first), func(t *testing.T, s scene) {
		s.slowDown(2 * time.Millisecond)
		s.Stall("team-000")
		s.edit("platform", plantest.Annotation(plan.PausedAnnotation, "yes"))
		s.write(copyOf(first, "team-000"))
		s.write(sourceIn("base"))
		time.Sleep(time.Minute)
		if n := s.CountAll("team-000", "create"); n < 2 || n > 20 {
			t.Errorf("got %d creates within a minute, want some, ever more slowly", n)
		}
		s.Relist()
	})(t)
}

// TestC41OldCacheDeletesNothing: the source of a copy is back before the deletion of the copy, and the watch does not
// show that.
func TestC41OldCacheDeletesNothing(t *testing.T) {
	comesBack := func(s scene) {
		s.Stall("platform")
		s.write(source())
	}
	for name, happens := range map[string]func(scene){
		"a deletion is refused for longer than an answer is good": func(s scene) {
			s.refuse(on(errAway, deletes))
			s.remove("platform")
			time.Sleep(time.Minute + 2*time.Second)
			if s.CountAll("team-", "delete") == 0 {
				s.t.Error("got no deletion tried after the grace")
			}
			comesBack(s)
			time.Sleep(6 * time.Second)
			s.refuse(on[error](nil))
		},
		"an answer has deleted another copy, whose grace ended before": func(s scene) {
			s.optOut("team-000")
			time.Sleep(3 * time.Second)
			s.remove("platform")
			time.Sleep(58 * time.Second)
			s.wantNone("team-000")
			comesBack(s)
		},
		"both watches are silent, and the namespace had opted out, too": func(s scene) {
			s.optOut("team-001")
			s.remove("platform")
			time.Sleep(59 * time.Second)
			s.lose(func(string, string) bool { return true })
			s.write(source())
			s.setNamespace("team-001")
		},
	} {
		t.Run(name, withGrace(time.Minute, func(t *testing.T, s scene) {
			happens(s)
			time.Sleep(time.Hour)
			s.wantCopy("team-001", "value")
		}))
	}
}

// TestC41CacheIsAhead: the cache shows a claim that the live answer does not show, and no handler has heard of it yet.
func TestC41CacheIsAhead(t *testing.T) {
	withGrace(0, func(t *testing.T, s scene) {
		s.edit("platform", data("new"))
		s.wantCopies(3, "team-", "new")
		r := s.controller.reconciler
		s.controller.handlers.active.Store(false)
		s.remove("platform")
		synctest.Wait()
		n := r.records.lock("settings")
		x := &attempt{decision: r.decide(n, settings("team-000"))}
		n.unlock()
		if _, confirmed := r.confirm(t.Context(), x); !confirmed {
			t.Error("got no confirmation without a source")
		}
		s.write(source())
		synctest.Wait()
		if _, confirmed := r.confirm(t.Context(), x); confirmed || s.CountAll("platform", "get") != 1 {
			t.Error("got a confirmation by an answer that is older than what the cache shows")
		}
		s.controller.takeOver() // the handlers hear again
	})(t)
}

// TestC53RollingExpiry: copies expire one after the other, and each read of their source takes six seconds. An answer
// serves until the next one comes.
func TestC53RollingExpiry(t *testing.T) {
	t.Parallel()
	const copies, every, takes = 600, 100 * time.Millisecond, 6 * time.Second
	inScene(append(teams(copies, "team-"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantCopies(copies, "team-", "value")
		s.delay(on(takes, readSource))
		late := 0
		for i := range copies {
			s.optOut(fmt.Sprintf("team-%03d", i))
			time.Sleep(every)
			late = max(late, s.countCopies("team-", "value")-(copies-1-i))
		}
		// Two reads, the grace, and two seconds until a line: there is one a second.
		if most := int((2*takes + 3*time.Second) / every); late > most {
			t.Errorf("got %d copies late, want at most %d", late, most)
		}
		s.within(2*takes+3*time.Second, "end", func() bool { return s.countCopies("team-", "value") == 0 })
	})(t)
}

// TestReadsOutOfPhase has answers about a source and a namespace that are never young enough together: a claim is acted
// upon all the same.
func TestReadsOutOfPhase(t *testing.T) {
	inScene(teams(1, "team-"), func(t *testing.T, s scene) {
		s.write(source())
		time.Sleep(time.Minute)
		s.delay(func(c apitest.Call) time.Duration {
			switch {
			case c.Verb == "get" && c.Resource == "configmaps":
				return 6 * time.Second
			case c.Verb == "get":
				return 12 * time.Second
			}
			return 0
		})
		s.edit("platform", selector("a=b"))
		time.Sleep(30 * time.Second)
		s.edit("platform", selector(""), data("new"))
		s.within(2*time.Minute, "the copy", func() bool { return s.countCopies("team-", "new") == 1 })
		s.delay(on(time.Duration(0), anyCall))
	})(t)
}

// TestC66ClaimDuringACall: a claim that comes and goes while the read before a deletion, or the delete itself, is on
// its way ends the grace.
func TestC66ClaimDuringACall(t *testing.T) {
	optOut, optIn := func(s scene) { s.optOut("team-000") }, func(s scene) { s.setNamespace("team-000") }
	goes, comes := func(s scene) { s.remove("platform") }, func(s scene) { s.write(source()) }
	for name, tc := range map[string]struct {
		verb             string
		lose, claim, end func(scene)
	}{
		"read: the source comes and goes": {"get", goes, comes, goes},
		"read: another source": {"get", goes, func(s scene) { s.write(sourceIn("base")) },
			func(s scene) { s.remove("base") }},
		"delete: the source comes and goes": {"delete", goes, comes, goes},
		"delete: a label comes and goes":    {"delete", optOut, optIn, optOut},
	} {
		t.Run(name, withGrace(5*time.Minute, func(t *testing.T, s scene) {
			s.addNamespace("base")
			slow := func(answers, deletion time.Duration, err error) {
				s.Hook(func(h *apitest.Hooks) {
					h.Answers, h.Takes, h.Refuses = on(answers, reads), on(deletion, deletes), on(err, deletes)
				})
			}
			slow(8*time.Second, 20*time.Second, webhookDown)
			tc.lose(s)
			time.Sleep(5*time.Minute + time.Second)
			if tc.verb == "delete" {
				time.Sleep(8 * time.Second)
			}
			tc.claim(s)
			time.Sleep(time.Second) // the call is still on its way
			n := s.countCopies("team-", "value")
			tc.end(s)
			time.Sleep(20 * time.Second)
			if calls := s.CountAll("team-", "delete"); calls > 0 != (tc.verb == "delete") {
				t.Errorf("got %d deletes on their way", calls)
			}
			slow(0, 0, nil)
			time.Sleep(4 * time.Minute)
			s.wantCopies(n, "team-", "value") // the grace is 5 minutes
			time.Sleep(2 * time.Minute)
			if left := s.countCopies("team-", "value"); left == n {
				t.Error("got all copies left after the grace")
			}
		}))
	}
}

// TestC66ClaimFlips: a claim comes and goes near the end of the grace, before a fan-out or a reconcile could see it.
// A live read may show a claim that the watch does not show: when that ends, the grace begins anew, too. Case C41.
func TestC66ClaimFlips(t *testing.T) {
	optOut := func(s scene) { s.optOut("team-000") }
	unlabel := func(s scene) { s.edit("platform", unlabelled) }
	label := func(s scene) { s.edit("platform", plantest.Label("mirror", "true")) }
	for name, tc := range map[string]struct {
		ends, begins func(scene)
		sees         time.Duration // how long the claim lasts, seen by a live read
	}{
		"of a namespace that opts out":  {optOut, func(s scene) { s.setNamespace("team-000") }, 0},
		"of a source without its label": {unlabel, label, 0},
		"seen by a live read alone":     {unlabel, func(s scene) { s.Stall("platform"); label(s) }, 11 * time.Second},
	} {
		t.Run(name, withGrace(5*time.Minute, func(t *testing.T, s scene) {
			tc.ends(s)
			time.Sleep(5*time.Minute - time.Second)
			tc.begins(s)
			time.Sleep(tc.sees)
			tc.ends(s)
			time.Sleep(4 * time.Minute)
			s.wantCopy("team-000", "value")
			time.Sleep(2 * time.Minute)
			s.wantNone("team-000")
		}))
	}
}

// TestC41NamespaceIsBehind: a namespace has opted out, and the cache does not show
// what it has become since then. The live read does: nothing is deleted there.
func TestC41NamespaceIsBehind(t *testing.T) {
	for name, becomes := range map[string]func(scene){
		"it opted in again": func(s scene) { s.setNamespace("team-000") },
		"it is terminating": func(s scene) { s.Terminate("team-000") },
		"it is gone": func(s scene) {
			s.Terminate("team-000")
			s.remove("team-000") // by the namespace controller
			s.Finalize("team-000")
		},
	} {
		t.Run(name, withGrace(time.Minute, func(t *testing.T, s scene) {
			s.optOut("team-000")
			time.Sleep(time.Second)
			s.lose(func(_, namespace string) bool { return namespace == "team-000" || namespace == "" })
			becomes(s)
			time.Sleep(5 * time.Minute)
			if n := s.CountAll("team-000", "delete"); n > 0 {
				t.Errorf("got %d deletions", n)
			}
			if n := s.Count("get", "namespaces", "team-000"); n == 0 {
				t.Error("got no read of the namespace")
			}
		}))
	}
}
