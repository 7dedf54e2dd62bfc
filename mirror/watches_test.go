package mirror

import (
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC79RelistThatNeverEnds: a proxy forgets that a watch has to begin with all objects, when the controller starts
// and when its watches have expired. Copies follow within a minute, also if other events come meanwhile. If the list
// that takes its place fails, too, they follow when it succeeds. A metric counts each failure, and a line has its
// reason.
func TestC79RelistThatNeverEnds(t *testing.T) {
	const endless, failed = "the watch does not show the end", "failed to list"
	type pages = func(apitest.Call) bool
	answers := func(*apitest.Hooks, pages) {}
	hangs := func(h *apitest.Hooks, here pages) { h.Hangs = here }
	forgets := func(h *apitest.Hooks, here pages) {
		h.Refuses = func(c apitest.Call) error {
			if here(c) {
				return apierrors.NewResourceExpired("the list is too old")
			}
			return nil
		}
	}
	for name, f := range map[string]relistFault{
		"the list succeeds":         {within: time.Minute, logs: endless, happens: answers},
		"its first page hangs":      {within: 2 * time.Minute, logs: failed, happens: hangs, pages: []int32{1}},
		"it hangs in the middle":    {within: 2 * time.Minute, logs: failed, happens: hangs, pages: []int32{2}},
		"it is forgotten, and anew": {within: 2 * time.Minute, logs: failed, happens: forgets, pages: []int32{2, 4}},
	} {
		for _, resource := range cache.Resources {
			f.resource = resource
			t.Run(name+", "+resource, func(t *testing.T) { testRelistThatNeverEnds(t, f) })
		}
	}
}

// relistFault has watches of a resource not begin with all objects, and something happen to some pages of its lists.
type relistFault struct {
	resource string
	pages    []int32 // the first is 1
	happens  func(h *apitest.Hooks, here func(apitest.Call) bool)
	within   time.Duration
	logs     string
}

// happen has the fault happen from now on.
func (f relistFault) happen(s scene) {
	var pages atomic.Int32
	s.Hook(func(h *apitest.Hooks) {
		h.Plain = func(resource string) bool { return resource == f.resource }
		f.happens(h, func(c apitest.Call) bool {
			return c.Verb == "list" && c.Resource == f.resource && slices.Contains(f.pages, pages.Add(1))
		})
	})
}

func testRelistThatNeverEnds(t *testing.T, f relistFault) {
	objects := append(teams(60, "team-"), source(plantest.Data("key", "one"))) // more than a page
	for _, ns := range teams(60, "team-") {
		objects = append(objects, copyOf(source(), ns.(*corev1.Namespace).Name))
	}
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, objects, func(*Options) {})
		follow := func(value string, copies int) {
			t.Helper()
			counted, logged := s.metric("mirror_watch_errors_total", f.resource), len(s.log())
			s.within(f.within, "copies of "+value, func() bool { return s.countCopies("team-", value) == copies })
			line := regexp.MustCompile("Cannot list or watch, retrying.*" + f.logs + ".*" + f.resource)
			if s.metric("mirror_watch_errors_total", f.resource) == counted || !line.MatchString(s.log()[logged:]) {
				t.Errorf("got no count, or no line %q, of a failure of %s:\n%s", line, f.resource, s.log())
			}
		}
		f.happen(s)
		defer s.isSafe()
		defer s.start()()
		follow("one", 60)
		time.Sleep(10 * time.Minute)
		f.happen(s)
		s.ConfigMaps.Expire()
		s.Namespaces.Expire()
		s.edit("platform", plantest.Data("key", "two"))
		s.addNamespace("team-new")
		time.Sleep(20 * time.Second)
		s.addNamespace("other") // events are no end
		s.edit("platform", plantest.Annotation("note", "x"))
		follow("two", 61)
	})
}
