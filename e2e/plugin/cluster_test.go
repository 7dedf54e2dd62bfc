package plugin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/policies"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

func TestMain(m *testing.M) { suite.Main(m) }

// admin returns the admin, with the settings of the world's controller as flags.
func admin(w *suite.World) *user {
	return &user{w: w, kubeconfig: w.Cluster.AdminKubeconfig(), flags: w.Args()}
}

// shown returns what the manual shows for a command of kubectl mirror, with runs of blanks as the answers have them.
func shown(t *testing.T, command string) string {
	t.Helper()
	block := manual.Find(t, "deploy/docs/kubectl-mirror.md", "$ kubectl mirror "+command+"\n")
	_, output, _ := strings.Cut(block.Text, "\n")
	return strings.TrimSpace(runsOfBlanks.ReplaceAllString(output, "  "))
}

// may is a rule that allows the verbs.
func may(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// newPerson returns a user with these permissions in the whole cluster, and the settings of the world's controller as
// flags.
func newPerson(w *suite.World, name string, rules ...rbacv1.PolicyRule) *user {
	w.Helper()
	name = w.Account() + "." + name
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := w.Admin.RbacV1().ClusterRoles().Create(w.Context(), role, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	permission := rules[0].Verbs[0] + " " + strings.TrimSuffix(rules[0].Resources[0]+"."+rules[0].APIGroups[0], ".")
	return bound(w, name, "clusterrolebinding --clusterrole="+name, permission+" -A", w.Args())
}

// newMember returns a user with a ClusterRole in one namespace, and nothing else.
func newMember(w *suite.World, role, namespace string) *user {
	w.Helper()
	return bound(w, w.Account()+"."+namespace, "rolebinding --clusterrole="+role+" -n "+namespace,
		"list events -n "+namespace, []string{"-n", namespace, "--mirror-label=" + w.Label, "--instance=" + w.Instance})
}

// bound returns a user as soon as the binding that kubectl creates gives the permission.
func bound(w *suite.World, name, binding, permission string, flags []string) *user {
	w.Helper()
	kubeconfig, err := w.Cluster.Kubeconfig(cluster.User{Name: name})
	if err != nil {
		w.Fatal(err)
	}
	policies.Sh(w, "kubectl create "+binding+" "+name+" --user="+name)
	w.Until(name+" has the permission", func() error {
		return w.Cluster.Shell(w.Context(), "kubectl auth can-i "+permission+" --as="+name).Run()
	})
	return &user{w: w, kubeconfig: kubeconfig, flags: flags}
}

// newViewer returns a user with the shipped ClusterRole for users of kubectl mirror.
func newViewer(w *suite.World) *user { return newPerson(w, "viewer", viewerRules(w)...) }

// TestKubectlStatus has a target in each state that needs no fault, as the controller left them. Before it runs, wait
// times out.
func TestKubectlStatus(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	admin(w).prints(0, "status -A", "No sources found.")
	winner := w.CreateSource(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, a))
	superseded := w.CreateSource(b, "settings")
	frozen := w.CreateSource(w.Home, "frozen")
	viewer := newViewer(w)
	w.Until("the cluster is read in time", func() error {
		return viewer.ask("wait platform/frozen --timeout=3s").lacks(1, "platform/frozen: Pending, 3 pending\n"+
			"TARGET  STATE  REASON\nteam-a  pending  there is no copy yet\nteam-b  pending  there is no copy yet\n"+
			"team-c  pending  there is no copy yet", "platform/frozen: Pending, 3 pending\nTimed out after 3s")
	})

	w.Start()
	w.WaitInSync(winner, a)
	w.WaitInSync(superseded, c)
	w.WaitInSync(frozen, a, b, c)
	w.WaitEvent(b, "settings", "Superseded")
	viewer.prints(0, "wait frozen -n platform", "platform/frozen: InSync, 3 synced")
	w.Edit(w.Home, "frozen", suite.WithAnnotation(plan.SelectorAnnotation, "a==b==c"))
	w.WaitEvent(w.Home, "frozen", "InvalidAnnotation")
	viewer.prints(1, "status settings -n team-b", "team-b/settings: Blocked, 1 synced, 1 superseded\n"+
		"Superseded: Not copied to namespace team-a: source platform/settings of the same name has precedence. A source in a "+
		"namespace that cannot be a target comes first, then the older source. Rename one of the two.\n"+
		"TARGET  STATE  REASON\nteam-a  superseded  platform/settings has precedence")
	viewer.prints(1, "status -A", shown(t, "status -A"))
	viewer.says(2, "status configmap/other -n team-b", "no source team-b/other")
	viewer.says(2, "status -n nowhere", "no source in namespace nowhere")
	half := newPerson(w, "half", may("", "namespaces", "list"))
	half.says(2, "status -A", `cannot list resource "configmaps"`)
}

// TestKubectlOfProblems has 207 targets, a quota that refuses one of the copies and goes, a source that lost its only
// target and copy, and a copy that expires.
func TestKubectlOfProblems(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "bad")
	bad, good := w.NS("bad"), w.CreateMany(206)
	lift := w.FillQuota(bad, 1)
	w.Start(suite.Graced(time.Hour)...)
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, good...)
	w.WaitEvent(w.Home, "settings", "WriteFailed")
	viewer := newViewer(w)
	const rejected = "platform/settings: Rejected, 206 synced, 1 rejected\nWriteFailed: "
	w.Until("the controller has reported the rejected copy", func() error {
		return viewer.ask("status platform/settings").lacks(1, rejected, "exceeded quota: no-more")
	})
	viewer.says(1, "wait platform/settings --timeout=5s", rejected, "Timed out after 5s")
	viewer.says(0, "wait platform/settings --ignore-blocked", rejected)
	lift()
	viewer.prints(0, "wait platform/settings", "platform/settings: InSync, 207 synced")
	w.WaitInSync(source, bad)

	w.WaitInSync(w.CreateSource(w.Home, "nowhere", suite.WithAnnotation(plan.PrefixAnnotation, bad)), bad)
	w.Edit(w.Home, "nowhere", suite.WithAnnotation(plan.PrefixAnnotation, "nowhere-"))
	w.WaitEvent(w.Home, "nowhere", "Expiring")
	w.WaitEvent(w.Home, "nowhere", "NoTargets")
	w.Delete(bad, "nowhere")
	for _, command := range []string{"status", "wait"} {
		viewer.says(1, command+" platform/nowhere", "platform/nowhere: NoTargets\nno namespace is a target: each that "+
			`the flags allow is ruled out by the source's annotation mirror-controller.github.io/namespace-prefix="nowhere-": `+
			"correct the source's annotations\nNoTargets: ")
	}
	w.OptOut(plan.OptOutValue, "bad")
	w.WaitEvent(w.Home, "settings", "Expiring")
	const expires = "the namespace has the label mirror=false"
	viewer.says(0, "status platform/settings",
		"platform/settings: InSync, 206 synced, 1 expiring\nExpiring: ", "team-bad  expiring  "+expires)
	viewer.says(0, "wait platform/settings", "team-bad  expiring  "+expires)
}

// TestKubectlPlan has everything that a controller changes when it takes over, planned first and then done: the audit
// log shows the very changes. Then it plans a prefix that narrows, without --prune and with it, and does that, too.
func TestKubectlPlan(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c", "d")
	a, b, c, d := w.NS("a"), w.NS("b"), w.NS("c"), w.NS("d")
	source := w.CreateSource(w.Home, "settings")
	gone := w.CreateSource(w.Home, "gone", suite.WithAnnotation(plan.PrefixAnnotation, a))
	first := w.Start()
	w.WaitInSync(source, a, b, c, d)
	w.WaitInSync(gone, a)
	w.Stop(first)

	w.Edit(a, "settings", suite.WithKey("key", "secret"))
	w.Edit(b, "settings", suite.SetImmutable, suite.WithKey("key", "edited"))
	w.Delete(c, "settings")
	w.LabelNamespace(d, w.Label, plan.OptOutValue)
	w.Edit(w.Home, "gone", suite.WithoutLabel(w.Label))
	mine := w.Create(w.CreateNamespace(w.NS("e"), nil).Name, "settings")
	lists := newPerson(w, "reader", may("", "configmaps", "list"), may("", "namespaces", "list"))
	planned := lists.prints(1, "plan", shown(t, "plan"))
	w.Mark = w.AuditMark()
	p := w.Start()
	w.WaitInSync(source, a, b, c)
	w.WaitGone("gone", a)
	w.WaitGone("settings", d)
	w.Untouched(mine)
	w.Stop(p)
	expectPlanned(w, planned)

	narrow := admin(w)
	narrow.flags = []string{"--mirror-label=" + w.Label, "--instance=" + w.Instance}
	const only = " --namespace-prefix=team-a"
	narrow.says(1, "plan"+only, "out_of_scope  team-b/settings  ", "\nIn all: out_of_scope 2.")
	narrow.says(0, "purge --out-of-scope --yes"+only+",team-b", "team-c/settings", "Deleted 1 of 1 copies.")
	w.Absent("settings", c)
	planned = narrow.says(1, "plan --prune"+only, "\nIn all: delete 1.")
	w.Mark = w.AuditMark()
	narrowed := *w
	narrowed.Prefix = a
	narrowed.Start("--prune")
	w.WaitGone("settings", b)
	w.WaitInSync(source, a)
	expectPlanned(w, planned)
}

// expectPlanned fails the test if the controllers have done something else than a plan, since the world's mark.
func expectPlanned(w *suite.World, planned answer) {
	w.Helper()
	want := map[string][]string{"settings": nil, "gone": nil}
	for line := range strings.Lines(planned.out) {
		fields := strings.Fields(line)
		namespace, name, _ := strings.Cut(strings.Replace(fields[1], "team-", w.Prefix, 1), "/")
		switch op := fields[0]; op {
		case "create", "update", "delete":
			want[name] = append(want[name], op+" "+namespace)
		case "recreate":
			want[name] = append(want[name], "delete "+namespace, "create "+namespace)
		}
	}
	for name, writes := range want {
		w.ExpectWrites(name, writes...)
	}
}

// TestKubectlExplain hands a ConfigMap over by the command that explain prints, and opts a namespace out and in again.
func TestKubectlExplain(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	source := w.CreateSource(w.Home, "settings", suite.WithData(map[string]string{"key": "public"}))
	mine := w.Create(b, "settings", suite.SetImmutable)
	viewer := newViewer(w)
	w.Start()
	w.WaitInSync(source, a)
	viewer.says(0, "explain configmap/settings -n team-a",
		"ConfigMap team-a/settings is a copy of platform/settings, ", "The target of platform/settings is synced.")
	got := viewer.says(0, "explain team-b/settings", "The target of platform/settings is foreign: ")
	w.Untouched(mine)
	_, command, _ := strings.Cut(got.out, "REPLACES ITS DATA: ")
	policies.Sh(w, strings.ReplaceAll(strings.TrimSpace(command), "team-", w.Prefix))
	w.WaitInSync(source, b)

	w.LabelNamespace(a, w.Label, plan.OptOutValue)
	w.WaitGone("settings", a)
	viewer.prints(0, "explain team-a/settings", shown(t, "explain team-a/settings"))
	policies.Sh(w, "kubectl label namespace "+a+" "+w.Label+"-")
	w.WaitInSync(source, a)
}

// TestKubectlPurge deletes the copies of a source, and then of the instance: nothing else, nothing that has changed
// since it was listed, and nothing while a controller of the instance is ready.
func TestKubectlPurge(t *testing.T) {
	t.Parallel()
	w, p := installChecked(t)
	a := w.NS("a")
	settings, other := w.CreateSource(w.Home, "settings"), w.CreateSource(w.Home, "other")
	w.WaitInSync(settings, a)
	w.WaitInSync(other, a)
	foreign := w.Create(a, "foreign", suite.WithLabel(w.Label, plan.CopyValue))
	lists := []rbacv1.PolicyRule{may("", "configmaps", "list", "delete"), may("", "namespaces", "list")}
	purger := w.as(newPerson(w.World, "purger", append(lists, may("apps", "deployments", "get", "list"))...).kubeconfig)
	purger.says(1, "purge --yes", "Refused: the controller of Deployment mirror-system/mirror-controller runs")
	newPerson(w.World, "blind", lists...).says(2, "purge --yes", "cannot check that no controller runs: ")
	w.Stop(p)
	w.report(func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 0 })
	purger.prints(0, "purge --dry-run", "OPERATION  CONFIGMAP  SOURCE\ndelete  team-a/other  platform/other\n"+
		"delete  team-a/settings  platform/settings\nIn all: delete 2.")
	elsewhere := w.CreateNamespace("other-"+w.Home, nil).Name
	theirs := w.Create(elsewhere, "settings", w.MarksOfCopy(a, elsewhere, "settings")...)
	purger.says(1, "purge", "Nothing was changed. --yes answers the question.")
	purger.says(0, "purge platform/settings --yes", "Deleted 1 of 1 copies.")
	w.Absent("settings", a)
	w.Untouched(theirs)
	w.WaitInSync(other, a)
	purger.says(0, "purge --yes", "Deleted 2 of 2 copies.")
	w.Absent("other", a)
	w.Untouched(foreign)
	w.Untouched(settings)
}

// TestKubectlPurgeAsks: no answer changes nothing, and after a yes, what has changed since it was listed is left alone.
func TestKubectlPurgeAsks(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	there := w.Create(a, "settings", w.MarksOfCopy(w.Home, a, "settings")...)
	w.Create(b, "settings", w.MarksOfCopy(w.Home, b, "settings")...)
	args := append(w.Args(), "purge", "--force", "--kubeconfig="+w.Cluster.AdminKubeconfig())
	cmd := w.Cluster.Command(w.Context(), plugin(), args...)
	stdin, noInput := cmd.StdinPipe()
	stderr, noOutput := cmd.StderrPipe()
	if err := errors.Join(noInput, noOutput, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	problems := bufio.NewReader(stderr)
	if question, err := problems.ReadString(']'); err != nil {
		t.Fatalf("the program ended without a question: %s", question)
	}
	w.Untouched(there)
	there = w.Edit(a, "settings", suite.WithoutAnnotation(plan.CopyAnnotation))
	fmt.Fprintln(stdin, "y")
	out, _ := io.ReadAll(problems)
	_ = cmd.Wait() // the exit code tells
	const left = "Deleted 1 of 2 copies; failed: 1, the first because of: "
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), left) {
		t.Errorf("got exit code %d and %s, want 1 and %s", code, out, left)
	}
	w.Untouched(there)
	w.Absent("settings", b)
}
