package mirror

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestMetricsGolden holds every name, type and label: dashboards and alerts of users depend on them.
func TestMetricsGolden(t *testing.T) {
	const golden = "testdata/metrics.txt"
	c := stillController(t)
	registry := metrics.NewKubeRegistry()
	c.RegisterMetrics(registry)
	got := withoutBuckets(t, registry)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the metrics differ from %s (go test ./mirror -run Golden -update rewrites it):\n%s", golden, got)
	}
	problems, err := testutil.NewPromLinter(strings.NewReader(got)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// withoutBuckets returns the metrics in the text format, without the buckets of the histograms.
func withoutBuckets(t *testing.T, registry metrics.KubeRegistry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, family := range families {
		if _, err := testutil.MetricFamilyToText(&all, family); err != nil {
			t.Fatal(err)
		}
	}
	return regexp.MustCompile(`(?m)^.*_bucket\{.*\n`).ReplaceAllString(all.String(), "")
}

// TestReconcilesAreCounted as controller-runtime counts them: those that succeed, those that fail, and those under way.
func TestReconcilesAreCounted(t *testing.T) {
	inScene(teams(2, "team-"), func(t *testing.T, s scene) {
		s.slowDown(50 * time.Millisecond)
		s.refuse(on(rejected("exceeded quota"), apitest.Call{Namespace: "team-001"}))
		s.write(source())
		time.Sleep(time.Millisecond)
		want := func(when string, active, fewest, failed float64) { // the event of a write may cost one more
			t.Helper()
			synctest.Wait()
			succeeded := s.metric("controller_runtime_reconcile_total", "mirror", "success")
			got := [...]float64{
				s.metric("controller_runtime_active_workers", "mirror"),
				s.metric("controller_runtime_reconcile_total", "mirror", "error"),
				s.metric("controller_runtime_reconcile_errors_total", "mirror"),
				s.metric("controller_runtime_reconcile_time_seconds", "mirror"),
			}
			if want := [...]float64{active, failed, failed, succeeded + failed}; got != want || succeeded < fewest {
				t.Errorf("%s: got %v succeeded, and %v under way, failed, failed, and in all, want %v", when, succeeded, got, want)
			}
		}
		want("two at work", 2, 0, 0)
		time.Sleep(200 * time.Millisecond)
		want("at the end", 0, 1, 1)
	})(t)
}

// TestResultOfAReconcileInItsMetric: the result is in the words of controller-runtime.
func TestResultOfAReconcileInItsMetric(t *testing.T) {
	const again = "requeue_after"
	for o, want := range map[outcome.Outcome]string{
		outcome.OK: "success", outcome.Rejected: "error", outcome.Unavailable: "error", outcome.Conflict: again,
		outcome.Terminating: again, outcome.Claimed: again, outcome.Foreign: again, outcome.Delayed: again,
	} {
		t.Run(o.String(), func(t *testing.T) {
			var err error
			if o != outcome.OK {
				err = errAway
			}
			if got := metricOf(result{outcome: o, err: err}, 0); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	if got := metricOf(result{}, time.Second); got != again {
		t.Errorf("to be looked at again: got %s", got)
	}
	if got := metricOf(result{outcome: outcome.Rejected}, 0); got != again {
		t.Errorf("rejected without a call: got %s", got)
	}
}

// TestSourcesAreCounted: a source that is frozen counts although it has no copies, and a ConfigMap that the flags rule
// out does not. The size is that of keys and values.
func TestSourcesAreCounted(t *testing.T) {
	frozen := selector("tier in (")
	objects := append(teams(3, "team-"), plantest.Source("platform", "frozen", frozen),
		plantest.Source("elsewhere", "settings", frozen),
		source(data("value"), plantest.BinaryData("bin", 1, 2)))
	edit := func(o *Options) { o.SourceNamespaces = []string{"platform"} }
	inSceneWith(objects, edit, func(t *testing.T, s scene) {
		bytes := float64(len("key")+len("value")+len("bin")+2) + float64(len("key")+len("value"))
		s.wantMetric(2, "mirror_sources")
		s.wantMetric(1, "mirror_invalid_sources")
		s.wantMetric(bytes, "mirror_source_bytes")
		time.Sleep(fanOutGap)
		s.edit("platform", data("new"))
		s.wantCopies(3, "team-", "new")
	})(t)
}

// TestStandbyCountsNothing: the gauges of sources and copies are those of the
// process that leads.
func TestStandbyCountsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := byHand(t, append(teams(1, "team-"), source()), func(*Options) {})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.controller.Run(ctx, Leadership{Begun: make(chan context.Context)}) }()
		synctest.Wait()
		if !s.controller.Synced() {
			t.Error("got caches that are not full")
		}
		for _, name := range []string{"mirror_sources", "mirror_source_bytes", "mirror_invalid_sources"} {
			s.wantMetric(0, name)
		}
		s.wantMetric(0, "mirror_copies", "pending")
		cancel()
		s.check(<-ended)
	})
}

// TestAnsweredWritesAreCounted, and no others: nobody knows what has become of those.
func TestAnsweredWritesAreCounted(t *testing.T) {
	s := byHand(t, nil, func(*Options) {})
	t.Cleanup(s.controller.stopWriting)
	for result, err := range map[string]error{
		"success":  nil,
		"conflict": apierrors.NewConflict(corev1.Resource("configmaps"), "settings", errAway),
		"rejected": rejected("quota"),
		"none":     errAway,
	} {
		t.Run(result, func(t *testing.T) {
			s.controller.metrics.countWrite(plan.OpUpdate, err)
			want := 1.0
			if result == "none" {
				result = "error"
				want = 0
			}
			if got := s.metric("mirror_writes_total", "update", result); got != want {
				t.Errorf("got %v updates with the result %s, want %v", got, result, want)
			}
		})
	}
}

// TestWritesAreCounted by their operations.
func TestWritesAreCounted(t *testing.T) {
	inScene(append(teams(2, "team-"), source()), func(_ *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.edit("platform", data("new"))
		time.Sleep(time.Minute)
		s.edit("platform", prefixes("tema-"))
		time.Sleep(time.Hour)
		for _, op := range []string{"create", "update", "delete"} {
			s.wantMetric(2, "mirror_writes_total", op, "success")
		}
	})(t)
}

// TestLinesOfALeader: an operator sees when it begins and that it has ended.
func TestLinesOfALeader(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprint(all), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := byHand(t, nil, func(o *Options) { o.AllNamespaces = all })
				stop := s.start()
				s.wantLogged(fmt.Sprintf(
					`INFO Mirroring instance="default" namespacePrefixes=["team-"] allNamespaces=%v`, all))
				stop()
				s.wantLogged("INFO Stopped, no write in flight")
			})
		})
	}
}

// TestBucketsReachFarEnough: from where a copy takes a moment to where only a retry
// helps.
func TestBucketsReachFarEnough(t *testing.T) {
	s := byHand(t, nil, func(*Options) {})
	t.Cleanup(s.controller.stopWriting)
	families, err := s.registry.Gather()
	s.check(err)
	got := map[string][3]float64{}
	for _, f := range families {
		if buckets := f.GetMetric()[0].GetHistogram().GetBucket(); len(buckets) > 0 {
			last := buckets[len(buckets)-1]
			got[f.GetName()] = [3]float64{float64(len(buckets)), buckets[0].GetUpperBound(), last.GetUpperBound()}
		}
	}
	want := map[string][3]float64{
		"controller_runtime_reconcile_time_seconds": {40, .005, 60},
		"mirror_propagation_seconds":                {16, .005, 600},
	}
	if !maps.Equal(got, want) {
		t.Errorf("got number, least and greatest of the buckets %v, want %v", got, want)
	}
}
