package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Situations in which a new user needs the truth, each asked as a user with the permissions that this user has.

// viewer returns the kubeconfig of a user with the shipped ClusterRole for users of kubectl mirror.
func (w *world) viewer() string { return w.person("viewer", w.viewerRules()...) }

// tenant returns a function that runs kubectl mirror as a user with the ClusterRole view in one namespace, and nothing else.
func (w *world) tenant(namespace string) func(args ...string) answer {
	w.Helper()
	name := w.account() + "." + namespace
	_, err := w.admin.RbacV1().RoleBindings(namespace).Create(w.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	kubeconfig := w.login(name, &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "events"})
	return func(args ...string) answer {
		return w.byController(kubeconfig, append(args, "-n", namespace, "--mirror-label="+w.label)...)
	}
}

// TestKubectlOfDifference has a flag and its annotation differ, so that the API server refuses writes: each command says so, and the
// command that they print repairs it. Then the controller stops.
func TestKubectlOfDifference(t *testing.T) {
	t.Parallel()
	w, p := installChecked(t)
	a, viewer := w.ns("a"), w.viewer()
	old := w.createSource(w.home, "old")
	w.waitInSync(old, a)
	w.patchBinding(`{"metadata": {"annotations": {"` + plan.Domain + `/namespace-prefix": "dev-"}}}`)
	w.until("copies are refused", func() error { return inForce(w.name+"-confined", w.probe(w.account, a, w.copied(a, namedSource)...)) })
	source := w.createSource(w.home, "settings")
	w.waitEvent(w.home, "settings", "WriteFailed")

	const differ = `Flag and annotation differ: --namespace-prefix is "dev-,team-", and the annotation "dev-": the API server may refuse writes, or allow others. ` +
		"To repair it: "
	const repair = "kubectl annotate --overwrite clusterrolebinding mirror-controller mirror-controller.github.io/namespace-prefix=dev-,team-"
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"status platform/old", 1, "platform/old: InSync, 1 synced"},
		{"wait platform/old", 1, "platform/old: InSync, 1 synced"},
		{"status -A", 1, "platform  settings  OutOfSync  1  0  1  WriteFailed"},
		{"plan", 1, "create  team-a/settings  platform/settings  there is no copy yet"},
		{"explain platform/settings", 0, "ConfigMap platform/settings is a source: 1 pending."},
	} {
		got := w.asked(viewer, strings.Fields(strings.ReplaceAll(test.args, "platform", w.home))...)
		if !strings.Contains(got.err, differ+repair) || got.code != test.code || len(got.lacks(test.want)) > 0 {
			t.Errorf("%s: got exit code %d and\n%s\nwant %d and %q\nstderr: %s", test.args, got.code, got.out, test.code, test.want, got.err)
		}
	}
	command := strings.NewReplacer("binding mirror-controller ", "binding "+w.name+" ", "team-", w.prefix).Replace(repair)
	if out, err := w.cluster.Shell(w.ctx, command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v, %s", command, err, out)
	}
	if got := w.asked(viewer, "wait", w.home+"/settings"); got.code != 0 || strings.Contains(got.err, "differ") || strings.Contains(got.err, "No controller") {
		t.Errorf("got exit code %d, %s and\n%s\nwant 0", got.code, got.out, got.err)
	}
	w.waitInSync(source, a)

	w.stop(p)
	killed := []byte(`{"spec": {"holderIdentity": "mirror-controller-0_1", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}}`)
	for _, want := range []string{
		"nobody holds Lease mirror-system/mirror-controller.",
		"mirror-controller-0 held Lease mirror-system/mirror-controller, and nobody has renewed it since 2026-01-01T00:00:00Z.",
	} {
		for _, command := range []string{"status", "explain", "wait"} {
			if got := w.asked(viewer, command, w.home+"/settings"); got.code != 0 || !strings.Contains(got.err, "No controller runs: "+want) {
				t.Errorf("%s: got exit code %d and\n%s\nwant 0 and %q", command, got.code, got.err, want)
			}
		}
		_, err := w.admin.CoordinationV1().Leases(w.namespace).Patch(w.ctx, leaseName, types.MergePatchType, killed, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestKubectlOfRejected has a quota refuse a copy: it is pending, with the warning as it stands, and wait is done when the quota is gone.
func TestKubectlOfRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "bad", "good")
	bad, good, settings := w.ns("bad"), w.ns("good"), w.home+"/settings"
	run, lift := refuseByQuota(w, bad)
	w.startWith(run)
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, good)
	w.waitEvent(w.home, "settings", "WriteFailed")
	viewer := w.viewer()
	for _, args := range [][]string{{"status", settings}, {"wait", settings, "--timeout=5s"}} {
		got := w.byController(viewer, args...)
		lines := strings.Split(got.out, "\n")
		if got.code != 1 || len(lines) != 4 || lines[0] != "platform/settings: OutOfSync, 1 synced, 1 pending" ||
			!strings.HasPrefix(lines[1], "Warning WriteFailed: ") || !strings.Contains(lines[1], "exceeded quota: no-more") ||
			lines[3] != "team-bad  pending  there is no copy yet" {
			t.Errorf("%s: got exit code %d and\n%s\nwant 1, and the warning", args[0], got.code, got.out)
		}
	}
	got := w.byFlags(w.reader("reader", mayList("", "configmaps", "namespaces")), "status", "-A")
	w.expect(got, 1, `
NAMESPACE  NAME  STATUS  TARGETS  SYNCED  PENDING
platform  settings  OutOfSync  2  1  1`)
	if want := "Not checked: whether the controller has warned, because you may not list events"; !strings.HasSuffix(got.err, want) {
		t.Errorf("stderr is %q, want a line %q", got.err, want)
	}
	lift()
	w.expect(w.byController(viewer, "wait", settings), 0, "platform/settings: InSync, 2 synced")
	w.waitInSync(source, bad)
}

// TestKubectlOfNoTargets has a source that no namespace matches.
func TestKubectlOfNoTargets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	w.createSource(w.home, "settings", withAnnotation(plan.PrefixAnnotation, "nowhere-"))
	viewer := w.viewer()
	for _, command := range []string{"status", "wait"} {
		w.expect(w.byController(viewer, command, w.home+"/settings"), 1, `
platform/settings: NoTargets
no namespace is a target: in 2 the source's annotation mirror-controller.github.io/namespace-prefix="nowhere-" rules the namespace out`)
	}
}

// TestKubectlOfMany has 207 targets in sync, one of which has a label that means nothing.
func TestKubectlOfMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := w.createMany(207)
	w.labelNamespace(all[0], w.label, "False")
	source := w.createSource(w.home, "settings")
	w.start()
	w.waitInSync(source, all...)
	viewer := w.viewer()
	w.expect(w.byController(viewer, "status", w.home+"/settings"), 0, "platform/settings: InSync, 207 synced")
	if got := w.byController(viewer, "status", w.home+"/settings", "--all"); got.code != 0 || strings.Count(got.out, "  synced") != 207 {
		t.Errorf("got exit code %d and\n%s\nwant 0 and a row for each target", got.code, got.out)
	}
	got := w.byController(viewer, "explain", "namespace/"+all[0])
	const want = `  ok  It has not opted out by the label mirror=false. (label mirror="False", which means nothing: only mirror=false opts out)`
	if !strings.HasPrefix(got.out, "Namespace team-n0000 is a target.\n") || !strings.Contains(got.out+"\n", "\n"+want+"\n") {
		t.Errorf("got\n%s\nwant in it %s", got.out, want)
	}
}

// TestKubectlOfTenants asks as an owner of the source's namespace, and as one of a target, who see no more than their namespaces.
func TestKubectlOfTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a := w.ns("a")
	w.create(w.ns("b"), "settings")
	p := w.start()
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, a)
	note := w.anonymous(w.waitEvent(w.home, "settings", "Foreign"))
	owner := w.tenant(w.home)
	for command, code := range map[string]int{"status": 2, "explain": 0} {
		got := owner(command, "settings")
		if !strings.HasPrefix(got.out, "ConfigMap platform/settings asks to be mirrored.\n") || !strings.Contains(got.out, "Z: Warning Foreign: "+note) ||
			!strings.Contains(got.err, "you may not list clusterrolebindings") || !strings.Contains(got.err, "The ClusterRole mirror-controller-viewer ") || got.code != code {
			t.Errorf("%s: got exit code %d and\n%s\nwant %d and the event\nstderr: %s", command, got.code, got.out, code, got.err)
		}
	}
	w.expectError(owner("status"), "cannot find the controller")

	w.stop(p)
	tenant := w.tenant(a)
	copied := "ConfigMap team-a/settings is a copy of platform/settings, by its annotations, of instance " + w.instance + ".\n%s\n" +
		"To keep a ConfigMap of your own under this name, ask the owner of platform/settings to leave your namespace out, or opt out of all copies: " +
		"kubectl label namespace team-a mirror=false"
	w.expect(tenant("explain", "settings"), 0, fmt.Sprintf(copied, "Its content matches its checksum."))
	w.edit(a, "settings", withKey("key", "edited"))
	w.expect(tenant("status", "settings"), 2, fmt.Sprintf(copied, "Its content does not match its checksum: somebody has edited it. The controller restores it while the source wants a copy here."))
	w.create(a, "mine")
	w.expect(tenant("explain", "mine"), 0, `
ConfigMap team-a/mine is no copy, by the label mirror: no controller changes or deletes it. While it is there, nothing is copied to its name.
To hand it over to a source of that name (this REPLACES ITS DATA): kubectl annotate -n team-a configmap mine mirror-controller.github.io/adopt=true`)
}

// TestKubectlOfExpiring has a copy that no source claims: status ends with 1, wait does not wait for it, and plan lists its deletion.
func TestKubectlOfExpiring(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	w.start(graced(time.Hour)...)
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, a, b)
	w.optOut(plan.OptOutValue, "b")
	w.waitEvent(w.home, "settings", "Expiring")
	w.expect(w.mirror("status", w.home+"/settings", "-o", "wide"), 1, `
platform/settings: OutOfSync, 1 synced, 1 expiring
Warning Expiring: `+w.anonymous(w.waitEvent(w.home, "settings", "Expiring"))+`
TARGET  STATE  OPERATION  REASON
team-b  expiring  delete  the namespace has the label mirror=false`)
	if got := w.mirror("wait", w.home+"/settings"); got.code != 0 || !strings.Contains(got.err, "Not waited for: 1 copy expires: team-b") {
		t.Errorf("wait: got exit code %d and\n%s\nwant 0, and the copy that expires", got.code, got.err)
	}
	w.expect(w.mirror("plan"), 1, `
OPERATION  CONFIGMAP  SOURCE  REASON
delete  team-b/settings  platform/settings  the namespace has the label mirror=false
Changes: delete 1.`)
}
