package packaging

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// schema is what this test reads of a JSON schema.
type schema struct {
	Type                 string
	Description          string
	Properties           map[string]*schema
	AdditionalProperties any
}

func readSchema(t *testing.T) *schema {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(content, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

func readValues(t *testing.T) *yaml.Node {
	t.Helper()
	values, err := yaml.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return values.YNode()
}

// TestSchema holds the schema to the values: each has a type and the words of its comment, and no other is let in.
func TestSchema(t *testing.T) {
	s := readSchema(t)
	delete(s.Properties, "global") // which Helm hands to every chart
	compareSchema(t, "", s, readValues(t))
}

func compareSchema(t *testing.T, path string, s *schema, values *yaml.Node) {
	t.Helper()
	if s.AdditionalProperties != false {
		t.Errorf("%s: lets unknown values in", path)
	}
	seen := map[string]bool{}
	for i := 0; i < len(values.Content); i += 2 {
		key, value := values.Content[i], values.Content[i+1]
		property, path := s.Properties[key.Value], strings.TrimPrefix(path+"."+key.Value, ".")
		seen[key.Value] = true
		if property == nil {
			t.Errorf("%s: is not in the schema", path)
			continue
		}
		if property.Type == "" {
			t.Errorf("%s: has no type", path)
		}
		if comment := words(key.HeadComment); property.Description != comment {
			t.Errorf("%s: the schema says %q, the comment %q", path, property.Description, comment)
		}
		if len(property.Properties) > 0 {
			compareSchema(t, path, property, value)
		} else if property.Description == "" {
			t.Errorf("%s: is not described", path)
		}
	}
	for name := range s.Properties {
		if !seen[name] {
			t.Errorf("%s.%s: is in the schema, and not in values.yaml", path, name)
		}
	}
}

// words returns the text of the last paragraph of a comment. Those before it, and what begins with ##, head a section.
func words(comment string) string {
	paragraphs := strings.Split(comment, "\n\n")
	last := paragraphs[len(paragraphs)-1]
	if strings.HasPrefix(last, "##") {
		return ""
	}
	return strings.Join(strings.Fields(strings.ReplaceAll(last, "# ", "")), " ")
}

// flags are the values that become flags of the controller: which flag, another value, and what it makes of the flag.
var flags = map[string]struct{ flag, value, want string }{
	"namespacePrefixes":            {"namespace-prefix", `["a-","b-"]`, "a-,b-"},
	"namespaceSelector":            {"namespace-selector", `[{"key":"a","operator":"In","values":["b","c"]},{"key":"d","operator":"Exists"}]`, "a in (b,c),d"},
	"excludeNamespaces":            {"exclude-namespace", `["a","b*"]`, "a,b*"},
	"sourceNamespaces":             {"source-namespace", `["a","b"]`, "a,b"},
	"mirrorLabel":                  {"mirror-label", `"example.com/mirror"`, "example.com/mirror"},
	"instance":                     {"instance", `"blue"`, "blue"},
	"copyLabels":                   {"copy-label", `["team","example.com/*"]`, "team,example.com/*"},
	"copyAnnotations":              {"copy-annotation", `["team","*"]`, "team,*"},
	"prune":                        {"prune", "true", "true"},
	"deletionGrace":                {"deletion-grace", `"1h"`, "1h"},
	"resyncPeriod":                 {"resync-period", `"1h30m"`, "1h30m"},
	"concurrentSources":            {"concurrent-sources", "1", "1"},
	"concurrentWrites":             {"concurrent-writes", "1000000", "1000000"},
	"kubeApi.qps":                  {"kube-api-qps", "0.5", "0.5"},
	"kubeApi.burst":                {"kube-api-burst", "100", "100"},
	"leaderElection.leaseDuration": {"leader-elect-lease-duration", `"60s"`, "60s"},
	"leaderElection.renewDeadline": {"leader-elect-renew-deadline", `"40s"`, "40s"},
	"leaderElection.retryPeriod":   {"leader-elect-retry-period", `"5s"`, "5s"},
	"fullnameOverride":             {"leader-elect-resource-name", `"blue"`, "blue"},
	"logging.format":               {"logging-format", `"json"`, "json"},
	"logging.verbosity":            {"v", "4", "4"},
}

// notValues are the flags that no value sets as such, with the reason.
var notValues = map[string]string{
	"all-namespaces":                  "TestAllNamespaces",
	"leader-elect":                    "is compared with the kustomizations",
	"leader-elect-resource-namespace": "the Lease is in the namespace of the Pod, where there is a role for it",
	"metrics-bind-address":            "the ports of the Pod",
	"health-probe-bind-address":       "the ports of the Pod",
	"kubeconfig":                      "it runs in the cluster that it works on",
	"context":                         "it runs in the cluster that it works on",
	"profiling":                       "is for a diagnosis, by extraArgs",
	"help":                            "is for people",
	"version":                         "is for people",
}

// TestValuesAreFlags holds the values to the flags, by the table of the reference, which a test of the program holds to it: each
// flag has a value or a reason, the defaults are the program's, and what is set becomes the flag.
func TestValuesAreFlags(t *testing.T) {
	defaults := programDefaults(t)
	var args []string
	want, unknown := []string{"--leader-elect"}, maps.Clone(defaults)
	for path, f := range flags {
		have, known := defaults[f.flag]
		if !known {
			t.Errorf("%s: there is no flag --%s", path, f.flag)
		}
		delete(unknown, f.flag)
		if ours := defaultOf(t, path); path != "fullnameOverride" && path != "deletionGrace" && !sameDefault(ours, have) {
			t.Errorf("%s: is %q by default, and --%s is %q", path, ours, f.flag, have)
		}
		_, err := newHelm(t).Template(t.Context(), "mirror-controller", chart, "mirror-system", set(teams, `extraArgs=["`+spelled(f.flag)+`=x"]`)...)
		if f.flag != "v" && (err == nil || !strings.Contains(err.Error(), "set the value "+path+" instead")) {
			t.Errorf("--%s in extraArgs: got %v, want it refused for the value %s", f.flag, err, path)
		}
		args = append(args, set(path+"="+f.value)...)
		want = append(want, spelled(f.flag)+"="+f.want)
	}
	for flag := range notValues {
		delete(unknown, flag)
	}
	if len(unknown) > 0 {
		t.Errorf("the chart has no values for the flags %v", slices.Sorted(maps.Keys(unknown)))
	}
	have := arguments(t, charted(t, "mirror-controller", "mirror-system", args...))
	if have, want := slices.Sorted(slices.Values(have)), slices.Sorted(slices.Values(want)); !slices.Equal(have, want) {
		t.Errorf("the arguments are\n%q, want\n%q", have, want)
	}
}

func spelled(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

// programDefaults returns the flags in the table of the reference with their defaults.
func programDefaults(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile("../../deploy/docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(content), "<!-- flags -->")
	table, _, found := strings.Cut(table, "<!-- /flags -->")
	if !found {
		t.Fatal("the reference has no table of flags")
	}
	out := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `--?([a-z-]+)` \\| (?:`([^`]*)`)? *\\|").FindAllStringSubmatch(table, -1) {
		out[row[1]] = row[2]
	}
	return out
}

// defaultOf returns the default of a value, a list with commas.
func defaultOf(t *testing.T, path string) string {
	t.Helper()
	node := readValues(t)
	for name := range strings.SplitSeq(path, ".") {
		var value *yaml.Node
		for i := 0; i < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				value = node.Content[i+1]
			}
		}
		if value == nil {
			t.Fatalf("values.yaml has no %s", path)
		}
		node = value
	}
	var items []string
	for _, item := range node.Content {
		items = append(items, item.Value)
	}
	return strings.Join(append(items, node.Value)[:max(1, len(items))], ",")
}

// sameDefault reports whether two texts are one value: 10m is 10m0s, and the reference leaves false out.
func sameDefault(a, b string) bool {
	if a == "false" {
		return b == ""
	}
	if x, err := time.ParseDuration(a); err == nil {
		y, err := time.ParseDuration(b)
		return err == nil && x == y
	}
	return a == b
}

// TestPodValues shows that what people set for their Pods gets there, and that what the controller rests on stays.
func TestPodValues(t *testing.T) {
	m := charted(t, "mirror-controller", "mirror-system", set(teams,
		`image={"registry":"registry.example","tag":"v1","pullPolicy":"Always"}`,
		`imagePullSecrets=[{"name":"pull"}]`,
		`resources={"limits":{"memory":"2Gi","cpu":"1"}}`,
		`nodeSelector={"disk":"fast"}`, `livenessProbe={"timeoutSeconds":10}`, `readinessProbe={"failureThreshold":5}`,
		`tolerations=[{"key":"spot","operator":"Exists"}]`,
		`affinity={"nodeAffinity":{}}`,
		`priorityClassName="high"`,
		`podLabels={"team":"platform","app.kubernetes.io/name":"other"}`,
		`podAnnotations={"note":"x"}`,
		`podSecurityContext={"runAsUser":1000}`,
		`securityContext={"privileged":false}`,
		`extraArgs=["-v=2"]`,
		`extraEnv=[{"name":"A","value":"b"}]`,
		`serviceAccount={"create":false,"name":"theirs"}`,
		`rbac={"create":false}`,
		"replicaCount=3", "revisionHistoryLimit=0", `topologySpreadConstraints=[{"topologyKey":"rack","maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"}]`,
		`commonLabels={"cost":"1","app.kubernetes.io/name":"other"}`, `deploymentAnnotations={"reloader":"on"}`,
		`volumes=[{"name":"ca","emptyDir":{}}]`, `volumeMounts=[{"name":"ca","mountPath":"/ca"}]`, `global={"any":"thing"}`, "enabled=true")...)
	d, err := m.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"image":"registry.example/mirror-controller:v1"`, `"imagePullPolicy":"Always"`, `"imagePullSecrets":[{"name":"pull"}]`, `"cpu":"1","memory":"2Gi"`,
		`{"name":"GOMEMLIMIT","value":"1843MiB"},{"name":"A","value":"b"}`, `"nodeSelector":{"disk":"fast","kubernetes.io/os":"linux"}`, `"volumes":[{"name":"ca","emptyDir":{}}]`,
		`"volumeMounts":[{"name":"ca","mountPath":"/ca"}]`, `"annotations":{"reloader":"on"}`,
		`"tolerations":[{"key":"spot","operator":"Exists"}]`, `"affinity":{"nodeAffinity":{}}`, `"priorityClassName":"high"`,
		`"livenessProbe":{"httpGet":{"path":"/livez","port":"health"},"timeoutSeconds":10,"periodSeconds":10,"terminationGracePeriodSeconds":5}`,
		`"timeoutSeconds":5,"periodSeconds":2,"failureThreshold":5`,
		`"team":"platform"`, `"annotations":{"note":"x"}`, `"runAsUser":1000`, `"runAsNonRoot":true`, `"privileged":false`,
		`"args":["--namespace-prefix=team-","--leader-elect","--deletion-grace=5m","-v=2"]`, `"serviceAccountName":"theirs"`, `"replicas":3`, `"revisionHistoryLimit":0`,
		`"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"rack","whenUnsatisfiable":"DoNotSchedule"}]`,
	} {
		if !strings.Contains(string(content), part) {
			t.Errorf("%s is not in the Deployment: %s", part, content)
		}
	}
	if d.Spec.Template.Labels[nameLabel] != "mirror-controller" {
		t.Errorf("the labels of Pods are %v, which the selector does not match", d.Spec.Template.Labels)
	}
	for _, o := range m {
		if o.GetLabels()["cost"] != "1" || o.GetLabels()[nameLabel] != "mirror-controller" {
			t.Errorf("%s: the labels are %v, want the common one beside its own", identity(o), o.GetLabels())
		}
		switch o.GetKind() {
		case "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
			t.Errorf("%s: is made though it was switched off", identity(o))
		}
	}
}

// TestMemoryLimit shows where the Go runtime gets a limit below the container's.
func TestMemoryLimit(t *testing.T) {
	for name, c := range map[string]struct {
		values []string
		want   string
	}{
		"512Mi":       {nil, "460MiB"},
		"1Gi":         {[]string{`resources.limits.memory="1Gi"`}, "921MiB"},
		"other units": {[]string{`resources.limits.memory="500M"`}, ""},
		"no limit":    {[]string{`resources.limits=null`}, ""},
		"set by hand": {[]string{`extraEnv=[{"name":"GOMEMLIMIT","value":"1GiB"}]`}, "1GiB"},
	} {
		d, err := charted(t, "mirror-controller", "mirror-system", set(append([]string{teams}, c.values...)...)...).Deployment()
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, e := range d.Spec.Template.Spec.Containers[0].Env {
			have = append(have, e.Value)
		}
		if strings.Join(have, " ") != c.want {
			t.Errorf("%s: GOMEMLIMIT is %q, want %q", name, have, c.want)
		}
	}
}

// TestWithoutLease shows that without a Lease there are no permissions for it, and never two Pods.
func TestWithoutLease(t *testing.T) {
	values := set(teams, "leaderElection.enabled=false", "prometheusRule.enabled=true")
	m := charted(t, "mirror-controller", "mirror-system", values...)
	for want, m := range map[string]shipped.Manifests{
		"absent(mirror_build_info)": m,
		`absent(mirror_build_info{namespace="my-system", job="blue-mirror-controller-metrics"})`: charted(t, "blue", "my-system", append(values, set("serviceMonitor.enabled=true")...)...),
	} {
		rules := slices.IndexFunc(m, func(o *unstructured.Unstructured) bool { return o.GetKind() == "PrometheusRule" })
		if text := fmt.Sprint(m[rules].Object); strings.Contains(text, "leader_election_master_status") || !strings.Contains(text, want) {
			t.Errorf("an alert counts leaders, and there are none, or another is not %s: %s", want, text)
		}
	}
	d, err := m.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	if args := arguments(t, m); !slices.Equal(args, []string{"--namespace-prefix=team-", "--deletion-grace=5m"}) {
		t.Errorf("the arguments are %q, want no lease", args)
	}
	if d.Spec.Strategy.Type != "Recreate" || d.Spec.Strategy.RollingUpdate != nil {
		t.Errorf("the strategy is %v, want that the old Pod stops first", d.Spec.Strategy)
	}
	installed, _ := apart(m)
	if roles, err := installed.Roles(); err != nil || len(roles) > 0 {
		t.Errorf("there are Roles, want none: %v, %v", roles, err)
	}
}

// TestMonitoringValues shows the Service without the Prometheus operator, what people set for scrapes and links, and other objects.
func TestMonitoringValues(t *testing.T) {
	plain := charted(t, "mirror-controller", "mirror-system", set(teams, "metricsService.enabled=true",
		`metricsService.annotations={"prometheus.io/scrape":"true"}`)...)
	full := charted(t, "mirror-controller", "mirror-system", set(teams, "serviceMonitor.enabled=true", "prometheusRule.enabled=true",
		`serviceMonitor.scrapeTimeout="5s"`, `serviceMonitor.relabelings=[{"targetLabel":"a"}]`, `serviceMonitor.metricRelabelings=[{"targetLabel":"b"}]`,
		`prometheusRule.runbookBaseURL="https://docs.example.com/mirror/"`)...)
	pods := charted(t, "mirror-controller", "mirror-system", set(teams, "podMonitor.enabled=true", `podMonitor.interval="1m"`,
		`extraObjects=[{"kind":"Secret","apiVersion":"v1","metadata":{"name":"{{ .Release.Name }}-x"}},"kind: Role\napiVersion: v1\nmetadata: {name: of-text}"]`)...)
	for name, c := range map[string]struct {
		manifests shipped.Manifests
		kind      string
		want      []string
	}{
		"Service alone": {plain, "Service", []string{`"prometheus.io/scrape":"true"`}},
		"none":          {plain, "ServiceMonitor", nil},
		"no PodMonitor": {full, "PodMonitor", nil},
		"of Pods":       {pods, "PodMonitor", []string{`"podMetricsEndpoints":[{"interval":"1m","port":"metrics"}]`}},
		"no Service":    {pods, "Service", nil},
		"an object":     {pods, "Secret", []string{`"name":"mirror-controller-x"`}},
		"a text":        {pods, "Role", []string{`"name":"of-text"`}},
		"scrapes": {full, "ServiceMonitor", []string{`"scrapeTimeout":"5s"`, `"relabelings":[{"targetLabel":"a"}]`,
			`"metricRelabelings":[{"targetLabel":"b"}]`}},
		"links": {full, "PrometheusRule", []string{`"runbook_url":"https://docs.example.com/mirror/troubleshooting.md#mirrorcontrollernoleader"`,
			`"runbook_url":"https://docs.example.com/mirror/troubleshooting.md#mirrorcontrollernotconfined"`}},
	} {
		var found strings.Builder
		for _, o := range c.manifests {
			if o.GetKind() != c.kind {
				continue
			}
			content, err := json.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			found.Write(content)
		}
		if len(c.want) == 0 && found.Len() > 0 {
			t.Errorf("%s: got %s, want none", name, &found)
		}
		for _, want := range c.want {
			if !strings.Contains(found.String(), want) {
				t.Errorf("%s: %s is not in %s", name, want, &found)
			}
		}
	}
}
