package packaging

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// chart is the folder of the chart.
var chart = filepath.Join(deploy, "chart")

// render returns what a release of the chart consists of. values are as in --set-json, or whole arguments of helm.
func render(t *testing.T, release, namespace string, values ...string) (shipped.Manifests, error) {
	t.Helper()
	var args []string
	for _, value := range values {
		if !strings.HasPrefix(value, "--") {
			value = "--set-json=" + value
		}
		args = append(args, value)
	}
	return shipped.Helm{Home: t.TempDir()}.Template(t.Context(), release, chart, namespace, args...)
}

// released returns a release of the chart.
func released(t *testing.T, release, namespace string, values ...string) shipped.Manifests {
	t.Helper()
	m, err := render(t, release, namespace, values...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// charted is released under the names that the kustomizations have.
func charted(t *testing.T, values ...string) shipped.Manifests {
	t.Helper()
	return released(t, "mirror-controller", "mirror-system", values...)
}

const (
	teams = `namespacePrefixes=["team-"]`
	off   = `admissionPolicy={"confined":false,"publishers":false}`
)

// monitored are the values that stand for the component monitoring, and everything for all components.
var (
	monitored = []string{`serviceMonitor={"enabled":true}`, `prometheusRule={"enabled":true}`,
		`dashboard={"enabled":true}`}
	everything = append([]string{teams, "replicaCount=2", `networkPolicy={"enabled":true}`,
		`admissionPolicy={"protectCopies":true}`, "viewer.create=true", "check.enabled=true"}, monitored...)
)

// nameLabel is on everything.
const nameLabel = "app.kubernetes.io/name"

// expectSame compares two installations object by object, in whatever order they come.
func expectSame(t *testing.T, nameA string, a shipped.Manifests, nameB string, b shipped.Manifests) {
	t.Helper()
	byA, byB := byIdentity(t, a), byIdentity(t, b)
	all := maps.Clone(byA)
	maps.Copy(all, byB)
	for id := range all {
		if d := diff.Diff(byA[id], byB[id]); d != "" {
			t.Errorf("%s: %s (-), %s (+)\n%s", id, nameA, nameB, d)
		}
	}
}

// byIdentity returns the objects by what tells them apart in a cluster.
func byIdentity(t *testing.T, m shipped.Manifests) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, o := range m {
		id := identity(o)
		if out[id] != nil {
			t.Errorf("%s: is there twice", id)
		}
		out[id] = o.Object
	}
	return out
}

func identity(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// TestTwoReleasesShareNothing shows that releases of different names share no object, not even one without a namespace.
// TestChartInstalls of e2e/install runs one that has not the default name.
func TestTwoReleasesShareNothing(t *testing.T) {
	taken := byIdentity(t, charted(t, everything...))
	for _, o := range released(t, "v1.blue", "mirror-system", everything...) { // the name of a Service has no dots
		if taken[identity(o)] != nil || strings.Contains(o.GetName(), ".") {
			t.Errorf("%s: is part of two releases, or has a dot", identity(o))
		}
		if release := o.GetLabels()["app.kubernetes.io/instance"]; release != "v1.blue" {
			t.Errorf("%s: got the label of release %q", identity(o), release)
		}
	}
}

// TestNamespaceOverrideMovesAll compares a release with one in another namespace whose objects are to be in the first.
func TestNamespaceOverrideMovesAll(t *testing.T) {
	values := append([]string{`namespaceOverride="mirror-system"`}, everything...)
	moved := released(t, "mirror-controller", "elsewhere", values...)
	expectSame(t, "release in the namespace", charted(t, everything...), "override", moved)
}

// everyValue are values for all that the chart has.
var everyValue = "--values=" + filepath.Join("testdata", "everything.yaml")

// TestHelmFindsNothingWrong has helm look for what it finds wrong with the chart.
func TestHelmFindsNothingWrong(t *testing.T) {
	for _, values := range []string{"--set-json=" + teams, everyValue} {
		if out, err := (shipped.Helm{Home: t.TempDir()}).Run(t.Context(), "lint", "--strict", chart, values); err != nil {
			t.Errorf("%s: %v\n%s", values, err, out)
		}
	}
}

// TestOperatorKnowsTheFields reads what is for the Prometheus operator into the operator's own types: a field that
// these do not have is an error. The API server of the other tests does not know the kinds.
func TestOperatorKnowsTheFields(t *testing.T) {
	types := map[string]any{"PodMonitor": &monitoringv1.PodMonitor{}, "ServiceMonitor": &monitoringv1.ServiceMonitor{},
		"PrometheusRule": &monitoringv1.PrometheusRule{}}
	for _, o := range charted(t, everyValue) {
		if into, operators := types[o.GetKind()]; operators {
			delete(types, o.GetKind())
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
				t.Errorf("%s: %v", identity(o), err)
			}
		}
	}
	if len(types) > 0 {
		t.Errorf("there is no %v", slices.Collect(maps.Keys(types)))
	}
}
