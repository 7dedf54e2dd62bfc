package mirror

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// slowly has each write take this long, so that a fan-out to n targets takes n/32 times that.
func (s scene) slowly(takes time.Duration) {
	s.delay(func(apitest.Call) time.Duration { return takes })
}

// TestC32EventsGoAhead: a new namespace and a repair do not wait for the end of a fan-out to thousands, which takes 3
// s here.
func TestC32EventsGoAhead(t *testing.T) {
	cluster(t, append(teams(2000, "team-"), plantest.Source("platform", "other")), func(t *testing.T, s scene) {
		time.Sleep(time.Second)
		s.slowly(50 * time.Millisecond)
		s.write(source())
		time.Sleep(500 * time.Millisecond)
		s.addNamespace("team-new")
		s.noted(s.configMaps("team-1999").Delete(t.Context(), "other", metav1.DeleteOptions{}))
		s.within(200*time.Millisecond, "fill and repair", func() bool {
			_, err := s.configMaps("team-1999").Get(t.Context(), "other", metav1.GetOptions{})
			return s.copied("team-new", "value") == 1 && err == nil
		})
		if n := s.copied("team-", "value"); n > 1000 {
			t.Errorf("got %d copies, want the fan-out under way", n)
		}
	})
}

// TestC46FanOutsShareTheWrites: ten sources fan out to 300 targets each, the last ones while the first are under way.
// When one is through, none is far behind, and a small one is through long before.
func TestC46FanOutsShareTheWrites(t *testing.T) {
	const targets = 300
	cluster(t, teams(targets, "team-"), func(t *testing.T, s scene) {
		s.slowly(50 * time.Millisecond)
		names := []string{"settings"}
		s.write(source())
		for i := range 9 {
			names = append(names, fmt.Sprintf("source-%d", i))
			s.write(plantest.Source("platform", names[i+1]))
		}
		made := func(name string) (n int) {
			for _, cm := range s.ConfigMaps.All() {
				if cm.Name == name && cm.Namespace != "platform" {
					n++
				}
			}
			return n
		}
		s.within(10*time.Second, "fan-out", func() bool {
			for _, name := range names {
				if made(name) == targets {
					return true
				}
			}
			return false
		})
		for _, name := range names {
			if n := made(name); n < targets*8/10 {
				t.Errorf("got %d copies of %s when the first source is through, want most", n, name)
			}
		}
	})
}

// TestC38EditsAllTheTime: a source that changes 100 times a second is compared with its targets ten times a second,
// its last target gets a state that is not old, and the last state is everywhere soon after the end.
func TestC38EditsAllTheTime(t *testing.T) {
	const targets, edits = 100, 500
	cluster(t, append(teams(targets, "team-"), source(plantest.Data("key", "0"))), func(t *testing.T, s scene) {
		time.Sleep(time.Second)
		s.slowly(5 * time.Millisecond)
		before := s.CountAll("team-", "update")
		for i := range edits {
			s.edit("platform", plantest.Data("key", strconv.Itoa(i+1)))
			time.Sleep(10 * time.Millisecond)
			if i < 100 {
				continue
			}
			for _, ns := range teams(targets, "team-") {
				at := ns.(interface{ GetName() string }).GetName()
				if n, _ := strconv.Atoi(s.get(at).Data["key"]); n < i-60 {
					t.Fatalf("%s: got edit %d while edit %d is there, want it not older than 600 ms", at, n, i)
				}
			}
		}
		last := strconv.Itoa(edits)
		s.within(500*time.Millisecond, "last state everywhere", func() bool { return s.copied("team-", last) == targets })
		if n := (s.CountAll("team-", "update") - before) / targets; n > edits/10+11 {
			t.Errorf("got %d updates of each target for %d edits in 5 s, want ten a second", n, edits)
		}
	})
}

// TestC38HundredEditsWithinASecond cost each target ten updates, one for each fan-out. No edit is at the time of a
// fan-out, after which the echo of a write may show the next edit.
func TestC38HundredEditsWithinASecond(t *testing.T) {
	objects := append([]runtime.Object{source()}, teams(3, "team-")...)
	cluster(t, objects, func(t *testing.T, s scene) {
		time.Sleep(time.Second)
		for i := range 100 {
			s.edit("platform", plantest.Data("key", strconv.Itoa(i)))
			synctest.Wait()
			time.Sleep(9 * time.Millisecond)
		}
		time.Sleep(time.Second)
		s.wantCopy("team-000", "99")
		if n := s.CountAll("team-000", "update"); n != 10 {
			t.Errorf("got %d updates for 100 edits within 0.9 seconds, want 10", n)
		}
	})
}
