package packaging

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

var helmProgram = flag.String("helm", "../../bin/helm", "the program helm")

// chart is the folder of the chart.
var chart = filepath.Join(deploy, "chart")

func newHelm(t *testing.T) shipped.Helm {
	t.Helper()
	program, err := filepath.Abs(*helmProgram)
	if err != nil {
		t.Fatal(err)
	}
	return shipped.Helm{Program: program, Home: t.TempDir()}
}

// charted returns what a release of the chart consists of.
func charted(t *testing.T, release, namespace string, args ...string) shipped.Manifests {
	t.Helper()
	m, err := newHelm(t).Template(t.Context(), release, chart, namespace, args...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// set returns the arguments that set values.
func set(values ...string) []string {
	var args []string
	for _, v := range values {
		args = append(args, "--set-json="+v)
	}
	return args
}

const teams = `namespacePrefixes=["team-"]`

// selecting is a requirement of each kind on the labels of namespaces.
const selecting = `namespaceSelector=[{"key":"team","operator":"In","values":["red","blue"]},` +
	`{"key":"example.com/tier","operator":"NotIn","values":["gold"]},{"key":"mirrored","operator":"Exists"},{"key":"frozen","operator":"DoesNotExist"}]`

// monitored are the values that stand for the component monitoring.
var monitored = []string{`serviceMonitor={"enabled":true}`, `prometheusRule={"enabled":true}`, `dashboard={"enabled":true}`}

// onlyByHelm are the labels that a chart has by convention, and a kustomization has no reason to have.
var onlyByHelm = map[string]string{
	"app.kubernetes.io/managed-by": "tells who to ask for a change: Helm",
	"helm.sh/chart":                "tells which chart it was, for support",
	"app.kubernetes.io/instance":   "tells releases apart, also in selectors: there can be two of them in a namespace",
	"app.kubernetes.io/version":    "is known to the chart's archive; the kustomizations are of no version",
}

// nameLabel is on everything in the chart; the kustomizations have it on the base and the policies only.
const nameLabel = "app.kubernetes.io/name"

// TestChartIsKustomize compares what the chart renders with what the kustomizations do, for what can be switched on, and
// for other settings.
func TestChartIsKustomize(t *testing.T) {
	const off = `admissionPolicy={"confined":false,"publishers":false}`
	everything := slices.Concat([]string{"replicaCount=2", `networkPolicy={"enabled":true}`, `admissionPolicy={"protectCopies":true}`, "viewer.create=true"}, monitored)
	for name, c := range map[string]struct {
		kustomization
		values    []string
		namespace string
	}{
		"default":          {kustomization: kustomization{components: []string{"admission"}}},
		"base alone":       {values: []string{off}},
		"confined alone":   {kustomization: kustomization{components: []string{"admission/confined"}}, values: []string{`admissionPolicy={"publishers":false}`}},
		"publishers alone": {kustomization: kustomization{components: []string{"admission/publishers"}}, values: []string{`admissionPolicy={"confined":false}`}},
		"protect-copies": {kustomization: kustomization{components: []string{"admission/publishers", "protect-copies"}},
			values: []string{`admissionPolicy={"confined":false,"protectCopies":true}`}},
		"high-availability": {kustomization: kustomization{components: []string{"high-availability"}}, values: []string{off, "replicaCount=2"}},
		"monitoring":        {kustomization: kustomization{components: []string{"monitoring"}}, values: append([]string{off}, monitored...)},
		"network-policy":    {kustomization: kustomization{components: []string{"network-policy"}}, values: []string{off, `networkPolicy={"enabled":true}`}},
		"viewer":            {kustomization: kustomization{components: []string{"viewer"}}, values: []string{off, "viewer.create=true"}},
		"everything": {values: everything, kustomization: kustomization{
			components: []string{"admission", "admission-alerts", "protect-copies", "high-availability", "monitoring", "network-policy", "viewer"}}},
		"everything, other settings": {
			namespace: "my-system",
			values: append(slices.Clone(everything), `namespacePrefixes=["team-","dev-"]`, `excludeNamespaces=["kube-*","team-secret"]`,
				`mirrorLabel="example.com/mirror"`, `instance="blue"`, selecting, `copyLabels=["team","example.com/*"]`, `copyAnnotations=["note"]`,
				`sourceNamespaces=["platform","infra"]`, "prune=true",
				`image={"repository":"registry.example/mirror-controller","digest":"sha256:`+strings.Repeat("ab", 32)+`"}`),
			kustomization: kustomization{
				settings: `
namespace: my-system
images: [{name: mirror-controller, newName: registry.example/mirror-controller, digest: "sha256:` + strings.Repeat("ab", 32) + `"}]
patches:
- target: {kind: Deployment}
  patch: |
    - {op: replace, path: /spec/template/spec/containers/0/args/0, value: "--namespace-prefix=team-,dev-"}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--namespace-selector=team in (red,blue),example.com/tier notin (gold),mirrored,!frozen"}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--exclude-namespace=kube-*,team-secret"}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--source-namespace=platform,infra"}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--mirror-label=example.com/mirror"}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--instance=blue"}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--copy-label=team,example.com/*"}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--copy-annotation=note"}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--prune=true"}
- target: {kind: ClusterRoleBinding}
  patch: |
    kind: ClusterRoleBinding
    metadata:
      name: mirror-controller
      annotations:
        mirror-controller.github.io/namespace-prefix: team-,dev-
        mirror-controller.github.io/exclude-namespace: kube-*,team-secret
        mirror-controller.github.io/mirror-label: example.com/mirror
        mirror-controller.github.io/instance: blue
        mirror-controller.github.io/copy-label: team,example.com/*
        mirror-controller.github.io/copy-annotation: note
        mirror-controller.github.io/source-namespace: platform,infra
        mirror-controller.github.io/prune: "true"
        mirror-controller.github.io/namespace-selector: |-
          team In red,blue
          example.com/tier NotIn gold
          mirrored Exists
          frozen DoesNotExist
`,
				settingsComponents: []string{"high-availability", "monitoring", "network-policy", "admission-alerts", "viewer"},
				components:         []string{"admission", "protect-copies"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.namespace == "" {
				c.namespace = "mirror-system"
			}
			have, _ := apart(charted(t, "mirror-controller", c.namespace, set(append([]string{teams, `deletionGrace="1s"`}, c.values...)...)...)) // the base has the default of the program
			want := slices.DeleteFunc(kustomized(t, c.kustomization), func(o *unstructured.Unstructured) bool {
				return o.GetKind() == "Namespace" // which Helm makes, not a chart: helm install --create-namespace
			})
			takeOutConvention(t, want, have)
			expectSame(t, "kustomize", want, "chart", have)
		})
	}
}

// apart returns what is installed, and what only `helm test` makes.
func apart(m shipped.Manifests) (installed, tests shipped.Manifests) {
	for _, o := range m {
		if o.GetAnnotations()["helm.sh/hook"] == "test" {
			tests = append(tests, o)
		} else {
			installed = append(installed, o)
		}
	}
	return installed, tests
}

// takeOutConvention takes the labels out of the chart's objects that it has by convention, and holds the kustomizations
// to having none of them.
func takeOutConvention(t *testing.T, kustomized, charted shipped.Manifests) {
	t.Helper()
	named := map[string]bool{}
	for _, o := range kustomized {
		named[identity(o)] = o.GetLabels()[nameLabel] != ""
		if n := takeOut(o.Object); n > 0 {
			t.Errorf("%s: has %d labels that only the chart should have", identity(o), n)
		}
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
}

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

// everyValue switches on all that the chart has.
var everyValue = set(slices.Concat(monitored, []string{teams, "replicaCount=2", `networkPolicy={"enabled":true}`, `admissionPolicy={"protectCopies":true}`, "viewer.create=true"})...)

// TestTwoReleases shows that releases of different names share no object, not even one without a namespace, and that
// nothing in one names an object of the other.
func TestTwoReleases(t *testing.T) {
	const (
		lease   = `,"--leader-elect-resource-name=blue-mirror-controller"]`
		setting = `"mirror-controller.github.io/leader-elect-resource-name":"blue-mirror-controller",`
	)
	want := charted(t, "mirror-controller", "mirror-system", everyValue...)
	blue := charted(t, "blue", "mirror-system", everyValue...)
	taken := byIdentity(t, want)
	var renamed bytes.Buffer
	for _, o := range blue {
		if taken[identity(o)] != nil {
			t.Errorf("%s: is part of both releases", identity(o))
		}
		takeOut(o.Object)
		content, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		content = bytes.Replace(bytes.Replace(content, []byte(lease), []byte(`]`), 1), []byte(setting), nil, 1)
		renamed.Write(bytes.ReplaceAll(content, []byte("blue-mirror-controller"), []byte("mirror-controller")))
	}
	have, err := shipped.Parse(&renamed)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range want {
		takeOut(o.Object)
	}
	expectSame(t, "release mirror-controller", want, "release blue", have)
	for _, o := range blue {
		expectOnlyNamesOf(t, "blue-mirror-controller", identity(o), "", o.Object)
	}
	// The name of a Service has no dots.
	for _, o := range charted(t, "v1.blue", "mirror-system", everyValue...) {
		expectOnlyNamesOf(t, "v1-blue-mirror-controller", identity(o), "", o.Object)
	}
}

// TestNamespaceOverride compares a release with one in another namespace whose objects are to be in the first.
func TestNamespaceOverride(t *testing.T) {
	want := charted(t, "mirror-controller", "mirror-system", everyValue...)
	have := charted(t, "mirror-controller", "elsewhere", append(set(`namespaceOverride="mirror-system"`), everyValue...)...)
	expectSame(t, "release in the namespace", want, "override", have)
}

// ofTheChart are the fields that have the name of the chart, whatever the release is called. An expression has it as a
// default, and as the controller's name in Events.
var ofTheChart = regexp.MustCompile(`\.app\.kubernetes\.io/name$|\.containers\[0\]\.(name|image)$|\.expression$`)

// defaultName finds the name of what a release called mirror-controller consists of, but not that name in a sentence.
var defaultName = regexp.MustCompile(`^mirror-controller$|'mirror-controller'|mirror-controller-[a-z]`)

// expectOnlyNamesOf fails the test if a value has a name that is not of the release whose objects are called so.
func expectOnlyNamesOf(t *testing.T, name, id, path string, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			expectOnlyNamesOf(t, name, id, path+"."+key, value)
		}
	case []any:
		for i, item := range v {
			expectOnlyNamesOf(t, name, id, fmt.Sprintf("%s[%d]", path, i), item)
		}
	case string:
		if defaultName.MatchString(strings.ReplaceAll(v, name, "")) && !ofTheChart.MatchString(path) {
			t.Errorf("%s%s: is %s, which is the name of another release", id, path, v)
		}
	}
}

// TestMonitoringOfRelease shows that the alerts are the same for all releases, which they tell apart by labels, and that
// Grafana takes the dashboard of each.
func TestMonitoringOfRelease(t *testing.T) {
	const name = "platform-mirror-controller-of-production-two"
	found := 0
	for _, o := range charted(t, "any", "mirror-system", append(everyValue, "--set=fullnameOverride="+name)...) {
		switch o.GetKind() {
		case "PrometheusRule":
			if content := fmt.Sprint(o.Object["spec"]); o.GetName() == name && !strings.Contains(content, `leader_election_master_status{name="mirror-controller"}`) {
				t.Errorf("%s: does not know the leader by the name that it has in the metrics: %s", identity(o), content)
			}
		case "ConfigMap":
			content, _, _ := unstructured.NestedString(o.Object, "data", name+".json")
			var dashboard struct{ UID, Title string }
			if err := json.Unmarshal([]byte(content), &dashboard); err != nil {
				t.Fatal(err)
			}
			if dashboard.UID != name[:40] || dashboard.Title != name {
				t.Errorf("the dashboard is %+v, want %s, and 40 letters of it", dashboard, name)
			}
		default:
			continue
		}
		found++
	}
	if found != 3 {
		t.Errorf("%d objects for monitoring, want alerts, one of them by itself, and a dashboard", found)
	}
}

// TestLint has helm look for what it finds wrong with the chart.
func TestLint(t *testing.T) {
	for name, args := range map[string][]string{"default": set(teams), "everything": everyValue} {
		if out, err := newHelm(t).Run(t.Context(), append([]string{"lint", "--strict", chart}, args...)...); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestAllNamespaces shows what becomes of the settings where there are no prefixes.
func TestAllNamespaces(t *testing.T) {
	m := charted(t, "mirror-controller", "mirror-system", set("allNamespaces=true")...)
	if args := arguments(t, m); args[0] != "--all-namespaces" {
		t.Errorf("the arguments are %q, want --all-namespaces first", args)
	}
	want := map[string]string{"mirror-controller.github.io/all-namespaces": "true"}
	if have := settings(t, m); !maps.Equal(have, want) {
		t.Errorf("the settings are %v, want %v", have, want)
	}
}

// settings returns the annotations of the ClusterRoleBinding, which the policies read.
func settings(t *testing.T, m shipped.Manifests) map[string]string {
	t.Helper()
	for _, o := range m {
		if o.GetKind() == "ClusterRoleBinding" {
			return o.GetAnnotations()
		}
	}
	t.Fatal("there is no ClusterRoleBinding")
	return nil
}

// TestRefusals shows what is refused, and that the value is named.
func TestRefusals(t *testing.T) {
	h := newHelm(t)
	for name, c := range map[string]struct {
		args []string
		want []string // each a part of what is said
	}{
		"no prefix":                    {nil, []string{"namespacePrefixes: must not be empty"}},
		"empty prefix":                 {set(`namespacePrefixes=[""]`), []string{"/namespacePrefixes/0", "does not match pattern"}},
		"prefix with a quote":          {set(`namespacePrefixes=["a'"]`), []string{"/namespacePrefixes/0", "does not match pattern"}},
		"prefix that is a list":        {set(`namespacePrefixes=["a-,b-"]`), []string{"/namespacePrefixes/0", "does not match pattern"}},
		"prefix and all":               {set(teams, "allNamespaces=true"), []string{"namespacePrefixes and allNamespaces=true: set one of the two"}},
		"unknown":                      {set(teams, "namespacePrefix=1"), []string{"additional properties", "namespacePrefix"}},
		"unknown in an object":         {set(teams, "logging.level=1"), []string{"/logging", "additional properties", "level"}},
		"selector without values":      {set(teams, `namespaceSelector=[{"key":"team","operator":"In"}]`), []string{"/namespaceSelector/0", "values"}},
		"selector with idle values":    {set(teams, `namespaceSelector=[{"key":"team","operator":"Exists","values":["a"]}]`), []string{"/namespaceSelector/0/values", "maxItems"}},
		"selector with a space":        {set(teams, `namespaceSelector=[{"key":"team In","operator":"Exists"}]`), []string{"/namespaceSelector/0/key", "does not match pattern"}},
		"label with a quote":           {set(teams, `mirrorLabel="a'b"`), []string{"/mirrorLabel", "does not match pattern"}},
		"instance with a quote":        {set(teams, `instance="a'b"`), []string{"/instance", "does not match pattern"}},
		"exclusion with a quote":       {set(teams, `excludeNamespaces=["a'b"]`), []string{"/excludeNamespaces/0", "does not match pattern"}},
		"account with a quote":         {set(teams, `serviceAccount.name="a'b"`), []string{"/serviceAccount/name", "does not match pattern"}},
		"no account":                   {set(teams, `serviceAccount.create=false`), []string{"/serviceAccount/name", "minLength"}},
		"protected, not judged":        {set(teams, `admissionPolicy={"publishers":false,"protectCopies":true}`), []string{"protectCopies=true needs admissionPolicy.publishers=true"}},
		"replicas without lease":       {set(teams, "replicaCount=2", "leaderElection.enabled=false"), []string{"replicaCount: 2", "leaderElection.enabled=true"}},
		"taken argument":               {set(teams, `extraArgs=["--namespace-prefix=kube-"]`), []string{"extraArgs: --namespace-prefix: set the value namespacePrefixes"}},
		"taken argument, bare":         {set(teams, `extraArgs=["--instance"]`), []string{"extraArgs: --instance"}},
		"argument from a variable":     {set(teams, `extraArgs=["--$(FLAG)"]`), []string{"/extraArgs/0", "does not match pattern"}},
		"argument without a value":     {set(teams, `extraArgs=["--metrics-bind-address=:1"]`), []string{"extraArgs: --metrics-bind-address: the chart needs the default"}},
		"argument in two pieces":       {set(teams, `extraArgs=["--v","2"]`), []string{"/extraArgs/1", "does not match pattern"}},
		"no namespace":                 {set(teams, `namespaceOverride="My"`), []string{"/namespaceOverride", "does not match pattern"}},
		"old Kubernetes of a provider": {append(set(teams), "--kube-version=v1.29.9-eks-1234"), []string{"v1.29.9-eks-1234"}},
	} {
		_, err := h.Template(t.Context(), "mirror-controller", chart, "mirror-system", c.args...)
		if err == nil {
			t.Errorf("%s: is not refused", name)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is not in what is said: %v", name, part, err)
			}
		}
	}
}

// TestOldestKubernetes shows that the first version with the policies is not too old, and that the versions of providers count.
func TestOldestKubernetes(t *testing.T) {
	charted(t, "mirror-controller", "mirror-system", append(set(teams), "--kube-version=v1.30.0-eks-1234")...)
}
