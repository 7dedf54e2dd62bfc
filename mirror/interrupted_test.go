package mirror

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
)

// remedies are the causes and remedies that the lines about an interruption have.
var remedies = map[string]string{
	"answered with 429": "storage is.*one object that it cannot decode",
	"answered with 403": "no permission.*grant list and watch",
	"answered with 500": "etcd has no leader.*check the log of the API server",
	"no answer":         "no answer.*network policies before it",
}

// TestC79Interrupted: the watch of a resource is interrupted, when the controller
// starts and under one that mirrors. Copies follow within a minute if pages can be
// listed. Else one line a minute at most names resource, verb, cause and remedy,
// the first within a minute, and the metric grows. When the cause has gone,
// copies follow, and the metric is 0.
func TestC79Interrupted(t *testing.T) {
	t.Parallel()
	objects := append(teams(60, "team-"), source(data("one"))) // more than a page
	for name, way := range apitest.Interruptions {
		for _, resource := range cache.Resources {
			t.Run(name+", "+resource+", at the start", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testInterruptedStart(t, objects, name, resource) })
			})
			t.Run(name+", "+resource+", under a leader", inScene(objects, func(t *testing.T, s scene) {
				s.wantCopies(60, "team-", "one")
				time.Sleep(time.Hour)
				s.wantInterrupted(resource, 0)
				logged := len(s.log())
				s.Hook(way.Of(resource))
				s.ConfigMaps.Expire()
				s.Namespaces.Expire()
				s.edit("platform", data("two"))
				s.addNamespace("team-new")
				s.isInterrupted(name, resource, "two", 61, logged)
			}))
		}
	}
}

func testInterruptedStart(t *testing.T, objects []runtime.Object, way, resource string) {
	s := newScene(t, objects, func(*Options) {})
	s.Hook(apitest.Interruptions[way].Of(resource))
	defer s.isSafe()
	defer s.start()()
	if s.controller.Synced() {
		t.Error("the caches are full at the start, want them to wait for the watch")
	}
	if s.isInterrupted(way, resource, "one", 60, 0); !s.controller.Synced() {
		t.Error("the caches are not full at the end")
	}
	s.settles()
}

// isInterrupted fails the test unless the controller does what it should from the
// moment on at which the watch of a resource was interrupted, with this many bytes
// in the log. There are so many copies with this value at the end.
func (s scene) isInterrupted(way, resource, value string, copies, logged int) {
	s.t.Helper()
	follow := func() bool { return s.countCopies("team-", value) == copies }
	began := time.Now()
	if apitest.Interruptions[way].Lists() {
		s.within(time.Minute, "copies", follow)
	} else {
		line := regexp.MustCompile(`Cannot list or watch.*verb="(list|watch)".*resource="` + resource)
		s.within(time.Minute, "line", func() bool { return line.MatchString(s.log()[logged:]) })
		for range 20 {
			time.Sleep(time.Minute)
			s.wantInterrupted(resource, time.Since(began))
		}
		hasRemedy := regexp.MustCompile(remedies[way])
		for _, l := range strings.Split(s.log()[logged:], "\n") {
			if strings.Contains(l, "Cannot list") && !hasRemedy.MatchString(l) {
				s.t.Errorf("got the line %q, want in it %q", l, hasRemedy)
			}
		}
		if follow() {
			s.t.Error("got copies, want none while the watch is interrupted")
		}
		s.Hook(func(h *apitest.Hooks) { h.Hangs, h.Refuses = nil, nil })
		s.within(2*time.Minute, "copies", follow)
	}
	time.Sleep(2 * time.Second)
	s.wantInterrupted(resource, 0)
	time.Sleep(time.Hour)
	s.wantInterrupted(resource, 0)
	if n, minutes := strings.Count(s.log()[logged:], "Cannot list"), 1+time.Since(began)/time.Minute; n > int(minutes) {
		s.t.Errorf("got %d lines in %d minutes:\n%s", n, minutes, s.log())
	}
}

// TestC47LinesOfRefusals: what the API server answers to lists and watches, and to deletions of 100 copies, has five
// kilobytes, as the page of a proxy. In ten minutes each has ten lines, of a kilobyte and some more.
func TestC47LinesOfRefusals(t *testing.T) {
	page := errors.New(strings.Repeat("page ", 1000))
	for name, tc := range map[string]struct {
		lines  string // of the log
		happen func(scene)
	}{
		"of a watch": {"Cannot list or watch", func(s scene) {
			s.refuse(on(page, request("list", "configmaps", ""), request("watch", "configmaps", "")))
			s.ConfigMaps.Expire()
		}},
		"of deletions": {"Cannot delete a copy", func(s scene) {
			s.refuse(on(rejected(page.Error()), deletes))
			s.remove("platform")
		}},
	} {
		t.Run(name, inScene(append(teams(100, "team-"), source()), func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			tc.happen(s)
			time.Sleep(10*time.Minute - 5*time.Second)
			n := 0
			for line := range strings.Lines(s.log()) {
				if !strings.Contains(line, tc.lines) {
					continue
				}
				n++
				if len(line) > 1024+400 {
					t.Errorf("got a line of %d bytes: %.100s", len(line), line)
				}
			}
			if n < 5 || n > 11 { // client-go pauses before it watches again
				t.Errorf("got %d lines %q, want one a minute", n, tc.lines)
			}
		}))
	}
}

// wantInterrupted fails the test unless the watch of the resource has been
// interrupted for this long, and the other one is established.
func (s scene) wantInterrupted(resource string, want time.Duration) {
	s.t.Helper()
	synctest.Wait()
	if got := s.controller.Interrupted(); got < want-2*time.Second || got > want {
		s.t.Errorf("got a watch that has been interrupted for %v, want %v", got, want)
	}
	for _, of := range cache.Resources {
		value := 0.0
		if of == resource {
			value = float64(int(s.controller.Interrupted().Seconds()))
		}
		s.wantMetric(value, "mirror_watch_interrupted_seconds", of)
	}
}

// TestC79Quiet: nothing changes in a cluster for a day, but that streams end after
// seven minutes, as an API server ends them, and that it is started again at
// noon. No line, no list, no request but the watches that follow each other, and
// a second in the metric.
func TestC79Quiet(t *testing.T) {
	t.Parallel()
	for name, every := range map[string]time.Duration{"without bookmarks": 0, "with bookmarks": time.Minute} {
		t.Run(name, inScene(append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
			s.Hook(func(h *apitest.Hooks) { h.Bookmarks = func(string) time.Duration { return every } })
			s.ConfigMaps.Break()
			s.Namespaces.Break()
			time.Sleep(time.Minute)
			logged, calls := s.log(), s.Calls()
			const streams = 200
			for i := range streams {
				for range 7 * 60 {
					time.Sleep(time.Second)
					if got := s.controller.Interrupted(); got > time.Second {
						t.Fatalf("got a watch that has been interrupted for %v", got)
					}
				}
				if i == streams/2 {
					s.ConfigMaps.Expire()
					s.Namespaces.Expire()
					continue
				}
				s.ConfigMaps.Break()
				s.Namespaces.Break()
			}
			time.Sleep(time.Second)
			for call, n := range s.Calls() {
				// One more after the start of the API server: the first was answered with 410.
				if more := n - calls[call]; more > 0 && (call.Verb != "watch" || more > streams+1) {
					t.Errorf("got %d more of %v", more, call)
				}
			}
			if lines := strings.TrimPrefix(s.log(), logged); lines != "" {
				t.Errorf("got lines:\n%s", lines)
			}
			s.edit("platform", data("new"))
			s.wantCopies(1, "team-", "new")
		}))
	}
}
