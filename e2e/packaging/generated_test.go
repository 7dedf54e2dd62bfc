package packaging

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"gotest.tools/v3/golden"
	batchv1 "k8s.io/api/batch/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/overlay"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// deploy is the folder of all that is installed.
const deploy = "../../deploy"

// read returns a file of deploy/.
func read(t *testing.T, path string) string {
	t.Helper()
	return manual.Read(t, "deploy/"+path)
}

// kustomized are the files of the kustomizations that the chart renders: from which template, with which value besides
// those of rendered, and a line that the objects have. By hand are the kustomization.yaml files, the namespace, which a
// chart does not have, and the patch of high-availability.
var kustomized = []struct{ file, template, value, line string }{
	{file: "base/serviceaccount.yaml", template: "serviceaccount"},
	{file: "base/rbac.yaml", template: "rbac", value: `admissionPolicy={"confined":false,"publishers":false}`},
	{file: "base/deployment.yaml", template: "deployment"},
	{file: "components/admission/publishers/rbac.yaml", template: "rbac", line: "  name: mirror-controller-publisher"},
	{file: "components/high-availability/poddisruptionbudget.yaml", template: "poddisruptionbudget",
		value: "replicaCount=2"},
	{file: "components/monitoring/service.yaml", template: "monitoring", line: "kind: Service"},
	{file: "components/monitoring/servicemonitor.yaml", template: "monitoring", line: "kind: ServiceMonitor"},
	{file: "components/network-policy/networkpolicy.yaml", template: "networkpolicy"},
	{file: "components/check/check.yaml", template: "check"},
}

// rendered are the values for them. The deletion grace is the default of the program, which the base has.
var rendered = []string{teams, `deletionGrace="1s"`, `image={"repository":"mirror-controller","tag":"dev"}`,
	"serviceMonitor.enabled=true", "networkPolicy.enabled=true", "check.enabled=true"}

var (
	// byHelm are the labels that a chart has by convention, and a kustomization has no reason to have.
	byHelm = regexp.MustCompile(`(?m)^ +(app\.kubernetes\.io/(managed-by|instance|version)|helm\.sh/chart): .*\n`)
	// names are those for which a permission is. kustomize renames no Deployment and no Lease within a role, and nothing
	// else is in the namespace: the role of check goes without.
	names = regexp.MustCompile(`(?m)^ +resourceNames: .*\n`)
)

// TestGeneratedKustomizations holds the files of the kustomizations to what the chart renders.
func TestGeneratedKustomizations(t *testing.T) {
	for _, k := range kustomized {
		t.Run(k.file, func(t *testing.T) {
			args := []string{"template", "mirror-controller", chart, "--namespace=mirror-system",
				"--show-only=templates/" + k.template + ".yaml"}
			args = append(args, arguments(rendered)...)
			if k.value != "" {
				args = append(args, "--set-json="+k.value)
			}
			text := byHelm.ReplaceAllString(string(run(t, args...)), "")
			if k.template == "check" {
				text = names.ReplaceAllString(text, "")
			}
			var objects []string
			for object := range strings.SplitSeq(text, "---\n") {
				_, content, _ := strings.Cut(object, ".yaml\n") // behind its source
				if strings.Contains(content, k.line+"\n") {
					objects = append(objects, strings.TrimSpace(content)+"\n")
				}
			}
			expectGenerated(t, k.file, "# Rendered from deploy/chart by `make generate`: do not edit.\n"+
				strings.Join(objects, "---\n"))
		})
	}
}

// TestGeneratedInstall holds install.yaml below its header to what deploy/default renders.
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
	expectGenerated(t, "install.yaml", header(t)+string(content))
}

// header returns the comment above the objects in install.yaml, which is written by hand.
func header(t *testing.T) string {
	t.Helper()
	return regexp.MustCompile(`^(#.*\n)+`).FindString(read(t, "install.yaml"))
}

// expectGenerated fails the test if a file of deploy/ is not what it should be, or writes it with -update.
func expectGenerated(t *testing.T, file string, want string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(deploy, file))
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, want, path, "make generate writes it")
}

// TestInstallYAMLTakesSettings renders the kustomization in the header of install.yaml, which the docs have too, and
// compares it with the components with these settings.
func TestInstallYAMLTakesSettings(t *testing.T) {
	var shown strings.Builder
	for _, line := range regexp.MustCompile(`(?m)^#   (.+\n)`).FindAllStringSubmatch(header(t), -1) {
		shown.WriteString(line[1])
	}
	documented := manual.Commands(t, "deploy/docs/install.md", "resources: [install.yaml]")
	if !strings.Contains(documented, "\n"+shown.String()+"END\n") {
		t.Errorf("the docs have another kustomization than install.yaml:\n%s", documented)
	}
	const prefixes = "team-,dev-"
	settings := strings.NewReplacer("PREFIX", prefixes, "REGISTRY", "r.example/some", "TAG", "v1.2.3",
		"[install.yaml]", "[../deploy]")
	above := overlay.Above("deploy/default", `
images: [{name: mirror-controller, newName: r.example/some/mirror-controller, newTag: v1.2.3}]
patches:
`+overlay.SetPrefix(prefixes))
	have := overlay.Render(t, map[string]string{"top": settings.Replace(shown.String()),
		"deploy": "resources: [install.yaml]"})
	want := overlay.Render(t, map[string]string{"top": above})
	if d := diff.Diff(want, have); d != "" {
		t.Errorf("default (-), install.yaml (+)\n%s", d)
	}
}

// TestPatchOfHighAvailability compares the patch with what two replicas make of the chart.
func TestPatchOfHighAvailability(t *testing.T) {
	above := map[string]string{"top": overlay.Above("deploy/base", "", "high-availability")}
	ours, err := overlay.Render(t, above).Deployment()
	theirs, failed := charted(t, teams, "replicaCount=2").Deployment()
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	have, want := ours.Spec.Template.Spec.TopologySpreadConstraints, theirs.Spec.Template.Spec.TopologySpreadConstraints
	for _, c := range want {
		delete(c.LabelSelector.MatchLabels, "app.kubernetes.io/instance")
	}
	if *ours.Spec.Replicas != 2 || !reflect.DeepEqual(have, want) {
		t.Errorf("got %d replicas and %+v, want 2 and %+v", *ours.Spec.Replicas, have, want)
	}
}

// example returns the one object of a kind that the overlay for users renders with these texts replaced.
func example[T any](t *testing.T, kind string, oldnew ...string) T {
	t.Helper()
	m := overlay.Render(t, map[string]string{"top": overlay.Example(oldnew...)})
	found, err := shipped.OfKind[T](m, kind)
	if err != nil || len(found) != 1 {
		t.Fatalf("%d of kind %s, want 1: %v", len(found), kind, err)
	}
	return found[0]
}

// TestCheckExpectsTheComponents renders the CronJob of the example without and with the policy for protected copies.
func TestCheckExpectsTheComponents(t *testing.T) {
	const line, check = "- ../deploy/components/protect", "- ../deploy/components/check"
	for name, tc := range map[string]struct {
		protect string
		want    bool
	}{
		"without the policy": {"# " + line, false},
		"with the policy":    {line, true},
	} {
		t.Run(name, func(t *testing.T) {
			job := example[batchv1.CronJob](t, "CronJob", "# - ../components/check", check,
				"# - ../components/protect", tc.protect)
			args := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args
			if got := slices.Index(args, "--protect-copies") > slices.Index(args, "--protect-copies=false"); got != tc.want {
				t.Errorf("the arguments are %q", args)
			}
		})
	}
}

// TestExampleLinksAlerts renders the overlay that users copy with the place of their docs: each alert links to it.
func TestExampleLinksAlerts(t *testing.T) {
	const docs = "https://git.example.com/deploy/docs/"
	rules := example[monitoringv1.PrometheusRule](t, "PrometheusRule",
		"# - ../components/monitoring", "- ../deploy/components/monitoring", "docs=deploy/docs/", "docs="+docs)
	for _, rule := range rules.Spec.Groups[0].Rules {
		t.Run(rule.Alert, func(t *testing.T) {
			want := docs + "troubleshooting.md#" + strings.ToLower(rule.Alert)
			if got := rule.Annotations["runbook_url"]; got != want {
				t.Errorf("the link is %s, want %s", got, want)
			}
		})
	}
}

// TestExampleTakesAnotherPort renders the overlay that users copy with the patch of the manual, for an API server that
// has another port.
func TestExampleTakesAnotherPort(t *testing.T) {
	patch := manual.Find(t, "deploy/docs/install.md", "NetworkPolicy").Text
	policy := example[networkingv1.NetworkPolicy](t, "NetworkPolicy", "patches:\n", "patches:\n"+patch,
		"# - ../components/network-policy", "- ../deploy/components/network-policy")
	var ports []string
	for _, port := range policy.Spec.Egress[0].Ports {
		ports = append(ports, string(*port.Protocol)+" "+port.Port.String())
	}
	if want := []string{"TCP 443", "TCP 6443", "TCP 8443"}; !slices.Equal(ports, want) {
		t.Errorf("got the ports %q, want %q", ports, want)
	}
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

// TestDocumentedComponents finds each component in the table of the page, and the values that the table names in the
// chart.
func TestDocumentedComponents(t *testing.T) {
	page := read(t, "docs/install.md")
	folders, err := os.ReadDir(filepath.Join(deploy, "components"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		t.Run(folder.Name(), func(t *testing.T) {
			row := regexp.MustCompile("(?m)^\\| `" + folder.Name() + "` \\|.*$").FindString(page)
			if row == "" {
				t.Error("the table does not have it")
			}
			for _, value := range regexp.MustCompile("`([a-zA-Z.]+)=[^`]+`").FindAllStringSubmatch(row, -1) {
				defaultOf(t, value[1]) // fails if there is none
			}
		})
	}
}
