package mirror

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// metered returns a controller whose metrics are registered, and the registry. It is not run.
func metered(t *testing.T) (*Controller, metrics.KubeRegistry) {
	t.Helper()
	o := NewOptions()
	o.NamespacePrefixes = []string{"team-"}
	c, err := New(fake.NewClientset(), events.NewFakeRecorder(10), o)
	if err != nil {
		t.Fatal(err)
	}
	registry := metrics.NewKubeRegistry()
	c.RegisterMetrics(registry)
	return c, registry
}

// TestGaugesOfWhatStandsStill: a source that cannot be read is counted although it has no copies, and copies behind the brake
// only while it holds.
func TestGaugesOfWhatStandsStill(t *testing.T) {
	c, registry := metered(t)
	frozen := c.rules.readSource(sourceCM("platform", "settings", annotation(SelectorAnnotation, "a in (")))
	c.ledger.opens("settings", frozen, c.rules.readSource(sourceCM("base", "settings")))
	c.ledger.enter(frozen, "other", standing{outcome: outcomeStranger})
	for _, blocked := range []bool{false, true} {
		c.blocked.Store(blocked)
		want := "mirror_prune_blocked 0\n"
		if blocked {
			want = "mirror_prune_blocked 1\n"
		}
		if text := scrape(t, registry); !strings.Contains(text, "mirror_invalid_sources 1\n") || !strings.Contains(text, want) {
			t.Errorf("blocked %v: want an invalid source and %s\n%s", blocked, want, text)
		}
	}
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

// TestMetricsGolden holds every name, type and label: people's dashboards and alerts hang on them.
func TestMetricsGolden(t *testing.T) {
	const golden = "testdata/metrics.txt"
	_, registry := metered(t)
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
}

func TestMetricsForm(t *testing.T) {
	_, registry := metered(t)
	problems, err := testutil.NewPromLinter(strings.NewReader(scrape(t, registry))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestWritesAreCounted(t *testing.T) {
	c, registry := metered(t)
	cm := schema.GroupResource{Resource: "configmaps"}
	away := errors.New("away")
	for _, sent := range []struct {
		op  op
		err error
	}{
		{opCreate, nil}, {opCreate, nil}, {opUpdate, nil}, {opDelete, nil},
		{opCreate, apierrors.NewAlreadyExists(cm, "settings")},
		{opUpdate, apierrors.NewConflict(cm, "settings", away)},
		{opCreate, apierrors.NewNotFound(cm, "team-a")},
		{opUpdate, apierrors.NewForbidden(cm, "settings", away)},
		{opDelete, away},
	} {
		if err := c.measures.sent(sent.op, sent.err); err != sent.err {
			t.Errorf("got error %v, want %v", err, sent.err)
		}
	}
	got := scrape(t, registry)
	for _, want := range []string{
		`mirror_writes_total{operation="create",result="success"} 2`,
		`mirror_writes_total{operation="update",result="success"} 1`,
		`mirror_writes_total{operation="delete",result="success"} 1`,
		`mirror_writes_total{operation="create",result="conflict"} 1`,
		`mirror_writes_total{operation="update",result="conflict"} 1`,
		`mirror_writes_total{operation="create",result="terminating"} 1`,
		`mirror_writes_total{operation="update",result="refused"} 1`,
		`mirror_writes_total{operation="delete",result="error"} 1`,
		`controller_runtime_reconcile_total{controller="mirror",result="error"} 2`,
		`controller_runtime_reconcile_errors_total{controller="mirror"} 2`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("got\n%s\nwant in it %s", got, want)
		}
	}
}

func TestSlicesAreCounted(t *testing.T) {
	c, registry := metered(t)
	want := func(when string, lines ...string) {
		t.Helper()
		got := scrape(t, registry)
		for _, line := range lines {
			if !strings.Contains(got, line+"\n") {
				t.Errorf("%s: got\n%s\nwant in it %s", when, got, line)
			}
		}
	}
	first, second := c.measures.working(), c.measures.working()
	want("two at work", `controller_runtime_active_workers{controller="mirror"} 2`,
		`controller_runtime_reconcile_time_seconds_count{controller="mirror"} 0`)
	first(false)
	want("one is done", `controller_runtime_active_workers{controller="mirror"} 1`,
		`controller_runtime_reconcile_time_seconds_count{controller="mirror"} 1`,
		`controller_runtime_reconcile_total{controller="mirror",result="success"} 1`,
		`controller_runtime_reconcile_total{controller="mirror",result="requeue"} 0`)
	second(true)
	want("the other is not", `controller_runtime_active_workers{controller="mirror"} 0`,
		`controller_runtime_reconcile_total{controller="mirror",result="success"} 1`,
		`controller_runtime_reconcile_total{controller="mirror",result="requeue"} 1`)
}

// TestCopiesAreCountedByState enters one more copy for each outcome than for the one before.
func TestCopiesAreCountedByState(t *testing.T) {
	c, registry := metered(t)
	s := c.rules.readSource(sourceCM("platform", "settings"))
	c.ledger.opens("settings", s)
	for o := outcomeNone; o < outcomes; o++ {
		for i := range 1 << o {
			c.ledger.enter(s, o.String()+strings.Repeat("x", i), standing{outcome: o})
		}
	}
	got := scrape(t, registry)
	for _, want := range []string{
		`mirror_sources 1`,
		`mirror_copies{state="synced"} 2`,
		`mirror_copies{state="pending"} 260`, // fights, too
		`mirror_copies{state="foreign"} 8`,
		`mirror_copies{state="superseded"} 16`,
		`mirror_copies{state="failed"} 96`, // frozen ones, too
		`mirror_fights 256`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("got\n%s\nwant in it %s", got, want)
		}
	}
	c.ledger.opens("settings")
	if got := scrape(t, registry); !strings.Contains(got, "mirror_sources 0\n") || !strings.Contains(got, `mirror_copies{state="failed"} 0`+"\n") {
		t.Errorf("after the source has gone got\n%s\nwant none of it", got)
	}
}

func TestSourcesOutsideTheFlagsAreNotCounted(t *testing.T) {
	l := newLedger("mirror")
	r := testRules(func(o *Options) { o.SourceNamespaces = []string{"platform"} })
	l.opens("settings", r.readSource(sourceCM("platform", "settings")), r.readSource(sourceCM("elsewhere", "settings")))
	if got := l.sources(); got != 1 {
		t.Errorf("got %d sources, want 1", got)
	}
}

func TestRepairCause(t *testing.T) {
	r := testRules()
	src := sourceCM("platform", "settings")
	changed := sourceCM("platform", "settings", data("key", "changed"))
	for name, tc := range map[string]struct {
		source  *corev1.ConfigMap
		have    *corev1.ConfigMap
		deleted bool
		want    string
	}{
		"new copy":                       {source: src},
		"deleted by somebody":            {source: src, deleted: true, want: causeDeleted},
		"data edited":                    {source: src, have: copyCM(r, src, "team-a", editData("key", "edited")), want: causeEdited},
		"deleted, and made by somebody":  {source: src, have: copyCM(r, src, "team-a", editData("key", "edited")), deleted: true, want: causeEdited},
		"made immutable":                 {source: src, have: copyCM(r, src, "team-a", immutable), want: causeEdited},
		"label removed":                  {source: src, have: copyCM(r, src, "team-a", without(DefaultLabel)), want: causeUnlabelled},
		"labelled true":                  {source: src, have: copyCM(r, src, "team-a", label(DefaultLabel, SourceValue)), want: causeUnlabelled},
		"other metadata":                 {source: src, have: copyCM(r, src, "team-a", without(ManagedByLabel)), want: causeMetadata},
		"source changed":                 {source: changed, have: copyCM(r, src, "team-a")},
		"taken over from another source": {source: src, have: copyCM(r, sourceCM("team-b", "settings"), "team-a")},
		"adopted":                        {source: src, have: configMap("team-a", "settings", annotation(AdoptAnnotation, AdoptValue))},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.have != nil {
				r.strip(tc.have)
			}
			c := r.decide(viewOf(r, "settings", tc.source), target{namespace: "team-a", object: namespace("team-a"), have: tc.have, deleted: tc.deleted})
			if c.op == opNone {
				t.Fatal("got nothing to do, want a write")
			}
			if got := r.repairCause(c, tc.deleted); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := r.repairCause(change{op: opDelete, have: copyCM(r, src, "team-a")}, false); got != "" {
		t.Errorf("a deletion: got %q, want that it repairs nothing", got)
	}
}

func TestWatchErrorsAreCounted(t *testing.T) {
	c, registry := metered(t)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	handler := c.watchErrorHandler(namespacesResource)
	handler(t.Context(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New("no watch")))
	handler(t.Context(), nil, errors.New("away"))
	handler(t.Context(), nil, apierrors.NewResourceExpired("too old"))
	handler(t.Context(), nil, io.EOF)
	handler(stopped, nil, errors.New("away"))
	got := scrape(t, registry)
	for _, want := range []string{`mirror_watch_errors_total{resource="namespaces"} 2`, `mirror_watch_errors_total{resource="configmaps"} 0`} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("got\n%s\nwant in it %s", got, want)
		}
	}
}
