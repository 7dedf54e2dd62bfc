package mirror

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
)

func TestC36Fights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFights()
		at := cache.ObjectName{Namespace: "team-a", Name: "settings"}
		for i := range freeRepairs {
			f.wrote(at, "blue", false)
			if hold := f.hold(at, "blue"); hold != 0 {
				t.Fatalf("write %d: held for %v, want the first %d repairs at once", i+1, hold, freeRepairs)
			}
		}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			f.wrote(at, "blue", false)
			if hold := f.hold(at, "blue"); hold != want*time.Second {
				t.Fatalf("held for %v, want %v", hold, want*time.Second)
			}
			if f.calmIn(at) != f.hold(at, "blue")+calm {
				t.Errorf("the fight is over in %v", f.calmIn(at))
			}
			if f.hold(at, "green") != 0 {
				t.Error("other content is held")
			}
			time.Sleep(want * time.Second)
		}
		f.forgetNamespace("team-b")
		if f.calmIn(at) == 0 {
			t.Error("forgotten with another namespace")
		}
		f.forgetNamespace("team-a")
		if f.calmIn(at) != 0 || f.hold(at, "blue") != 0 {
			t.Error("C29: it outlives its namespace")
		}
	})
}

func TestC36FightIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFights()
		at := cache.ObjectName{Namespace: "team-a", Name: "settings"}
		for range freeRepairs + 2 {
			f.wrote(at, "blue", false)
		}
		time.Sleep(f.calmIn(at))
		if f.calmIn(at) != 0 {
			t.Error("it is not over")
		}
		f.sweep()
		if len(f.at) != 1 {
			t.Error("it is forgotten before it was left in peace for longer than that")
		}
		time.Sleep(time.Nanosecond)
		f.sweep()
		if len(f.at) != 0 {
			t.Error("it is not forgotten")
		}
		f.wrote(at, "blue", false)
		if f.hold(at, "blue") != 0 {
			t.Error("the next damage is held")
		}
	})
}

// TestC36FightThatNobodySweptIsOver: that the next damage is a first one does not hang on the sweep.
func TestC36FightThatNobodySweptIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFights()
		for range freeRepairs + 2 {
			f.wrote(inA, "blue", false)
		}
		time.Sleep(f.calmIn(inA) + time.Nanosecond)
		f.wrote(inA, "blue", false)
		if hold := f.hold(inA, "blue"); hold != 0 {
			t.Errorf("the next damage is held for %v", hold)
		}
	})
}

func TestC36ContentTellsWhatIsFoughtAbout(t *testing.T) {
	r := testRules()
	contents := map[string]string{}
	for name, c := range map[string]change{
		"no source":       {},
		"a source":        {source: r.readSource(sourceCM("platform", "settings"))},
		"another source":  {source: r.readSource(sourceCM("base", "settings"))},
		"another content": {source: r.readSource(sourceCM("platform", "settings", data("key", "new")))},
	} {
		if other, taken := contents[contentOf(c)]; taken {
			t.Errorf("%s and %s count as one content", name, other)
		}
		contents[contentOf(c)] = name
	}
}

func TestC36ChangesOfTheSourceAreNoFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFights()
		for i := range 3 * freeRepairs {
			f.wrote(inA, fmt.Sprint(i), false)
		}
		if calm := f.calmIn(inA); calm != 0 {
			t.Errorf("got a fight for %v more, want none", calm)
		}
	})
}

func TestC36FewRepairsAreNoFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFights()
		for i := range freeRepairs + 1 { // the first write repairs nothing
			f.wrote(inA, "blue", false)
			if got, want := f.calmIn(inA) > 0, i >= freeRepairs; got != want {
				t.Errorf("write %d: got a fight %v, want %v", i+1, got, want)
			}
		}
		f.wrote(inB, "blue", false)
		time.Sleep(calm + time.Nanosecond)
		f.sweep()
		if f.calmIn(inA) == 0 || len(f.at) != 1 {
			t.Errorf("got %v left by the sweep, want the fight in team-a alone", f.at)
		}
	})
}

// TestC36RareRepairsAreAFight: a tool that sets things its way every ten minutes keeps changing the copy back, too.
func TestC36RareRepairsAreAFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFights()
		for i := range freeRepairs {
			if f.calmIn(inA) > 0 {
				t.Fatalf("a fight after %d repairs, want one after %d", i, freeRepairs)
			}
			f.sweep()
			f.wrote(inA, "blue", true)
			time.Sleep(10 * time.Minute)
		}
		if f.calmIn(inA) == 0 {
			t.Errorf("no fight after %d repairs", freeRepairs)
		}
	})
}

// TestWhatIsNewIsSoonForgotten: a fan-out to thousands of namespaces is not kept in mind for long.
func TestWhatIsNewIsSoonForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFights()
		f.wrote(inA, "blue", false)
		f.wrote(inB, "blue", true)
		time.Sleep(fresh)
		f.sweep()
		if len(f.at) != 2 {
			t.Errorf("got %v left while it is fresh, want both", f.at)
		}
		time.Sleep(time.Nanosecond)
		f.sweep()
		if len(f.at) != 1 || f.at[inB] == nil {
			t.Errorf("got %v left, want the repair alone", f.at)
		}
	})
}
