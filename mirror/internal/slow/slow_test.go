package slow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/internal/slow"
)

const (
	ms    = time.Millisecond
	limit = 100 * ms // of an ordinary call, where calls are quick
)

var (
	errRefused = errors.New("refused")
	errBroken  = errors.New("the connection was reset")
	settings   = types.NamespacedName{Namespace: "team-a", Name: "settings"}
)

// isAnswer reports whether the error of a call, or nil, is an answer of the API server.
func isAnswer(err error) bool { return !errors.Is(err, errBroken) && !errors.Is(err, slow.ErrCut) }

// calls is a queue, and calls that it may cut. The UID of a namespace is its name.
type calls struct{ *slow.Queue }

// run runs a test in virtual time, and checks that no call and no namespace is left.
func run(t *testing.T, f func(*testing.T, calls)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := calls{slow.NewQueue("test", isAnswer)}
		defer q.ShutDown()
		f(t, q)
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, uid := range []types.UID{"a", "b", "c"} {
			q.Forget(uid)
		}
		if namespaces, calls := q.Known(); namespaces+calls > 0 {
			t.Errorf("at the end: got %d slow namespaces and %d calls", namespaces, calls)
		}
	})
}

// inVirtualTime returns a subtest, which run runs.
func inVirtualTime(f func(*testing.T, calls)) func(*testing.T) {
	return func(t *testing.T) { run(t, f) }
}

// takes returns a call that takes a time, unless it is cut before.
func takes(d time.Duration, result error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return result
		}
	}
}

// write makes a call that takes a time, and returns how long it took.
func (q calls) write(uid types.UID, pace slow.Pace, d time.Duration, result error) (took time.Duration, err error) {
	began := time.Now()
	err = q.Write(context.Background(), uid, pace, takes(d, result))
	return time.Since(began), err
}

// hang makes a call that hangs, and returns after which time it was cut; 0: it was not.
func (q calls) hang(uid types.UID, pace slow.Pace) time.Duration {
	if took, err := q.write(uid, pace, 10*time.Minute, errRefused); errors.Is(err, slow.ErrCut) {
		return took
	}
	return 0
}

// averages makes so many calls that ordinary calls take about d on average.
func (q calls) averages(d time.Duration) {
	for range 100 {
		_, _ = q.write("average", slow.Ordinary, d, nil)
	}
}

// slowAfterOrdinary makes an ordinary write and, after it, one in a slow namespace
// that takes a time.
func (q calls) slowAfterOrdinary(d time.Duration) {
	_, _ = q.write("c", slow.Ordinary, ms, nil)
	time.Sleep(ms)
	_, _ = q.write("b", slow.Whole, d, nil)
}

// cuts makes a quick write in each of n namespaces, and then one that is cut.
func (q calls) cuts(n int) {
	for i := range n {
		_, _ = q.write(types.UID(fmt.Sprint(i)), slow.Ordinary, ms, nil)
	}
	for i := range n {
		q.hang(types.UID(fmt.Sprint(i)), slow.Ordinary)
	}
}

// isSlow reports whether a target waits for a turn of the namespace.
func (q calls) isSlow(uid types.UID) bool { return q.Put(uid, settings, nil) }

// turn takes the turn of a namespace, and makes calls there that are refused after these times. It returns the targets
// that go back.
func (q calls) turn(pace slow.Pace, took ...time.Duration) (back []types.NamespacedName) {
	uid, _ := q.Get()
	defer q.Done(uid)
	if _, ok := q.Next(uid); ok {
		for _, d := range took {
			_, _ = q.write(uid, pace, d, errRefused)
		}
	}
	return q.EndTurn(uid)
}

// TestOrdinaryCallIsCut after eight times the average, at least 100 ms, if the API server has answered another ordinary
// call in that time; else after twice that.
func TestOrdinaryCallIsCut(t *testing.T) {
	type call = func(*slow.Queue, context.Context, types.UID, slow.Pace, func(context.Context) error) error
	read, write := (*slow.Queue).Read, (*slow.Queue).Write
	broken := func(q *slow.Queue, ctx context.Context, uid types.UID, pace slow.Pace,
		_ func(context.Context) error) error {
		return q.Write(ctx, uid, pace, takes(10*ms, errBroken))
	}
	for name, tc := range map[string]struct {
		average time.Duration
		other   call          // takes 10 ms
		pace    slow.Pace     // of the other
		ends    time.Duration // the other, after the call began
		want    time.Duration
	}{
		"another is answered":               {0, write, slow.Ordinary, 5 * ms, limit}, // it began before
		"a read is answered":                {0, read, slow.Ordinary, 70 * ms, limit},
		"another is answered later":         {0, write, slow.Ordinary, 120 * ms, 2 * limit},
		"another was answered before":       {0, write, slow.Ordinary, -20 * ms, 2 * limit},
		"one in a slow namespace is":        {0, write, slow.Whole, 70 * ms, 2 * limit},
		"the connection of another breaks":  {0, broken, slow.Ordinary, 20 * ms, 2 * limit},
		"calls take long, one is answered":  {50 * ms, write, slow.Ordinary, 220 * ms, 400 * ms},
		"calls take long, none is answered": {50 * ms, write, slow.Ordinary, -20 * ms, 800 * ms},
		"calls are quick":                   {10 * ms, write, slow.Ordinary, -20 * ms, 2 * limit},
	} {
		for kind, call := range map[string]call{"read": read, "write": write} {
			t.Run(name+"/"+kind, inVirtualTime(func(t *testing.T, q calls) {
				q.averages(tc.average)
				go func() {
					time.Sleep(40*ms + tc.ends)
					_ = tc.other(q.Queue, t.Context(), "b", tc.pace, takes(10*ms, errRefused))
				}()
				time.Sleep(50 * ms)
				began := time.Now()
				err := call(q.Queue, t.Context(), "a", slow.Ordinary, takes(time.Minute, nil))
				if took := time.Since(began).Round(ms); took != tc.want || !errors.Is(err, slow.ErrCut) {
					t.Errorf("got %v after %v, want a cut after %v", err, took, tc.want)
				}
			}))
		}
	}
}

// TestAverage is the table of the calls from which the queue learns how long ordinary calls take.
func TestAverage(t *testing.T) {
	for name, tc := range map[string]struct {
		call func(calls)
		want time.Duration // the limit after a hundred of them
	}{
		"ordinary writes": {func(q calls) { _, _ = q.write("b", slow.Ordinary, 50*ms, nil) }, 400 * ms},
		"reads": {func(q calls) {
			_ = q.Read(context.Background(), "b", slow.Ordinary, takes(50*ms, nil))
		}, limit},
		"writes that fail": {func(q calls) { _, _ = q.write("b", slow.Ordinary, 50*ms, errRefused) }, limit},
		"slow writes, while no ordinary call is answered": {func(q calls) {
			_, _ = q.write("b", slow.Whole, 500*ms, nil)
		}, 4 * time.Second},
		"slow writes beside an ordinary call": {func(q calls) {
			time.AfterFunc(10*ms, func() { _, _ = q.write("c", slow.Ordinary, ms, nil) })
			_, _ = q.write("b", slow.Whole, 300*ms, nil) // not beyond the bound
		}, limit},
		"slow writes after an ordinary call": {func(q calls) { q.slowAfterOrdinary(5 * time.Second) }, limit},
		"writes of more than four limits":    {func(q calls) { q.slowAfterOrdinary(410 * ms) }, limit},
		"writes of less than four limits":    {func(q calls) { q.slowAfterOrdinary(390 * ms) }, 1740 * ms},
		"slow writes after one, and many that were quick are cut": {func(q calls) {
			q.cuts(32)
			_ = q.Read(context.Background(), "c", slow.Ordinary, takes(ms, nil)) // does not count
			_, _ = q.write("b", slow.Whole, 500*ms, nil)
		}, 810 * ms},
		"slow writes after one, and fewer are cut": {func(q calls) {
			q.cuts(31)
			_, _ = q.write("b", slow.Whole, 500*ms, nil)
		}, limit},
		"slow writes after many were cut, and one answered": {func(q calls) {
			q.cuts(32)
			q.slowAfterOrdinary(500 * ms)
		}, limit},
		"slow writes, while reads are answered": {func(q calls) {
			time.AfterFunc(10*ms, func() { _ = q.Read(context.Background(), "c", slow.Ordinary, takes(ms, nil)) })
			_, _ = q.write("b", slow.Whole, 500*ms, nil)
		}, 4 * time.Second},
		"slow writes of two seconds": {func(q calls) { _, _ = q.write("b", slow.Whole, 2*time.Second, nil) },
			8 * time.Second},
		"slow writes of ten seconds": {func(q calls) { _, _ = q.write("b", slow.Whole, 10*time.Second, nil) },
			20 * time.Second},
		"writes in a namespace that is deleted meanwhile": {func(q calls) {
			_, _ = q.write("c", slow.Ordinary, 50*ms, nil)
			time.Sleep(ms)
			time.AfterFunc(10*ms, func() { q.Forget("b") })
			_ = q.Write(context.Background(), "b", slow.Whole, func(context.Context) error {
				time.Sleep(50 * ms)
				return nil
			})
		}, 400 * ms},
	} {
		t.Run(name, inVirtualTime(func(t *testing.T, q calls) {
			for range 100 {
				tc.call(q)
			}
			if got := q.hang("a", slow.Ordinary) / 2; got.Round(10*ms) != tc.want {
				t.Errorf("got a limit of %v, want %v", got, tc.want)
			}
		}))
	}
}

// TestSecondChance: where the last write was quick, a namespace is slow after two ordinary writes in a row that took
// too long, if another ordinary call was answered between, or after ten seconds. Elsewhere it is slow after one.
func TestSecondChance(t *testing.T) {
	type steps = []func(calls)
	hangs := func(q calls) { q.hang("a", slow.Ordinary) }
	quick := func(q calls) { _, _ = q.write("a", slow.Ordinary, ms, nil) }
	refused := func(q calls) { _, _ = q.write("a", slow.Ordinary, limit, errRefused) }
	inTime := func(q calls) { _, _ = q.write("a", slow.Ordinary, limit-1, errRefused) }
	succeeds := func(q calls) { _, _ = q.write("a", slow.Ordinary, 2*limit-1, nil) } // the API server may be slow
	broken := func(q calls) { _, _ = q.write("a", slow.Ordinary, ms, errBroken) }
	other := func(q calls) { _, _ = q.write("b", slow.Ordinary, ms, nil) }
	passes := func(d time.Duration) func(calls) { return func(calls) { time.Sleep(d) } }
	// otherAfter has another one answered a time after the call that hangs begins.
	otherAfter := func(d time.Duration) func(calls) {
		return func(q calls) {
			time.AfterFunc(d-ms, func() { other(q) })
			hangs(q)
		}
	}
	slower := func(q calls) { // the limit is 144 ms when the call that hangs is cut
		go func() { _, _ = q.write("b", slow.Ordinary, 90*ms, nil) }()
		hangs(q)
	}
	othersQuick := func(q calls) {
		for i := range 11 {
			_, _ = q.write(types.UID(fmt.Sprint(i)), slow.Ordinary, ms, nil)
		}
	}
	othersCut := func(q calls) { // one each second
		for i := range 11 {
			time.Sleep(time.Second - 2*limit)
			q.hang(types.UID(fmt.Sprint(i)), slow.Ordinary)
		}
	}
	lateInATurn := func(q calls) {
		other(q)
		time.Sleep(ms)
		_, _ = q.write("a", slow.Whole, 5*time.Second, nil)
		q.Put("a", settings, nil)
		q.turn(slow.Whole, ms)
	}
	atOnce := func(q calls) { // others are answered all the time, also between the two cuts
		for i := range 15 {
			if i < 2 {
				go hangs(q)
			}
			time.Sleep(10 * ms)
			other(q)
		}
	}
	otherMeanwhile := otherAfter(limit / 2)
	written := func(q calls) { q.Written("a") }
	forget := func(q calls) { q.Forget("a") }
	for name, tc := range map[string]struct {
		steps steps
		want  bool // after a cut, a target waits for a turn of the namespace
	}{
		"the first call":              {steps{hangs}, true},
		"the first is refused late":   {steps{refused}, true},
		"it succeeds late":            {steps{succeeds}, false},
		"one":                         {steps{quick, hangs}, false},
		"two":                         {steps{quick, hangs, other, hangs}, true},
		"two, and no answer between":  {steps{quick, hangs, hangs, hangs}, false},
		"a stall ends in the second":  {steps{quick, hangs, otherMeanwhile}, false},
		"a stall ends before it":      {steps{quick, hangs, other, otherMeanwhile}, true},
		"another stall":               {steps{quick, hangs, other, passes(2 * limit), otherMeanwhile}, true},
		"among answers":               {steps{quick, otherAfter(limit - 10*ms), otherAfter(10 * ms)}, true},
		"no answer for 9 s":           {steps{quick, hangs, passes(9 * time.Second), hangs}, false},
		"no answer for 10 s":          {steps{quick, hangs, passes(10 * time.Second), hangs}, true},
		"others are cut meanwhile":    {steps{othersQuick, quick, hangs, othersCut, hangs}, true},
		"two at once":                 {steps{quick, atOnce}, false},
		"two at once, one after them": {steps{quick, atOnce, other, hangs}, true},
		"one refused late, one cut":   {steps{quick, refused, other, hangs}, true},
		"one refused in time":         {steps{quick, inTime, other, inTime}, false},
		"a quick one between":         {steps{quick, hangs, quick, hangs}, false},
		"the watch shows the first":   {steps{quick, hangs, written, other, hangs}, false},
		"the first in another":        {steps{quick, func(q calls) { q.hang("b", slow.Ordinary) }, hangs}, false},
		"quick calls in another":      {steps{func(q calls) { q.averages(ms) }, hangs}, true},
		"the connection broke before": {steps{broken, hangs}, true},
		"calls become slower":         {steps{slower}, true},
		"after a late one in a turn":  {steps{lateInATurn, hangs}, true},
		"after one in a turn":         {steps{quick, func(q calls) { q.hang("a", slow.Growing) }, hangs}, true},
		"after a quick one in a turn": {steps{func(q calls) { _, _ = q.write("a", slow.Whole, ms, nil) }, hangs}, false},
		"the namespace is a new one":  {steps{quick, forget, hangs}, true},
	} {
		t.Run(name, inVirtualTime(func(t *testing.T, q calls) {
			for _, call := range tc.steps {
				call(q)
				time.Sleep(ms)
			}
			if got := q.Put("a", settings, slow.ErrCut); got != tc.want || q.isSlow("a") != tc.want {
				t.Errorf("got a wait for a turn %v, want %v", got, tc.want)
			}
		}))
	}
	t.Run("a read", inVirtualTime(func(t *testing.T, q calls) {
		quick(q)
		_ = q.Read(context.Background(), "a", slow.Ordinary, takes(time.Minute, nil))
		if !q.Put("a", settings, slow.ErrReadCut) {
			t.Error("got a second chance for a read")
		}
	}))
	t.Run("calls that overlap are not forgiven for ever", inVirtualTime(func(t *testing.T, q calls) {
		quick(q)
		for range 100 {
			go hangs(q)
			time.Sleep(10 * ms)
			other(q)
		}
		if !q.isSlow("a") {
			t.Error("got a quick namespace, where calls hang all the time")
		}
	}))
}

// TestWrittenEndsSlowness: the watch shows a write that was cut, at once or later.
func TestWrittenEndsSlowness(t *testing.T) {
	for after, want := range map[time.Duration]bool{0: true, time.Second: true, time.Second + ms: false} {
		t.Run("after "+after.String(), inVirtualTime(func(t *testing.T, q calls) {
			q.hang("a", slow.Ordinary)
			q.Put("a", settings, slow.ErrCut)
			time.Sleep(after)
			back := q.Written("a")
			if got := len(back) == 1 && back[0] == settings; got != want || q.isSlow("a") == want {
				t.Errorf("got %v back, and slow %v, want the target back: %v", back, q.isSlow("a"), want)
			}
			q.Written("b")
		}))
	}
}

// TestWhatEndsSlowness is the table of what has the targets of a slow namespace go back to the ordinary workers.
func TestWhatEndsSlowness(t *testing.T) {
	for name, tc := range map[string]struct {
		does  func(calls)
		waits bool // the target that waits
	}{
		"nothing":                            {func(calls) {}, true},
		"an ordinary call answered in time":  {func(q calls) { _, _ = q.write("a", slow.Ordinary, ms, nil) }, true},
		"ordinary calls take as long":        {func(q calls) { q.averages(51 * ms) }, false},
		"ordinary calls take nearly as long": {func(q calls) { q.averages(49 * ms) }, true},
		"the namespace is deleted":           {func(q calls) { q.Forget("a") }, false},
		"another namespace is deleted":       {func(q calls) { q.Forget("b") }, true},
	} {
		t.Run(name, inVirtualTime(func(t *testing.T, q calls) {
			q.hang("a", slow.Ordinary)
			q.Put("a", settings, nil)
			tc.does(q)
			if got := q.isSlow("a"); got != tc.waits {
				t.Errorf("got slow %v, want %v", got, tc.waits)
			}
			uid, _ := q.Get()
			if k, ok := q.Next(uid); ok != tc.waits || ok && k != settings {
				t.Errorf("got the turn of %v, %v, want one %v", k, ok, tc.waits)
			}
			q.EndTurn(uid) // also of a namespace that is gone
		}))
	}
	t.Run("its write is shown, and it is slow anew", inVirtualTime(func(t *testing.T, q calls) {
		q.hang("a", slow.Ordinary)
		q.Put("a", settings, slow.ErrCut)
		q.Written("a")
		for range 2 {
			q.hang("a", slow.Ordinary)
			_, _ = q.write("b", slow.Ordinary, ms, nil)
		}
		uid, _ := q.Get() // its former place
		if k, ok := q.Next(uid); ok {
			t.Errorf("got the turn of %v, want none: no target waits", k)
		}
		if !q.isSlow("a") {
			t.Error("got it quick")
		}
	}))
	t.Run("a call answered in time, and no target waits", inVirtualTime(func(t *testing.T, q calls) {
		q.hang("a", slow.Ordinary)
		if _, _ = q.write("a", slow.Ordinary, ms, nil); q.isSlow("a") {
			t.Error("got a namespace slow")
		}
	}))
}

// TestShortTurnsHavePrecedence: a namespace that hangs waits behind one that became slow later, and answers in eight
// seconds.
func TestShortTurnsHavePrecedence(t *testing.T) {
	for took, want := range map[time.Duration]types.UID{8*time.Second - 1: "a", 8 * time.Second: "b"} {
		t.Run("a took "+took.String(), inVirtualTime(func(t *testing.T, q calls) {
			for _, uid := range []types.UID{"a", "b"} {
				q.hang(uid, slow.Ordinary)
				q.Put(uid, settings, slow.ErrCut)
				if uid == "a" {
					q.Put(uid, types.NamespacedName{Namespace: "team-a", Name: "other"}, nil)
					q.turn(slow.Whole, took)
				}
			}
			if uid, _ := q.Get(); uid != want {
				t.Errorf("got the turn of %s, want that of %s", uid, want)
			}
			if n := q.Len(); n != 1 {
				t.Errorf("got %d namespaces behind it, want the other one", n)
			}
		}))
	}
}

// TestTurnDecides: the last call of a turn decides whether the namespace stays slow. If not, its targets go back.
func TestTurnDecides(t *testing.T) {
	for name, tc := range map[string]struct {
		took []time.Duration
		back bool
	}{
		"no call":          {nil, false},
		"quick":            {[]time.Duration{ms}, true},
		"slow":             {[]time.Duration{limit}, false},
		"quick, then slow": {[]time.Duration{ms, limit}, false},
		"slow, then quick": {[]time.Duration{limit, ms}, true},
	} {
		for kind, pace := range map[string]slow.Pace{"growing": slow.Growing, "whole": slow.Whole} {
			t.Run(name+"/"+kind, inVirtualTime(func(t *testing.T, q calls) {
				q.hang("a", slow.Ordinary)
				other := types.NamespacedName{Namespace: "team-a", Name: "other"}
				q.Put("a", settings, nil)
				q.Put("a", other, nil)
				back := q.turn(pace, tc.took...)
				namespaces, _ := q.Known()
				if (len(back) == 1 && back[0] == other) != tc.back || (namespaces == 0) != tc.back || q.isSlow("a") == tc.back {
					t.Errorf("got %v back, and %d slow namespaces, want the other target back: %v", back, namespaces, tc.back)
				}
			}))
		}
	}
	t.Run("slow, and its only target", inVirtualTime(func(t *testing.T, q calls) {
		q.hang("a", slow.Ordinary)
		q.Put("a", settings, nil)
		if back := q.turn(slow.Whole, limit); len(back) > 0 || !q.isSlow("a") {
			t.Errorf("got %v back, and slow %v, want it slow", back, q.isSlow("a"))
		}
	}))
	t.Run("ordinary calls take as long", inVirtualTime(func(t *testing.T, q calls) {
		q.hang("a", slow.Ordinary)
		q.Put("a", settings, nil)
		q.averages(101 * ms)
		if back := q.turn(slow.Whole, time.Minute); len(back) != 1 || back[0] != settings {
			t.Errorf("got %v back, want the target", back)
		}
	}))
}

// TestTurnsGoByNamespace, one target at a turn. A target waits once.
func TestTurnsGoByNamespace(t *testing.T) {
	run(t, func(t *testing.T, q calls) {
		for _, uid := range []types.UID{"a", "b"} {
			q.hang(uid, slow.Ordinary)
		}
		for _, k := range []string{"a1", "a2", "a1", "b1", "a3", "b2"} {
			q.Put(types.UID(k[:1]), types.NamespacedName{Name: k}, nil)
		}
		var got []string
		for q.Len() > 0 {
			uid, _ := q.Get()
			k, _ := q.Next(uid)
			got = append(got, k.Name)
			if waiting := q.Len(); k.Name == "b1" { // an event during the work
				q.Put(uid, types.NamespacedName{Name: "b3"}, nil)
				if q.Len() != waiting {
					t.Error("got a namespace in work twice")
				}
			}
			q.EndTurn(uid)
			q.Done(uid)
		}
		if want := "a1 b1 a2 b2 a3 b3"; strings.Join(got, " ") != want {
			t.Errorf("got turns of %v, want %v", got, want)
		}
	})
}

// TestPaces: a growing call has four times what the last one in the namespace took, and a whole one is not cut. An
// ordinary one, of a worker that began before the namespace was slow, has no more time than elsewhere.
func TestPaces(t *testing.T) {
	run(t, func(t *testing.T, q calls) {
		got := []time.Duration{q.hang("a", slow.Ordinary), q.hang("a", slow.Growing), q.hang("a", slow.Growing),
			q.hang("a", slow.Whole), q.hang("a", slow.Growing)}
		_, _ = q.write("a", slow.Whole, 3*limit, errRefused)
		got = append(got, q.hang("a", slow.Growing), q.hang("a", slow.Ordinary))
		want := []time.Duration{2 * limit, 4 * limit, 16 * limit, 0, 0, 12 * limit, 2 * limit}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got cuts after %v, want %v", got, want)
		}
	})
}

// TestReadMakesNoNamespaceSlow: only its own target waits for a turn. In a turn a read has all its time.
func TestReadMakesNoNamespaceSlow(t *testing.T) {
	run(t, func(t *testing.T, q calls) {
		err := q.Read(t.Context(), "a", slow.Ordinary, takes(time.Minute, nil))
		if !errors.Is(err, slow.ErrReadCut) || q.isSlow("a") {
			t.Errorf("got %v and a namespace that is slow %v, want a cut alone", err, q.isSlow("a"))
		}
		other := types.NamespacedName{Namespace: "team-a", Name: "other"}
		if !q.Put("a", settings, slow.ErrReadCut) || !q.Put("a", other, slow.ErrReadCut) {
			t.Fatal("got no wait for a turn after a cut")
		}
		for _, want := range []types.NamespacedName{settings, other} { // each has a turn
			uid, _ := q.Get()
			k, ok := q.Next(uid)
			if err := q.Read(t.Context(), uid, slow.Growing, takes(time.Minute, nil)); k != want || !ok || err != nil {
				t.Errorf("got the turn of %v, %v, and %v", k, ok, err)
			}
			err := q.Read(t.Context(), uid, slow.Growing, takes(ms, errRefused))
			if !errors.Is(err, errRefused) {
				t.Errorf("got %v of a read that is refused", err)
			}
			if back := q.EndTurn(uid); len(back) > 0 {
				t.Errorf("got %v back before its turn", back)
			}
			q.Done(uid)
		}
		if namespaces, _ := q.Known(); namespaces > 0 {
			t.Errorf("got %d slow namespaces left after the turn", namespaces)
		}
	})
}

// TestForgetCutsCalls that are in flight in the deleted namespace, and learns nothing from them.
func TestForgetCutsCalls(t *testing.T) {
	run(t, func(t *testing.T, q calls) {
		began, cut := time.Now(), make(chan time.Duration, 3)
		time.AfterFunc(time.Second, func() { q.Forget("a") })
		go func() { cut <- q.hang("a", slow.Whole) }()
		go func() {
			_ = q.Read(t.Context(), "a", slow.Growing, takes(time.Minute, nil))
			cut <- time.Since(began)
		}()
		go func() {
			_ = q.Write(t.Context(), "b", slow.Whole, takes(2*time.Second, nil))
			cut <- time.Since(began)
		}()
		if a, b, other := <-cut, <-cut, <-cut; a != time.Second || b != time.Second || other != 2*time.Second {
			t.Errorf("got ends after %v, %v and %v, want two after a second, the other after two", a, b, other)
		}
		if namespaces, _ := q.Known(); namespaces > 0 {
			t.Errorf("got %d slow namespaces, want none", namespaces)
		}
	})
}

// TestSuccessAndStopAreNoCut: a call that was cut may have succeeded, and a stopping process cuts none.
func TestSuccessAndStopAreNoCut(t *testing.T) {
	run(t, func(t *testing.T, q calls) {
		err := q.Write(t.Context(), "a", slow.Ordinary, func(ctx context.Context) error { <-ctx.Done(); return nil })
		if err != nil {
			t.Errorf("a call that succeeded: got %v", err)
		}
		ctx, stop := context.WithTimeout(t.Context(), ms)
		defer stop()
		if err := q.Write(ctx, "b", slow.Ordinary, takes(time.Minute, nil)); !errors.Is(err, ctx.Err()) {
			t.Errorf("a call that was stopped: got %v, want %v", err, ctx.Err())
		}
		q.ShutDown()
		for _, pace := range []slow.Pace{slow.Ordinary, slow.Growing} {
			if cut := q.hang("a", pace); cut > 0 {
				t.Errorf("at pace %d: got a call cut after %v by a process that stops", pace, cut)
			}
		}
	})
}
