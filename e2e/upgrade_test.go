package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/former"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// way is how users install a version, upgrade it and go back. The scripts run in a folder with deploy/ of the version that is
// to be there after them.
type way struct {
	namespace              string // of the installation
	files                  map[string]string
	install, upgrade, back string
}

// A source has a copy in each of the namespaces.
const (
	upgradeSources    = 10
	upgradeNamespaces = 100
)

// TestUpgrade installs the former version as its manual says, upgrades to this one by the commands of the changelog, and goes
// back. The programs run as the Deployments have it, and take over from each other as in a rollout. No copy is
// written, and the writes of the controller and of users are accepted again after each step.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	if err := former.Unpack(source); err != nil {
		t.Fatal(err)
	}
	log := readChangelog(t)
	t.Run("manifests", func(t *testing.T) {
		u := newUpgrade(t, source, way{
			namespace: "my-system",
			// As the manual of that version has it: two kustomizations, because the policies apply to everything below them.
			files: map[string]string{
				"settings/kustomization.yaml": "namespace: my-system\nresources: [../deploy/base]\npatches:\n" +
					setFlag("--namespace-prefix=team-,dev-") + addFlag("-", "--copy-label=team"),
				"kustomization.yaml": "resources: [settings]\ncomponents: [deploy/components/admission, deploy/components/protect-copies]\n",
			},
			install: "kubectl apply -k .",
			upgrade: log.commands(t, "**The admission policies read"),
			back:    log.commands(t, "## Downgrade"),
		})
		u.upgradeAndBack(t)
	})
	t.Run("chart", func(t *testing.T) {
		u := newUpgrade(t, source, way{
			namespace: "mirror-system",
			install: "helm install mirror-controller deploy/chart --namespace mirror-system --create-namespace --set 'namespacePrefixes={team-,dev-}' " +
				"--set 'extraArgs={--copy-label=team}' --set admissionPolicy.protectCopies=true --set networkPolicy.enabled=true",
			upgrade: log.commands(t, "**`extraArgs` of the chart"),
			back:    strings.Replace(log.commands(t, "By chart, to"), "REVISION", "1", 1),
		})
		u.upgradeAndBack(t)
	})
	t.Run("two releases", func(t *testing.T) { testTwoReleases(t, source, log) })
}

// upgraded is a cluster in which one version takes the place of another.
type upgraded struct {
	*world
	way
	dir      string // where the user stands
	versions map[string]version
	running  *shipped.Process
	probes   *probes
}

// version is what there is of it: the folder deploy/, and the program.
type version struct{ deploy, program string }

const (
	formerVersion  = "former"
	presentVersion = "present"
)

// newUpgrade installs the former version in a cluster of its own, and runs it. Nothing is published yet.
func newUpgrade(t *testing.T, source string, how way) *upgraded {
	t.Helper()
	s, err := newEmptySite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{T: t, site: s, ctx: t.Context(), home: "home", label: plan.DefaultLabel, instance: "default"}
	u := &upgraded{world: w, way: how, dir: t.TempDir(), versions: map[string]version{
		formerVersion:  {filepath.Join(source, "deploy"), buildFormer(t, source)},
		presentVersion: {deployed("."), *binary},
	}}
	w.createNamespace(w.home, nil)
	u.writeFiles()
	u.shell(formerVersion, how.install)
	u.runVersion(formerVersion)
	return u
}

// publish makes namespaces and sources, and waits for the copies.
func (u *upgraded) publish(sources, namespaces int) {
	u.Helper()
	for i := range namespaces {
		u.createNamespace(fmt.Sprintf("%s%d", []string{"team-", "dev-"}[i%2], i), nil)
	}
	for i := range sources {
		u.createSource(u.home, fmt.Sprintf("settings-%d", i), withLabel("team", "red"))
	}
	u.eventually("the copies", func() error {
		if n := len(u.copies()); n != sources*namespaces {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

// buildFormer builds the program of the former version. That takes ten seconds, because it is made of the same modules.
func buildFormer(t *testing.T, source string) string {
	t.Helper()
	program := filepath.Join(source, "mirror-controller")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/mirror-controller")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the former version: %v\n%s", err, out)
	}
	return program
}

// writeFiles has the user's own files be what they were at first.
func (u *upgraded) writeFiles() {
	u.Helper()
	for name, content := range u.files {
		path := filepath.Join(u.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			u.Fatal(err)
		}
	}
}

// shell runs a script where deploy/ is that of a version.
func (u *upgraded) shell(version, script string) string {
	u.Helper()
	deploy := filepath.Join(u.dir, "deploy")
	if err := errors.Join(os.RemoveAll(deploy), os.CopyFS(deploy, os.DirFS(u.versions[version].deploy))); err != nil {
		u.Fatal(err)
	}
	cmd := u.cluster.Shell(u.background(), script, *helmProgram)
	cmd.Dir = u.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// runVersion runs the program of a version in place of the one that runs.
func (u *upgraded) runVersion(version string) {
	u.Helper()
	u.running = u.replace(u.running, version, u.namespace, "mirror-controller")
}

// replace runs the program of a version as the Deployment has it. It takes over from the one that runs: that is stopped when the
// new one is ready.
func (u *upgraded) replace(running *shipped.Process, version, namespace, name string) *shipped.Process {
	u.Helper()
	installed, err := shipped.Deployed(u.ctx, u.cluster, namespace, name, u.versions[version].program)
	if err != nil {
		u.Fatal(err)
	}
	p, err := installed.Start(shipped.RunOptions{})
	if err != nil {
		u.Fatal(err)
	}
	u.stopAtEnd(p)
	u.until("the "+version+" version is ready", func() error { return u.probe(p, "/readyz") })
	if running != nil {
		u.stop(running)
	}
	u.waitLog(p, leading)
	return p
}

// copies returns the resourceVersions of all copies but those of the probes.
func (u *upgraded) copies() map[string]string {
	u.Helper()
	list, err := u.admin.CoreV1().ConfigMaps("").List(u.ctx, metav1.ListOptions{LabelSelector: u.label + "=" + plan.CopyValue + ",team=red"})
	if err != nil {
		u.Fatal(err)
	}
	out := map[string]string{}
	for _, cm := range list.Items {
		if strings.HasPrefix(cm.Name, "settings-") {
			out[cm.Namespace+"/"+cm.Name] = cm.ResourceVersion
		}
	}
	return out
}

// upgradeAndBack upgrades and goes back, while users write.
func (u *upgraded) upgradeAndBack(t *testing.T) {
	u.publish(upgradeSources, upgradeNamespaces)
	before := u.copies()
	u.startProbes()
	for _, step := range []struct{ what, version, script string }{
		{"upgrade", presentVersion, u.upgrade},
		{"way back", formerVersion, u.back},
	} {
		mark := u.auditMark()
		began := u.probes.count()
		if step.version == formerVersion {
			u.writeFiles()
		}
		u.shell(step.version, step.script)
		u.probes.await(u.world, began+1) // also while the other version runs
		u.runVersion(step.version)
		// A source that comes now is in sync when what the takeover has found is done, too.
		name := "new-" + strings.ReplaceAll(step.what, " ", "-")
		source := u.createSource(u.home, name, withLabel("team", "red"))
		u.waitInSync(source, slices.Collect(maps.Keys(namespacesOf(before)))...)
		u.probes.await(u.world, u.probes.count()+1)
		u.expectUntouched(step.what, before, mark)
		u.expectPolicies(t)
		if step.version == presentVersion {
			u.otherCommands(t)
		}
	}
	u.probes.stop()
}

// namespacesOf returns the namespaces of keys.
func namespacesOf(keys map[string]string) map[string]bool {
	out := map[string]bool{}
	for key := range keys {
		namespace, _, _ := strings.Cut(key, "/")
		out[namespace] = true
	}
	return out
}

// expectUntouched fails the test if a copy is not what it was, to the resourceVersion, or the audit log has a write to one.
func (u *upgraded) expectUntouched(what string, before map[string]string, mark cluster.Mark) {
	u.Helper()
	now := u.copies()
	written := 0
	for key, rv := range before {
		if now[key] != rv {
			written++
		}
	}
	events, _, err := u.cluster.Audit().Since(mark)
	if err != nil {
		u.Fatal(err)
	}
	for _, e := range writesTo(events, "") {
		if strings.HasPrefix(e.Object.Name, "settings-") {
			u.Errorf("%s: a request to write a copy: %v", what, e)
			break // one of many, perhaps
		}
	}
	if written > 0 || len(now) != len(before) {
		u.Errorf("%s: of %d copies %d are others, and there are %d", what, len(before), written, len(now))
	}
}

// expectPolicies waits until the policies of the version that is there confine the controller, protect the copies, and have
// sources of publishers alone.
func (u *upgraded) expectPolicies(t *testing.T) {
	t.Helper()
	w := &policed{u.world, map[string]kubernetes.Interface{}}
	account, tenant := cluster.ServiceAccountUser(u.namespace, "mirror-controller"), cluster.ServiceAccountUser(probesNamespace, "tenant")
	u.until("the controller is confined", func() error { return inForce(confinedPolicy, w.probe(account, metav1.NamespaceDefault)) })
	u.until("the copies are protected", func() error {
		return inForce(protectedPolicy, w.at(tenant, probedTarget, probedSource).Delete(u.ctx, probedSource, dryDelete))
	})
	u.until("publishing is refused", func() error { return inForce(publishersPolicy, w.probe(tenant, u.home, asSource)) })
	expectAnswer(t, "", "", w.at(tenant, probedTarget, probedPlain).Delete(u.ctx, probedPlain, dryDelete))
}
