package mirror

import (
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// clock runs f with latencies, and the view of a name with one source.
func clock(t *testing.T, f func(*latencies, view)) {
	t.Helper()
	r := testRules()
	v := viewOf(r, "settings", sourceCM("platform", "settings"))
	synctest.Test(t, func(*testing.T) { f(newLatencies(), v) })
}

func wroteFor(v view) result {
	return result{change: change{source: v.sources[0]}, outcome: outcomeSynced, wrote: true}
}

func none(cache.ObjectName) bool { return false }

func TestPropagationIsFromTheFirstChangeToTheLastCopy(t *testing.T) {
	clock(t, func(l *latencies, v view) {
		l.sourceChanged(sourceKey)
		time.Sleep(time.Second)
		l.sourceChanged(sourceKey)
		l.settled(v, "team-a", wroteFor(v))
		time.Sleep(time.Second)
		if took := l.idle("settings", func(cache.ObjectName) bool { return true }); len(took) > 0 {
			t.Errorf("got %v while something was pending, want nothing", took)
		}
		time.Sleep(time.Second)
		if took := l.idle("settings", none); !slices.Equal(took, []time.Duration{3 * time.Second}) {
			t.Errorf("got %v, want 3s", took)
		}
		if took := l.idle("settings", none); len(took) > 0 {
			t.Errorf("got %v a second time, want nothing", took)
		}
		if len(l.sources) > 0 {
			t.Errorf("got %v left, want nothing", l.sources)
		}
	})
}

func TestNothingIsMeasuredWhereNothingWasWritten(t *testing.T) {
	clock(t, func(l *latencies, v view) {
		l.sourceChanged(sourceKey)
		l.namespaceSeen("team-a", []string{"settings"})
		l.namespaceSeen("team-b", nil)
		time.Sleep(time.Second)
		res := wroteFor(v)
		res.wrote = false
		if fill := l.settled(v, "team-a", res); fill != 0 {
			t.Errorf("got a fill of %v, want none", fill)
		}
		if took := l.idle("settings", none); len(took) > 0 {
			t.Errorf("got %v, want nothing", took)
		}
		if len(l.namespaces) > 0 {
			t.Errorf("got %v left, want nothing", l.namespaces)
		}
	})
}

func TestFillIsFromTheNamespaceToItsLastCopy(t *testing.T) {
	clock(t, func(l *latencies, v view) {
		other := viewOf(testRules(), "other", sourceCM("platform", "other"))
		l.namespaceSeen("team-a", []string{"settings", "other"})
		time.Sleep(time.Second)
		for what, res := range map[string]result{
			"a target in trouble":     {outcome: outcomePending, trouble: transient},
			"a target not looked at":  {outcome: outcomeSynced, untold: true},
			"another target's copies": wroteFor(v),
		} {
			at := "team-a"
			if res.wrote {
				at = "team-b"
			}
			if fill := l.settled(v, at, res); fill != 0 {
				t.Errorf("%s: got a fill of %v, want none yet", what, fill)
			}
		}
		if fill := l.settled(v, "team-a", wroteFor(v)); fill != 0 {
			t.Errorf("got a fill of %v after the first of two, want none yet", fill)
		}
		if fill := l.settled(v, "team-a", wroteFor(v)); fill != 0 {
			t.Errorf("got a fill of %v after the first for the second time, want none yet", fill)
		}
		time.Sleep(time.Second)
		refusal := result{outcome: outcomeFailed, trouble: refused}
		if fill := l.settled(other, "team-a", refusal); fill != 2*time.Second {
			t.Errorf("got a fill of %v, want 2s: what is refused is not waited for", fill)
		}
	})
}

func TestFillOfANamespaceThatIsGone(t *testing.T) {
	clock(t, func(l *latencies, v view) {
		l.namespaceSeen("team-a", []string{"settings"})
		time.Sleep(time.Second)
		l.forgetNamespace("team-a")
		if fill := l.settled(v, "team-a", wroteFor(v)); fill != 0 {
			t.Errorf("got a fill of %v, want none", fill)
		}
	})
}

func TestFillIsOfTheSourcesThatWereThere(t *testing.T) {
	clock(t, func(l *latencies, v view) {
		later := viewOf(testRules(), "later", sourceCM("platform", "later"))
		l.namespaceSeen("team-a", []string{"settings"})
		time.Sleep(time.Second)
		if fill := l.settled(later, "team-a", wroteFor(later)); fill != 0 {
			t.Errorf("got a fill of %v by a source that is younger than the namespace, want none", fill)
		}
		if fill := l.settled(v, "team-a", result{outcome: outcomeSynced}); fill != 0 {
			t.Errorf("got a fill of %v, want none: for the sources that were there nothing was written", fill)
		}
	})
}

// TestLatencyGoesOnWhilePending: the name is idle, and one target waits for its next try.
func TestLatencyGoesOnWhilePending(t *testing.T) {
	s := newStill(t)
	src := sourceCM("platform", "settings")
	s.namespace(t, "platform", "team-a", "team-b")
	s.cached(t, src)
	s.configMapSeen(src)
	var busy atomic.Bool
	busy.Store(true)
	s.client.PrependReactor("create", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return busy.Load() && a.GetNamespace() == "team-b", nil, apierrors.NewServiceUnavailable("for a while")
	})
	s.work(t)
	if len(s.latencies.sources["settings"]) != 1 {
		t.Error("got the latency ended, and a copy is not there yet")
	}
	busy.Store(false)
	s.mark("settings", "team-b", mark{}) // its time has come
	s.work(t)
	if len(s.latencies.sources["settings"]) != 0 {
		t.Error("got the latency going on, and all copies are there")
	}
}

// TestOnlyNewNamespacesAreFilled: one whose labels changed has its copies, or never wanted them.
func TestOnlyNewNamespacesAreFilled(t *testing.T) {
	s := newStill(t)
	s.cached(t, sourceCM("platform", "settings"))
	s.namespaceChanged("team-a")
	s.namespaceSeen("team-b")
	s.namespaceSeen("elsewhere")
	if got := slices.Collect(maps.Keys(s.latencies.namespaces)); !slices.Equal(got, []string{"team-b"}) {
		t.Errorf("got %q being filled, want team-b", got)
	}
}
