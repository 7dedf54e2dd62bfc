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

	"github.com/mirror-controller/mirror-controller/e2e/overlay"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// chart is the folder of the chart.
var chart = filepath.Join(deploy, "chart")

func newHelm(t *testing.T) shipped.Helm { return shipped.Helm{Home: t.TempDir()} }

// released returns what a release of the chart consists of.
func released(t *testing.T, release, namespace string, args ...string) shipped.Manifests {
	t.Helper()
	m, err := newHelm(t).Template(t.Context(), release, chart, namespace, args...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// charted is released under the names that the kustomizations have.
func charted(t *testing.T, args ...string) shipped.Manifests {
	t.Helper()
	return released(t, "mirror-controller", "mirror-system", args...)
}

// set returns the arguments that set values.
func set(values ...string) []string {
	var args []string
	for _, v := range values {
		args = append(args, "--set-json="+v)
	}
	return args
}

const (
	teams = `namespacePrefixes=["team-"]`
	off   = `admissionPolicy={"confined":false,"publishers":false}`
)

// monitored are the values that stand for the component monitoring, and everything for all components.
var (
	monitored  = []string{`serviceMonitor={"enabled":true}`, `prometheusRule={"enabled":true}`, `dashboard={"enabled":true}`}
	everything = append([]string{"replicaCount=2", `networkPolicy={"enabled":true}`, `admissionPolicy={"protectCopies":true}`,
		"viewer.create=true"}, monitored...)
)

// TestChartIsKustomize compares the chart with the kustomizations, for what can be switched on.
func TestChartIsKustomize(t *testing.T) {
	for name, c := range map[string]struct{ components, values []string }{
		"default":          {[]string{"admission"}, nil},
		"base alone":       {nil, []string{off}},
		"confined alone":   {[]string{"admission/confined"}, []string{`admissionPolicy={"publishers":false}`}},
		"publishers alone": {[]string{"admission/publishers"}, []string{`admissionPolicy={"confined":false}`}},
		"protect-copies": {[]string{"admission/publishers", "protect-copies"},
			[]string{`admissionPolicy={"confined":false,"protectCopies":true}`}},
		"high-availability": {[]string{"high-availability"}, []string{off, "replicaCount=2"}},
		"monitoring":        {[]string{"monitoring"}, append([]string{off}, monitored...)},
		"network-policy":    {[]string{"network-policy"}, []string{off, `networkPolicy={"enabled":true}`}},
		"viewer":            {[]string{"viewer"}, []string{off, "viewer.create=true"}},
		"everything":        {overlay.Components(t), everything},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kustomized := overlay.Render(t, map[string]string{"top": overlay.Above("deploy/base", "", c.components...)})
			expectKustomized(t, kustomized, charted(t, set(slices.Concat(c.values, []string{teams, sameGrace})...)...))
		})
	}
}

// sameGrace is the default of the program, which the base has. That of the chart is longer.
const sameGrace = `deletionGrace="1s"`

// TestChartSettingsAreKustomize compares the chart with the kustomizations, for settings that flags, policies and permissions
// share.
func TestChartSettingsAreKustomize(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	values := append(slices.Clone(everything), sameGrace, `image={"repository":"r.example/m","digest":"`+digest+`"}`)
	patches := ""
	for _, s := range settings {
		values = append(values, s.path+"="+s.value)
		switch s.flag {
		case "namespace-prefix":
			patches += overlay.SetPrefix(s.want)
		case "namespace-selector":
			patches += overlay.AddFlagKnownAs(s.flag, s.want,
				"team In red,blue\nexample.com/tier NotIn gold\nmirrored Exists\nfrozen DoesNotExist")
		default:
			patches += overlay.AddFlag(s.flag, s.want)
		}
	}
	kustomized := overlay.Render(t, map[string]string{
		"middle": overlay.Above("deploy/base", "namespace: my-system\n"+
			"images: [{name: mirror-controller, newName: r.example/m, digest: \""+digest+"\"}]\npatches:\n"+patches,
			"high-availability", "monitoring", "network-policy", "admission-alerts", "viewer"),
		"top": overlay.Above("middle", "", "admission", "protect-copies"),
	})
	expectKustomized(t, kustomized, released(t, "mirror-controller", "my-system", set(values...)...))
}

// onlyByHelm are the labels that a chart has by convention, and a kustomization has no reason to have.
var onlyByHelm = map[string]string{
	"app.kubernetes.io/managed-by": "tells who to ask for a change: Helm",
	"helm.sh/chart":                "tells which chart it was, for support",
	"app.kubernetes.io/instance":   "tells releases apart, also in selectors: there can be two of them in a namespace",
	"app.kubernetes.io/version":    "is known to the chart's archive; the kustomizations are of no version",
}

// nameLabel is on everything in the chart; the kustomizations have it on the base and the policies only.
const nameLabel = "app.kubernetes.io/name"

// expectKustomized fails the test if a release differs from a kustomization in more than what a chart does by convention: the
// labels, no namespace, and what only `helm test` makes.
func expectKustomized(t *testing.T, kustomized, charted shipped.Manifests) {
	t.Helper()
	kustomized = slices.DeleteFunc(kustomized, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" })
	charted = slices.DeleteFunc(charted, isTest)
	named := map[string]bool{}
	for _, o := range kustomized {
		named[identity(o)] = o.GetLabels()[nameLabel] != ""
	}
	for _, o := range charted {
		if takeOut(o.Object) < len(onlyByHelm) {
			t.Errorf("%s: has not all labels that objects of a chart have: %v", identity(o), slices.Sorted(maps.Keys(onlyByHelm)))
		}
		if !named[identity(o)] {
			unstructured.RemoveNestedField(o.Object, "metadata", "labels", nameLabel)
		}
		if len(o.GetLabels()) == 0 {
			unstructured.RemoveNestedField(o.Object, "metadata", "labels")
		}
	}
	expectSame(t, "kustomize", kustomized, "chart", charted)
}

func isTest(o *unstructured.Unstructured) bool { return o.GetAnnotations()["helm.sh/hook"] == "test" }

// takeOut removes the labels of Helm from a value, wherever they are, and returns how many there were.
func takeOut(v any) int {
	n := 0
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if onlyByHelm[key] != "" {
				delete(v, key)
				n++
			}
			n += takeOut(value)
		}
	case []any:
		for _, item := range v {
			n += takeOut(item)
		}
	}
	return n
}

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
	args := set(slices.Concat(everything, []string{teams})...)
	taken := byIdentity(t, charted(t, args...))
	for _, o := range released(t, "v1.blue", "mirror-system", args...) { // the name of a Service has no dots
		if taken[identity(o)] != nil || strings.Contains(o.GetName(), ".") {
			t.Errorf("%s: is part of two releases, or has a dot", identity(o))
		}
	}
}

// TestNamespaceOverrideMovesAll compares a release with one in another namespace whose objects are to be in the first.
func TestNamespaceOverrideMovesAll(t *testing.T) {
	args := set(slices.Concat(everything, []string{teams})...)
	moved := released(t, "mirror-controller", "elsewhere", slices.Concat(set(`namespaceOverride="mirror-system"`), args)...)
	expectSame(t, "release in the namespace", charted(t, args...), "override", moved)
}

// everyValue are values for all that the chart has.
var everyValue = "--values=" + filepath.Join("testdata", "everything.yaml")

// TestHelmFindsNothingWrong has helm look for what it finds wrong with the chart.
func TestHelmFindsNothingWrong(t *testing.T) {
	for name, args := range map[string][]string{"default": set(teams), "everything": {everyValue}} {
		if out, err := newHelm(t).Run(t.Context(), append([]string{"lint", "--strict", chart}, args...)...); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestOperatorKnowsTheFields reads what is for the Prometheus operator into the operator's own types: a field that these do
// not have is an error. The API server of the other tests does not know the kinds. TestChartIsKustomize has the kustomizations.
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
