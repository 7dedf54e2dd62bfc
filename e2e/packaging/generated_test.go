package packaging

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/overlay"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// deploy is the folder of all that is installed.
const deploy = "../../deploy"

var update = flag.Bool("update", false, "write anew what is generated in deploy/ (make generate)")

// read returns a file of deploy/.
func read(t *testing.T, path string) string {
	t.Helper()
	return manual.Read(t, "deploy/"+path)
}

// copies are the files of the chart that are kept by hand elsewhere in deploy/. Helm reads nothing outside a chart, and
// archives and GitOps tools do not all follow symbolic links.
var copies = map[string]string{
	"chart/files/confined.yaml":         "components/admission/confined/policy.yaml",
	"chart/files/publishers.yaml":       "components/admission/publishers/policy.yaml",
	"chart/files/protected-copies.yaml": "components/protect-copies/policy.yaml",
	"chart/files/viewer.yaml":           "components/viewer/rbac.yaml",
	"chart/files/alerts.yaml":           "components/monitoring/alerts.yaml",
	"chart/files/dashboard.json":        "components/monitoring/dashboard.json",
}

// kustomized are the files of the kustomizations that the chart renders: by which template and values, and a line of
// the objects. By hand are the kustomization.yaml files, the namespace, which a chart does not have, and the patch of
// high-availability.
var kustomized = []struct {
	file, template, only string
	values               []string
	anyName              bool // its permissions are for any name in the namespace
}{
	{file: "base/serviceaccount.yaml", template: "serviceaccount"},
	{file: "base/rbac.yaml", template: "rbac", values: []string{off}},
	{file: "base/deployment.yaml", template: "deployment",
		values: []string{sameGrace, `image={"repository":"mirror-controller","tag":"dev"}`}},
	{file: "components/admission/publishers/rbac.yaml", template: "rbac", only: "  name: mirror-controller-publisher"},
	{file: "components/high-availability/poddisruptionbudget.yaml", template: "poddisruptionbudget",
		values: []string{"replicaCount=2"}},
	{file: "components/monitoring/service.yaml", template: "monitoring", only: "kind: Service", values: monitored},
	{file: "components/monitoring/servicemonitor.yaml", template: "monitoring", only: "kind: ServiceMonitor",
		values: monitored},
	{file: "components/network-policy/networkpolicy.yaml", template: "networkpolicy",
		values: []string{`networkPolicy={"enabled":true}`}},
	// kustomize renames no Deployment and no Lease within a role, and nothing else is in the namespace.
	{file: "components/check/check.yaml", template: "check", anyName: true,
		values: []string{`check={"enabled":true}`, `image={"repository":"mirror-controller","tag":"dev"}`}},
}

// sameGrace is the default of the program, which the base has. That of the chart is longer.
const sameGrace = `deletionGrace="1s"`

// names are those for which a permission is.
var names = regexp.MustCompile(`(?m)^ +resourceNames: .*\n`)

// byHelm are the labels that a chart has by convention, and a kustomization has no reason to have.
var byHelm = regexp.MustCompile(`(?m)^ +(app\.kubernetes\.io/(managed-by|instance|version)|helm\.sh/chart): .*\n`)

// TestGeneratedKustomizations holds the files of the kustomizations to what the chart renders.
func TestGeneratedKustomizations(t *testing.T) {
	for _, k := range kustomized {
		args := []string{"template", "mirror-controller", chart, "--namespace=mirror-system", "--set-json=" + teams,
			"--show-only=templates/" + k.template + ".yaml"}
		for _, value := range k.values {
			args = append(args, "--set-json="+value)
		}
		out, err := shipped.Helm{Home: t.TempDir()}.Run(t.Context(), args...)
		if err != nil {
			t.Fatalf("%s: %v\n%s", k.file, err, out)
		}
		rendered := byHelm.ReplaceAllString(string(out), "")
		if k.anyName {
			rendered = names.ReplaceAllString(rendered, "")
		}
		var objects []string
		for object := range strings.SplitSeq(rendered, "---\n") {
			if _, content, _ := strings.Cut(object, ".yaml\n"); strings.Contains(content, k.only+"\n") { // behind its source
				objects = append(objects, strings.TrimSpace(content)+"\n")
			}
		}
		expectGenerated(t, k.file, "# Rendered from deploy/chart by `make generate`: do not edit.\n"+
			strings.Join(objects, "---\n"))
	}
}

// TestPatchOfHighAvailability compares the patch with what two replicas make of the chart.
func TestPatchOfHighAvailability(t *testing.T) {
	ours, err := overlay.Render(t, map[string]string{"top": overlay.Above("deploy/base", "", "high-availability")}).Deployment()
	theirs, failed := charted(t, teams, "replicaCount=2").Deployment()
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	for i := range theirs.Spec.Template.Spec.TopologySpreadConstraints {
		delete(theirs.Spec.Template.Spec.TopologySpreadConstraints[i].LabelSelector.MatchLabels, "app.kubernetes.io/instance")
	}
	have, want := ours.Spec.Template.Spec.TopologySpreadConstraints, theirs.Spec.Template.Spec.TopologySpreadConstraints
	if *ours.Spec.Replicas != 2 || !reflect.DeepEqual(have, want) {
		t.Errorf("got %d replicas and %+v, want 2 and %+v", *ours.Spec.Replicas, have, want)
	}
}

// TestGeneratedCopies holds the chart's files to those that they are copies of.
func TestGeneratedCopies(t *testing.T) {
	for file, original := range copies {
		expectGenerated(t, file, read(t, original))
	}
	if have, err := os.ReadDir(filepath.Join(deploy, "chart/files")); len(have) != len(copies) {
		t.Errorf("chart/files has %v, want the copies alone (%v)", have, err)
	}
}

// TestCheckExpectsTheComponents renders the CronJob of the example without and with the policy for protected copies.
func TestCheckExpectsTheComponents(t *testing.T) {
	const check, protect = "# - ../components/check", "# - ../components/protect-copies"
	for lines, want := range map[string]bool{check: false, check + "\n" + protect: true} {
		m := overlay.Render(t, map[string]string{"top": overlay.Example(lines, strings.ReplaceAll(lines, "# - ../", "- ../deploy/"))})
		jobs, err := shipped.OfKind[batchv1.CronJob](m, "CronJob")
		if err != nil || len(jobs) != 1 {
			t.Fatalf("%d CronJobs, want 1: %v", len(jobs), err)
		}
		args := jobs[0].Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args
		if got := slices.Index(args, "--protect-copies") > slices.Index(args, "--protect-copies=false"); got != want {
			t.Errorf("with %s the arguments are %q", lines, args)
		}
	}
}

// TestGeneratedInstall holds install.yaml to what deploy/default renders.
func TestGeneratedInstall(t *testing.T) {
	kustomizer := krusty.MakeKustomizer(krusty.MakeDefaultOptions())
	resources, err := kustomizer.Run(filesys.MakeFsOnDisk(), filepath.Join(deploy, "default"))
	if err != nil {
		t.Fatal(err)
	}
	content, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	expectGenerated(t, "install.yaml", header+string(content))
}

// header stands above the objects in install.yaml. A test renders its kustomization.
const header = `# mirror-controller and its admission policies. It needs Kubernetes 1.30 or newer.
# Generated from deploy/default by ` + "`make generate`" + `: do not edit.
#
# Set two things: the image that you have built, and the prefix of your namespaces, for the controller and for the
# policies. This kustomization.yaml beside this file does it. Separate several prefixes by commas, such as team-,dev-:
#
#   resources: [install.yaml]
#   images: [{name: mirror-controller, newName: REGISTRY/mirror-controller, newTag: TAG}]
#   patches:
#   - target: {kind: Deployment, name: mirror-controller}
#     patch: |
#       - {op: replace, path: /spec/template/spec/containers/0/args/0, value: "--namespace-prefix=PREFIX"}
#   - target: {kind: ClusterRoleBinding, name: mirror-controller}
#     patch: |
#       - {op: replace, path: /metadata/annotations/mirror-controller.github.io~1namespace-prefix, value: "PREFIX"}
#
`

// expectGenerated fails the test if a file of deploy/ is not what it should be, or writes it with -update.
func expectGenerated(t *testing.T, file string, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join(deploy, file), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, file) != want {
		t.Errorf("%s: is not up to date: make generate writes it", file)
	}
}

// TestInstallYAMLTakesSettings renders the kustomization in the header of install.yaml, which the docs have too, and
// compares it with the components with these settings.
func TestInstallYAMLTakesSettings(t *testing.T) {
	var shown strings.Builder
	for _, line := range regexp.MustCompile(`(?m)^#   (.+)$`).FindAllStringSubmatch(header, -1) {
		shown.WriteString(line[1] + "\n")
	}
	documented := manual.Commands(t, "deploy/docs/install.md", "resources: [install.yaml]")
	if !strings.Contains(documented, "\n"+shown.String()+"END\n") {
		t.Errorf("the docs have another kustomization than install.yaml:\n%s", documented)
	}
	const prefixes = "team-,dev-"
	settings := strings.NewReplacer("PREFIX", prefixes, "REGISTRY", "r.example/some", "TAG", "v1.2.3").
		Replace(shown.String())
	dir := overlay.Dir(t, map[string]string{"top": settings})
	err := os.Rename(filepath.Join(dir, "deploy", "install.yaml"), filepath.Join(dir, "top", "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	have, err := shipped.Render(filepath.Join(dir, "top"))
	if err != nil {
		t.Fatal(err)
	}
	want := overlay.Render(t, map[string]string{"top": overlay.Above("deploy/default", `
images: [{name: mirror-controller, newName: r.example/some/mirror-controller, newTag: v1.2.3}]
patches:
`+overlay.SetPrefix(prefixes))})
	expectSame(t, "default", want, "install.yaml", have)
}

// TestExampleNamesSettings has the overlay that users copy say of each setting that the policies read where it belongs.
// A flag that is set without its annotation leaves the policies looser, or shuts the controller out.
func TestExampleNamesSettings(t *testing.T) {
	yours, _, found := strings.Cut(read(t, "example/kustomization.yaml"), "# Change nothing below")
	if !found {
		t.Fatal("nothing tells where the settings end")
	}
	setting := regexp.MustCompile(`settings\[\?'mirror-controller\.github\.io/([a-z-]+)'`)
	for _, policy := range []string{"confined.yaml", "publishers.yaml", "protected-copies.yaml"} {
		for _, reads := range setting.FindAllStringSubmatch(read(t, "chart/files/"+policy), -1) {
			slot := regexp.MustCompile(`(?m)^(  - ` + reads[1] + `=|#.*--` + reads[1] + `\b[^-])`)
			if !slot.MatchString(yours) {
				t.Errorf("%s reads %s, of which the example does not say where it belongs", policy, reads[1])
			}
		}
	}
}

// TestExampleLinksAlerts renders the overlay that users copy with the place of their docs: each alert links to it.
func TestExampleLinksAlerts(t *testing.T) {
	const docs = "https://git.example.com/deploy/docs/"
	m := overlay.Render(t, map[string]string{"top": overlay.Example(
		"# - ../components/monitoring", "- ../deploy/components/monitoring", "docs=deploy/docs/", "docs="+docs)})
	rules, err := shipped.OfKind[monitoringv1.PrometheusRule](m, "PrometheusRule")
	if err != nil || len(rules) != 1 {
		t.Fatalf("%d PrometheusRules, want 1: %v", len(rules), err)
	}
	for _, rule := range rules[0].Spec.Groups[0].Rules {
		if got, want := rule.Annotations["runbook_url"], docs+"troubleshooting.md#"+strings.ToLower(rule.Alert); got != want {
			t.Errorf("%s: the link is %s, want %s", rule.Alert, got, want)
		}
	}
}

// TestDocumentedComponents finds each component in the table of the page, and the values that the table names in the
// chart.
func TestDocumentedComponents(t *testing.T) {
	page := read(t, "docs/install.md")
	folders, err := os.ReadDir(filepath.Join(deploy, "components"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		component := folder.Name()
		row := regexp.MustCompile("(?m)^\\| `" + component + "` \\|.*$").FindString(page)
		if row == "" {
			t.Errorf("the table does not have the component %s", component)
		}
		for _, value := range regexp.MustCompile("`([a-zA-Z.]+)=[^`]+`").FindAllStringSubmatch(row, -1) {
			defaultOf(t, value[1]) // fails if there is none
		}
	}
}
