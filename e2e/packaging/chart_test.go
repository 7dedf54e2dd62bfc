package packaging

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// chart is the folder of the chart.
var chart = filepath.Join(deploy, "chart")

// render returns what a release of the chart consists of. values are as in --set-json, or whole arguments of helm.
func render(t *testing.T, release string, values ...string) (shipped.Manifests, error) {
	t.Helper()
	return shipped.Helm{Home: t.TempDir()}.Template(t.Context(), release, chart, "mirror-system", arguments(values)...)
}

// arguments returns values as arguments of helm.
func arguments(values []string) []string {
	args := slices.Clone(values)
	for i, value := range values {
		if !strings.HasPrefix(value, "--") {
			args[i] = "--set-json=" + value
		}
	}
	return args
}

// run returns what helm prints.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := shipped.Helm{Home: t.TempDir()}.Run(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// charted returns a release under the names that the kustomizations have.
func charted(t *testing.T, values ...string) shipped.Manifests {
	t.Helper()
	m, err := render(t, "mirror-controller", values...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const teams = `namespacePrefixes=["team-"]`

// everyValue are values for all that the chart has.
var everyValue = "--values=" + filepath.Join("testdata", "everything.yaml")

// TestTwoReleasesShareNothing shows that releases of different names share no object, not even one without a namespace.
// TestChartInstalls of e2e/install runs one that has not the default name.
func TestTwoReleasesShareNothing(t *testing.T) {
	taken := map[string]bool{}
	for _, release := range []string{"mirror-controller", "v1.blue"} { // the name of a Service has no dots
		m, err := render(t, release, everyValue, "extraObjects=[]")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range m {
			id := fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
			if taken[id] || strings.Contains(o.GetName(), ".") {
				t.Errorf("%s: is there twice, or has a dot", id)
			}
			taken[id] = true
			if label := o.GetLabels()["app.kubernetes.io/instance"]; label != release {
				t.Errorf("%s: got the label of release %q", id, label)
			}
		}
	}
}

// TestHelmFindsNothingWrong has helm look for what it finds wrong with the chart.
func TestHelmFindsNothingWrong(t *testing.T) {
	for _, values := range []string{"--set-json=" + teams, everyValue} {
		run(t, "lint", "--strict", chart, values)
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
				t.Errorf("%s: %v", o.GetKind(), err)
			}
		}
	}
	if len(types) > 0 {
		t.Errorf("there is no %v", slices.Collect(maps.Keys(types)))
	}
}
