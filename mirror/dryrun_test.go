package mirror

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// writeVerbs are the verbs of requests that change something, dry-run requests included.
var writeVerbs = []string{"create", "update", "patch", "delete"}

// dry runs a dry run on an API server with the namespace platform, and with these objects.
func dry(t *testing.T, edit func(*Options), objects []runtime.Object, f func(*testing.T, scene)) {
	t.Helper()
	alone(t, having(objects...), func(o *Options) { o.DryRun, o.Namespace = true, "platform"; edit(o) }, func(t *testing.T, s scene) {
		f(t, s)
		if n := s.CountAll("", writeVerbs...); n != 0 {
			t.Errorf("got %d writes, want none", n)
		}
		if events := s.all(); events != "" {
			t.Errorf("got the events %s, want none", events)
		}
		for _, operation := range writeOperations {
			for _, result := range writeResults {
				if n := s.value("mirror_writes_total", operation, result); n > 0 {
					t.Errorf("got mirror_writes_total %s %s %v, want 0", operation, result, n)
				}
			}
		}
	})
}

// wantWould fails the test unless the dry run would do this in the end, and has this number of copies in sync. Nothing may take
// longer than the deletion grace.
func (s scene) wantWould(text string, synced float64) {
	s.t.Helper()
	time.Sleep(3 * time.Second)
	synctest.Wait()
	status, would := s.controller.status, tally{}
	for name := range maps.Clone(status.names) {
		n := status.lock(name)
		for _, r := range n.targets {
			if r.would != plan.OpNone {
				would[r.would]++
			}
		}
		n.unlock()
	}
	if got, n := would.String(), s.value("mirror_copies", "synced"); got != text || n != synced {
		s.t.Errorf("got it to %q, and %v copies in sync, want %q and %v", got, n, text, synced)
	}
}

// oneOfEach is a source with a target for each decision.
func oneOfEach() []runtime.Object {
	src := source(plantest.Data("key", "one"))
	gone := plantest.Source("platform", "gone")
	released := copyOf(src, "team-unlabelled")
	released.Labels = nil
	immutable := copyOf(source(plantest.Data("key", "old"), plantest.Immutable), "team-immutable")
	var out []runtime.Object
	for _, name := range []string{"new", "synced", "drift", "foreign", "unlabelled", "immutable", "optout"} {
		out = append(out, plantest.Namespace("team-"+name))
	}
	out[6].(*corev1.Namespace).Labels = map[string]string{"mirror": "false"}
	return append(out, src,
		copyOf(src, "team-synced"), copyOf(source(plantest.Data("key", "old")), "team-drift"),
		plantest.ConfigMap("team-foreign", "settings"), released, immutable, copyOf(src, "team-optout"), copyOf(gone, "team-new"))
}

const wouldDoEach = "create 1, update 2, recreate 1, delete 2"

// TestDryRun finds each change without making it, and does not compare again while nothing changes.
func TestDryRun(t *testing.T) {
	dry(t, noEdit, oneOfEach(), func(t *testing.T, s scene) {
		s.wantWould(wouldDoEach, 1)
		if pending, foreign := s.value("mirror_copies", "pending"), s.value("mirror_copies", "foreign"); pending != 6 || foreign != 1 {
			t.Errorf("got %v pending copies and %v foreign ones, want 6 and 1", pending, foreign)
		}
		reconciles, reads := s.reconciles(), s.CountAll("", "get")
		time.Sleep(30 * time.Minute) // a foreign object is read once a minute
		if n := s.reconciles() - reconciles; n > 40 {
			t.Errorf("got %v reconciles in half an hour, want those of the foreign object", n)
		}
		if n := s.CountAll("", "get") - reads; n > 80 {
			t.Errorf("got %d reads in half an hour, want those of the foreign object", n)
		}
		s.wantWould(wouldDoEach, 1)
	})
}

// reconciles returns how many reconciles there were.
func (s scene) reconciles() (n float64) {
	for _, result := range reconcileResults {
		n += s.value("controller_runtime_reconcile_total", "mirror", result)
	}
	return n
}

// TestDryRunFollows the cluster: somebody else makes the changes, or makes others due.
func TestDryRunFollows(t *testing.T) {
	src := source(plantest.Data("key", "one"))
	dry(t, noEdit, []runtime.Object{plantest.Namespace("team-a"), plantest.Namespace("team-b"), src}, func(t *testing.T, s scene) {
		s.wantWould("create 2", 0)
		s.write(copyOf(src, "team-a"))
		s.wantWould("create 1", 1)
		s.edit("platform", plantest.Data("key", "two"))
		s.wantWould("create 1, update 1", 0)
		s.addNamespace("team-c")
		s.wantWould("create 2, update 1", 0)
		s.remove("platform")
		s.wantWould("delete 1", 0)
		s.remove("team-a")
		s.wantWould("", 0)
	})
}

// TestDryRunSeesForeignObjectGo although no event tells of it, within the hour.
func TestDryRunSeesForeignObjectGo(t *testing.T) {
	dry(t, noEdit, []runtime.Object{plantest.Namespace("team-a"), source(), plantest.ConfigMap("team-a", "settings")}, func(t *testing.T, s scene) {
		s.wantWould("", 0)
		s.remove("team-a")
		time.Sleep(2 * time.Minute)
		s.wantWould("create 1", 0)
		s.write(plantest.ConfigMap("team-a", "settings"))
		time.Sleep(time.Hour)
		s.wantWould("", 0)
	})
}

// TestDryRunLogs a line for each source, and one for each copy at level 2.
func TestDryRunLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for level, want := range map[int][]string{0: {
			`"Dry run, writing nothing"`,
			`"Would create 1, update 2, recreate 1, delete 1" source="platform/settings"`,
			`"Would delete 1" source="platform/gone"`,
		}, 2: {`"Would change a copy" copy="team-optout/settings" op="delete" source="platform/settings"`}} {
			logged := logOfDryRun(t, level, func(scene) {}, func(scene) {}, oneOfEach()...)
			for _, line := range want {
				if n := strings.Count(logged, line); n != 1 {
					t.Errorf("level %d: got %d times %s, want once, in\n%s", level, n, line, logged)
				}
			}
			for _, no := range []string{"Would change a copy", "Copy written", "Copy deleted", "Mirroring"} {
				if level == 0 && strings.Contains(logged, no) {
					t.Errorf("got %s in\n%s", no, logged)
				}
			}
		}
	})
}

// TestDryRunLogsLast: of many changes within a moment, the last one is logged at level 0 in the end, and nothing twice.
func TestDryRunLogsLast(t *testing.T) {
	for level, want := range map[int]string{0: "1 5", 2: "1 2 3 4 5 5"} {
		synctest.Test(t, func(t *testing.T) {
			logged := logOfDryRun(t, level, func(scene) {}, func(s scene) {
				for i := range 5 {
					s.addNamespace(fmt.Sprintf("team-%d", i))
					time.Sleep(time.Second)
				}
				time.Sleep(20 * time.Second)
			}, source())
			var got []string
			for _, m := range regexp.MustCompile(`"Would create (\d)"`).FindAllStringSubmatch(logged, -1) {
				got = append(got, m[1])
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("level %d: got lines about %s changes, want %s, in\n%s", level, text, want, logged)
			}
		})
	}
}

// TestDryRunPrune says what the prune limit blocks and what it lets go.
func TestDryRunPrune(t *testing.T) {
	src := source()
	objects := append(teams(10, "team-"), src)
	for i, ns := range teams(12, "other-") {
		objects = append(objects, ns, copyOf(src, ns.(*corev1.Namespace).Name))
		if i < 10 {
			objects = append(objects, copyOf(src, teams(10, "team-")[i].(*corev1.Namespace).Name))
		}
	}
	dry(t, noEdit, objects, func(t *testing.T, s scene) {
		s.wantWould("", 10)
		if n := s.value("mirror_prune_blocked"); n != 12 {
			t.Errorf("got %v copies kept by the prune limit, want 12", n)
		}
	})
	dry(t, func(o *Options) { o.PruneLimit = 100 }, objects, func(t *testing.T, s scene) {
		s.wantWould("delete 12", 10)
	})
}

// logBuffer is a bytes.Buffer for several goroutines.
type logBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// logOfDryRun returns what a dry run logs at this level until f has returned. before prepares its API server.
func logOfDryRun(t *testing.T, level int, before, f func(scene), objects ...runtime.Object) string {
	t.Helper()
	s := newScene(t, having(objects...)(), func(o *Options) { o.DryRun = true })
	before(s)
	var out logBuffer
	config := textlogger.NewConfig(textlogger.Output(&out), textlogger.Verbosity(level))
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), textlogger.NewLogger(config)))
	ended := make(chan error, 1)
	go func() { ended <- s.controller.Run(ctx, Alone(ctx)) }()
	time.Sleep(10 * time.Minute)
	f(s)
	stop()
	s.noted(<-ended)
	return out.String()
}
