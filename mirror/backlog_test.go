package mirror

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/util/workqueue"
)

// numbered returns prefix-000, prefix-001 and so on.
func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%03d", prefix, i)
	}
	return out
}

// listing returns a function that lists these targets and one that says how often it did.
func listing(targets ...string) (list func() []string, calls *int) {
	calls = new(int)
	return func() []string { *calls++; return slices.Clone(targets) }, calls
}

func noList() []string { return nil }

func namespacesOf(jobs []job) []string {
	out := make([]string, 0, len(jobs))
	for _, j := range jobs {
		out = append(out, j.namespace)
	}
	return out
}

func wantJobs(t *testing.T, what string, jobs []job, want ...string) {
	t.Helper()
	if got := namespacesOf(jobs); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func finish(b *backlog, name string, jobs []job) {
	for _, j := range jobs {
		b.done(name, j.namespace)
	}
}

func wantEmpty(t *testing.T, b *backlog) {
	t.Helper()
	if len(b.names) > 0 {
		t.Errorf("got entries for %d names left over, want none: %+v", len(b.names), b.names["s"])
	}
}

func TestBacklogMarkedInTheOrderOfEvents(t *testing.T) {
	b := newBacklog()
	for _, ns := range []string{"c", "a", "d", "b"} {
		b.mark("s", ns, mark{})
	}
	jobs, more := b.take("s", 3, noList)
	wantJobs(t, "first slice", jobs, "c", "a", "d")
	if !more {
		t.Error("got nothing more after a full slice with one left, want more")
	}
	rest, more := b.take("s", 3, noList)
	wantJobs(t, "second slice", rest, "b")
	if more {
		t.Error("got more after the last one, want nothing more")
	}
	finish(b, "s", append(jobs, rest...))
	wantEmpty(t, b)
}

func TestBacklogMarkedBeforeTheRound(t *testing.T) {
	b := newBacklog()
	list, calls := listing("c", "a", "b")
	b.markAll("s")
	b.mark("s", "z", mark{})
	jobs, more := b.take("s", 10, list)
	wantJobs(t, "jobs", jobs, "z", "a", "b", "c")
	if more || *calls != 1 {
		t.Errorf("got more %v and %d listings, want false and 1", more, *calls)
	}
	finish(b, "s", jobs)
	wantEmpty(t, b)
}

func TestBacklogMarkedDuringARoundGoesAhead(t *testing.T) {
	b := newBacklog()
	list, calls := listing(numbered("r", 20)...)
	b.markAll("s")
	first, more := b.take("s", 8, list)
	wantJobs(t, "first slice", first, numbered("r", 20)[:8]...)
	if !more {
		t.Error("got nothing more in the middle of a round, want more")
	}
	b.mark("s", "z", mark{})
	b.mark("s", "r-019", mark{})
	second, _ := b.take("s", 8, list)
	wantJobs(t, "C32 second slice", second, append([]string{"z", "r-019"}, numbered("r", 20)[8:14]...)...)
	third, more := b.take("s", 8, list)
	// r-019 is busy when the round comes to it: what changed since it was taken is looked at afterwards.
	wantJobs(t, "third slice", third, numbered("r", 20)[14:19]...)
	if more || *calls != 1 {
		t.Errorf("got more %v and %d listings, want false and 1", more, *calls)
	}
	if due, _ := b.done("s", "r-019"); !due {
		t.Error("got r-019 not due after the round came to it while it was busy, want it due")
	}
	fourth, _ := b.take("s", 8, list)
	wantJobs(t, "fourth slice", fourth, "r-019")
	for _, jobs := range [][]job{first, second, third, fourth} {
		finish(b, "s", jobs)
	}
	wantEmpty(t, b)
}

func TestBacklogOneJobForManyMarks(t *testing.T) {
	b := newBacklog()
	list, calls := listing("a", "b")
	for range 3 {
		b.mark("s", "a", mark{})
		b.markAll("s")
		b.mark("s", "x", mark{})
	}
	jobs, more := b.take("s", 10, list)
	// a is marked and in the round: taken for the mark, it is busy when the round comes to it.
	wantJobs(t, "C38 jobs", jobs, "a", "x", "b")
	if more || *calls != 1 {
		t.Errorf("got more %v and %d listings, want false and 1", more, *calls)
	}
	finish(b, "s", jobs)
	again, _ := b.take("s", 10, list)
	if len(again) > 1 {
		t.Errorf("got %q afterwards, want a at most", namespacesOf(again))
	}
	finish(b, "s", again)
	wantEmpty(t, b)
}

func TestBacklogKeepsNamesApart(t *testing.T) {
	b := newBacklog()
	b.mark("one", "a", mark{})
	b.mark("two", "a", mark{vanished: true})
	b.mark("two", "b", mark{})
	one, _ := b.take("one", 10, noList)
	wantJobs(t, "one", one, "a")
	if one[0].vanished {
		t.Error("got the mark of another name")
	}
	two, _ := b.take("two", 10, noList)
	wantJobs(t, "two, while a of one is busy", two, "a", "b")
	if due, idle := b.done("one", "a"); due || !idle {
		t.Errorf("one: got due %v, idle %v, want false, true", due, idle)
	}
	if due, idle := b.done("two", "a"); due || idle {
		t.Errorf("two: got due %v, idle %v, want false, false", due, idle)
	}
	b.done("two", "b")
	wantEmpty(t, b)
}

func TestBacklogOfAnUnknownName(t *testing.T) {
	b := newBacklog()
	list, calls := listing("a")
	if jobs, more := b.take("s", 10, list); len(jobs) > 0 || more || *calls != 0 {
		t.Errorf("got %v, more %v, %d listings, want nothing", jobs, more, *calls)
	}
	if due, idle := b.done("s", "a"); due || !idle {
		t.Errorf("got due %v, idle %v, want false, true", due, idle)
	}
	wantEmpty(t, b)
}

func TestBacklogBusyTargetsAreNotHandedOutTwice(t *testing.T) {
	b := newBacklog()
	b.mark("s", "a", mark{})
	first, _ := b.take("s", 10, noList)
	wantJobs(t, "first", first, "a")

	b.mark("s", "a", mark{})
	b.mark("s", "b", mark{})
	second, more := b.take("s", 10, noList)
	wantJobs(t, "while a is busy", second, "b")
	if more {
		t.Error("got more while the only one left is busy, want nothing more at once")
	}
	if due, idle := b.done("s", "b"); due || idle {
		t.Errorf("b done: got due %v, idle %v, want false, false", due, idle)
	}
	if due, idle := b.done("s", "a"); !due || idle {
		t.Errorf("a done: got due %v, idle %v, want true, false", due, idle)
	}
	third, _ := b.take("s", 10, noList)
	wantJobs(t, "after a was done", third, "a")
	if due, idle := b.done("s", "a"); due || !idle {
		t.Errorf("a done again: got due %v, idle %v, want false, true", due, idle)
	}
	wantEmpty(t, b)
}

func TestBacklogBusyTargetsInARound(t *testing.T) {
	b := newBacklog()
	b.mark("s", "b", mark{})
	busy, _ := b.take("s", 10, noList)
	wantJobs(t, "before the round", busy, "b")
	list, _ := listing("a", "b", "c")
	b.markAll("s")
	round, more := b.take("s", 10, list)
	wantJobs(t, "the round", round, "a", "c")
	if more {
		t.Error("got more while the only one left is busy, want nothing more at once")
	}
	if kept := b.names["s"].targets; kept != nil {
		t.Errorf("got %q kept of a round that is over, want nothing", kept)
	}
	if due, _ := b.done("s", "b"); !due {
		t.Error("got b not due after the round passed it over, want it due")
	}
	again, _ := b.take("s", 10, list)
	wantJobs(t, "after b was done", again, "b")
	finish(b, "s", append(round, again...))
	wantEmpty(t, b)
}

// TestBacklogRoundPassesOverWhatIsMarked: a target that the round comes to before its mark is taken keeps the mark, and
// is handed out once.
func TestBacklogRoundPassesOverWhatIsMarked(t *testing.T) {
	b := newBacklog()
	list, _ := listing("a", "b", "c", "d", "e")
	for _, namespace := range []string{"e", "d", "c", "a"} {
		b.mark("s", namespace, mark{vanished: true})
	}
	b.markAll("s")
	first, _ := b.take("s", 4, list)
	wantJobs(t, "three marked, and one of the round", first, "e", "d", "c", "b")
	finish(b, "s", first)
	second, _ := b.take("s", 4, list)
	wantJobs(t, "the one that is still marked, and the round", second, "a", "c", "d", "e")
	if !second[0].vanished || second[0].round {
		t.Errorf("got %+v, want the target with its mark", second[0])
	}
	finish(b, "s", second)
	wantEmpty(t, b)
}

// TestBacklogBusyInARound: what a round meets while it is busy is due as a part of the round, until something happens there.
func TestBacklogBusyInARound(t *testing.T) {
	for _, happens := range []bool{false, true} {
		b := newBacklog()
		list, _ := listing("a")
		b.markAll("s")
		first, _ := b.take("s", 4, list)
		b.markAll("s")
		none, _ := b.take("s", 4, list)
		wantJobs(t, "a is busy", none)
		if happens {
			b.mark("s", "a", mark{})
		}
		finish(b, "s", first)
		again, _ := b.take("s", 4, list)
		wantJobs(t, "a is due again", again, "a")
		if !first[0].round || again[0].round == happens {
			t.Errorf("something happened: %v, and got %+v, then %+v", happens, first[0], again[0])
		}
		finish(b, "s", again)
		wantEmpty(t, b)
	}
}

// TestBacklogOpen: a name is not idle while somebody is about to take of it, also if another ends its last target meanwhile.
func TestBacklogOpen(t *testing.T) {
	b := newBacklog()
	b.mark("s", "a", mark{})
	jobs, _ := b.take("s", 4, noList)
	b.open("s")
	if _, idle := b.done("s", jobs[0].namespace); idle || b.idle("s") {
		t.Error("got an idle name while somebody is about to take")
	}
	none, _ := b.take("s", 4, noList)
	wantJobs(t, "nothing is due", none)
	if !b.idle("s") {
		t.Error("got a name that is not idle, and nothing is due")
	}
	wantEmpty(t, b)
}

func TestBacklogRoundInSlices(t *testing.T) {
	b := newBacklog()
	list, calls := listing("e", "c", "a", "d", "b")
	b.markAll("s")
	for i, want := range []struct {
		jobs []string
		more bool
	}{{[]string{"a", "b"}, true}, {[]string{"c", "d"}, true}, {[]string{"e"}, false}, {nil, false}} {
		jobs, more := b.take("s", 2, list)
		wantJobs(t, fmt.Sprintf("slice %d", i), jobs, want.jobs...)
		if more != want.more {
			t.Errorf("slice %d: got more %v, want %v", i, more, want.more)
		}
		if i < 2 {
			for _, j := range jobs {
				if due, idle := b.done("s", j.namespace); due || idle {
					t.Errorf("slice %d: got due %v, idle %v in the middle of a round, want false, false", i, due, idle)
				}
			}
		} else {
			finish(b, "s", jobs)
		}
	}
	if *calls != 1 {
		t.Errorf("got %d listings, want 1", *calls)
	}
	wantEmpty(t, b)
}

func TestBacklogRoundOfNothing(t *testing.T) {
	b := newBacklog()
	b.markAll("s")
	if jobs, more := b.take("s", 10, noList); len(jobs) > 0 || more {
		t.Errorf("got %v, more %v, want nothing", jobs, more)
	}
	wantEmpty(t, b)
}

// TestBacklogRoundStartedAnewGoesOn starts the round anew before each slice, as a source does that changes all
// the time: every target is reached all the same, and not later than in two rounds.
func TestBacklogRoundStartedAnewGoesOn(t *testing.T) {
	for name, tc := range map[string]struct{ targets, limit, inFlight int }{
		"C38 slices of 64":            {1000, 64, 0},
		"C38 writes in flight":        {1000, 64, 200},
		"small slices":                {50, 4, 0},
		"a slice for all":             {10, 64, 0},
		"one target":                  {1, 64, 0},
		"all but one in a slice":      {65, 64, 0},
		"slices that fit the targets": {128, 64, 64},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBacklog()
			list, _ := listing(numbered("r", tc.targets)...)
			reached := map[string]bool{}
			var flying []string
			takes := 0
			for limit := 2*tc.targets/tc.limit + 2; len(reached) < tc.targets && takes < limit; takes++ {
				b.markAll("s")
				jobs, _ := b.take("s", tc.limit, list)
				if len(jobs) > tc.limit {
					t.Fatalf("got %d jobs, want %d at most", len(jobs), tc.limit)
				}
				for _, j := range jobs {
					reached[j.namespace] = true
					flying = append(flying, j.namespace)
				}
				for len(flying) > tc.inFlight {
					b.done("s", flying[0])
					flying = flying[1:]
				}
			}
			if len(reached) < tc.targets {
				t.Errorf("got %d of %d targets reached in %d slices of %d, want all", len(reached), tc.targets, takes, tc.limit)
			}
		})
	}
}

// TestBacklogRoundStartedAnewVisitsAllAgain: what was reached before the new start is reached after it too.
func TestBacklogRoundStartedAnewVisitsAllAgain(t *testing.T) {
	for restartAfter := range 6 {
		b := newBacklog()
		list, calls := listing("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
		b.markAll("s")
		for range restartAfter {
			jobs, _ := b.take("s", 2, list)
			finish(b, "s", jobs)
		}
		b.markAll("s")
		var visited []string
		for {
			jobs, more := b.take("s", 2, list)
			visited = append(visited, namespacesOf(jobs)...)
			finish(b, "s", jobs)
			if !more {
				break
			}
		}
		slices.Sort(visited)
		if want := list(); !slices.Equal(visited, want) {
			t.Errorf("after %d slices: got %q, want each once: %q", restartAfter, visited, want)
		}
		if *calls > 3 {
			t.Errorf("after %d slices: got %d listings, want one for each start", restartAfter, *calls-1)
		}
		wantEmpty(t, b)
	}
}

// TestBacklogRoundStartedAnewOverOtherTargets lists other targets each time: those that are gone are not
// visited any more, the new ones are.
func TestBacklogRoundStartedAnewOverOtherTargets(t *testing.T) {
	for name, then := range map[string][]string{
		"the last one is gone":       {"a", "b", "e", "f"},
		"only earlier ones":          {"A", "B"},
		"only later ones":            {"x", "y", "z"},
		"none":                       {},
		"more in between":            {"a", "b", "c", "ca", "cb", "d", "e"},
		"only the one it stopped at": {"c"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBacklog()
			list, _ := listing("a", "b", "c", "d", "e", "f", "g")
			b.markAll("s")
			jobs, _ := b.take("s", 3, list)
			finish(b, "s", jobs)
			b.markAll("s")
			list, _ = listing(then...)
			var visited []string
			for range 10 {
				jobs, _ := b.take("s", 3, list)
				visited = append(visited, namespacesOf(jobs)...)
				finish(b, "s", jobs)
			}
			slices.Sort(visited)
			want := slices.Sorted(slices.Values(then))
			if !slices.Equal(visited, want) {
				t.Errorf("got %q, want %q", visited, want)
			}
			wantEmpty(t, b)
		})
	}
}

func TestBacklogWhatIsMarkedWhileTheRoundIsListed(t *testing.T) {
	b := newBacklog()
	b.markAll("s")
	listings := 0
	list := func() []string {
		if listings++; listings == 1 {
			b.mark("s", "z", mark{vanished: true}) // would hang if listing were done under the lock
			b.markAll("s")
		}
		return []string{"a"}
	}
	first, _ := b.take("s", 10, list)
	wantJobs(t, "first", first, "z", "a")
	if !first[0].vanished {
		t.Error("got the mark lost that was made while the round was listed")
	}
	finish(b, "s", first)
	second, _ := b.take("s", 10, list)
	wantJobs(t, "second: a change while listing asks for another round", second, "a")
	if listings != 2 {
		t.Errorf("got %d listings, want 2", listings)
	}
	finish(b, "s", second)
	wantEmpty(t, b)
}

// TestBacklogMarkedTargetsDoNotStarveTheRound marks a whole slice anew before each take.
func TestBacklogMarkedTargetsDoNotStarveTheRound(t *testing.T) {
	for name, anew := range map[string]bool{"one round": false, "C38 started anew before each slice": true} {
		t.Run(name, func(t *testing.T) {
			b := newBacklog()
			const limit, targets = 64, 200
			list, _ := listing(numbered("r", targets)...)
			b.markAll("s")
			reached, takes := map[string]bool{}, 0
			for ; len(reached) < targets && takes < 2*targets/(limit/4); takes++ {
				for _, ns := range numbered("m", limit) {
					b.mark("s", ns, mark{})
				}
				if anew {
					b.markAll("s")
				}
				jobs, more := b.take("s", limit, list)
				if len(jobs) != limit || !more {
					t.Fatalf("take %d: got %d jobs, more %v, want a full slice and more", takes, len(jobs), more)
				}
				marked := 0
				for _, j := range jobs {
					if j.namespace[0] == 'm' {
						marked++
					} else {
						reached[j.namespace] = true
					}
				}
				if marked < limit/2 {
					t.Errorf("take %d: got %d marked targets in a slice of %d, want most of it theirs", takes, marked, limit)
				}
				finish(b, "s", jobs)
			}
			if len(reached) < targets {
				t.Errorf("got %d of %d targets of the round in %d slices, want all", len(reached), targets, takes)
			}
		})
	}
}

// TestBacklogTheRoundDoesNotStarveMarkedTargets: in the middle of a long round, a marked target is in the next
// slice, and many of them leave the round only its part.
func TestBacklogTheRoundDoesNotStarveMarkedTargets(t *testing.T) {
	b := newBacklog()
	const limit = 64
	list, _ := listing(numbered("r", 10000)...)
	b.markAll("s")
	jobs, _ := b.take("s", limit, list)
	finish(b, "s", jobs)
	waiting := numbered("m", 150)
	for _, ns := range waiting {
		b.mark("s", ns, mark{})
	}
	for takes := 1; len(waiting) > 0; takes++ {
		jobs, _ := b.take("s", limit, list)
		finish(b, "s", jobs)
		for _, j := range jobs {
			if j.namespace[0] == 'm' {
				if j.namespace != waiting[0] {
					t.Fatalf("C32: got %s, want %s first", j.namespace, waiting[0])
				}
				waiting = waiting[1:]
			}
		}
		if takes == 4 && len(waiting) > 0 {
			t.Fatalf("C32: got %d marked targets waiting after %d slices of %d, want none", len(waiting), takes, limit)
		}
	}
}

// TestBacklogMarkedTargetsUseTheWholeSlice where the round needs no part of it.
func TestBacklogMarkedTargetsUseTheWholeSlice(t *testing.T) {
	b := newBacklog()
	for _, ns := range numbered("m", 100) {
		b.mark("s", ns, mark{})
	}
	jobs, more := b.take("s", 64, noList)
	if len(jobs) != 64 || !more {
		t.Errorf("got %d jobs, more %v, want 64 and more", len(jobs), more)
	}
	rest, more := b.take("s", 64, noList)
	if len(rest) != 36 || more {
		t.Errorf("got %d jobs, more %v, want 36 and nothing more", len(rest), more)
	}
}

func TestC43VanishedStaysUntilItIsTaken(t *testing.T) {
	list, _ := listing("a", "b")
	for name, tc := range map[string]struct {
		before func(*backlog)
		want   bool
	}{
		"marked":                         {func(b *backlog) { b.mark("s", "a", mark{vanished: true}) }, true},
		"marked, and again without":      {func(b *backlog) { b.mark("s", "a", mark{vanished: true}); b.mark("s", "a", mark{}) }, true},
		"marked without, and then with":  {func(b *backlog) { b.mark("s", "a", mark{}); b.mark("s", "a", mark{vanished: true}) }, true},
		"marked, and a round":            {func(b *backlog) { b.mark("s", "a", mark{vanished: true}); b.markAll("s") }, true},
		"a round, and marked":            {func(b *backlog) { b.markAll("s"); b.mark("s", "a", mark{vanished: true}) }, true},
		"another one vanished":           {func(b *backlog) { b.mark("s", "a", mark{}); b.mark("s", "b", mark{vanished: true}) }, false},
		"of another name":                {func(b *backlog) { b.mark("s", "a", mark{}); b.mark("x", "a", mark{vanished: true}) }, false},
		"a round alone":                  {func(b *backlog) { b.markAll("s") }, false},
		"taken before, and marked again": {func(b *backlog) { b.mark("s", "a", mark{vanished: true}); takeAll(b, list); b.mark("s", "a", mark{}) }, false},
		"vanished while it was busy": {func(b *backlog) {
			b.mark("s", "a", mark{})
			jobs, _ := b.take("s", 10, list)
			b.mark("s", "a", mark{vanished: true})
			b.markAll("s")
			b.mark("s", "a", mark{})
			finish(b, "s", jobs)
		}, true},
		"vanished while it was busy, and the round passed it over": {func(b *backlog) {
			b.mark("s", "a", mark{})
			jobs, _ := b.take("s", 10, list)
			b.markAll("s")
			round, _ := b.take("s", 10, list)
			b.mark("s", "a", mark{vanished: true})
			finish(b, "s", append(jobs, round...))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBacklog()
			tc.before(b)
			jobs := takeAll(b, list)
			i := slices.IndexFunc(jobs, func(j job) bool { return j.namespace == "a" })
			if i < 0 {
				t.Fatalf("got %q, want a in it", namespacesOf(jobs))
			}
			if jobs[i].vanished != tc.want {
				t.Errorf("got vanished %v, want %v", jobs[i].vanished, tc.want)
			}
		})
	}
}

// takeAll takes once what can be taken, and carries it out.
func takeAll(b *backlog, list func() []string) []job {
	jobs, _ := b.take("s", 100, list)
	finish(b, "s", jobs)
	return jobs
}

// TestBacklogLeavesNothingAsleep: when take says that there is no more, every due target is a busy one, whose end
// wakes it.
func TestBacklogLeavesNothingAsleep(t *testing.T) {
	var all []string
	for i := range 100 {
		all = append(all, fmt.Sprintf("t%03d", i))
	}
	for _, left := range []int{1, 15, 16, 17, 36, 63, 64, 65, 100} {
		b := newBacklog()
		b.markAll("s")
		begun, _ := b.take("s", len(all)-left, func() []string { return slices.Clone(all) })
		finish(b, "s", begun)
		for _, namespace := range all {
			b.mark("s", namespace, mark{})
		}
		for more := true; more; {
			_, more = b.take("s", 64, noList)
		}
		for namespace := range b.names["s"].due {
			if !b.names["s"].busy[namespace] {
				t.Errorf("with %d left of the round: %s is due, and nobody will look", left, namespace)
			}
		}
	}
}

func TestBacklogDue(t *testing.T) {
	list, _ := listing("a", "b", "c", "d")
	for name, tc := range map[string]struct {
		meanwhile func(*backlog) // between the taking of a and its end
		due, idle bool
	}{
		"nothing else":           {func(*backlog) {}, false, true},
		"marked again":           {func(b *backlog) { b.mark("s", "a", mark{}) }, true, false},
		"another one marked":     {func(b *backlog) { b.mark("s", "b", mark{}) }, false, false},
		"another one busy":       {func(b *backlog) { b.mark("s", "b", mark{}); b.take("s", 10, list) }, false, false},
		"a round asked for":      {func(b *backlog) { b.markAll("s") }, false, false},
		"a round begun":          {func(b *backlog) { b.markAll("s"); b.take("s", 1, list) }, true, false},
		"another name is marked": {func(b *backlog) { b.mark("x", "a", mark{}) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBacklog()
			b.mark("s", "a", mark{})
			b.take("s", 10, list)
			tc.meanwhile(b)
			if due, idle := b.done("s", "a"); due != tc.due || idle != tc.idle {
				t.Errorf("got due %v, idle %v, want %v, %v", due, idle, tc.due, tc.idle)
			}
		})
	}
}

func TestBacklogIdle(t *testing.T) {
	b := newBacklog()
	want := func(what string, want bool) {
		t.Helper()
		if got := b.idle("s"); got != want {
			t.Errorf("%s: got idle %v, want %v", what, got, want)
		}
	}
	list, _ := listing("a", "b", "c")
	want("at first", true)
	b.mark("other", "a", mark{})
	want("with another name marked", true)
	b.mark("s", "a", mark{})
	want("marked", false)
	jobs, _ := b.take("s", 10, list)
	want("busy", false)
	finish(b, "s", jobs)
	want("done", true)
	b.markAll("s")
	want("with a round asked for", false)
	jobs, _ = b.take("s", 2, list)
	finish(b, "s", jobs)
	want("in the middle of a round", false)
	jobs, _ = b.take("s", 2, list)
	want("with the last of a round busy", false)
	finish(b, "s", jobs)
	want("after a round", true)
	b.take("s", 2, list)
	want("after nothing was taken", true)
}

// TestBacklogIsNotIdleWhileTheRoundIsListed ends the last job of the name at that moment.
func TestBacklogIsNotIdleWhileTheRoundIsListed(t *testing.T) {
	b := newBacklog()
	b.mark("s", "a", mark{})
	b.take("s", 10, noList)
	b.markAll("s")
	jobs, _ := b.take("s", 10, func() []string {
		if due, idle := b.done("s", "a"); due || idle {
			t.Errorf("a done: got due %v, idle %v, want false, false", due, idle)
		}
		return []string{"a", "b"}
	})
	wantJobs(t, "the round", jobs, "a", "b")
	finish(b, "s", jobs)
	wantEmpty(t, b)
}

// TestBacklogUnderConcurrency runs the backlog as the controller does, with events, slices and jobs all at the
// same time: every target is handed out at least once after it was last marked, and never twice at once.
func TestBacklogUnderConcurrency(t *testing.T) {
	for name, tc := range map[string]struct{ targets, limit int }{
		"few targets, slices of 64":  {40, 64},
		"many targets, small slices": {40, 8},
		"one target":                 {1, 64},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkBacklog(t, tc.targets, tc.limit) })
		})
	}
}

// checkBacklog is to be called in a synctest bubble.
func checkBacklog(t *testing.T, targets, limit int) {
	// state is what is known of one target of one name.
	type state struct {
		mu      sync.Mutex
		marked  int // how often it was marked
		taken   int // what marked was when a job read it last
		running bool
		jobs    int // written without a lock: -race sees jobs that overlap
	}
	all := numbered("r", targets)
	names := []string{"one", "two"}
	states := map[string]map[string]*state{}
	for _, name := range names {
		states[name] = map[string]*state{}
		for _, ns := range all {
			states[name][ns] = &state{}
		}
	}
	b := newBacklog()
	queue := workqueue.NewTyped[string]()
	slots := make(chan struct{}, 16)

	runJob := func(name string, j job) {
		s := states[name][j.namespace]
		s.mu.Lock()
		if s.running {
			t.Errorf("%s in %s: got a second job at the same time", name, j.namespace)
		}
		s.running = true
		s.taken = s.marked
		s.mu.Unlock()
		runtime.Gosched()
		s.jobs++
		s.mu.Lock()
		s.running = false
		s.mu.Unlock()
		if due, _ := b.done(name, j.namespace); due {
			queue.Add(name)
		}
	}
	for range 3 {
		go func() {
			for {
				name, shutdown := queue.Get()
				if shutdown {
					return
				}
				jobs, more := b.take(name, limit, func() []string { runtime.Gosched(); return slices.Clone(all) })
				for _, j := range jobs {
					slots <- struct{}{}
					go func() {
						runJob(name, j)
						<-slots
					}()
				}
				if more {
					queue.Add(name)
				}
				queue.Done(name)
			}
		}()
	}
	var markers sync.WaitGroup
	for i := range 4 {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		markers.Go(func() {
			for range 1000 {
				name := names[random.IntN(len(names))]
				marked := all
				if random.IntN(50) > 0 {
					marked = []string{all[random.IntN(len(all))]}
				}
				for _, ns := range marked {
					s := states[name][ns]
					s.mu.Lock()
					s.marked++
					s.mu.Unlock()
				}
				if len(marked) == 1 {
					b.mark(name, marked[0], mark{})
				} else {
					b.markAll(name)
				}
				queue.Add(name)
				if random.IntN(3) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	markers.Wait()
	synctest.Wait() // until there is nothing left to do
	for _, name := range names {
		for ns, s := range states[name] {
			if s.taken != s.marked {
				t.Errorf("%s in %s: got mark %d taken last, want %d", name, ns, s.taken, s.marked)
			}
			if s.jobs == 0 && s.marked > 0 {
				t.Errorf("%s in %s: got no job", name, ns)
			}
		}
	}
	wantEmpty(t, b)
	queue.ShutDown()
}

func TestBacklogRoundGoesOnWhereItStopped(t *testing.T) {
	b := newBacklog()
	b.markAll("s")
	list, _ := listing("a", "b", "c", "d")
	jobs, _ := b.take("s", 2, list)
	wantJobs(t, "the first round", jobs, "a", "b")
	finish(b, "s", jobs)
	b.markAll("s")
	list, _ = listing("a", "aa", "b", "c", "d") // one has come in front
	jobs, more := b.take("s", 5, list)
	wantJobs(t, "the second round", jobs, "c", "d", "a", "aa", "b")
	if more {
		t.Error("got more to take at once, want none: the slice was full and the round at its end")
	}
	finish(b, "s", jobs)
	wantEmpty(t, b)
}
