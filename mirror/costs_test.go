package mirror

// What an event costs, in memory and in work, does not grow with what was there
// before it, nor with the cluster.

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// heap returns how many bytes are in use. What the server of the test remembers
// of changes does not count.
func (s scene) heap() int {
	synctest.Wait()
	s.ConfigMaps.Forget()
	goruntime.GC()
	goruntime.GC() // a pool of package sync keeps its objects for a collection
	var now goruntime.MemStats
	goruntime.ReadMemStats(&now)
	return int(now.HeapAlloc)
}

// TestC87EditsTakeNoMemory: somebody edits one ConfigMap in the place of a copy
// all the time, and chooses what the controller notes about it: the finalizer
// that keeps it, or the instance that it belongs to.
func TestC87EditsTakeNoMemory(t *testing.T) {
	long := strings.Repeat("x", 180)
	for name, edit := range map[string]func(i int) []plantest.Option{
		"finalizer": func(i int) []plantest.Option {
			return []plantest.Option{withoutFinalizers, func(cm *corev1.ConfigMap) {
				cm.Finalizers = append(cm.Finalizers, fmt.Sprintf("example.com/f%d", i))
			}}
		},
		"instance": func(i int) []plantest.Option {
			return []plantest.Option{plantest.Annotation(plan.CopyAnnotation, "team-000/settings"),
				plantest.Annotation(plan.InstanceAnnotation, fmt.Sprint(i, long))}
		},
	} {
		foreign := plantest.ConfigMap("team-000", "settings", copyLabel)
		objects := append(teams(2, "team-"), source(), foreign)
		t.Run(name, inScene(objects, func(t *testing.T, s scene) {
			edits := 0
			editTimes := func(n int) {
				for range n {
					edits++
					s.edit("team-000", edit(edits)...)
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(time.Hour)
			}
			editTimes(1000) // until caches and queues have their size
			before := s.heap()
			editTimes(5000)
			if grown := s.heap() - before; grown > 1<<20 {
				t.Errorf("got %d bytes more in use after 5,000 edits, want at most 1 MiB", grown)
			}
		}))
	}
}

// TestC80TwoSourcesOfEachName: 1,000 names have two sources
// each, none with a target, beside 1,000 namespaces. A new namespace that none
// of them selects costs each name a look at that one. Case C80.
//
// Nothing that the package exports counts looks at namespaces. A list of all of
// them takes 8 bytes for each, so the test counts bytes that are allocated.
func TestC80TwoSourcesOfEachName(t *testing.T) {
	const many = 1000
	objects := append(teams(many, "team-"), plantest.Namespace("blue"))
	for i := range many {
		name, later := fmt.Sprintf("settings-%d", i), prefixes(fmt.Sprintf("later-%d", i))
		objects = append(objects, plantest.Source("platform", name, later),
			plantest.Source("blue", name, later))
	}
	edit := func(o *Options) { o.NamespacePrefixes = []string{"team-", "later-"} }
	inSceneWith(objects, edit, func(t *testing.T, s scene) {
		time.Sleep(time.Hour)
		synctest.Wait()
		before := allocated()
		s.addNamespace("team-new")
		time.Sleep(time.Minute)
		synctest.Wait()
		if each := (allocated() - before) / many; each > 8*many {
			t.Errorf("got %d bytes for each name, want less than %d", each, 8*many)
		}
	})(t)
}

// slowNames is a queue of names to which an addition takes a second, while takes is set. Virtual time passes where a
// goroutine waits, and nothing in a report does. Nobody may want the locks of the caller meanwhile.
type slowNames struct {
	workqueue.TypedInterface[string]

	takes *atomic.Bool
}

func (q slowNames) Add(name string) {
	if q.takes.Load() {
		time.Sleep(time.Second)
	}
	q.TypedInterface.Add(name)
}

// TestC64PauseAfterAnExpensiveReport: a report takes a second. The next one waits for ten, but for the line about a
// deletion.
func TestC64PauseAfterAnExpensiveReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, append(teams(3, "team-"), source()), func(o *Options) { o.DeletionGrace = time.Minute })
		takes := &atomic.Bool{}
		due := s.controller.reporter.due
		due.namespaces = slowNames{due.namespaces, takes}
		defer s.isSafe()
		defer s.start()()
		time.Sleep(time.Minute)
		expensive := func(reports float64) {
			t.Helper()
			takes.Store(true)
			s.edit("platform", data(fmt.Sprint(reports)))
			time.Sleep(reportDelay + 500*time.Millisecond)
			takes.Store(false)
			time.Sleep(time.Second)
			s.wantMetric(reports, "mirror_propagation_seconds") // each report observes a change
		}
		expensive(2) // after that of the start
		s.edit("platform", data("new"))
		time.Sleep(9 * time.Second)
		s.wantCopies(3, "team-", "new")
		s.wantMetric(2, "mirror_propagation_seconds")
		time.Sleep(2 * time.Second)
		s.wantMetric(3, "mirror_propagation_seconds")
		expensive(4)
		s.optOut("team-000")
		time.Sleep(2 * reportDelay)
		if n := s.countAnnouncements(); n != 1 {
			t.Errorf("got %d lines about a deletion, want one at once", n)
		}
		s.settles()
	})
}
