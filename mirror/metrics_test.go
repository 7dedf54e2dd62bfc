package mirror

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// metered returns a controller that does not run and whose metrics are registered, and the registry.
func metered(t *testing.T, edit func(*Options)) (*Controller, metrics.KubeRegistry) {
	t.Helper()
	c, _ := stillController(t, edit)
	registry := metrics.NewKubeRegistry()
	c.RegisterMetrics(registry)
	return c, registry
}

// scrape returns the metrics in the text format, without the buckets of the histograms.
func scrape(t *testing.T, registry metrics.KubeRegistry) string {
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
	var lines []string
	for line := range strings.Lines(all.String()) {
		if !strings.Contains(line, "_bucket{") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// wantMetrics checks that these lines are in the text.
func wantMetrics(t *testing.T, when string, registry metrics.KubeRegistry, lines ...string) {
	t.Helper()
	got := scrape(t, registry)
	for _, line := range lines {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("%s: got\n%s\nwant in it %s", when, got, line)
		}
	}
}

// TestMetricsGolden holds every name, type and label: dashboards and alerts of users depend on them.
func TestMetricsGolden(t *testing.T) {
	const golden = "testdata/metrics.txt"
	_, registry := metered(t, noEdit)
	got := scrape(t, registry)
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

func TestReconcilesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := newControllerMetrics(), metrics.NewKubeRegistry()
		m.register(registry, 5)
		first, second := m.reconciling(), m.reconciling()
		wantMetrics(t, "two at work", registry, `controller_runtime_active_workers{controller="mirror"} 2`,
			`controller_runtime_max_concurrent_reconciles{controller="mirror"} 5`,
			`controller_runtime_reconcile_time_seconds_count{controller="mirror"} 0`)
		time.Sleep(time.Second)
		first("success")
		wantMetrics(t, "one has ended", registry, `controller_runtime_active_workers{controller="mirror"} 1`,
			`controller_runtime_reconcile_time_seconds_sum{controller="mirror"} 1`,
			`controller_runtime_reconcile_total{controller="mirror",result="success"} 1`,
			`controller_runtime_reconcile_errors_total{controller="mirror"} 0`)
		second("error")
		wantMetrics(t, "the other has failed", registry, `controller_runtime_active_workers{controller="mirror"} 0`,
			`controller_runtime_reconcile_total{controller="mirror",result="success"} 1`,
			`controller_runtime_reconcile_total{controller="mirror",result="error"} 1`,
			`controller_runtime_reconcile_errors_total{controller="mirror"} 1`)
	})
}

// TestMetricOf is the result of a reconcile in the words of controller-runtime.
func TestMetricOf(t *testing.T) {
	for want, results := range map[string][]result{
		"success":       {{}, {sent: true}, {state: plan.StateFrozen}},
		"error":         {{outcome: outcome.Rejected, err: errAway}, {outcome: outcome.Transient, err: errAway}},
		"requeue_after": {{outcome: outcome.Conflict, err: errAway}, {outcome: outcome.Terminating, err: errAway}, {outcome: outcome.Foreign}, {outcome: outcome.Conflict}, {after: time.Second}, {outcome: outcome.PutOff}},
	} {
		for _, res := range results {
			if got := metricOf(res); got != want {
				t.Errorf("%+v: got %s, want %s", res, got, want)
			}
		}
	}
}

// TestCopiesAreCountedByState records for each state twice as many copies as for the one before.
func TestCopiesAreCountedByState(t *testing.T) {
	c, registry := metered(t, noEdit)
	for state := plan.StateNone + 1; state < plan.States; state++ {
		for i := range 1 << state {
			c.records(func(n *nameStatus) {
				n.set(fmt.Sprint(state, i), "", record{basics: basics{state: state, countsFor: settings("platform")}})
			})
		}
	}
	wantMetrics(t, "with copies in all states", registry,
		`mirror_copies{state="synced"} 2`,
		`mirror_copies{state="pending"} 260`, // with the fights
		`mirror_copies{state="foreign"} 8`,
		`mirror_copies{state="superseded"} 16`,
		`mirror_copies{state="rejected"} 32`,
		`mirror_copies{state="frozen"} 64`,
		`mirror_copies{state="out_of_scope"} 128`,
		`mirror_copies{state="expiring"} 512`,
		`mirror_fights 256`)
}

// TestSourcesAreCounted: one that is frozen counts although it has no copies, and one that the flags rule out does not.
func TestSourcesAreCounted(t *testing.T) {
	c, registry := metered(t, func(o *Options) { o.SourceNamespaces = []string{"platform", "base"} })
	frozen := plantest.Annotation(plan.SelectorAnnotation, "a in (")
	c.show(t, plantest.Source("platform", "settings", frozen))
	c.show(t, plantest.Source("base", "settings"))
	c.show(t, plantest.Source("base", "other"))
	c.show(t, plantest.Source("elsewhere", "settings", frozen))
	wantMetrics(t, "before it leads", registry, "mirror_sources 0", "mirror_invalid_sources 0")
	c.handlers.active.Store(true)
	wantMetrics(t, "while it leads", registry, "mirror_sources 3", "mirror_invalid_sources 1")
}

// TestWatchErrorsAreCounted, by what is watched.
func TestWatchErrorsAreCounted(t *testing.T) {
	cluster(t, teams(1, "team-"), func(t *testing.T, s scene) {
		s.refuse(func(c apitest.Call) error {
			if c.Resource == "namespaces" && (c.Verb == "watch" || c.Verb == "list") {
				return apierrors.NewForbidden(configMapResource, "", errAway)
			}
			return nil
		})
		s.Namespaces.Break()
		s.ConfigMaps.Break()
		time.Sleep(time.Minute)
		refused := s.value("mirror_watch_errors_total", "namespaces")
		other := s.value("mirror_watch_errors_total", "configmaps")
		if refused == 0 || other > 0 {
			t.Errorf("got %v errors of the watch that is refused, and %v of the other one, want some and none", refused, other)
		}
	})
}

// TestSourceBytes counts keys and values of sources, and no copies.
func TestSourceBytes(t *testing.T) {
	src := plantest.Source("platform", "settings", plantest.Data("key", "value"), plantest.BinaryData("bin", 1, 2))
	cluster(t, append(teams(3, "team-"), src), func(t *testing.T, s scene) {
		if n := s.value("mirror_source_bytes"); n != float64(len("key")+len("value")+len("bin")+2) {
			t.Errorf("got %v bytes, want 13", n)
		}
	})
}
