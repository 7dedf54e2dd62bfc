package packaging

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"gotest.tools/v3/golden"
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

// renderings are what certain values make of the chart: all values, and those that do more than pass something on.
// A golden file of the name in testdata/values holds how the objects differ from those without these values.
var renderings = map[string]struct {
	values []string
	// both has values for both sides, so that the file lacks what they make.
	both []string
}{
	"every-value": {values: []string{everyValue, `namespacePrefixes=["team-","dev-"]`}, both: copied},

	"image":                   {values: []string{`image={"registry":"r.example","tag":"v1"}`}},
	"account-of-your-own":     {values: []string{`serviceAccount={"create":false,"name":"theirs"}`}},
	"permissions-of-your-own": {values: []string{"rbac.create=false"}},
	"all-namespaces":          {values: []string{"allNamespaces=true", "namespacePrefixes=[]"}},
	// The file is empty: all is in the other namespace, and nothing in that of the release.
	"another-namespace": {values: []string{"--namespace=far-away", `namespaceOverride="mirror-system"`},
		both: []string{everyValue, "extraObjects=[]"}},
	"another-name":  {values: []string{`nameOverride="other"`}, both: []string{"--show-only=templates/deployment.yaml"}},
	"longest-grace": {values: []string{`deletionGrace="23h60m"`}},
	// 1.30 is the first version with the policies, also as providers name their versions.
	"oldest-kubernetes": {values: []string{"--kube-version=v1.30.0-eks-1234"}},

	// The Go runtime gets a limit below the container's, where that is known.
	"memory-in-other-units":  {values: []string{`resources.limits.memory="500M"`}},
	"memory-without-a-limit": {values: []string{"resources.limits=null"}},
	"memory-set-by-hand":     {values: []string{`extraEnv=[{"name":"GOMEMLIMIT","value":"1GiB"}]`}},

	// Without a Lease there are no permissions for it, never two Pods, and no alert that counts leaders.
	"no-lease": {values: []string{"leaderElection.enabled=false"}, both: copied},
	"no-lease-scraped": {values: []string{"leaderElection.enabled=false"},
		both: []string{"--show-only=templates/monitoring.yaml", "prometheusRule.enabled=true",
			"serviceMonitor.enabled=true"}},

	"service-alone": {values: []string{"metricsService.enabled=true"}},
	"pods-alone":    {values: []string{"podMonitor.enabled=true"}},
	// The alerts tell releases apart by labels. Grafana allows a dashboard 40 letters.
	"long-name": {values: []string{`fullnameOverride="platform-mirror-controller-of-production-two"`},
		both: append([]string{"--show-only=templates/monitoring.yaml"}, copied...)},
}

// copied are values for what the chart copies from long files.
var copied = []string{"prometheusRule.enabled=true", "dashboard.enabled=true", "admissionPolicy.protectCopies=true"}

// places are the numbers of lines in a diff, which any change of another object moves.
var places = regexp.MustCompile(`(?m)^@@ .* @@$`)

// TestValuesReachTheirObjects renders the chart with and without values.
func TestValuesReachTheirObjects(t *testing.T) {
	for name, r := range renderings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both := append([]string{"template", "mirror-controller", chart, "--namespace=mirror-system"},
				arguments(append([]string{teams}, r.both...))...)
			without := run(t, both...)
			with := run(t, append(both, arguments(r.values)...)...)
			differs := places.ReplaceAll(diff.Diff("without", without, "with", with), []byte("@@"))
			golden.Assert(t, string(differs), "values/"+name+".golden")
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
		`deletionGrace="25h"`:          {"deletionGrace: 25h: must be 24h at most"},
		`deletionGrace="23h60m1s"`:     {"deletionGrace: 23h60m1s: must be"},
		`deletionGrace="86400001ms"`:   {"deletionGrace: 86400001ms: must be"},
		`deletionGrace="1d"`:           {"/deletionGrace", pattern},
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
