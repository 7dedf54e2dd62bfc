package plugin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/policies"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Situations in which a new user needs the truth, each asked as a user with the permissions that this user has.

// newViewer returns the kubeconfig of a user with the shipped ClusterRole for users of kubectl mirror.
func newViewer(w *suite.World) string { return newPerson(w, "viewer", ViewerRules(w)...) }

// newTenant returns a function that runs kubectl mirror as a user with the ClusterRole view in one namespace, and nothing else.
func newTenant(w *suite.World, namespace string) func(args ...string) answer {
	w.Helper()
	name := w.Account() + "." + namespace
	_, err := w.Admin.RbacV1().RoleBindings(namespace).Create(w.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	kubeconfig := login(w, name, &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "events"})
	return func(args ...string) answer {
		return byController(w, kubeconfig, append(args, "-n", namespace, "--mirror-label="+w.Label)...)
	}
}

// TestKubectlOfDifference has a flag and its annotation differ, so that the API server refuses writes: each command says so,
// and the command that they print repairs it. Then the controller stops.
func TestKubectlOfDifference(t *testing.T) {
	t.Parallel()
	w, p := installChecked(t)
	a, viewer := w.NS("a"), newViewer(w.World)
	old := w.CreateSource(w.Home, "old")
	w.WaitInSync(old, a)
	w.patchBinding(`{"metadata": {"annotations": {"` + plan.Domain + `/namespace-prefix": "dev-"}}}`)
	w.Until("copies are refused", func() error {
		return policies.InForce(w.FullName+"-confined", w.Probe(w.Account, a, w.Copied(a, policies.NamedSource)...))
	})
	source := w.CreateSource(w.Home, "settings")
	w.WaitEvent(w.Home, "settings", "WriteFailed")

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
		{"wait platform/settings", 1, "platform/settings: OutOfSync, 1 pending"},
		{"check --probes=false", 1, "settings/namespace-prefix  to do  "},
		{"explain platform/settings", 0, "ConfigMap platform/settings is a source: 1 pending."},
	} {
		got := w.asked(viewer, strings.Fields(strings.ReplaceAll(test.args, "platform", w.Home))...)
		waits := test.args == "wait platform/settings"
		if !strings.Contains(got.err, differ+repair) || strings.Contains(got.err, "Not waited: ") != waits || got.code != test.code || len(got.lacks(test.want)) > 0 {
			t.Errorf("%s: got exit code %d and\n%s\nwant %d and %q\nstderr: %s", test.args, got.code, got.out, test.code, test.want, got.err)
		}
	}
	command := strings.NewReplacer("binding mirror-controller ", "binding "+w.FullName+" ", "team-", w.Prefix).Replace(repair)
	if out, err := w.Cluster.Shell(w.Context(), command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v, %s", command, err, out)
	}
	if got := w.asked(viewer, "wait", w.Home+"/settings"); got.code != 0 || strings.Contains(got.err, "differ") || strings.Contains(got.err, "No controller") {
		t.Errorf("got exit code %d, %s and\n%s\nwant 0", got.code, got.out, got.err)
	}
	w.WaitInSync(source, a)

	w.Stop(p)
	killed := []byte(`{"spec": {"holderIdentity": "mirror-controller-0_1", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}}`)
	for _, want := range []string{
		"nobody holds Lease mirror-system/mirror-controller.",
		"mirror-controller-0 held Lease mirror-system/mirror-controller, and nobody has renewed it since 2026-01-01T00:00:00Z.",
	} {
		for _, args := range []string{"status platform/settings", "wait platform/settings", "explain platform/settings", "explain ns/platform"} {
			if got := w.asked(viewer, strings.Fields(strings.ReplaceAll(args, "platform", w.Home))...); got.code != 0 || !strings.Contains(got.err, "No controller runs: "+want) {
				t.Errorf("%s: got exit code %d and\n%s\nwant 0 and %q", args, got.code, got.err, want)
			}
		}
		_, err := w.Admin.CoordinationV1().Leases(w.Namespace).Patch(w.Context(), suite.LeaseName, types.MergePatchType, killed, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestKubectlOfRejected has a quota refuse a copy: it is pending, with the warning as it stands, and wait is done when the
// quota is gone.
func TestKubectlOfRejected(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "bad", "good", "out")
	bad, good, settings := w.NS("bad"), w.NS("good"), w.Home+"/settings"
	w.LabelNamespace(w.NS("out"), w.Label, plan.OptOutValue)
	run, lift := suite.RefuseByQuota(w, bad)
	w.StartWith(run)
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, good)
	w.WaitEvent(w.Home, "settings", "WriteFailed")
	viewer := newViewer(w)
	for _, args := range [][]string{{"status", settings}, {"wait", settings, "--timeout=5s"}} {
		got := byController(w, viewer, args...)
		lines := strings.Split(got.out, "\n")
		if got.code != 1 || len(lines) != 4 || lines[0] != "platform/settings: OutOfSync, 1 synced, 1 pending" ||
			!strings.HasPrefix(lines[1], "Warning WriteFailed: ") || !strings.Contains(lines[1], "exceeded quota: no-more") ||
			lines[3] != "team-bad  pending  there is no copy yet" {
			t.Errorf("%s: got exit code %d and\n%s\nwant 1, and the warning", args[0], got.code, got.out)
		}
	}
	out := byController(w, viewer, "explain", w.NS("out")+"/settings") // the warning is not about a namespace that opts out
	if out.code != 0 || strings.Contains(out.out, "Warning") {
		t.Errorf("got exit code %d and\n%s\nwant 0, and no warning", out.code, out.out)
	}
	got := byFlags(w, newReader(w, "reader", mayList("", "configmaps", "namespaces")), "status", "-A")
	expect(w, got, 1, `
NAMESPACE  NAME  STATUS  TARGETS  SYNCED  PENDING
platform  settings  OutOfSync  2  1  1`)
	if want := "Not checked: whether the controller has warned, because you may not list events"; !strings.HasSuffix(got.err, want) {
		t.Errorf("stderr is %q, want a line %q", got.err, want)
	}
	lift()
	expect(w, byController(w, viewer, "wait", settings), 0, "platform/settings: InSync, 2 synced")
	w.WaitInSync(source, bad)
}

// TestKubectlOfNoTargets has a source that no namespace matches.
func TestKubectlOfNoTargets(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	w.CreateSource(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, "nowhere-"))
	viewer := newViewer(w)
	for _, command := range []string{"status", "wait"} {
		expect(w, byController(w, viewer, command, w.Home+"/settings"), 1, `
platform/settings: NoTargets
no namespace is a target: the source's annotation mirror-controller.github.io/namespace-prefix="nowhere-" rules the namespace out`)
	}
}

// TestKubectlOfMany has 207 targets in sync, one of which has a label that means nothing.
func TestKubectlOfMany(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	all := w.CreateMany(207)
	w.LabelNamespace(all[0], w.Label, "False")
	source := w.CreateSource(w.Home, "settings")
	w.Start()
	w.WaitInSync(source, all...)
	viewer := newViewer(w)
	expect(w, byController(w, viewer, "status", w.Home+"/settings"), 0, "platform/settings: InSync, 207 synced")
	if got := byController(w, viewer, "status", w.Home+"/settings", "--all"); got.code != 0 || strings.Count(got.out, "  synced") != 207 {
		t.Errorf("got exit code %d and\n%s\nwant 0 and a row for each target", got.code, got.out)
	}
	got := byController(w, viewer, "explain", "namespace/"+all[0])
	const want = `  ok  It has not opted out by the label mirror=false. (label mirror="False", which means nothing: only mirror=false opts out)`
	if !strings.HasPrefix(got.out, "Namespace team-n0000 is a target.\n") || !strings.Contains(got.out+"\n", "\n"+want+"\n") {
		t.Errorf("got\n%s\nwant in it %s", got.out, want)
	}
}

// TestKubectlOfTenants asks as an owner of the source's namespace, and as one of a target, who see no more than their namespaces.
func TestKubectlOfTenants(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a := w.NS("a")
	w.Create(w.NS("b"), "settings")
	p := w.Start()
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, a)
	note := anonymous(w, w.WaitEvent(w.Home, "settings", "Foreign"))
	owner := newTenant(w, w.Home)
	for command, code := range map[string]int{"status": 2, "explain": 0} {
		got := owner(command, "settings")
		if !strings.HasPrefix(got.out, "ConfigMap platform/settings asks to be mirrored.\n") || !strings.Contains(got.out, "Z: Warning Foreign: "+note) ||
			!strings.Contains(got.err, `you may not list resource "clusterrolebindings"`) || !strings.Contains(got.err, "The ClusterRole mirror-controller-viewer (of a chart: RELEASE-mirror-controller-viewer) ") || got.code != code {
			t.Errorf("%s: got exit code %d and\n%s\nwant %d and the event\nstderr: %s", command, got.code, got.out, code, got.err)
		}
	}
	expectError(w, owner("status"), "cannot find the controller")

	w.Stop(p)
	tenant := newTenant(w, a)
	copied := "ConfigMap team-a/settings is a copy of platform/settings, by its annotations, of instance " + w.Instance + ".\n%s\n" +
		"To keep a ConfigMap of your own under this name, ask the owner of platform/settings to leave your namespace out, or opt out of all copies: " +
		"kubectl label namespace team-a mirror=false"
	expect(w, tenant("explain", "settings"), 0, fmt.Sprintf(copied, "Its content matches its checksum."))
	w.Edit(a, "settings", suite.WithKey("key", "edited"))
	expect(w, tenant("status", "settings"), 2, fmt.Sprintf(copied, "Its content does not match its checksum: somebody has edited it. The controller restores it while the source wants a copy here."))
	w.Create(a, "mine")
	expect(w, tenant("explain", "mine"), 0, `
ConfigMap team-a/mine is no copy, by the label mirror: no controller changes or deletes it. While it is there, nothing is copied to its name.
To hand it over to a source of that name (this REPLACES ITS DATA): kubectl annotate -n team-a configmap mine mirror-controller.github.io/adopt=true`)
}

// TestKubectlOfExpiring has a copy that no source claims: status ends with 1, wait does not wait for it, and plan lists its
// deletion.
func TestKubectlOfExpiring(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	w.Start(suite.Graced(time.Hour)...)
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, a, b)
	w.OptOut(plan.OptOutValue, "b")
	w.WaitEvent(w.Home, "settings", "Expiring")
	expect(w, kubectlMirror(w, "status", w.Home+"/settings", "-o", "wide"), 1, `
platform/settings: OutOfSync, 1 synced, 1 expiring
Warning Expiring: `+anonymous(w, w.WaitEvent(w.Home, "settings", "Expiring"))+`
TARGET  STATE  OPERATION  REASON
team-b  expiring  delete  the namespace has the label mirror=false`)
	if got := kubectlMirror(w, "wait", w.Home+"/settings"); got.code != 0 || !strings.Contains(got.err, "Not waited for: 1 copy expires: team-b") {
		t.Errorf("wait: got exit code %d and\n%s\nwant 0, and the copy that expires", got.code, got.err)
	}
	expect(w, kubectlMirror(w, "plan"), 1, `
OPERATION  CONFIGMAP  SOURCE  REASON
delete  team-b/settings  platform/settings  the namespace has the label mirror=false
Changes: delete 1.`)
}
