package mirror

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC79RelistThatNeverEnds: a proxy forgets that a watch has to begin with all objects, when the controller starts
// and when its watches have expired. Copies follow within a minute, also if other events come meanwhile. If the list
// that takes its place fails, too, they follow when it succeeds. A line has the
// reason. The metric of the other resource stays 0.
func TestC79RelistThatNeverEnds(t *testing.T) {
	t.Parallel()
	objects := append(teams(60, "team-"), source(data("one"))) // more than a page
	for i := range 60 {
		objects = append(objects, copyOf(source(), fmt.Sprintf("team-%03d", i)))
	}
	for name, tc := range map[string]struct {
		within         time.Duration
		hangs, expires []int32 // which pages of the lists do; the first is 1
	}{
		"the list succeeds":         {time.Minute, nil, nil},
		"its first page hangs":      {2 * time.Minute, []int32{1}, nil},
		"it hangs in the middle":    {2 * time.Minute, []int32{2}, nil},
		"it is forgotten, and anew": {2 * time.Minute, nil, []int32{2, 4}},
	} {
		for _, resource := range cache.Resources {
			test := func(t *testing.T) {
				s := newScene(t, objects, func(*Options) {})
				fail := func() {
					var page atomic.Int32
					on := func(pages []int32, c apitest.Call) bool {
						return c == request("list", resource, "") && slices.Contains(pages, page.Load())
					}
					s.Hook(func(h *apitest.Hooks) {
						h.Plain = func(of string) bool { return of == resource }
						h.Before = func(c apitest.Call) {
							if c == request("list", resource, "") {
								page.Add(1)
							}
						}
						h.Hangs = func(c apitest.Call) bool { return on(tc.hangs, c) }
						h.Refuses = func(c apitest.Call) error {
							if on(tc.expires, c) {
								return apierrors.NewResourceExpired("the list is too old")
							}
							return nil
						}
					})
				}
				follow := func(value string, copies int) {
					t.Helper()
					logged := len(s.log())
					s.within(tc.within, "copies of "+value, func() bool { return s.countCopies("team-", value) == copies })
					line := regexp.MustCompile("Cannot list or watch, retrying.*the watch does not show the end.*" + resource)
					if !line.MatchString(s.log()[logged:]) {
						t.Errorf("got no line %q, of a failure of %s:\n%s", line, resource, s.log())
					}
				}
				fail()
				defer s.isSafe()
				defer s.start()()
				follow("one", 60)
				time.Sleep(10 * time.Minute)
				fail()
				s.ConfigMaps.Expire()
				s.Namespaces.Expire()
				s.edit("platform", data("two"))
				s.addNamespace("team-new")
				time.Sleep(20 * time.Second)
				s.addNamespace("other") // events are no end
				s.edit("platform", plantest.Annotation("note", "x"))
				follow("two", 61)
				s.settles()
			}
			t.Run(name+", "+resource, func(t *testing.T) { synctest.Test(t, test) })
		}
	}
}

func init() { // each cache logs a warning that the detector is on; errors still go to stderr
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
}

// TestC39MutationIsNoticed: a process that modifies an object of the controller's cache panics, in each test of this
// package but the heavy ones and in each history, as `make unit` runs them.
func TestC39MutationIsNoticed(t *testing.T) {
	const modifies = "MODIFIES"
	modify := map[string]func(scene){
		"a source": func(s scene) { s.controller.cache.View("settings").Sources[0].ConfigMap.Data["key"] = "modified" },
		"a namespace": func(s scene) {
			for ns := range s.controller.cache.Namespaces() {
				ns.Labels["modified"] = "true"
			}
		},
	}
	if do := modify[os.Getenv(modifies)]; do != nil { // in a process of its own
		withGrace(0, func(_ *testing.T, s scene) {
			do(s)
			time.Sleep(time.Minute)
		})(t)
		return
	}
	for what := range modify {
		t.Run(what, func(t *testing.T) {
			process := exec.Command(os.Args[0], "-test.run", "^TestC39MutationIsNoticed$")
			process.Env = append(os.Environ(), modifies+"="+what, "KUBE_CACHE_MUTATION_DETECTOR=") // as in make unit
			out, err := process.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "ALTERED!") {
				t.Errorf("nobody noticed that it was modified: %v\n%s", err, out)
			}
		})
	}
}
