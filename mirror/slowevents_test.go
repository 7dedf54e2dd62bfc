package mirror

// Events that take long hold up no other, and are not about what is past.

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC84SlowEventsHoldUpNoOtherNamespace: events in one namespace take twelve
// seconds, and its 40 sources change. The event about a source in another
// namespace comes as if there were none of them.
func TestC84SlowEventsHoldUpNoOtherNamespace(t *testing.T) {
	const others = 40
	objects := append(teams(3, "team-"), plantest.Namespace("elsewhere"), source())
	for i := range others {
		objects = append(objects, plantest.Source("elsewhere", fmt.Sprintf("other-%03d", i)))
	}
	inScene(objects, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.onEvent(func(e Event) error {
			if e.Regarding.Namespace == "elsewhere" {
				time.Sleep(12 * time.Second)
			}
			return nil
		})
		for i := range others {
			other := s.at(key{Namespace: "elsewhere", Name: fmt.Sprintf("other-%03d", i)})
			s.check(s.update(other, data("new")))
		}
		time.Sleep(time.Second)
		s.edit("platform", data("new"))
		version := "version " + s.version()
		// The spacing of a message is ten seconds.
		s.within(15*time.Second, "event about platform/settings", func() bool {
			return slices.ContainsFunc(s.eventsOf(plan.ReasonMirrored), func(e Event) bool {
				return e.Regarding == settings("platform") && strings.Contains(e.Note, version)
			})
		})
		s.wantCopies(3, "team-", "new")
	})(t)
}

// TestC84SlowEventsSendNoOldText: each event takes a second, and 20 sources of one
// name are superseded by another. A new namespace brings each of them a text.
// Then the source that wins is deleted.
func TestC84SlowEventsSendNoOldText(t *testing.T) {
	objects := append(teams(3, "team-"), source(plantest.CreatedAt(1)))
	for i := range 20 {
		namespace := fmt.Sprintf("shared-%02d", i)
		objects = append(objects, plantest.Namespace(namespace),
			sourceIn(namespace, plantest.CreatedAt(int64(10+i))))
	}
	inScene(objects, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		var mu sync.Mutex
		var deleted time.Time
		var old []string
		s.onEvent(func(e Event) error {
			mu.Lock()
			isOld := !deleted.IsZero() && time.Since(deleted) > 5*time.Second
			if isOld && strings.Contains(e.Note, "source platform/settings of the same name") {
				old = append(old, fmt.Sprintf("%v later: %s", time.Since(deleted), e.Note))
			}
			mu.Unlock()
			time.Sleep(time.Second)
			return nil
		})
		s.addNamespace("team-new")
		time.Sleep(2 * time.Second)
		s.remove("platform")
		mu.Lock()
		deleted = time.Now()
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(old) > 0 {
			t.Errorf("got %d texts of before the deletion, the last %s", len(old), old[len(old)-1])
		}
		for _, namespace := range []string{"team-000", "team-new"} {
			if cm := s.get(namespace); cm == nil || cm.Annotations[plan.SourceAnnotation] != "shared-00/settings" {
				t.Errorf("%s: got %v, want a copy of the oldest source that is left", namespace, cm)
			}
		}
	})(t)
}

// TestC84LimitOfEvents: the API server takes four events a second, and answers
// the others with 429. Each of 120 sources has its event within 90 seconds.
func TestC84LimitOfEvents(t *testing.T) {
	const sources, perSecond = 120, 4
	objects := teams(2, "team-")
	for i := range sources / 10 {
		objects = append(objects, plantest.Namespace(fmt.Sprintf("home-%02d", i)))
	}
	inScene(objects, func(t *testing.T, s scene) {
		var mu sync.Mutex
		var second time.Time
		taken := 0
		s.onEvent(func(Event) error {
			mu.Lock()
			defer mu.Unlock()
			if now := time.Now().Truncate(time.Second); now != second {
				second = now
				taken = 0
			}
			if taken == perSecond {
				return apierrors.NewTooManyRequests("limit reached", 1)
			}
			taken++
			return nil
		})
		for i := range sources {
			s.write(plantest.Source(fmt.Sprintf("home-%02d", i/10), fmt.Sprintf("settings-%03d", i)))
		}
		s.within(90*time.Second, "Mirrored of each source", func() bool {
			about := map[key]bool{}
			for _, e := range s.eventsOf(plan.ReasonMirrored) {
				about[e.Regarding] = true
			}
			return len(about) == sources
		})
	})(t)
}
