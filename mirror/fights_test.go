package mirror

import (
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
			f.wrote(at, "blue")
			if hold := f.hold(at, "blue"); hold != 0 {
				t.Fatalf("write %d: held for %v, want the first %d repairs at once", i+1, hold, freeRepairs)
			}
		}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			f.wrote(at, "blue")
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
			f.wrote(at, "blue")
		}
		time.Sleep(f.calmIn(at))
		if f.calmIn(at) != 0 {
			t.Error("it is not over")
		}
		time.Sleep(time.Nanosecond)
		f.sweep()
		if len(f.at) != 0 {
			t.Error("it is not forgotten")
		}
		f.wrote(at, "blue")
		if f.hold(at, "blue") != 0 {
			t.Error("the next damage is held")
		}
	})
}
