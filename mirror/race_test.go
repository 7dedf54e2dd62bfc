package mirror

// Faults by readings that are older than what is settled by them. The storm found one of that kind, a hunt for more the rest.
// The name of each test is what happens, or what was wrong, and the comment how.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
)

// still is a controller that does not run: its caches and handlers are moved by hand, as when the handlers lag behind.
type still struct {
	*Controller
	*diary
	client *fake.Clientset
}

func newStill(t *testing.T, objects ...runtime.Object) still {
	t.Helper()
	o := NewOptions()
	o.NamespacePrefixes = []string{"team-"}
	client, d := fake.NewClientset(objects...), &diary{}
	c, err := New(client, d, o)
	if err != nil {
		t.Fatal(err)
	}
	c.active.Store(true)
	return still{c, d, client}
}

func (s still) namespace(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := s.namespaces.GetIndexer().Add(namespace(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// cached puts objects into the cache, and no handler hears of it.
func (s still) cached(t *testing.T, cms ...*corev1.ConfigMap) {
	t.Helper()
	for _, cm := range cms {
		if err := s.configMaps.GetIndexer().Add(cm); err != nil {
			t.Fatal(err)
		}
	}
}

// echo puts into the cache what the API server has.
func (s still) echo(t *testing.T, namespace, name string) *corev1.ConfigMap {
	t.Helper()
	cm, err := s.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cm = cm.DeepCopy()
	s.rules.strip(cm)
	s.cached(t, cm)
	return cm
}

func (s still) work(t *testing.T) {
	t.Helper()
	for range 5 {
		s.reconcile(t.Context(), t.Context(), "settings")
		s.writes.Wait()
	}
}

// the cache has the new content before the handler; a job writes it, and is reported as one of the old content. Then the
// event comes, everything is in line, and nothing is said.
func TestRaceMirroredIsNeverSaidOfWhatWasWrittenBeforeItsEvent(t *testing.T) {
	s := newStill(t)
	one := sourceCM("platform", "settings")
	two := sourceCM("platform", "settings", data("key", "changed"))
	two.ResourceVersion = "8"
	s.namespace(t, "platform", "team-a")
	s.cached(t, one)
	s.configMapSeen(one)
	s.work(t)
	s.echo(t, "team-a", "settings")
	if n := s.told(ReasonMirrored); n != 1 {
		t.Fatalf("got %d Mirrored, want 1", n)
	}
	s.cached(t, two)                     // the indexer
	s.mark("settings", "team-a", mark{}) // a job that is under way for any reason: an echo, a retry
	jobs, _ := s.backlog.take("settings", sliceSize, nil)
	for _, j := range jobs {
		s.carryOut(t.Context(), t.Context(), "settings", j)
	}
	s.echo(t, "team-a", "settings")
	s.configMapUpdated(one, two) // the handler
	s.work(t)
	if n := s.told(ReasonMirrored); n != 2 {
		t.Errorf("got %d Mirrored in %q, want 2: the new content is in line", n, s.reasons)
	}
}

// the same through reconcile, whose second view differs from the first.
func TestRaceMirroredIsNeverSaidIfTheSecondViewDiffers(t *testing.T) {
	s := newStill(t)
	one := sourceCM("platform", "settings")
	two := sourceCM("platform", "settings", data("key", "changed"))
	two.ResourceVersion = "8"
	s.namespace(t, "platform", "team-a")
	s.cached(t, one)
	s.configMapSeen(one)
	s.work(t)
	s.echo(t, "team-a", "settings")
	interpose(s.Controller, readSources)(2, func() { s.cached(t, two) })
	s.mark("settings", "team-a", mark{})
	s.reconcile(t.Context(), t.Context(), "settings")
	s.writes.Wait()
	s.echo(t, "team-a", "settings")
	s.configMapUpdated(one, two) // the handler
	s.work(t)
	if n := s.told(ReasonMirrored); n != 2 {
		t.Errorf("got %d Mirrored in %q, want 2", n, s.reasons)
	}
}

// a source that the cache has before its event comes: its writes count, and it is not said to be mirrored before all of its
// targets were looked at.
func TestRaceMirroredIsSaidOnceOfASourceBeforeItsEvent(t *testing.T) {
	src := sourceCM("platform", "settings")
	for name, appears := range map[string]func(t *testing.T, s still){
		"before the round": func(t *testing.T, s still) {
			s.cached(t, src)
			s.reconcile(t.Context(), t.Context(), "settings")
		},
		"between the views of the round": func(t *testing.T, s still) {
			interpose(s.Controller, readSources)(2, func() { s.cached(t, src) })
			s.reconcile(t.Context(), t.Context(), "settings")
		},
		"while a write waits for its slot": func(t *testing.T, s still) {
			jobs, _ := s.backlog.take("settings", sliceSize, nil)
			s.cached(t, src)
			s.carryOut(t.Context(), t.Context(), "settings", jobs[0])
		},
	} {
		for want, targets := range map[string][]string{"1 copy in line": {"team-a"}, "2 copies in line": {"team-a", "team-b"}} {
			t.Run(name+", "+want, func(t *testing.T) {
				s := newStill(t)
				s.namespace(t, append(targets, "platform")...)
				s.mark("settings", "team-a", mark{}) // any event there
				appears(t, s)
				s.writes.Wait()
				s.work(t)
				s.echo(t, "team-a", "settings")
				s.configMapSeen(src) // the handler
				s.work(t)
				if !slices.Equal(s.notes, []string{want}) {
					t.Errorf("got events %q, want %q", s.notes, want)
				}
			})
		}
	}
}

// another worker looks while the first one has read, and not yet told the ledger.
func TestRaceNoOlderLookComesBehindANewerOne(t *testing.T) {
	s := newStill(t)
	two := sourceCM("platform", "settings", data("key", "changed"))
	s.cached(t, sourceCM("platform", "settings"))
	interpose(s.Controller, readSources)(1, func() {
		s.cached(t, two)
		s.look("settings")
	})
	v, _ := s.look("settings")
	if known := s.ledger.names["settings"][sourceKey].source.cm; v.sources[0].cm != two || known != two {
		t.Errorf("got content %v, and %v in the ledger, want the newer", v.sources[0].cm.Data, known.Data)
	}
}

// settle finds the backlog of a name idle; before it reports that, a source comes, and a worker opens its account and lists
// its targets. The report takes the new content for told, and the end of its latency is now.
func TestRaceReportOfAnIdleNameTakesWhatIsNewForTold(t *testing.T) {
	s := newStill(t)
	src := sourceCM("platform", "settings")
	s.namespace(t, "platform", "team-a")
	s.mark("settings", "team-a", mark{})
	jobs, _ := s.backlog.take("settings", sliceSize, nil)
	// The last lines of settle, of one goroutine:
	if _, idle := s.backlog.done("settings", jobs[0].namespace); !idle {
		t.Fatal("not idle")
	}
	// A handler, and a worker:
	s.cached(t, src)
	s.configMapSeen(src)
	interpose(s.Controller, readTargets)(1, func() { // in targetsOf, behind ledger.open
		// settle goes on:
		s.report(t.Context(), "settings")
		if len(s.latencies.sources["settings"]) == 0 {
			t.Error("got the latency of the change ended before its first write, want it measured")
		}
	})
	s.work(t)
	if n := s.told(ReasonMirrored); n != 1 {
		t.Errorf("got %d Mirrored in %q, want 1", n, s.reasons)
	}
}

// withObjects runs a controller on an API server that has these objects.
func withObjects(t *testing.T, objects []runtime.Object, f func(*testing.T, scene)) {
	t.Helper()
	alone(t, func() *apiServer { return newAPIServer(objects...) }, func(*Options) {}, f)
}

func noted[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		return v
	}
}

// goesUnseen has what is done in team-a go unseen, until what came of it is deleted there by somebody, and a relist shows the
// rest: no event ever tells of it. A day later the copy has to be there.
func goesUnseen(t *testing.T, repairs int, do func(*testing.T, scene)) {
	t.Helper()
	withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a")}, func(t *testing.T, s scene) {
		repaired := repairsOfDeleted(t, s)
		s.stalled.Store(new("team-a"))
		do(t, s)
		time.Sleep(100 * time.Millisecond)
		if err := s.configMaps("team-a").Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		s.relist()
		time.Sleep(24 * time.Hour)
		if _, err := s.configMaps("team-a").Get(t.Context(), "settings", metav1.GetOptions{}); err != nil {
			l := s.controller.ledger
			t.Errorf("a day later: %v; the ledger says %d synced, %d foreign", err, l.copies(outcomeSynced), l.copies(outcomeForeign))
		}
		repaired(repairs)
	})
}

// repairsOfDeleted returns what compares how many copies that were deleted were put back since.
func repairsOfDeleted(t *testing.T, s scene) (want func(int)) {
	registry := metrics.NewKubeRegistry()
	s.controller.RegisterMetrics(registry)
	return func(n int) {
		t.Helper()
		if got, want := scrape(t, registry), fmt.Sprintf("mirror_repairs_total{cause=\"deleted\"} %d\n", n); !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant in it %s", got, want)
		}
	}
}

func TestRaceCopyThatGoesBeforeTheWatchHasShownIt(t *testing.T) {
	goesUnseen(t, 1, func(t *testing.T, s scene) {
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(t.Context(), sourceCM("platform", "settings"), metav1.CreateOptions{}))
	})
}

// an object that is in the way, and carries our label, is left to the watch.
func TestRaceForeignObjectThatGoesBeforeTheWatchHasShownIt(t *testing.T) {
	goesUnseen(t, 0, func(t *testing.T, s scene) {
		theirs := configMap("team-a", "settings", label(DefaultLabel, CopyValue))
		noted[*corev1.ConfigMap](t)(s.configMaps("team-a").Create(t.Context(), theirs, metav1.CreateOptions{}))
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(t.Context(), sourceCM("platform", "settings"), metav1.CreateOptions{}))
	})
}

// another source of the name appears while the look at the one that is gone is under way.
func TestRaceNamesakeAppearsDuringTheLook(t *testing.T) {
	objects := []runtime.Object{namespace("platform"), namespace("shared"), namespace("team-a"), sourceCM("platform", "settings")}
	withObjects(t, objects, func(t *testing.T, s scene) {
		ctx := t.Context()
		var looks atomic.Int32
		s.after = func(c call) {
			if c == (call{"get", "configmaps", "platform"}) {
				if looks.Add(1) == 2 {
					noted[*corev1.ConfigMap](t)(s.configMaps("shared").Create(ctx, sourceCM("shared", "settings"), metav1.CreateOptions{}))
					time.Sleep(50 * time.Millisecond) // the answer is on its way; cache and handlers have the new source
				}
			}
		}
		if err := s.configMaps("platform").Delete(ctx, "settings", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := looks.Load(); n < 2 {
			t.Fatalf("got %d looks, want 2", n)
		}
		if n := s.count("delete", "configmaps", "team-a"); n != 0 {
			t.Errorf("got %d deletions of a copy that another source had claimed for 50 ms, want it taken over in place", n)
		}
	})
}

// the source claims the target again while the look at the namespace is under way; what was known of the source is void.
func TestRaceSourceClaimsAgainDuringTheLookAtTheNamespace(t *testing.T) {
	team := namespace("team-a", "tier", "gold")
	src := sourceCM("platform", "settings", annotation(SelectorAnnotation, "tier=gold"))
	withObjects(t, []runtime.Object{namespace("platform"), team, src}, func(t *testing.T, s scene) {
		ctx := t.Context()
		var looks atomic.Int32
		s.after = func(c call) {
			if c.verb == "get" && c.resource == "namespaces" {
				if looks.Add(1) == 1 {
					wide := sourceCM("platform", "settings")
					wide.ResourceVersion = "1000"
					noted[*corev1.ConfigMap](t)(s.configMaps("platform").Update(ctx, wide, metav1.UpdateOptions{}))
					time.Sleep(50 * time.Millisecond)
				}
			}
		}
		narrow := sourceCM("platform", "settings", annotation(SelectorAnnotation, "tier=silver"))
		narrow.ResourceVersion = ""
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Update(ctx, narrow, metav1.UpdateOptions{}))
		time.Sleep(time.Minute)
		if looks.Load() == 0 {
			t.Fatal("got no look at the namespace")
		}
		if n := s.count("delete", "configmaps", "team-a"); n != 0 {
			t.Errorf("got %d deletions of a copy that its source had claimed again for 50 ms", n)
		}
	})
}

// a round is given up for a new one; of the targets that it had announced one has gone while there was no source.
func TestRaceAnnouncedTargetOfAGoneNamespaceIsPendingForEver(t *testing.T) {
	objects := append(inNamespaces(70, "team-"), namespace("platform"))
	alone(t, func() *apiServer { return newAPIServer(objects...) }, func(o *Options) { o.ConcurrentWrites = 1 }, func(t *testing.T, s scene) {
		ctx := t.Context()
		var slow atomic.Bool
		slow.Store(true)
		s.before = func(c call) {
			if c.verb == "create" && slow.Load() {
				time.Sleep(10 * time.Second)
			}
		}
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(ctx, sourceCM("platform", "settings"), metav1.CreateOptions{}))
		time.Sleep(time.Second) // the first of 64 is under way, 6 wait for the next slice
		if err := s.configMaps("platform").Delete(ctx, "settings", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := s.Interface.CoreV1().Namespaces().Delete(ctx, "team-069", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		again := sourceCM("platform", "settings")
		again.UID = "another"
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(ctx, again, metav1.CreateOptions{}))
		slow.Store(false)
		time.Sleep(24 * time.Hour)
		c := s.controller
		if n := c.ledger.copies(outcomePending); n != 0 {
			t.Errorf("got %d pending and %d synced a day later, events %q, and %d latencies that go on", n, c.ledger.copies(outcomeSynced), s.reasons, len(c.latencies.sources))
		}
	})
}

// a copy outside the flags whose namespace the cache shows after the copy.
func TestRaceNamespaceOutsideTheFlagsComesAfterTheCopy(t *testing.T) {
	s := newStill(t)
	src := sourceCM("platform", "settings")
	s.namespace(t, "platform")
	s.cached(t, src)
	stranger := copyIn(src, "other")
	s.cached(t, stranger)
	s.configMapSeen(src)
	s.configMapSeen(stranger)
	s.work(t)
	s.namespaces.GetIndexer().Add(namespace("other"))
	s.namespaceSeen("other")
	s.work(t)
	if n := s.ledger.copies(outcomeStranger); n != 1 {
		t.Errorf("got %d strangers, events %q, want 1 reported", n, s.reasons)
	}
}

// a source goes between the two listings of the names for a new namespace: it is never settled there.
func TestRaceFillingThatNeverEnds(t *testing.T) {
	s := newStill(t)
	src, other := sourceCM("platform", "settings"), sourceCM("platform", "other")
	s.namespace(t, "platform")
	s.cached(t, src, other)
	interpose(s.Controller, readNames)(1, func() {
		if err := s.configMaps.GetIndexer().Delete(other); err != nil {
			t.Error(err)
		}
	})
	s.namespace(t, "team-a")
	s.namespaceSeen("team-a")
	s.configMapDeleted(deletedCM(other))
	s.work(t)
	s.reconcile(t.Context(), t.Context(), "other")
	s.writes.Wait()
	if f := s.latencies.namespaces["team-a"]; f != nil {
		t.Errorf("got %v left to fill, want nothing: it is filled", f.left)
	}
}

func deletedCM(cm *corev1.ConfigMap) cache.DeletedObject[*corev1.ConfigMap] {
	return cache.DeletedObject[*corev1.ConfigMap]{OptionalObj: cm}
}

// the API server's resourceVersions have gone back (a restored etcd): a write that the watch will never show holds up its
// target until they have come that far again.
func TestRaceWriteThatTheWatchWillNeverShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(fake.NewClientset(), testRules(), newMeasures())
		at := cache.ObjectName{Namespace: "team-a", Name: "settings"}
		w.written[at] = echo{"1000000", time.Now()}
		for range 24 * 120 {
			time.Sleep(30 * time.Second)
			w.sweep("5000")
		}
		if w.ahead(at, change{op: opCreate}, "5000") {
			t.Error("got the target held up a day after the write, and nobody is told")
		}
	})
}

// the view is read before the target, and the cache has a newer source, and a copy of that, in between.
func TestRaceTargetThatIsNewerThanTheView(t *testing.T) {
	r := testRules()
	one := sourceCM("platform", "settings")
	two := sourceCM("platform", "settings", data("key", "changed"))
	two.ResourceVersion = "8"
	old, new := copyCM(r, one, "team-a"), copyCM(r, two, "team-a")
	new.ResourceVersion = "10"
	s := newStill(t, new.DeepCopy())
	r.strip(old)
	r.strip(new)
	s.namespace(t, "platform", "team-a")
	s.cached(t, one, old)
	interpose(s.Controller, readSources)(2, func() { s.cached(t, two, new) }) // by the process that led before
	s.mark("settings", "team-a", mark{})
	jobs, _ := s.backlog.take("settings", sliceSize, nil)
	s.carryOut(t.Context(), t.Context(), "settings", jobs[0])
	got, err := s.client.CoreV1().ConfigMaps("team-a").Get(t.Context(), "settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Data["key"] != "changed" {
		t.Errorf("got %q written over the newer content, want it left", got.Data)
	}
}

// what is in the way is our own copy without its label, being deleted; a round tells that it is foreign.
func TestRaceRoundTellsForeignOfOurOwn(t *testing.T) {
	r := testRules()
	src := sourceCM("platform", "settings")
	going := copyCM(r, src, "team-a", without(r.label), deleting)
	going.Finalizers = []string{"example.com/hold"}
	s := newStill(t, going)
	s.namespace(t, "platform", "team-a")
	s.cached(t, src)
	s.configMapSeen(src)
	s.work(t)
	if n := s.told(ReasonForeign); n != 0 {
		t.Fatalf("got %q before", s.reasons)
	}
	two := sourceCM("platform", "settings", data("key", "changed"))
	two.ResourceVersion = "8"
	s.cached(t, two)
	s.configMapUpdated(src, two)
	s.work(t)
	if n := s.told(ReasonForeign); n != 0 {
		t.Errorf("got %q, want nothing said to be foreign: it is ours and pending", s.reasons)
	}
}

// the source goes while the object that is in the way is read: what was handed over becomes a copy of nothing, and goes.
func TestRaceAdoptionForASourceThatIsGone(t *testing.T) {
	theirs := configMap("team-a", "settings", annotation(AdoptAnnotation, AdoptValue), data("theirs", "precious"))
	objects := []runtime.Object{namespace("platform"), namespace("team-a"), theirs}
	withObjects(t, objects, func(t *testing.T, s scene) {
		ctx := t.Context()
		var once atomic.Bool
		s.after = func(c call) {
			if c == (call{"get", "configmaps", "team-a"}) && once.CompareAndSwap(false, true) {
				if err := s.configMaps("platform").Delete(ctx, "settings", metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(ctx, sourceCM("platform", "settings"), metav1.CreateOptions{}))
		time.Sleep(time.Minute)
		if cm, err := s.configMaps("team-a").Get(ctx, "settings", metav1.GetOptions{}); err != nil || cm.Data["theirs"] == "" {
			t.Errorf("got %v, %v; the source had gone 50 ms before it was adopted", cm, err)
		}
	})
}

// the source changes while the object in the way is read, again and again: that is no reason for another create at once.
func TestRaceEditsDuringTheReadOfAnObjectInTheWay(t *testing.T) {
	theirs := configMap("team-a", "settings", data("theirs", "precious"))
	withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a"), theirs}, func(t *testing.T, s scene) {
		ctx := t.Context()
		var edits atomic.Int32
		s.after = func(c call) {
			if c == (call{"get", "configmaps", "team-a"}) {
				edited := sourceCM("platform", "settings", data("key", strconv.Itoa(int(edits.Add(1)))))
				edited.ResourceVersion = strconv.Itoa(1000 + int(edits.Load()))
				noted[*corev1.ConfigMap](t)(s.configMaps("platform").Update(ctx, edited, metav1.UpdateOptions{}))
				time.Sleep(50 * time.Millisecond)
			}
		}
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(ctx, sourceCM("platform", "settings"), metav1.CreateOptions{}))
		time.Sleep(time.Minute)
		if n := s.count("create", "configmaps", "team-a"); n < 2 || n > 20 {
			t.Errorf("got %d creates in a minute, want its pace", n)
		}
	})
}

// its namespace opts out while the object that is in the way is read.
func TestRaceAdoptionInANamespaceThatOptsOut(t *testing.T) {
	theirs := configMap("team-a", "settings", annotation(AdoptAnnotation, AdoptValue), data("theirs", "precious"))
	withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a"), theirs}, func(t *testing.T, s scene) {
		out := namespace("team-a", DefaultLabel, OptOutValue)
		out.ResourceVersion = "1000"
		s.after = func(c call) {
			if c == (call{"get", "configmaps", "team-a"}) {
				noted[*corev1.Namespace](t)(s.Interface.CoreV1().Namespaces().Update(t.Context(), out, metav1.UpdateOptions{}))
				time.Sleep(50 * time.Millisecond)
			}
		}
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(t.Context(), sourceCM("platform", "settings"), metav1.CreateOptions{}))
		time.Sleep(time.Minute)
		if cm, err := s.configMaps("team-a").Get(t.Context(), "settings", metav1.GetOptions{}); err != nil || cm.Data["theirs"] == "" {
			t.Errorf("got %v, %v; its namespace had opted out 50 ms before it was adopted", cm, err)
		}
	})
}

// the object in the way, of which no event tells, goes before it is read.
func TestRaceObjectInTheWayGoesBeforeItIsRead(t *testing.T) {
	theirs := configMap("team-a", "settings", data("theirs", "precious"))
	withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a")}, func(t *testing.T, s scene) {
		noted[*corev1.ConfigMap](t)(s.configMaps("team-a").Create(t.Context(), theirs, metav1.CreateOptions{}))
		var once sync.Once
		s.before = func(c call) {
			if c == (call{"get", "configmaps", "team-a"}) {
				once.Do(func() {
					if err := s.configMaps("team-a").Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
						t.Error(err)
					}
				})
			}
		}
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(t.Context(), sourceCM("platform", "settings"), metav1.CreateOptions{}))
		time.Sleep(time.Minute)
		if cm, err := s.configMaps("team-a").Get(t.Context(), "settings", metav1.GetOptions{}); err != nil || cm.Data["theirs"] != "" {
			t.Errorf("got %v, %v a minute later, want the copy", cm, err)
		}
	})
}

// what another process wrote while our watch was away is not asked for again and again until the watch is back.
func TestRaceUnseenCopiesAreLeftToTheWatch(t *testing.T) {
	src := sourceCM("platform", "settings")
	withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a")}, func(t *testing.T, s scene) {
		s.stalled.Store(new("team-a"))
		noted[*corev1.ConfigMap](t)(s.configMaps("team-a").Create(t.Context(), copyCM(testRules(), src, "team-a"), metav1.CreateOptions{}))
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(t.Context(), src, metav1.CreateOptions{}))
		for _, at := range []struct {
			pause time.Duration
			want  int
		}{{20 * time.Second, 1}, {20 * time.Second, 2}, {10 * time.Minute, 12}} {
			time.Sleep(at.pause)
			for _, verb := range []string{"create", "get"} {
				if n := s.count(verb, "configmaps", "team-a"); n != at.want {
					t.Errorf("another %v later: got %d requests to %s, want %d", at.pause, n, verb, at.want)
				}
			}
		}
	})
}

// our own copy loses its label before the watch has shown it, and then its source goes: neither is ever shown (C43).
func TestRaceUnseenCopyLosesItsLabelAndItsSource(t *testing.T) {
	src := sourceCM("platform", "settings")
	for name, wrote := range map[string]func(t *testing.T, s scene){
		"written by us": func(*testing.T, scene) {},
		"written by the leader before": func(t *testing.T, s scene) {
			noted[*corev1.ConfigMap](t)(s.configMaps("team-a").Create(t.Context(), copyCM(testRules(), src, "team-a"), metav1.CreateOptions{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a")}, func(t *testing.T, s scene) {
				s.stalled.Store(new("team-a"))
				wrote(t, s)
				noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(t.Context(), src, metav1.CreateOptions{}))
				time.Sleep(100 * time.Millisecond)
				stripCopy(t, s, src)
				deleteSource(t, s)
				time.Sleep(100 * time.Millisecond)
				s.relist()
				wantGoneInADay(t, s)
			})
		})
	}
}

// what a write made is forgotten by a create that fails, and then the source goes (C43).
func TestRaceUnseenCopyBehindACreateThatFails(t *testing.T) {
	src := sourceCM("platform", "settings")
	withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a")}, func(t *testing.T, s scene) {
		s.stalled.Store(new("team-a"))
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(t.Context(), src, metav1.CreateOptions{}))
		time.Sleep(100 * time.Millisecond)
		stripCopy(t, s, src)
		s.relist()
		time.Sleep(time.Second)
		var down atomic.Bool
		down.Store(true)
		s.refuse(func(c call) error {
			if down.Load() && c == (call{"create", "configmaps", "team-a"}) {
				return apierrors.NewInternalError(errors.New("etcd"))
			}
			return nil
		})
		edited := sourceCM("platform", "settings", data("key", "changed"))
		edited.ResourceVersion = "1000"
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Update(t.Context(), edited, metav1.UpdateOptions{}))
		time.Sleep(time.Second)
		deleteSource(t, s)
		time.Sleep(5 * time.Second)
		down.Store(false)
		wantGoneInADay(t, s)
	})
}

// the source goes while the copy is read that no watch shows, and then the copy loses its label (C43).
func TestRaceSourceGoesWhileTheUnseenCopyIsRead(t *testing.T) {
	src := sourceCM("platform", "settings")
	withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a")}, func(t *testing.T, s scene) {
		s.stalled.Store(new("team-a"))
		noted[*corev1.ConfigMap](t)(s.configMaps("team-a").Create(t.Context(), copyCM(testRules(), src, "team-a"), metav1.CreateOptions{}))
		var once sync.Once
		s.after = func(c call) {
			if c == (call{"get", "configmaps", "team-a"}) {
				once.Do(func() {
					deleteSource(t, s)
					time.Sleep(50 * time.Millisecond)
				})
			}
		}
		edited := sourceCM("platform", "settings", data("key", "changed"))
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(t.Context(), edited, metav1.CreateOptions{}))
		time.Sleep(500 * time.Millisecond)
		stripCopy(t, s, src)
		s.relist()
		wantGoneInADay(t, s)
	})
}

// stripCopy takes the label off the copy in team-a.
func stripCopy(t *testing.T, s scene, src *corev1.ConfigMap) {
	t.Helper()
	stripped := copyCM(testRules(), src, "team-a", without(DefaultLabel))
	stripped.ResourceVersion = "500"
	noted[*corev1.ConfigMap](t)(s.configMaps("team-a").Update(t.Context(), stripped, metav1.UpdateOptions{}))
	time.Sleep(50 * time.Millisecond)
}

func deleteSource(t *testing.T, s scene) {
	t.Helper()
	if err := s.configMaps("platform").Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func wantGoneInADay(t *testing.T, s scene) {
	t.Helper()
	time.Sleep(24 * time.Hour)
	if _, err := s.configMaps("team-a").Get(t.Context(), "settings", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a day later: got %v, want the copy of a source that is gone not there any more", err)
	}
}

// quotaFor returns the error of a create that a quota refuses, if it does.
func quotaFor(c call, refuses bool) error {
	if c.verb != "create" || !refuses {
		return nil
	}
	return apierrors.NewForbidden(corev1.Resource("configmaps"), "settings", errors.New("exceeded quota"))
}

// what is in the place of a copy that vanished is read once, and not with each create, once a minute (C40).
func TestRaceVanishedCopyIsLookedForOnce(t *testing.T) {
	replaced := func(t *testing.T, s scene) {
		s.before = func(c call) {
			if c == (call{"create", "configmaps", "team-a"}) {
				_, _ = s.configMaps("team-a").Create(t.Context(), configMap("team-a", "settings", data("theirs", "x")), metav1.CreateOptions{}) // once
			}
		}
	}
	refused := func(_ *testing.T, s scene) {
		s.refuse(func(c call) error { return quotaFor(c, true) })
	}
	failing := func(_ *testing.T, s scene) {
		var failed atomic.Bool
		s.refuse(func(c call) error {
			if c.verb == "create" && failed.CompareAndSwap(false, true) {
				return apierrors.NewInternalError(errors.New("etcd"))
			}
			return quotaFor(c, true)
		})
	}
	for name, happens := range map[string]func(*testing.T, scene){
		"replaced by theirs": replaced, "refused by a quota": refused, "refused behind a failure": failing,
	} {
		t.Run(name, func(t *testing.T) {
			withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a"), sourceCM("platform", "settings")}, func(t *testing.T, s scene) {
				time.Sleep(5 * time.Second)
				happens(t, s)
				if err := s.configMaps("team-a").Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute)
				creates, gets := s.count("create", "configmaps", "team-a"), s.count("get", "configmaps", "team-a")
				time.Sleep(time.Hour)
				creates, gets = s.count("create", "configmaps", "team-a")-creates, s.count("get", "configmaps", "team-a")-gets
				if creates != 60 || gets != 0 {
					t.Errorf("got %d creates and %d reads in an hour, want 60 and none", creates, gets)
				}
			})
		})
	}
}

// a source and its copy go in the same moment, soon after the copy was written.
func TestRaceSourceAndCopyGoAtOnce(t *testing.T) {
	withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a")}, func(t *testing.T, s scene) {
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(t.Context(), sourceCM("platform", "settings"), metav1.CreateOptions{}))
		time.Sleep(5 * time.Second)
		if err := s.configMaps("team-a").Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		deleteSource(t, s)
		time.Sleep(5 * time.Minute)
		if n := s.count("get", "configmaps", "team-a"); n > 1 {
			t.Errorf("got %d looks at where the copy was, want at most one", n)
		}
	})
}

// the namespace of a copy goes and comes back while its target waits: what was written in the old one was not deleted in the
// new one.
func TestRaceNamespaceAnewIsNoRepair(t *testing.T) {
	s := newStill(t)
	at := cache.ObjectName{Namespace: "team-a", Name: "settings"}
	s.writer.written[at] = echo{"7", time.Now()}
	s.namespaceGone("team-b")
	if len(s.writer.written) != 1 {
		t.Error("got a write forgotten in another namespace")
	}
	s.namespaceGone("team-a")
	if len(s.writer.written) != 0 {
		t.Error("got a write remembered in a namespace that is gone")
	}
}

// views of one state have namesakes outside the flags in different orders: that is no reason to look anew.
func TestRaceManySourcesOutsideTheFlags(t *testing.T) {
	src := sourceCM("platform", "settings")
	objects := append(inNamespaces(20, "team-"), namespace("platform"), src)
	for i := range 20 {
		objects = append(objects, copyCM(testRules(), src, fmt.Sprintf("team-%03d", i), without(DefaultLabel)), sourceCM(fmt.Sprintf("tenant-%d", i), "settings"))
	}
	edit := func(o *Options) { o.SourceNamespaces = []string{"platform"} }
	alone(t, func() *apiServer { return newAPIServer(objects...) }, edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		for _, verb := range []string{"create", "get", "update"} {
			n := 0
			for i := range 20 {
				n += s.count(verb, "configmaps", fmt.Sprintf("team-%03d", i))
			}
			if n != 20 {
				t.Errorf("got %d requests to %s, want one for each of 20 copies without their label", n, verb)
			}
		}
	})
}

// an admission webhook takes longer to let a create through than the source takes to be edited again.
func TestRaceEditsDuringTheCreateBesideAnObjectInTheWay(t *testing.T) {
	theirs := configMap("team-a", "settings", data("theirs", "precious"))
	withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a"), theirs}, func(t *testing.T, s scene) {
		s.before = func(c call) {
			if c.verb == "create" {
				time.Sleep(1500 * time.Millisecond)
			}
		}
		noted[*corev1.ConfigMap](t)(s.configMaps("platform").Create(t.Context(), sourceCM("platform", "settings"), metav1.CreateOptions{}))
		for i := range 600 {
			time.Sleep(time.Second)
			edited := sourceCM("platform", "settings", data("key", strconv.Itoa(i)))
			edited.ResourceVersion = strconv.Itoa(1000 + i)
			noted[*corev1.ConfigMap](t)(s.configMaps("platform").Update(t.Context(), edited, metav1.UpdateOptions{}))
		}
		if n := s.count("create", "configmaps", "team-a"); n < 10 || n > 18 {
			t.Errorf("got %d creates in ten minutes, want its pace: 1, 2, 4 seconds, up to one a minute", n)
		}
	})
}

// a worker that finds nothing to do opens no account: a report of another would take it for told before the round is asked
// for.
func TestRaceWorkerWithoutJobsOpensNoAccount(t *testing.T) {
	s := newStill(t)
	interpose(s.Controller, readSources)(2, func() { s.cached(t, sourceCM("platform", "settings")) })
	s.reconcile(t.Context(), t.Context(), "settings")
	if got := s.ledger.names["settings"]; got != nil {
		t.Errorf("got %d accounts opened, want them left to the event", len(got))
	}
}

// heldReports is a recorder that finds out whether another report could overtake this one.
type heldReports struct {
	t *testing.T
	c *Controller
}

func (r *heldReports) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	if r.c.reporting.TryLock() {
		r.c.reporting.Unlock()
		r.t.Errorf("%s: got an event that a later one can overtake", reason)
	}
}

// of two reports about one name the later one is recorded last, for the recorder keeps the last.
func TestRaceReportsInTheirOrder(t *testing.T) {
	s := newStill(t)
	s.recorder = &heldReports{t, s.Controller}
	s.namespace(t, "platform", "team-a")
	src := sourceCM("platform", "settings")
	s.cached(t, src)
	s.configMapSeen(src)
	s.work(t)
	if n := s.ledger.copies(outcomeSynced); n != 1 {
		t.Errorf("got %d in line, want 1", n)
	}
}

// somebody strips the label of a copy that we are deleting: its deletion is refused, and the watch shows it to be gone (C43).
func TestRaceLabelGoesDuringTheDeletion(t *testing.T) {
	src := sourceCM("platform", "settings")
	objects := []runtime.Object{namespace("platform"), namespace("team-a"), src, copyCM(testRules(), src, "team-a")}
	withObjects(t, objects, func(t *testing.T, s scene) {
		var once, refused sync.Once
		s.before = func(c call) {
			if c.verb != "delete" {
				return
			}
			once.Do(func() {
				stripCopy(t, s, src)
			})
		}
		s.refuse(func(c call) (err error) {
			if c.verb == "delete" {
				refused.Do(func() { err = apierrors.NewConflict(corev1.Resource("configmaps"), "settings", nil) }) // the fake clientset checks no preconditions
			}
			return err
		})
		if err := s.configMaps("platform").Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := s.configMaps("team-a").Get(t.Context(), "settings", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a minute later: got %v, want the copy not there any more", err)
		}
	})
}

// what a look finds where a copy vanished says whether a copy is put back there later, or one is made.
func TestRaceRepairsBehindALook(t *testing.T) {
	quota := func(_ *testing.T, s scene) {
		var refused atomic.Bool // it still counts the deleted one
		s.refuse(func(c call) error { return quotaFor(c, c.verb == "create" && refused.CompareAndSwap(false, true)) })
	}
	going := func(t *testing.T, s scene) {
		var once sync.Once
		s.before = func(c call) {
			if c == (call{"create", "configmaps", "team-a"}) {
				once.Do(func() {
					object := copyCM(testRules(), sourceCM("platform", "settings"), "team-a", without(DefaultLabel), deleting)
					noted[*corev1.ConfigMap](t)(s.configMaps("team-a").Create(t.Context(), object, metav1.CreateOptions{}))
				})
			}
		}
	}
	edited := func(t *testing.T, s scene) {
		var refuses atomic.Bool
		refuses.Store(true)
		s.refuse(func(c call) error { return quotaFor(c, refuses.Load()) })
		time.AfterFunc(20*time.Second, func() { // between two tries
			refuses.Store(false)
			src := sourceCM("platform", "settings", data("key", "changed"))
			src.ResourceVersion = "1000"
			noted[*corev1.ConfigMap](t)(s.configMaps("platform").Update(t.Context(), src, metav1.UpdateOptions{}))
		})
	}
	for name, tc := range map[string]struct {
		happens func(*testing.T, scene)
		want    int
	}{
		"nothing, and a quota that refused":  {quota, 1},
		"nothing, and an edit that is a try": {edited, 1},
		"our own, which is being deleted":    {going, 0},
	} {
		t.Run(name, func(t *testing.T) {
			withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a"), sourceCM("platform", "settings")}, func(t *testing.T, s scene) {
				repaired := repairsOfDeleted(t, s)
				time.Sleep(5 * time.Second)
				tc.happens(t, s)
				if err := s.configMaps("team-a").Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				if tc.want == 0 {
					if err := s.configMaps("team-a").Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
						t.Fatal(err) // its finalizer goes
					}
				}
				time.Sleep(5 * time.Minute)
				noted[*corev1.ConfigMap](t)(s.configMaps("team-a").Get(t.Context(), "settings", metav1.GetOptions{}))
				repaired(tc.want)
			})
		})
	}
}

// somebody deletes the copy every 45 seconds, and each time a quota still counts it: that is a fight all the same (C36).
func TestRaceFightBehindAQuota(t *testing.T) {
	withObjects(t, []runtime.Object{namespace("platform"), namespace("team-a"), sourceCM("platform", "settings")}, func(t *testing.T, s scene) {
		time.Sleep(45 * time.Second)
		var creates atomic.Int32
		s.refuse(func(c call) error { return quotaFor(c, c.verb == "create" && creates.Add(1)%2 == 1) })
		for range 60 {
			_ = s.configMaps("team-a").Delete(t.Context(), "settings", metav1.DeleteOptions{}) // if it is there
			time.Sleep(45 * time.Second)
		}
		if s.told(ReasonFight) == 0 {
			t.Error("got no Fight in 45 minutes of 60 deletions")
		}
	})
}

// what we delete, and a relist passes over, is not waited for for ever.
func TestRaceDeletionThatTheWatchNeverShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(fake.NewClientset(), testRules(), newMeasures())
		w.expectDeletion("held by finalizers", true)
		time.Sleep(deletionLifetime - time.Second)
		w.sweep("7")
		if len(w.deleting) != 1 {
			t.Error("got it forgotten before its time")
		}
		time.Sleep(time.Second)
		w.sweep("7")
		if len(w.deleting) != 0 {
			t.Error("got it remembered for ever")
		}
	})
}
