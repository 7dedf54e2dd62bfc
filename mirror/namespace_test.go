package mirror

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestNamespaceBecomesATarget: its copy appears at once. It goes after the grace when the namespace is none any more,
// after one live read.
func TestNamespaceBecomesATarget(t *testing.T) {
	for name, tc := range map[string]struct {
		src     *corev1.ConfigMap
		in, out []string // the labels of a target, and of none
	}{
		"C31 opt-out":                {source(), nil, []string{"mirror", "false"}},
		"C31 selector of the source": {source(selector("tier=gold")), []string{"tier", "gold"}, nil},
	} {
		t.Run(name, inScene([]runtime.Object{tc.src}, func(t *testing.T, s scene) {
			s.addNamespace("team-a", tc.in...)
			s.wantCopy("team-a", "value")
			for range 3 {
				s.setNamespace("team-a", tc.out...)
				time.Sleep(2500 * time.Millisecond) // the line, the grace, and the read
				s.wantNone("team-a")
				s.setNamespace("team-a", tc.in...)
				s.wantCopy("team-a", "value")
			}
			reads, deletions := s.Count("get", "namespaces", "team-a"), s.CountAll("team-a", "delete")
			if reads != 3 || deletions != 3 {
				t.Errorf("got %d reads of the namespace and %d deletions, want 3 of each", reads, deletions)
			}
		}))
	}
}

// TestC65UnclaimedCopyComesIntoScope: the event of its namespace is enough, though
// no source has its name.
func TestC65UnclaimedCopyComesIntoScope(t *testing.T) {
	edit := func(o *Options) { o.NamespaceSelector = "tier=gold" }
	objects := []runtime.Object{plantest.Namespace("team-a"), copyOf(source(), "team-a")}
	inSceneWith(objects, edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantMetric(1, "mirror_copies", "out_of_scope")
		s.setNamespace("team-a", "tier", "gold")
		time.Sleep(time.Minute)
		s.wantNone("team-a")
		s.wantMetric(0, "mirror_copies", "out_of_scope")
	})(t)
}

// TestC47NamespaceWithManyLabels: it is a target as every other. Each of its
// labels counts, so it can opt out.
func TestC47NamespaceWithManyLabels(t *testing.T) {
	var labels []string
	for i := range 500 {
		labels = append(labels, fmt.Sprintf("example.com/%d", i), strings.Repeat("x", 63))
	}
	src := source(selector("example.com/499"))
	inScene([]runtime.Object{src, plantest.Namespace("team-a", labels...)}, func(t *testing.T, s scene) {
		s.wantCopy("team-a", "value")
		s.setNamespace("team-a", append(labels, plan.DefaultLabel, plan.OptOutValue)...)
		time.Sleep(2500 * time.Millisecond) // the line, the grace, and the read
		s.wantNone("team-a")
	})(t)
}

// TestC28Terminating: nothing is created, updated or deleted there, no error is counted, and nothing is retried.
func TestC28Terminating(t *testing.T) {
	inScene(append(teams(2, "team-"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Second)
		s.Terminate("team-000")
		s.edit("platform", data("other"))
		s.remove("team-000") // by the namespace controller
		time.Sleep(time.Hour)
		s.wantCopy("team-001", "other")
		s.wantNone("team-000")
		if n := s.CountAll("team-000", "create", "update", "delete"); n > 2 {
			t.Errorf("got %d writes, want the first copy, and at most one try that was refused", n)
		}
		s.slowDown(100 * time.Millisecond)
		s.addNamespace("team-new")
		time.Sleep(50 * time.Millisecond)
		s.Terminate("team-new") // while the create is in flight
		time.Sleep(time.Hour)
		if n := s.CountAll("team-new", "create", "get"); n != 1 {
			t.Errorf("got %d requests there, want the one create that is refused", n)
		}
		s.wantMetric(0, "mirror_writes_total", "create", "error")
		s.wantMetric(0, "mirror_writes_total", "create", "rejected")
		s.wantEventCount(0, plan.ReasonWriteFailed)
	})(t)
}

// TestC28TerminatingSource: the namespace of a source is being deleted, where the API server refuses events. None is
// sent there.
func TestC28TerminatingSource(t *testing.T) {
	inScene(append(teams(2, "team-"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantMirrored("2 namespaces")
		s.Terminate("platform")
		s.onEvent(func(e Event) error {
			t.Errorf("got an event %s about %v", e.Reason, e.Regarding)
			return nil
		})
		s.edit("platform", data("new"))
		s.addNamespace("team-new")
		time.Sleep(time.Hour)
		s.wantCopies(3, "team-", "new")
	})(t)
}

// TestC30OneNamespaceRefuses: all others are served. That one is retried at most once a minute in the long run,
// reported once, and filled within a minute after the refusal ends.
func TestC30OneNamespaceRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		refuse func(scene)
		filled time.Duration // after the end, with a call that is on its way
	}{
		"by a quota": {func(s scene) {
			s.refuse(on(rejected("exceeded quota"), request("create", "configmaps", "team-bad-000")))
		}, time.Minute},
		"by a webhook that never answers": {func(s scene) { s.hangAt(hangs, webhookDown, "") }, 90 * time.Second},
	} {
		t.Run(name, inScene(append(teams(20, "team-"), teams(1, "team-bad-")...), func(t *testing.T, s scene) {
			tc.refuse(s)
			s.write(source())
			s.within(100*time.Millisecond, "copy in every other namespace",
				func() bool { return s.countCopies("team-0", "value") == 20 })
			time.Sleep(time.Hour)
			before := s.CountAll("team-bad-", "create")
			time.Sleep(time.Hour)
			if n := s.CountAll("team-bad-", "create") - before; n > 60 {
				t.Errorf("got %d tries in an hour, want 60", n)
			}
			s.wantEventCount(1, plan.ReasonWriteFailed)
			s.slowDown(5 * time.Millisecond)
			s.refuse(on[error](nil))
			time.Sleep(tc.filled)
			s.wantCopy("team-bad-000", "value")
		}))
	}
}

// TestAdmissionSeesTheOldNamespace: it refuses the create in the new one as terminating. That is retried. Case C29.
func TestAdmissionSeesTheOldNamespace(t *testing.T) {
	inScene([]runtime.Object{source()}, func(t *testing.T, s scene) {
		terminating := apierrors.NewForbidden(corev1.Resource("configmaps"), "settings", errAway)
		terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		s.refuse(on[error](terminating, creates))
		s.addNamespace("team-a")
		time.Sleep(2 * time.Second)
		s.refuse(on[error](nil))
		s.within(4*time.Second, "copy", func() bool { return s.countCopies("team-a", "value") == 1 })
	})(t)
}

// TestC80SourcesWithoutTargets: 300 sources without a target beside 300 namespaces. A new namespace costs each
// source a look at that one.
//
// Nothing counts looks. Here each look takes some 100 bytes: the selectors compare the size of a namespace with a
// number, and the size of the namespaces is none, of which apimachinery makes an error.
func TestC80SourcesWithoutTargets(t *testing.T) {
	const many, most = 300, 8 << 10 // bytes
	var objects []runtime.Object
	for i := range many {
		objects = append(objects, plantest.Namespace(fmt.Sprintf("team-%d", i), "size", "none"),
			plantest.Source("platform", fmt.Sprintf("settings-%d", i), selector(fmt.Sprintf("size>%d", i))))
	}
	inScene(objects, func(t *testing.T, s scene) {
		time.Sleep(time.Hour)
		add := func(name, size string) {
			t.Helper()
			synctest.Wait()
			before := allocated()
			s.addNamespace(name, "size", size)
			time.Sleep(time.Minute)
			synctest.Wait()
			if each := (allocated() - before) / many; each > most {
				t.Errorf("%s: got %d bytes for each source, want those of a look at one namespace", name, each)
			}
		}
		add("team-new", "none")
		add("team-later", "1")
		if n := s.countNamed("settings-0", "team-later", "value"); n != 1 {
			t.Errorf("got %d copies of the source that has waited for its namespace, want 1", n)
		}
	})(t)
}

// allocated returns how many bytes this process has allocated.
func allocated() uint64 {
	var now goruntime.MemStats
	goruntime.ReadMemStats(&now)
	return now.TotalAlloc
}
