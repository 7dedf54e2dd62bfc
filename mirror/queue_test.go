package mirror

import (
	"strconv"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC38EditsAllTheTime: a source that changes 100 times a second is compared with its targets ten times a second,
// its last target gets a state that is not old, and the last state is everywhere soon after the end.
func TestC38EditsAllTheTime(t *testing.T) {
	const targets, edits = 100, 500
	runScene(t, append(teams(targets, "team-"), source(plantest.Data("key", "0"))), func(t *testing.T, s scene) {
		time.Sleep(time.Second)
		s.slowDown(5 * time.Millisecond)
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
		s.within(500*time.Millisecond, "last state everywhere",
			func() bool { return s.countCopies("team-", last) == targets })
		if n := (s.CountAll("team-", "update") - before) / targets; n > edits/10+11 {
			t.Errorf("got %d updates of each target for %d edits in 5 s, want ten a second", n, edits)
		}
	})
}
