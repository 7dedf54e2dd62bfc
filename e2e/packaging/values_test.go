package packaging

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// schema is what this test reads of a JSON schema.
type schema struct {
	Description          string
	Properties           map[string]*schema
	AdditionalProperties any
}

func readValues(t *testing.T) *yaml.RNode {
	t.Helper()
	values, err := yaml.Parse(read(t, "chart/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// TestSchemaHasTheValues compares the schema with values.yaml: each value has the words of its comment, and no other is
// let in.
func TestSchemaHasTheValues(t *testing.T) {
	var s schema
	if err := json.Unmarshal([]byte(read(t, "chart/values.schema.json")), &s); err != nil {
		t.Fatal(err)
	}
	delete(s.Properties, "global") // which Helm hands to every chart
	compareSchema(t, "", &s, readValues(t).YNode())
}

func compareSchema(t *testing.T, path string, s *schema, values *yaml.Node) {
	t.Helper()
	if s.AdditionalProperties != false || len(s.Properties) != len(values.Content)/2 {
		t.Errorf("%s: the schema lets values in that values.yaml does not have", path)
	}
	for i := 0; i < len(values.Content); i += 2 {
		key, comment := path+"."+values.Content[i].Value, words(values.Content[i].HeadComment)
		property := s.Properties[values.Content[i].Value]
		if property == nil || property.Description != comment {
			t.Errorf("%s: the schema does not have it with the comment %q: %+v", key, comment, property)
		} else if len(property.Properties) > 0 {
			compareSchema(t, key, property, values.Content[i+1])
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

// flagValue is a value that becomes a flag of the controller: which flag, another value, and what it makes of the flag.
type flagValue struct{ path, flag, value, want string }

// flags are all of them.
var flags = []flagValue{
	{"namespacePrefixes", "namespace-prefix", `["team-","dev-"]`, "team-,dev-"},
	{"namespaceSelector", "namespace-selector", `[{"key":"team","operator":"In","values":["red","blue"]},` +
		`{"key":"example.com/tier","operator":"NotIn","values":["gold"]},{"key":"mirrored","operator":"Exists"},` +
		`{"key":"frozen","operator":"DoesNotExist"}]`, "team in (red,blue),example.com/tier notin (gold),mirrored,!frozen"},
	{"excludeNamespaces", "exclude-namespace", `["kube-*","team-secret"]`, "kube-*,team-secret"},
	{"sourceNamespaces", "source-namespace", `["platform","infra"]`, "platform,infra"},
	{"mirrorLabel", "mirror-label", `"example.com/mirror"`, "example.com/mirror"},
	{"instance", "instance", `"blue"`, "blue"},
	{"prune", "prune", "true", "true"},
	{"copyLabels", "copy-label", `["team","example.com/*"]`, "team,example.com/*"},
	{"copyAnnotations", "copy-annotation", `["note"]`, "note"},
	{"deletionGrace", "deletion-grace", `"1h"`, "1h"},
	{"resyncPeriod", "resync-period", `"1h30m"`, "1h30m"},
	{"concurrentSources", "concurrent-sources", "1", "1"},
	{"concurrentWrites", "concurrent-writes", "1000000", "1000000"},
	{"leaderElection.leaseDuration", "leader-elect-lease-duration", `"60s"`, "60s"},
	{"leaderElection.renewDeadline", "leader-elect-renew-deadline", `"40s"`, "40s"},
	{"leaderElection.retryPeriod", "leader-elect-retry-period", `"5s"`, "5s"},
	{"fullnameOverride", "leader-elect-resource-name", `"blue"`, "blue"},
	{"logging.format", "logging-format", `"json"`, "json"},
}

// notValues are the flags that no value sets as such, with the reason.
var notValues = map[string]string{
	"all-namespaces":                  "instead of prefixes",
	"leader-elect":                    "is compared with the kustomizations",
	"leader-elect-resource-namespace": "the Lease is in the namespace of the Pod, where there is a role for it",
	"metrics-bind-address":            "the ports of the Pod",
	"health-probe-bind-address":       "the ports of the Pod",
	"kubeconfig":                      "it runs in the cluster that it works on",
	"context":                         "it runs in the cluster that it works on",
	"profiling":                       "is for a diagnosis, by extraArgs",
	"v":                               "extraArgs may have it, beside logging.verbosity",
	"help":                            "is for people",
	"version":                         "is for people",
}

// TestValuesAreFlags compares the values with the flags in the list of the reference, which a test of the program
// compares with the program. Each flag has a value or a reason, the defaults are the program's, and what is set becomes
// the flag.
func TestValuesAreFlags(t *testing.T) {
	defaults := programDefaults(t)
	var values []string
	want, known := []string{"--leader-elect"}, maps.Clone(notValues)
	for _, f := range flags {
		path := f.path
		known[f.flag] = path
		have, exists := defaults[f.flag]
		differs := path == "fullnameOverride" || path == "deletionGrace" // has another default, on purpose
		if ours := defaultOf(t, path); !exists || !differs && !sameDefault(ours, have) {
			t.Errorf("%s: is %q by default, and --%s is %q (exists: %v)", path, ours, f.flag, have, exists)
		}
		_, err := render(t, "r", "ns", teams, `extraArgs=["--`+f.flag+`=x"]`)
		if err == nil || !strings.Contains(err.Error(), "set the value "+path+" instead") {
			t.Errorf("--%s in extraArgs: got %v, want it refused for the value %s", f.flag, err, path)
		}
		values = append(values, path+"="+f.value)
		want = append(want, "--"+f.flag+"="+f.want)
	}
	for flag := range defaults {
		if known[flag] == "" {
			t.Errorf("the chart has no value for the flag --%s", flag)
		}
	}
	deployment, err := charted(t, values...).Deployment()
	if err != nil {
		t.Fatal(err)
	}
	have := slices.Sorted(slices.Values(deployment.Spec.Template.Spec.Containers[0].Args))
	if slices.Sort(want); !slices.Equal(have, want) {
		t.Errorf("the arguments are\n%q, want\n%q", have, want)
	}
}

// programDefaults returns the flags in the list of the reference with their defaults.
func programDefaults(t *testing.T) map[string]string {
	t.Helper()
	_, list, _ := strings.Cut(read(t, "docs/reference.md"), "<!-- flags -->")
	list, _, found := strings.Cut(list, "<!-- /flags -->")
	if !found {
		t.Fatal("the reference has no list of flags")
	}
	out := map[string]string{}
	item := regexp.MustCompile("`--?([a-z-]+)`(?: \\(`([^`]*)`\\))?")
	for _, flag := range item.FindAllStringSubmatch(list, -1) {
		out[flag[1]] = flag[2]
	}
	return out
}

// defaultOf returns the default of a value, of a list its items with commas.
func defaultOf(t *testing.T, path string) string {
	t.Helper()
	value, err := readValues(t).Pipe(yaml.Lookup(strings.Split(path, ".")...))
	if err != nil || value == nil {
		t.Fatalf("values.yaml has no %s (%v)", path, err)
	}
	return strings.ReplaceAll(strings.Trim(value.MustString(), "[]\"\n"), ", ", ",")
}

// sameDefault reports whether two texts are one value: 10m is 10m0s, and the reference leaves false out.
func sameDefault(a, b string) bool {
	x, notA := time.ParseDuration(a)
	y, notB := time.ParseDuration(b)
	return a == b || a == "false" && b == "" || notA == nil && notB == nil && x == y
}

// podValues are values that people set for their Pods, and where each is in the Deployment.
var podValues = map[string]string{
	`image={"registry":"r.example","tag":"v1","pullPolicy":"Always"}`: `"image":"r.example/mirror-controller:v1",` +
		`"imagePullPolicy":"Always"`,
	`imagePullSecrets=[{"name":"pull"}]`:              `"imagePullSecrets":[{"name":"pull"}]`,
	`resources={"limits":{"memory":"2Gi","cpu":"1"}}`: `"limits":{"cpu":"1","memory":"2Gi"}`,
	`extraEnv=[{"name":"A","value":"b"}]`: `[{"name":"GOMEMLIMIT","value":"1843MiB"},` +
		`{"name":"A","value":"b"}]`,
	`nodeSelector={"disk":"fast"}`:                       `"nodeSelector":{"disk":"fast","kubernetes.io/os":"linux"}`,
	`tolerations=[{"key":"spot","operator":"Exists"}]`:   `"tolerations":[{"key":"spot","operator":"Exists"}]`,
	`affinity={"nodeAffinity":{}}`:                       `"affinity":{"nodeAffinity":{}}`,
	`topologySpreadConstraints=[{"topologyKey":"rack"}]`: `"topologySpreadConstraints":[{"topologyKey":"rack"}]`,
	`priorityClassName="high"`:                           `"priorityClassName":"high"`,
	`livenessProbe={"timeoutSeconds":10}`: `"livenessProbe":{"httpGet":{"path":"/livez","port":"health"},` +
		`"periodSeconds":10,"terminationGracePeriodSeconds":5,"timeoutSeconds":10}`,
	`readinessProbe={"failureThreshold":5}`:              `"readinessProbe":{"failureThreshold":5,"httpGet"`,
	`podAnnotations={"note":"x"}`:                        `"annotations":{"note":"x"}`,
	`deploymentAnnotations={"reloader":"on"}`:            `"annotations":{"reloader":"on"}`,
	`podSecurityContext={"runAsUser":1000}`:              `"runAsNonRoot":true,"runAsUser":1000`,
	`securityContext={"privileged":false}`:               `"privileged":false,"readOnlyRootFilesystem":true`,
	`extraArgs=["-v=2","--profiling"]`:                   `"-v=2","--profiling"]`,
	`serviceAccount={"create":false,"name":"theirs"}`:    `"serviceAccountName":"theirs"`,
	"logging.verbosity=4":                                `"-v=4"`,
	"revisionHistoryLimit=0":                             `"revisionHistoryLimit":0`,
	`volumes=[{"name":"ca","emptyDir":{}}]`:              `"volumes":[{"emptyDir":{},"name":"ca"}]`,
	`volumeMounts=[{"name":"ca","mountPath":"/ca"}]`:     `"volumeMounts":[{"mountPath":"/ca","name":"ca"}]`,
	`podLabels={"team":"a","` + nameLabel + `":"other"}`: `"` + nameLabel + `":"mirror-controller","app.kubernetes.io/part-of":"mirror-controller","team":"a"}`,
	`global={"any":"thing"}`:                             "",
	"enabled=true":                                       "",
}

// parts are what some objects contain as JSON, by their kind. With none there is no such object.
type parts map[string][]string

// rendering is what certain values make of the chart.
type rendering struct {
	values []string
	want   parts
	lacks  string // what no object contains
}

// renderings are the values that do more than pass something on.
var renderings = map[string]rendering{
	"values of the Pod": {values: slices.AppendSeq([]string{"tests.enabled=false"}, maps.Keys(podValues)),
		want: parts{"ServiceAccount": nil}},
	"permissions of one's own": {values: []string{"rbac.create=false"},
		want: parts{"ClusterRole": nil, "ClusterRoleBinding": nil, "Role": nil, "RoleBinding": nil}},
	"all namespaces": {values: []string{"allNamespaces=true", "namespacePrefixes=[]"}, want: parts{
		"Deployment":         {`"args":["--all-namespaces",`},
		"ClusterRoleBinding": {`"annotations":{"mirror-controller.github.io/all-namespaces":"true"}`}}},

	// The Go runtime gets a limit below the container's, where that is known.
	"memory in other units":  {values: []string{`resources.limits.memory="500M"`}, lacks: "GOMEMLIMIT"},
	"memory without a limit": {values: []string{"resources.limits=null"}, lacks: "GOMEMLIMIT"},
	"memory set by hand": {values: []string{`extraEnv=[{"name":"GOMEMLIMIT","value":"1GiB"}]`},
		want: parts{"Deployment": {`"env":[{"name":"GOMEMLIMIT","value":"1GiB"}]`}}},

	// Without a Lease there are no permissions for it, never two Pods, and no alert that counts leaders.
	"no Lease": {values: []string{"leaderElection.enabled=false", "prometheusRule.enabled=true", "tests.enabled=false"},
		want: parts{"Deployment": {`"strategy":{"type":"Recreate"}`}, "Role": nil,
			"PrometheusRule": {"absent(mirror_build_info)"}},
		lacks: "leader_election_master_status"},
	"no Lease, scraped": {
		values: []string{"leaderElection.enabled=false", "prometheusRule.enabled=true", "serviceMonitor.enabled=true"},
		want: parts{
			"PrometheusRule": {`absent(mirror_build_info{namespace=\"mirror-system\", job=\"mirror-controller-metrics\"})`}}},

	// Monitoring.
	"a Service alone": {
		values: []string{"metricsService.enabled=true", `metricsService.annotations={"prometheus.io/scrape":"true"}`},
		want:   parts{"Service": {`"prometheus.io/scrape":"true"`}, "ServiceMonitor": nil}},
	"Pods": {values: []string{"podMonitor.enabled=true", `podMonitor.interval="1m"`}, want: parts{
		"PodMonitor": {`"podMetricsEndpoints":[{"interval":"1m","port":"metrics"}]`}, "Service": nil}},
	"a Service": {values: []string{"serviceMonitor.enabled=true", `serviceMonitor.scrapeTimeout="5s"`,
		`serviceMonitor.relabelings=[{"targetLabel":"a"}]`, `serviceMonitor.metricRelabelings=[{"targetLabel":"b"}]`},
		want: parts{"PodMonitor": nil, "ServiceMonitor": {`"metricRelabelings":[{"targetLabel":"b"}],"port":"metrics",` +
			`"relabelings":[{"targetLabel":"a"}],"scrapeTimeout":"5s"`}}},
	"links": {values: []string{"prometheusRule.enabled=true",
		`prometheusRule.runbookBaseURL="https://example.com/mirror/"`},
		want: parts{"PrometheusRule": {
			`"runbook_url":"https://example.com/mirror/troubleshooting.md#mirrorcontrollernoleader"`}}},
	// The alerts tell releases apart by labels. Grafana allows a dashboard 40 letters.
	"alerts of a release": {values: []string{`fullnameOverride="blue"`, "prometheusRule.enabled=true"},
		want: parts{"PrometheusRule": {`leader_election_master_status{name=\"mirror-controller\"}`}}},
	"dashboard of a release": {
		values: []string{`fullnameOverride="platform-mirror-controller-of-production-two"`, "dashboard.enabled=true"},
		want:   parts{"ConfigMap": {`\"uid\": \"platform-mirror-controller-of-production\"`}}},

	// kubectl mirror finds the Deployment by a label that no value replaces.
	"another name": {values: []string{`nameOverride="other"`, `commonLabels={"app.kubernetes.io/part-of":"other"}`},
		want: parts{"Deployment": {`"app.kubernetes.io/part-of":"mirror-controller"`}}},

	"other objects": {
		values: []string{`extraObjects=[{"kind":"Secret","apiVersion":"v1","metadata":{"name":"{{ .Release.Name }}-x"}},` +
			`"kind: Event\napiVersion: v1\nmetadata: {name: of-text}"]`},
		want: parts{"Secret": {`"name":"mirror-controller-x"`}, "Event": {`"name":"of-text"`}}},

	// The Pod of `helm test` runs the same image in the same place, as another account. No Service takes it for the
	// controller's.
	"test": {
		values: []string{`image={"repository":"r.example/m","tag":"v1","pullPolicy":"Always"}`,
			`imagePullSecrets=[{"name":"pull"}]`,
			`nodeSelector={"disk":"fast"}`, `tolerations=[{"key":"spot"}]`},
		want: parts{"Pod": {
			`"image":"r.example/m:v1","imagePullPolicy":"Always"`,
			`"imagePullSecrets":[{"name":"pull"}],"nodeSelector":{"disk":"fast",`,
			`"serviceAccountName":"mirror-controller-test","tolerations":[{"key":"spot"}]`,
			`"` + nameLabel + `":"mirror-controller-check"`}}},
	"labels on all": {values: []string{`commonLabels={"cost":"1","` + nameLabel + `":"other"}`}, lacks: `"other"`,
		want: parts{"Deployment": {`"cost":"1"`}, "ServiceAccount": {`"cost":"1"`}, "ClusterRole": {`"cost":"1"`},
			"Role": {`"cost":"1"`}}},
}

// TestValuesReachTheirObjects renders the chart with values, and finds what they are for in the objects.
func TestValuesReachTheirObjects(t *testing.T) {
	podParts := slices.DeleteFunc(slices.Collect(maps.Values(podValues)), func(part string) bool { return part == "" })
	renderings["values of the Pod"].want["Deployment"] = podParts
	for name, r := range renderings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := map[string]string{}
			for _, o := range charted(t, append([]string{teams}, r.values...)...) {
				content, err := json.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				objects[o.GetKind()] += string(content)
			}
			for kind, parts := range r.want {
				if len(parts) == 0 && objects[kind] != "" {
					t.Errorf("there is a %s, want none", kind)
				}
				for _, part := range parts {
					if !strings.Contains(objects[kind], part) {
						t.Errorf("no %s has %s", kind, part)
					}
				}
			}
			for kind, object := range objects {
				if r.lacks != "" && strings.Contains(object, r.lacks) {
					t.Errorf("a %s has %s", kind, r.lacks)
				}
			}
		})
	}
}

// TestValuesThatAreRefused shows what is refused, and that the value is named.
func TestValuesThatAreRefused(t *testing.T) {
	const pattern, unknown = "does not match pattern", "additional properties"
	for value, want := range map[string][]string{
		`namespacePrefixes=[]`:         {"namespacePrefixes: must not be empty"},
		`namespacePrefixes=[""]`:       {"/namespacePrefixes/0", pattern},
		`namespacePrefixes=["a'"]`:     {"/namespacePrefixes/0", pattern},
		`namespacePrefixes=["a-,b-"]`:  {"/namespacePrefixes/0", pattern},
		`allNamespaces=true`:           {"namespacePrefixes and allNamespaces=true: set one of the two"},
		`namespacePrefix=1`:            {unknown, "namespacePrefix"},
		`logging.level=1`:              {"/logging", unknown, "level"},
		`mirrorLabel="a'b"`:            {"/mirrorLabel", pattern},
		`instance="a'b"`:               {"/instance", pattern},
		`excludeNamespaces=["a'b"]`:    {"/excludeNamespaces/0", pattern},
		`serviceAccount.name="a'b"`:    {"/serviceAccount/name", pattern},
		`serviceAccount.create=false`:  {"/serviceAccount/name", "minLength"},
		`namespaceOverride="My"`:       {"/namespaceOverride", pattern},
		`extraArgs=["--$(FLAG)"]`:      {"/extraArgs/0", pattern},
		`extraArgs=["--v","2"]`:        {"/extraArgs/1", pattern},
		`extraArgs=["--instance"]`:     {"extraArgs: --instance: set the value instance"},
		`leaderElection.enabled=false`: {"replicaCount: 2", "leaderElection.enabled=true"},
		`admissionPolicy={"publishers":false,"protectCopies":true}`: {
			"protectCopies=true needs admissionPolicy.publishers=true"},
		`extraArgs=["--metrics-bind-address=:1"]`: {
			"extraArgs: --metrics-bind-address: the chart needs the default"},
		`namespaceSelector=[{"key":"team","operator":"In"}]`:                    {"/namespaceSelector/0", "values"},
		`namespaceSelector=[{"key":"team","operator":"Exists","values":["a"]}]`: {"/namespaceSelector/0/values", "maxItems"},
		`namespaceSelector=[{"key":"team In","operator":"Exists"}]`:             {"/namespaceSelector/0/key", pattern},
	} {
		_, err := render(t, "r", "ns", teams, "replicaCount=2", value)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is not in what is said: %v", value, part, err)
			}
		}
	}
}

// TestKubernetesVersions shows that 1.30 is the first version with the policies, also as providers name their versions.
func TestKubernetesVersions(t *testing.T) {
	charted(t, teams, "--kube-version=v1.30.0-eks-1234")
	_, err := render(t, "r", "ns", teams, "--kube-version=v1.29.9-eks-1234")
	if err == nil || !strings.Contains(err.Error(), "v1.29.9-eks-1234") {
		t.Errorf("got %v, want the version refused", err)
	}
}
