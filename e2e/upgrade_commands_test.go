package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// changelog is the text that names each breaking change with the commands that it takes.
type changelog string

func readChangelog(t *testing.T) changelog {
	t.Helper()
	content, err := os.ReadFile(deployed("../CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	return changelog(content)
}

var codeBlock = regexp.MustCompile("(?ms)^( *)```\n(.*?)^ *```$")

// commands returns the first commands behind a text.
func (c changelog) commands(t *testing.T, text string) string {
	t.Helper()
	_, behind, found := strings.Cut(string(c), text)
	block := codeBlock.FindStringSubmatch(behind)
	if !found || block == nil {
		t.Fatalf("the changelog has no commands behind %q", text)
	}
	return regexp.MustCompile("(?m)^"+block[1]).ReplaceAllString(block[2], "")
}

// testTwoReleases upgrades two releases of the chart that shared an instance, as the former version let them.
func testTwoReleases(t *testing.T, source string, log changelog) {
	const install = "helm install mirror-controller deploy/chart --namespace mirror-system --create-namespace --set 'namespacePrefixes={team-},copyLabels={team}'\n" +
		"helm install blue deploy/chart --namespace blue-system --create-namespace --set 'namespacePrefixes={dev-},copyLabels={team}'\n"
	u := newUpgrade(t, source, way{namespace: "mirror-system", install: install})
	const blue = "blue-mirror-controller"
	p := u.replace(nil, formerVersion, "blue-system", blue)
	u.publish(1, 2)
	u.shell(presentVersion, log.commands(t, "The chart writes the annotations"))
	u.shell(presentVersion, log.commands(t, "**Two installations need"))
	u.runVersion(presentVersion)
	u.replace(p, presentVersion, "blue-system", blue)
	u.shell(presentVersion, strings.ReplaceAll(log.commands(t, "Its former copies belong"), "NAMESPACE", "dev-1"))
	published := u.edit(u.home, "settings-0", withKey("key", "other"))
	u.waitInSync(published, "team-0")
	u.instance = "blue"
	u.waitInSync(published, "dev-1")
}

// otherCommands follows the changelog where it names a command for something else than the upgrade itself.
func (u *upgraded) otherCommands(t *testing.T) {
	log := readChangelog(t)
	u.findEvents(t, log.commands(t, "**The event `InvalidSelector`"))
	if u.files == nil {
		u.admitPrometheus(t, log.commands(t, "**The network policy lets"))
	} else {
		u.allowPatches(t, log.commands(t, "**The controller needs the permission"))
	}
}

func (u *upgraded) findEvents(t *testing.T, commands string) {
	u.createSource(u.home, "malformed", withAnnotation(plan.SelectorAnnotation, "tier in (gold"))
	u.waitEvent(u.home, "malformed", "InvalidAnnotation")
	if out := u.shell(presentVersion, commands); !strings.Contains(out, "configmap/malformed") {
		t.Errorf("the events are not found: %s", out)
	}
	u.delete(u.home, "malformed")
}

func (u *upgraded) admitPrometheus(t *testing.T, command string) {
	u.shell(presentVersion, strings.Replace(command, "NAMESPACE", "prometheus", 1))
	policy, err := u.admin.NetworkingV1().NetworkPolicies(u.namespace).Get(u.ctx, "mirror-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if from := fmt.Sprint(policy.Spec.Ingress); !strings.Contains(from, "prometheus") || strings.Contains(from, "monitoring") {
		t.Errorf("the network policy lets in %s", from)
	}
}

// allowPatches has a ClusterRole of the user's own get the permission to patch events.
func (u *upgraded) allowPatches(t *testing.T, command string) {
	const name = "theirs"
	roles := u.admin.RbacV1().ClusterRoles()
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}}}
	if _, err := roles.Create(u.ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	u.shell(presentVersion, strings.Replace(command, "NAME", name, 1))
	role, err := roles.Get(u.ctx, name, metav1.GetOptions{})
	if err != nil || !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Verbs, "patch") }) {
		t.Errorf("no permission was added: %v, %v", role, err)
	}
}
