package mirror

import (
	"context"
	"fmt"
	goruntime "runtime"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/internal/slow"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC64ManySourcesOfOneName: 1,500 sources of one name select 1,500 targets, and
// each target lies in the namespace of one of them, so that each has another set
// of superseded sources. Memory grows by their number, and not by its square.
func TestC64ManySourcesOfOneName(t *testing.T) {
	const many = 1500
	c := stillController(t)
	n := c.records.lock("settings")
	defer n.unlock()
	var sources []*plan.Source
	for i := range many {
		sources = append(sources, parsed(plantest.Source(fmt.Sprintf("team-%d", i), "settings")))
	}
	n.setOf(sources)
	before := heapInUse()
	for i := range many {
		others := append(append([]*plan.Source{}, sources[:i]...), sources[i+1:]...)
		r := n.record(sources[i].Key.Namespace, "")
		r.standing = standing{state: plan.StateSynced, owner: sources[0].Key}
		r.superseded = n.setOf(others)
		n.set(sources[i].Key.Namespace, r)
	}
	if each := (heapInUse() - before) / many; each > 1500 {
		t.Errorf("got %d bytes for each target, want at most 1,500", each)
	}
	for i, s := range sources {
		if got := n.status(s.Key).counts[plan.StateSuperseded]; got != many-1 {
			t.Fatalf("source %d: got %d targets that it does not win, want %d", i, got, many-1)
		}
	}
}

func heapInUse() int {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestNumbersOfSources: a source that is forgotten leaves its number to another.
func TestNumbersOfSources(t *testing.T) {
	c := stillController(t)
	n := c.records.lock("settings")
	defer n.unlock()
	a, b, late := settings("a"), settings("b"), settings("c")
	n.status(a)
	n.status(b)
	n.forget(a)
	if got := n.status(late).number; got != 0 {
		t.Errorf("got the number %d, want the free one", got)
	}
	set := n.setOf([]*plan.Source{{Key: late}})
	if !set.has(n.status(late).number) || set.has(n.status(b).number) || set.has(1000) {
		t.Errorf("got the set %x, want %v alone in it", set, late)
	}
	var third []*plan.Source
	for i := range 30 {
		k := settings(fmt.Sprint(i))
		if n.status(k).number%3 == 0 {
			third = append(third, &plan.Source{Key: k})
		}
	}
	set = n.setOf(third)
	for number := 3; number < 40; number++ { // 32 have been given
		if set.has(number) != (number%3 == 0 && number < 32) {
			t.Errorf("got number %d in the set of each third: %v", number, set.has(number))
		}
	}
}

// TestC47NotesAreNotShared: what a tenant can choose is remembered once for each
// target, and is forgotten with it.
func TestC47NotesAreNotShared(t *testing.T) {
	for name, tc := range map[string]struct {
		stands standing
		shared int
	}{
		"in sync":                       {standing{state: plan.StateSynced, owner: settings("platform")}, 1},
		"an object in the way, noted":   {standing{state: plan.StateForeign, note: "theirs"}, 0},
		"out of scope, of any owner":    {standing{state: plan.StateOutOfScope, owner: settings("any")}, 0},
		"nothing stands, nothing known": {standing{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := stillController(t).records.lock("settings")
			defer n.unlock()
			r := n.record("team-a", "1")
			r.standing = tc.stands
			n.set("team-a", r)
			if got := len(n.shared); got != tc.shared {
				t.Errorf("got %d records kept to be shared, want %d", got, tc.shared)
			}
			isKnown := tc.stands != standing{}
			if known := n.byNamespace["team-a"]; (known != nil) != isKnown {
				t.Errorf("got the record %v", known)
			}
			if counted := len(n.sources) == 1; counted != isKnown {
				t.Errorf("got %d sources with targets", len(n.sources))
			}
		})
	}
}

// TestRecordInANamespace: that of a former namespace of the name does not count,
// but that a call is on its way.
func TestRecordInANamespace(t *testing.T) {
	blue := parsed(sourceIn("platform"))
	synced := settled{standing: standing{state: plan.StateSynced, owner: blue.Key}}
	shared := &record{settled: synced}
	before := &record{settled: synced, namespaceUID: "1", busy: true}
	for name, tc := range map[string]struct {
		known *record
		want  record
	}{
		"none":                         {nil, record{namespaceUID: "2"}},
		"shared with other namespaces": {shared, record{settled: synced, namespaceUID: "2"}},
		"of a former namespace":        {before, record{namespaceUID: "2", busy: true}},
	} {
		t.Run(name, func(t *testing.T) {
			n := &nameRecords{byNamespace: map[string]*record{}}
			if tc.known != nil {
				n.byNamespace["team-a"] = tc.known
			}
			if got := n.record("team-a", "2"); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestCopyInSyncEndsSlowness: a write that was cut was carried out, if the copy is
// in sync now. What waits in its namespace goes back to the other targets. No other
// state shows that.
func TestCopyInSyncEndsSlowness(t *testing.T) {
	src := sourceIn("platform")
	for name, tc := range map[string]struct {
		there *corev1.ConfigMap
		ends  bool
	}{
		"in sync": {copyOf(src, "team-a"), true},
		"held":    {copyOf(src, "team-a", data("other")), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held := src.DeepCopy()
				if !tc.ends {
					paused(held)
				}
				c := stillController(t, held, tc.there)
				defer c.stopReporting()
				uid := c.cache.Namespace("team-a").UID
				waits := key{Namespace: "team-a", Name: "waits"}
				err := c.queues.slow.Write(t.Context(), uid, slow.Ordinary, func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				})
				if !c.queues.slow.Put(uid, waits, err) {
					t.Fatalf("got no wait for a turn after %v", err)
				}
				n := c.records.lock("settings")
				c.visit(n, settings("team-a"))
				n.unlock()
				if back := c.queues.copies.Len() == 1; back != tc.ends {
					t.Errorf("got the target back %v, want %v", back, tc.ends)
				}
			})
		})
	}
}

// TestLineIsDueOnce: a decision asks for a line about a deletion that none has
// announced, and for no other. While a call is on its way it brings no look.
func TestLineIsDueOnce(t *testing.T) {
	copied := copyOf(sourceIn("platform"), "team-a")
	for name, tc := range map[string]struct {
		there     []runtime.Object
		announced bool
		busy      bool
		line      bool
	}{
		"unclaimed":                 {there: []runtime.Object{copied}, line: true},
		"unclaimed, and announced":  {there: []runtime.Object{copied}, announced: true},
		"announced, during a call":  {there: []runtime.Object{copied}, announced: true, busy: true},
		"claimed":                   {there: []runtime.Object{copied, sourceIn("platform")}},
		"claimed, and just written": {there: []runtime.Object{sourceIn("platform")}, busy: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := stillController(t, append(tc.there, plantest.Namespace("team-a"))...)
			n := c.records.lock("settings")
			defer n.unlock()
			x := c.decide(n, settings("team-a"))
			n.announceBy = time.Time{}
			known := x.record
			if tc.busy {
				known.busy = true
				known.lastWrite = ownWrite{version: "1000000", at: time.Now()}
			}
			if tc.announced {
				known.unclaimed.since = time.Now()
				known.unclaimed.line = 1
			}
			n.set("team-a", known)
			x = c.decide(n, settings("team-a"))
			if due := !n.announceBy.IsZero(); due != tc.line {
				t.Errorf("got a line that is due %v, want %v", due, tc.line)
			}
			if tc.busy && (x.act || x.wait != 0) {
				t.Errorf("got act %v, and a look in %v, want the end of the call to decide", x.act, x.wait)
			}
		})
	}
}

// TestFanOutKeepsItsName: a name is known while its fan-out runs, also without a
// record. Else a line would count a part of its copies.
func TestFanOutKeepsItsName(t *testing.T) {
	c := stillController(t)
	c.beginFanOut("settings")
	n := c.records.lock("settings")
	defer n.unlock()
	if !n.comparing {
		t.Error("got a name without a fan-out, want the one that runs")
	}
}

// TestForgottenNameIsMadeAnew for whoever has waited for its lock: what is set in
// the forgotten one would be lost.
func TestForgottenNameIsMadeAnew(t *testing.T) {
	all := stillController(t).records
	n := all.lock("settings")
	again := make(chan *nameRecords)
	go func() { again <- all.lock("settings") }()
	for range 1000 { // the goroutine waits then, on one core
		goruntime.Gosched()
	}
	n.unlock()
	anew := <-again
	defer anew.unlock()
	all.mu.Lock()
	defer all.mu.Unlock()
	if known := all.byName["settings"]; known != anew || anew.forgotten {
		t.Errorf("got %p, forgotten %v, want %p, which is known", anew, anew.forgotten, known)
	}
}
