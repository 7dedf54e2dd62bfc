package mirror

// One bad target, or a thousand, never hold up the others.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/slow"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// webhookDown is the API server's answer when an admission webhook has not answered for 30 seconds.
var webhookDown = apierrors.NewInternalError(errors.New("failed calling webhook: context deadline exceeded"))

// hangs is how long a write takes that hangs, and quick how long any other request takes.
const hangs, quick = 30 * time.Second, 5 * time.Millisecond

// hangAt has the writes in namespaces with the prefix team-bad-, but for one, take this long and, if err is set, fail
// then.
func (s scene) hangAt(takes time.Duration, err error, except string) {
	bad := func(c apitest.Call) bool {
		return c.IsWrite() && strings.HasPrefix(c.Namespace, "team-bad-") && c.Namespace != except
	}
	s.delay(func(c apitest.Call) time.Duration { return map[bool]time.Duration{true: takes, false: quick}[bad(c)] })
	s.refuse(func(c apitest.Call) error { return map[bool]error{true: err}[bad(c)] })
}

// healthy returns a condition: so many healthy targets have the copy of platform/settings with this value.
func (s scene) healthy(n int, value string) func() bool {
	return func() bool { return s.countCopies("team-good-", value) == n }
}

// TestC63ThousandsHang: at first contact the healthy targets of a source have their copies within a minute or so, and
// within seconds if only a hundred hang. After that an edit, a repair, a new namespace and another new source reach
// them within a second. Case C45.
func TestC63ThousandsHang(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		writes, bad int
		takes       time.Duration
		err         error // after that; nil: the writes succeed, as behind a webhook that is ignored when it times out
		first       time.Duration
	}{
		{32, 5000, hangs, webhookDown, time.Minute},
		{32, 2000, hangs, nil, 90 * time.Second},
		{8, 500, hangs, webhookDown, time.Minute},
		{32, 100, hangs, nil, 3 * time.Second},
		{1, 20, hangs, webhookDown, time.Minute},
		{32, 300, 5 * time.Second, nil, 3 * time.Second},
	} {
		name := fmt.Sprintf("%d slots, %d take %v, error %v", tc.writes, tc.bad, tc.takes, tc.err != nil)
		edit := func(o *Options) { o.ConcurrentWrites = tc.writes }
		t.Run(name, inSceneWith(goodAndBad(100, tc.bad), edit, func(t *testing.T, s scene) {
			s.hangAt(tc.takes, tc.err, "")
			s.write(source(data("first")))
			s.within(tc.first, "copy at first contact", s.healthy(100, "first"))
			limit := time.Second * time.Duration(max(1, 4/tc.writes)) // one slot makes ten calls that hang a second
			for _, content := range []string{"second", "third"} {
				time.Sleep(time.Minute)
				s.write(source(data(content)))
				s.within(limit, "edit", s.healthy(100, content))
				s.remove("team-good-000")
				s.within(limit, "repair", s.healthy(100, content))
				s.addNamespace("team-good-new")
				s.within(limit, "fill", s.healthy(101, content))
				s.removeNamespace("team-good-new")
				s.write(plantest.Source("platform", "other-"+content))
				s.within(limit, "copies of another source",
					func() bool { return s.countNamed("other-"+content, "team-good-", "value") == 100 })
			}
		}))
	}
}

// goodAndBad returns healthy namespaces, and others.
func goodAndBad(good, bad int) []runtime.Object {
	return slices.Concat(teams(good, "team-good-"), teams(bad, "team-bad-"))
}

// TestC63Stall: where the API server answers nobody for a time, no healthy namespace waits behind those that hang.
// Calls of that time arrive, and their answers are late, or they do not arrive before they are cut.
func TestC63Stall(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{true, false} {
		for _, stall := range []time.Duration{300 * time.Millisecond, 3 * time.Second} {
			name := fmt.Sprintf("%v, calls arrive %v", stall, arrives)
			t.Run(name, inScene(goodAndBad(100, 100), func(t *testing.T, s scene) {
				s.hangAt(hangs, webhookDown, "")
				s.write(source(data("first")))
				s.within(3*time.Second, "first contact", s.healthy(100, "first"))
				for _, content := range []string{"second", "third"} {
					time.Sleep(time.Minute)
					s.stallUntil(time.Now().Add(stall), arrives)
					s.write(source(data(content)))
					s.within(stall+time.Second, content, s.healthy(100, content))
				}
			}))
		}
	}
}

// stallUntil has the API server answer no write in a healthy namespace before a time.
func (s scene) stallUntil(end time.Time, arrives bool) {
	late := func(c apitest.Call) time.Duration {
		if strings.HasPrefix(c.Namespace, "team-good-") {
			return max(0, time.Until(end))
		}
		return 0
	}
	if arrives {
		s.Hook(func(h *apitest.Hooks) { h.Answers = late })
	} else {
		s.delayMore(late)
	}
}

// delayMore has requests take this time, too.
func (s scene) delayMore(more func(apitest.Call) time.Duration) {
	s.Hook(func(h *apitest.Hooks) {
		takes := h.Takes
		h.Takes = func(c apitest.Call) time.Duration { return max(takes(c), more(c)) }
	})
}

// TestC67RecreatedSlowNamespace: a slow namespace that is deleted and created again is filled at once, while a call is
// on its way and between two calls, although others hang. A relist may show the other namespace of that name. Case C29.
func TestC67RecreatedSlowNamespace(t *testing.T) {
	for name, after := range map[string]time.Duration{"with a call on its way": time.Second,
		"between two calls": 31 * time.Second} {
		for _, relisted := range []bool{false, true} {
			objects := append(teams(3, "team-"), teams(100, "team-bad-")...)
			t.Run(fmt.Sprintf("%s, relisted %v", name, relisted), inScene(objects, func(t *testing.T, s scene) {
				s.hangAt(hangs, webhookDown, "")
				s.write(source())
				time.Sleep(time.Minute)
				calls := s.CountAll("team-bad-000", "create")
				s.within(time.Hour, "call", func() bool { return s.CountAll("team-bad-000", "create") > calls })
				time.Sleep(after)
				s.lose(func(string, string) bool { return relisted })
				s.removeNamespace("team-bad-000")
				s.hangAt(hangs, webhookDown, "team-bad-000")
				time.Sleep(100 * time.Millisecond)
				s.addNamespace("team-bad-000")
				s.lose(func(string, string) bool { return false })
				limit := time.Second
				if relisted {
					s.Relist()
					limit += 3 * time.Second // client-go waits before it lists
				}
				s.within(limit, "fill", func() bool { return s.countCopies("team-bad-000", "value") == 1 })
			}))
		}
	}
}

// TestC67ResultInAFormerNamespace: what comes of a call in a namespace that was deleted meanwhile says nothing about
// the one of that name.
func TestC67ResultInAFormerNamespace(t *testing.T) {
	for name, err := range map[string]error{"rejected": rejected("exceeded quota"), "cut": slow.ErrCut} {
		t.Run(name, standby(append(teams(1, "team-"), source()), func(t *testing.T, r *term) {
			c := r.controller
			x := &attempt{decision: c.reconciler.begin(settings("team-000"), slow.Ordinary)}
			r.removeNamespace("team-000")
			r.addNamespace("team-000")
			synctest.Wait()
			c.fanOut("settings")
			res := resultOf(x.change, err)
			c.reconciler.finish(x, &res)
			n := c.records.lock("settings")
			known := *n.byNamespace["team-000"]
			n.unlock()
			if waiting := c.queues.slow.Len(); !x.act || known.retry != (retry{}) || waiting > 0 {
				t.Errorf("got act %v, %+v, and %d namespaces that wait", x.act, known.retry, waiting)
			}
			r.ends(false, 0)
		}))
	}
}

// TestC53SlowForeignReads: a hundred foreign objects that take 5 s to read hold up no healthy target of 40 other
// sources.
func TestC53SlowForeignReads(t *testing.T) {
	t.Parallel()
	objects := goodAndBad(10, 100)
	for i := range 100 {
		objects = append(objects, plantest.ConfigMap(fmt.Sprintf("team-bad-%03d", i), "settings"))
	}
	inScene(objects, func(t *testing.T, s scene) {
		s.delay(on(5*time.Second, reads))
		s.write(source())
		for i := range 40 {
			s.write(plantest.Source("platform", fmt.Sprintf("other-%d", i)))
		}
		s.within(5*time.Second, "copy in every healthy target",
			func() bool { return len(s.ConfigMaps.All()) == 100+41+10+40*110 })
		s.within(10*time.Minute, "foreign object in most others",
			func() bool { return s.metric("mirror_copies", "foreign") >= 90 })
	})(t)
}

// TestC30ManyHangingTargetsAreReported: targets that hang in turn keep the source busy all the time. Its event does
// not wait for an end.
func TestC30ManyHangingTargetsAreReported(t *testing.T) {
	inScene(goodAndBad(10, 200), func(t *testing.T, s scene) {
		s.hangAt(hangs, webhookDown, "")
		s.write(source())
		time.Sleep(2 * time.Minute)
		if n := s.countEvents(plan.ReasonWriteFailed); n == 0 || n > 12 {
			t.Errorf("got %d events in two minutes, want some, and one in ten seconds at most", n)
		}
	})(t)
}

// TestC34ServerHangs: nothing is answered for an hour. A minute after the end all copies are there.
func TestC34ServerHangs(t *testing.T) {
	inScene(teams(100, "team-"), func(t *testing.T, s scene) {
		s.hang(on(true, anyCall))
		s.write(source())
		time.Sleep(time.Hour)
		if s.Hung.Load() < 50 {
			t.Errorf("got %d tries, want many", s.Hung.Load())
		}
		s.hang(on(false))
		s.within(time.Minute, "copy in every namespace", func() bool { return s.countCopies("team-", "value") == 100 })
	})(t)
}

// TestC34HangingLiveReadHoldsUpNobody: forty deletions wait for one read, more than there are slots.
func TestC34HangingLiveReadHoldsUpNobody(t *testing.T) {
	t.Parallel()
	objects := append(teams(40, "team-"), source())
	for i := range 39 {
		objects = append(objects, plantest.Source("platform", fmt.Sprintf("settings-%d", i)))
	}
	for name, tc := range map[string]struct {
		read apitest.Call
		lose func(scene)
	}{
		"of a source":    {readSource, func(s scene) { s.remove("platform") }},
		"of a namespace": {request("get", "namespaces", "team-000"), func(s scene) { s.optOut("team-000") }},
	} {
		t.Run(name, inScene(objects, func(t *testing.T, s scene) {
			s.hang(on(true, tc.read))
			tc.lose(s)
			time.Sleep(time.Second + 2*reportDelay) // the line, and the grace
			synctest.Wait()
			if n := s.Hung.Load(); n != 1 {
				t.Errorf("got %d reads, want one that hangs", n)
			}
			s.addNamespace("team-new")
			s.within(time.Second, "fill of a new namespace", func() bool { return s.CountAll("team-new", "create") >= 39 })
		}))
	}
}

// TestC45SlowOnce: namespaces that are slow for two seconds have their copy soon, although hundreds of others hang.
func TestC45SlowOnce(t *testing.T) {
	inScene(goodAndBad(100, 200), func(t *testing.T, s scene) {
		s.write(source())
		time.Sleep(time.Minute)
		until := time.Now().Add(2 * time.Second)
		s.hangAt(hangs, webhookDown, "")
		s.delayMore(func(c apitest.Call) time.Duration {
			if c.IsWrite() && strings.HasPrefix(c.Namespace, "team-good-00") && time.Now().Before(until) {
				return 300 * time.Millisecond
			}
			return 0
		})
		s.edit("platform", data("new"))
		s.within(20*time.Second, "update", s.healthy(100, "new"))
	})(t)
}

// TestC45AnswersThatAreLate: beside namespaces that hang, the API server carries out the writes in ten others at once,
// and answers them half a second later. The watch shows these copies, so the ten count as quick: each edit reaches them
// at once.
func TestC45AnswersThatAreLate(t *testing.T) {
	t.Parallel()
	inScene(goodAndBad(100, 300), func(t *testing.T, s scene) {
		s.write(source())
		time.Sleep(time.Minute)
		s.hangAt(hangs, webhookDown, "")
		s.edit("platform", data("hangs"))
		s.within(time.Minute, "edit while nobody knows yet where writes hang", s.healthy(100, "hangs"))
		time.Sleep(time.Minute)
		s.Hook(func(h *apitest.Hooks) {
			h.Answers = func(c apitest.Call) time.Duration {
				if c.IsWrite() && strings.HasPrefix(c.Namespace, "team-good-00") {
					return 500 * time.Millisecond
				}
				return 0
			}
		})
		for i := range 5 {
			content := fmt.Sprint(i)
			s.edit("platform", data(content))
			s.within(time.Second, "edit "+content, s.healthy(100, content))
			time.Sleep(time.Minute)
		}
	})(t)
}

// TestC46SourcesTakeTurns: one worker takes twenty seconds for an edit of a source with 1,000 targets. An edit of a
// source with two does not wait for that.
func TestC46SourcesTakeTurns(t *testing.T) {
	t.Parallel()
	small := plantest.Source("platform", "small", prefixes("team-000,team-001"))
	edit := func(o *Options) { o.ConcurrentWrites = 1 }
	inSceneWith(append(teams(1000, "team-"), source(), small), edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.slowDown(20 * time.Millisecond)
		s.edit("platform", data("new"))
		time.Sleep(time.Second)
		s.check(s.update(s.at(plan.KeyOf(small)), data("new")))
		s.within(time.Second, "edit of the small source",
			func() bool { return s.countNamed("small", "team-", "new") == 2 })
		if n := s.countCopies("team-", "new"); n == 1000 {
			t.Error("got the whole fan-out of the large source before, want a part of it")
		}
	})(t)
}

// TestC81SlowForEverybody: where the API server takes a time for each call, a fan-out takes at most one and a half
// times as long as that many plain writers do. The first one may take three times as long with 128 of them.
func TestC81SlowForEverybody(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{600 * time.Millisecond, 2500 * time.Millisecond, 5 * time.Second,
		8500 * time.Millisecond, 10 * time.Second} {
		for _, writes := range []int{8, 32, 128} {
			targets := 20 * min(writes, 32)
			name, edit := fmt.Sprintf("%v, %d writes", takes, writes), func(o *Options) { o.ConcurrentWrites = writes }
			t.Run(name, inSceneWith(teams(targets, "team-"), edit, func(t *testing.T, s scene) {
				s.slowDown(takes)
				ideal := takes * time.Duration(targets) / time.Duration(writes)
				limit := ideal * 3 / 2
				if writes == 128 {
					limit = ideal * 3
				}
				for _, content := range []string{"first", "second"} {
					s.write(source(data(content)))
					s.within(limit, content, func() bool { return s.countCopies("team-", content) == targets })
					limit = ideal * 3 / 2
					time.Sleep(time.Minute)
				}
			}))
		}
	}
}

// TestC81HangBesideSlow: beside namespaces that hang, the second edit of the others takes no longer than alone, where
// each write takes seconds.
func TestC81HangBesideSlow(t *testing.T) {
	t.Parallel()
	const targets, writes = 64, 32
	objects := append(teams(targets, "team-good-"), teams(targets, "team-bad-")...)
	options := func(o *Options) { o.ConcurrentWrites = writes }
	for _, takes := range []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second} {
		t.Run(takes.String(), inSceneWith(objects, options, func(t *testing.T, s scene) {
			s.slowDown(takes)
			edit := func(content string, limit time.Duration) {
				s.write(source(data(content)))
				s.within(limit, content, func() bool { return s.countCopies("team-good-", content) == targets })
				time.Sleep(5 * time.Minute)
			}
			edit("first", time.Hour) // this one learns how long a write takes
			s.hang(func(c apitest.Call) bool { return c.IsWrite() && strings.HasPrefix(c.Namespace, "team-bad-") })
			edit("second", time.Hour) // and this one which namespaces hang
			edit("third", takes*targets/writes*3/2)
			s.hang(on(false))
		}))
	}
}

// TestC81SlowLater: where writes become slow for everybody, the second fan-out after that takes at most one and a half
// times as long as that many plain writers do, although live reads of foreign objects are quick.
func TestC81SlowLater(t *testing.T) {
	t.Parallel()
	const targets, foreign, writes = 320, 20, 32
	for _, takes := range []time.Duration{600 * time.Millisecond, 5 * time.Second, 10 * time.Second} {
		objects := teams(targets+foreign, "team-")
		for i := range foreign {
			objects = append(objects, plantest.ConfigMap(fmt.Sprintf("team-%03d", i), "settings"))
		}
		edit := func(o *Options) { o.ConcurrentWrites = writes }
		t.Run(takes.String(), inSceneWith(objects, edit, func(t *testing.T, s scene) {
			ideal := takes * targets / writes
			for _, step := range []struct {
				content string
				takes   time.Duration // by a write
				limit   time.Duration
			}{
				{"first", quick, time.Minute},
				{"second", takes, 4 * ideal},
				{"third", takes, ideal * 3 / 2},
			} {
				s.delay(func(c apitest.Call) time.Duration {
					if c.IsWrite() {
						return step.takes
					}
					return quick
				})
				s.write(source(data(step.content)))
				s.within(step.limit, step.content, func() bool { return s.countCopies("team-", step.content) == targets })
				time.Sleep(time.Minute)
			}
		}))
	}
}
