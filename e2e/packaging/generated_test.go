package packaging

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// deploy is the folder of all that is installed.
const deploy = "../../deploy"

var update = flag.Bool("update", false, "write anew what is generated in deploy/ (make generate)")

// copies are the files of the chart that are kept by hand elsewhere in deploy/. Helm reads nothing outside a chart, and
// archives and GitOps tools do not all follow symbolic links.
var copies = map[string]string{
	"chart/files/confined.yaml":         "components/admission/confined/policy.yaml",
	"chart/files/publishers.yaml":       "components/admission/publishers/policy.yaml",
	"chart/files/protected-copies.yaml": "components/protect-copies/policy.yaml",
	"chart/files/viewer.yaml":           "components/viewer/rbac.yaml",
	"chart/files/alerts.yaml":           "components/monitoring/alerts.yaml",
	"chart/files/confined-alerts.yaml":  "components/admission-alerts/alerts.yaml",
	"chart/files/dashboard.json":        "components/monitoring/dashboard.json",
}

// TestGeneratedCopies holds the chart's files to those that they are copies of.
func TestGeneratedCopies(t *testing.T) {
	for file, original := range copies {
		content, err := os.ReadFile(filepath.Join(deploy, original))
		if err != nil {
			t.Fatal(err)
		}
		expectGenerated(t, file, content)
	}
	have, err := os.ReadDir(filepath.Join(deploy, "chart/files"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range have {
		if copies["chart/files/"+file.Name()] == "" {
			t.Errorf("chart/files/%s: is a copy of nothing that this test knows", file.Name())
		}
	}
}

// TestGeneratedInstall holds install.yaml to what deploy/default renders.
func TestGeneratedInstall(t *testing.T) {
	expectGenerated(t, "install.yaml", slices.Concat([]byte(header), rendered(t, filepath.Join(deploy, "default"))))
}

// header stands above the objects in install.yaml. A test renders its kustomization.
const header = `# mirror-controller and its admission policies. It needs Kubernetes 1.30 or newer.
# Generated from deploy/default by ` + "`make generate`" + `: do not edit.
#
# Set two things: the image that you have built, and the prefix of your namespaces, for the controller and for the policies. This
# kustomization.yaml beside this file does it. Separate several prefixes by commas, such as team-,dev-:
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

// rendered returns what `kubectl kustomize dir` prints.
func rendered(t *testing.T, dir string) []byte {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	out, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// expectGenerated fails the test if a file of deploy/ is not what it should be, or writes it with -update.
func expectGenerated(t *testing.T, file string, want []byte) {
	t.Helper()
	path := filepath.Join(deploy, file)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, want) {
		return
	}
	if !*update {
		t.Errorf("%s: is not up to date: make generate writes it", file)
		return
	}
	if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestInstallSettings renders the kustomization in the header of install.yaml, which the docs have too, and compares it with
// the components with these settings.
func TestInstallSettings(t *testing.T) {
	var shown strings.Builder
	for _, line := range regexp.MustCompile(`(?m)^#   (.+)$`).FindAllStringSubmatch(header, -1) {
		shown.WriteString(line[1] + "\n")
	}
	if documented := manual.Commands(t, "deploy/docs/install.md", "resources: [install.yaml]"); !strings.Contains(documented, "\n"+shown.String()+"END\n") {
		t.Errorf("the docs have another kustomization than install.yaml:\n%s", documented)
	}
	content, err := os.ReadFile(filepath.Join(deploy, "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"app-", "team-,dev-"} {
		dir := t.TempDir()
		overlay := strings.NewReplacer("PREFIX", prefix, "REGISTRY", "registry.example/some", "TAG", "v1.2.3").Replace(shown.String())
		for name, content := range map[string][]byte{"install.yaml": content, "kustomization.yaml": []byte(overlay)} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		have, err := shipped.Render(dir)
		if err != nil {
			t.Fatal(err)
		}
		want := kustomized(t, kustomization{
			settings: `
images: [{name: mirror-controller, newName: registry.example/some/mirror-controller, newTag: v1.2.3}]
patches:
- target: {kind: Deployment}
  patch: |
    - {op: replace, path: /spec/template/spec/containers/0/args/0, value: "--namespace-prefix=` + prefix + `"}
- target: {kind: ClusterRoleBinding}
  patch: |
    - {op: replace, path: /metadata/annotations/mirror-controller.github.io~1namespace-prefix, value: "` + prefix + `"}
`,
			components: []string{"admission"},
		})
		expectSame(t, "components", want, "install.yaml", have)
	}
}

// TestExampleNamesSettings has the overlay that users copy say of each setting that the policies read where it belongs. A flag
// that is set without its annotation leaves the policies looser, or shuts the controller out.
func TestExampleNamesSettings(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(deploy, "example/kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	yours, _, found := strings.Cut(string(content), "# Change nothing below")
	if !found {
		t.Fatal("nothing tells where the settings end")
	}
	for _, policy := range []string{"confined.yaml", "publishers.yaml", "protected-copies.yaml"} {
		content, err := os.ReadFile(filepath.Join(deploy, "chart/files", policy))
		if err != nil {
			t.Fatal(err)
		}
		for _, read := range regexp.MustCompile(`settings\[\?'mirror-controller\.github\.io/([a-z-]+)'`).FindAllStringSubmatch(string(content), -1) {
			slot := regexp.MustCompile(`(?m)^(  - ` + read[1] + `=|#.*--` + read[1] + `\b[^-])`)
			if !slot.MatchString(yours) {
				t.Errorf("%s reads %s, of which the example does not say where it belongs", policy, read[1])
			}
		}
	}
}

// arguments returns those of the container in the Deployment.
func arguments(t *testing.T, m shipped.Manifests) []string {
	t.Helper()
	deployment, err := m.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	return deployment.Spec.Template.Spec.Containers[0].Args
}
