package packaging

import (
	"encoding/json"
	"regexp"
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

// flags are those of the controller that values set, and by which value each.
var flags = map[string]string{
	"namespace-prefix":            "namespacePrefixes",
	"namespace-selector":          "namespaceSelector",
	"exclude-namespace":           "excludeNamespaces",
	"source-namespace":            "sourceNamespaces",
	"mirror-label":                "mirrorLabel",
	"instance":                    "instance",
	"prune":                       "prune",
	"copy-label":                  "copyLabels",
	"copy-annotation":             "copyAnnotations",
	"deletion-grace":              "deletionGrace",
	"resync-period":               "resyncPeriod",
	"concurrent-sources":          "concurrentSources",
	"concurrent-writes":           "concurrentWrites",
	"leader-elect-lease-duration": "leaderElection.leaseDuration",
	"leader-elect-renew-deadline": "leaderElection.renewDeadline",
	"leader-elect-retry-period":   "leaderElection.retryPeriod",
	"leader-elect-resource-name":  "fullnameOverride",
	"logging-format":              "logging.format",
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
// compares with the program. Each flag has a value or a reason, and the defaults are the program's. With
// testdata/everything.yaml each is among the arguments, which TestValuesReachTheirObjects compares.
func TestValuesAreFlags(t *testing.T) {
	_, list, _ := strings.Cut(read(t, "docs/reference.md"), "<!-- flags -->")
	list, _, _ = strings.Cut(list, "<!-- /flags -->")
	defaults := map[string]string{}
	for _, flag := range regexp.MustCompile("`--?([a-z-]+)`(?: \\(`([^`]*)`\\))?").FindAllStringSubmatch(list, -1) {
		defaults[flag[1]] = flag[2]
		if flags[flag[1]] == "" && notValues[flag[1]] == "" {
			t.Errorf("the chart has no value for the flag --%s", flag[1])
		}
	}
	deployment, err := charted(t, everyValue, `fullnameOverride="blue"`).Deployment()
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Join(deployment.Spec.Template.Spec.Containers[0].Args, " ")
	for flag, path := range flags {
		t.Run("--"+flag, func(t *testing.T) {
			have, exists := defaults[flag]
			differs := path == "fullnameOverride" || path == "deletionGrace" // has another default, on purpose
			if ours := defaultOf(t, path); !exists || !differs && !sameDefault(ours, have) {
				t.Errorf("%s: is %q by default, and --%s is %q (exists: %v)", path, ours, flag, have, exists)
			}
			_, err := render(t, "r", teams, `extraArgs=["--`+flag+`=x"]`)
			if err == nil || !strings.Contains(err.Error(), "set the value "+path+" instead") {
				t.Errorf("--%s in extraArgs: got %v, want it refused for the value %s", flag, err, path)
			}
			if !strings.Contains(args, "--"+flag+"=") {
				t.Errorf("%s does not become --%s: %s", path, flag, args)
			}
		})
	}
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

// parts are what some objects contain as JSON, by their kind. With none there is no such object.
type parts map[string][]string

// rendering is what certain values make of the chart.
type rendering struct {
	values []string
	want   parts
	lacks  string // what no object contains
}

// renderings have all values, and those that do more than pass something on.
var renderings = map[string]rendering{
	"every value": {values: []string{everyValue, `namespacePrefixes=["team-","dev-"]`}, want: parts{
		"Deployment": {
			`"annotations":{"example.com/note":"deployment"}`,
			`"cost":"platform"`,
			`"app.kubernetes.io/part-of":"mirror-controller"`, // by which kubectl mirror finds it
			`"revisionHistoryLimit":0`,
			`"annotations":{"example.com/note":"true"}`,
			`"app.kubernetes.io/name":"mirror-controller","app.kubernetes.io/part-of":"mirror-controller","cost":"platform",` +
				`"team":"platform"}`,
			`"imagePullSecrets":[{"name":"registry"}]`,
			`"priorityClassName":"system-cluster-critical"`,
			`"nodeSelector":{"disk":"fast","kubernetes.io/os":"linux"}`,
			`"tolerations":[{"effect":"NoSchedule","key":"spot","operator":"Exists"}]`,
			`"affinity":{"nodeAffinity":{`,
			`"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"rack",`,
			`"fsGroup":65532,"runAsNonRoot":true,"runAsUser":65532`,
			`"image":"registry.example/mirror-controller@sha256:`,
			`"imagePullPolicy":"IfNotPresent"`,
			`"args":["--namespace-prefix=team-,dev-","--leader-elect",` +
				`"--namespace-selector=team in (red,blue),example.com/tier notin (gold),mirrored,!frozen",` +
				`"--exclude-namespace=kube-*,team-secret","--source-namespace=default,infra",` +
				`"--mirror-label=example.com/mirror","--instance=everything",` +
				`"--copy-label=team,example.com/*","--copy-annotation=example.com/*","--prune=true",` +
				`"--deletion-grace=1h","--resync-period=1h","--concurrent-sources=2","--concurrent-writes=1000000",` +
				`"--leader-elect-lease-duration=60s","--leader-elect-renew-deadline=40s",` +
				`"--leader-elect-retry-period=5s","--logging-format=json","-v=2","--context=in-cluster","-v=3"]`,
			`[{"name":"GOMEMLIMIT","value":"1843MiB"},{"name":"GOMAXPROCS","value":"2"}]`,
			`"livenessProbe":{"httpGet":{"path":"/livez","port":"health"},"periodSeconds":20,` +
				`"terminationGracePeriodSeconds":5,"timeoutSeconds":10}`,
			`"readinessProbe":{"failureThreshold":5,"httpGet"`,
			`"limits":{"cpu":"1","memory":"2Gi"}`,
			`"privileged":false,"readOnlyRootFilesystem":true`,
			`"volumeMounts":[{"mountPath":"/ca","name":"ca","readOnly":true}]`,
			`"volumes":[{"configMap":{"name":"ca"},"name":"ca"}]`,
		},
		// The Pod of `helm test` runs the same image in the same place, as another account. No Service takes it for the
		// controller's.
		"Pod": {
			`"image":"registry.example/mirror-controller@sha256:`,
			`"imagePullPolicy":"IfNotPresent"`,
			`"imagePullSecrets":[{"name":"registry"}],"nodeSelector":{"disk":"fast",`,
			`"serviceAccountName":"mirror-controller-test","tolerations":[{"effect":"NoSchedule","key":"spot",`,
			`"app.kubernetes.io/name":"mirror-controller-check"`,
		},
		"ServiceAccount": {`"cost":"platform"`},
		"ClusterRole":    {`"cost":"platform"`},
		"Role":           {`"cost":"platform"`},
		"Service":        {`"prometheus.io/scrape":"true"`},
		"ServiceMonitor": {`"metricRelabelings":[{"action":"drop","regex":"go_.*","sourceLabels":["__name__"]}],` +
			`"port":"metrics","relabelings":[{"action":"labeldrop","regex":"pod"}],"scrapeTimeout":"5s"`},
		"PodMonitor":     {`"podMetricsEndpoints":[{"interval":"1m","port":"metrics"}]`},
		"PrometheusRule": {`"runbook_url":"https://docs.example.com/mirror/troubleshooting.md#mirrorcontrollernoleader"`},
		"ConfigMap":      {`"name":"mirror-controller-extra"`, `"name":"of-text"`},
	}, lacks: `"other"`}, // a label of the values in place of the chart's

	"an image": {values: []string{`image={"registry":"r.example","tag":"v1"}`},
		want: parts{"Deployment": {`"image":"r.example/mirror-controller:v1"`}}},
	"an account of one's own": {values: []string{`serviceAccount={"create":false,"name":"theirs"}`, "tests.enabled=false"},
		want: parts{"ServiceAccount": nil, "Deployment": {`"serviceAccountName":"theirs"`}}},
	"permissions of one's own": {values: []string{"rbac.create=false"},
		want: parts{"ClusterRole": nil, "ClusterRoleBinding": nil, "Role": nil, "RoleBinding": nil}},
	"all namespaces": {values: []string{"allNamespaces=true", "namespacePrefixes=[]"}, want: parts{
		"Deployment":         {`"args":["--all-namespaces",`},
		"ClusterRoleBinding": {`"annotations":{"mirror-controller.github.io/all-namespaces":"true"}`}}},
	"another namespace": {values: []string{everyValue, "extraObjects=[]", "--namespace=far-away",
		`namespaceOverride="mirror-system"`}, lacks: "far-away"},
	"another name": {values: []string{`nameOverride="other"`},
		want: parts{"Deployment": {`"app.kubernetes.io/part-of":"mirror-controller"`}}},
	// 1.30 is the first version with the policies, also as providers name their versions.
	"the oldest Kubernetes": {values: []string{"--kube-version=v1.30.0-eks-1234"}},

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
		want: parts{"PodMonitor": nil, "PrometheusRule": {
			`absent(mirror_build_info{namespace=\"mirror-system\", job=\"mirror-controller-metrics\"})`}}},

	"a Service alone": {values: []string{"metricsService.enabled=true"},
		want: parts{"Service": {""}, "ServiceMonitor": nil}},
	"Pods alone": {values: []string{"podMonitor.enabled=true"},
		want: parts{"PodMonitor": {""}, "Service": nil}},
	// The alerts tell releases apart by labels. Grafana allows a dashboard 40 letters.
	"names in alerts and dashboard": {
		values: []string{`fullnameOverride="platform-mirror-controller-of-production-two"`, "prometheusRule.enabled=true",
			"dashboard.enabled=true"},
		want: parts{"PrometheusRule": {`leader_election_master_status{name=\"mirror-controller\"}`},
			"ConfigMap": {`\"uid\": \"platform-mirror-controller-of-production\"`}}},
}

// TestValuesReachTheirObjects renders the chart with values, and finds what they are for in the objects.
func TestValuesReachTheirObjects(t *testing.T) {
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
				if exists := objects[kind] != ""; exists != (len(parts) > 0) {
					t.Errorf("there is a %s: %v", kind, exists)
				}
				for _, part := range parts {
					if !strings.Contains(objects[kind], part) {
						t.Errorf("no %s has %s:\n%s", kind, part, objects[kind])
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
		"--kube-version=v1.29.9-eks-1234":                                       {"v1.29.9-eks-1234"},
		`namespaceSelector=[{"key":"team","operator":"In"}]`:                    {"/namespaceSelector/0", "values"},
		`namespaceSelector=[{"key":"team","operator":"Exists","values":["a"]}]`: {"/namespaceSelector/0/values", "maxItems"},
		`namespaceSelector=[{"key":"team In","operator":"Exists"}]`:             {"/namespaceSelector/0/key", pattern},
	} {
		t.Run(value, func(t *testing.T) {
			_, err := render(t, "r", teams, "replicaCount=2", value)
			for _, part := range want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in what is said: %v", part, err)
				}
			}
		})
	}
}
