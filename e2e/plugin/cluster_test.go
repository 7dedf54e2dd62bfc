package plugin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
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

// newViewer returns a user with the shipped ClusterRole for users of kubectl mirror.
func newViewer(w *suite.World) *user {
	w.Helper()
	w.Sh("kubectl apply -f " + suite.Deployed("components/viewer/rbac.yaml"))
	const binding = "clusterrolebinding --clusterrole=mirror-controller-viewer"
	return bound(w, w.Account()+".viewer", binding, "list namespaces -A", w.Args())
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
	w.Sh("kubectl create " + binding + " " + name + " --user=" + name)
	w.Until(name+" has the permission", func() error {
		return w.Cluster.Shell(w.Context(), "kubectl auth can-i "+permission+" --as="+name).Run()
	})
	return &user{w: w, kubeconfig: kubeconfig, flags: flags}
}

// TestKubectlStatus has a target in each state that needs no fault, as the controller left them. Before it runs, wait
// times out. A ConfigMap is handed over by the command that explain prints, and a namespace opts out.
func TestKubectlStatus(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	admin(w).prints(0, "status -A", "No sources found.")
	winner := w.CreateSource(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, a))
	superseded := w.CreateSource(b, "settings")
	frozen := w.CreateSource(w.Home, "frozen")
	viewer := newViewer(w)
	viewer.says(2, "wait platform/frozen --timeout=3s", "platform/frozen: NotKnown\nno controller of instance ",
		"platform/frozen: NotKnown\nTimed out after ")
	viewer.says(1, "plan platform/frozen", "create  team-a/frozen  platform/frozen  there is no copy yet",
		"\nIn all: create 3.")

	w.Start()
	w.WaitInSync(winner, a)
	w.WaitInSync(superseded, c)
	w.WaitInSync(frozen, a, b, c)
	w.WaitEvent(b, "settings", "Superseded")
	viewer.says(0, "wait frozen -n platform", "platform/frozen: InSync, 3 synced\nas reported ")
	w.Edit(w.Home, "frozen", suite.WithAnnotation(plan.SelectorAnnotation, "a==b==c"))
	w.WaitEvent(w.Home, "frozen", "InvalidAnnotation")
	viewer.says(1, "status settings -n team-b", "team-b/settings: Blocked, 1 synced, 1 superseded\nas reported ",
		" ago\nSuperseded: Not copied to namespace team-a: source platform/settings of the same name has precedence. ",
		"\nkubectl mirror plan team-b/settings --instance=", " --namespace-prefix=team- shows single targets")
	viewer.until(0, "status platform/settings", "another source of this name waits for 1 of the targets, ")
	viewer.says(0, "plan platform/settings",
		"superseded  team-a/settings  team-b/settings  platform/settings has precedence")
	viewer.says(0, "plan team-b/settings",
		"superseded  team-a/settings  team-b/settings  platform/settings has precedence")
	viewer.prints(1, "status -A", shown(t, "status -A"))
	viewer.says(2, "status configmap/other -n team-b", "no source team-b/other")
	viewer.says(2, "status -n nowhere", "no source in namespace nowhere")
	half := newPerson(w, "half", may("", "configmaps", "list", "get"))
	half.says(2, "status -A", `cannot list resource "events"`)
	half.says(0, "explain team-a/settings", "is a copy of platform/settings, ", "Its content matches its checksum.")

	mine := w.Create(a, "handed-over", suite.SetImmutable)
	source := w.CreateSource(w.Home, "handed-over")
	w.WaitInSync(source, b)
	got := viewer.says(0, "explain team-a/handed-over", "The target of platform/handed-over is foreign: ")
	w.Untouched(mine)
	_, command, _ := strings.Cut(got.out, "REPLACES ITS DATA: ")
	w.Sh(strings.ReplaceAll(strings.TrimSpace(command), "team-", w.Prefix))
	w.WaitInSync(source, a)
	viewer.says(0, "explain configmap/handed-over -n team-a",
		"ConfigMap team-a/handed-over is a copy of platform/handed-over, ", "The target of platform/handed-over is synced.")
	w.OptOut(plan.OptOutValue, "a")
	w.WaitGone("settings", a)
	viewer.prints(0, "explain team-a/settings", shown(t, "explain team-a/settings"))
}

// TestKubectlPlan has everything that a controller changes when it takes over, planned first and then done: the audit
// log shows the very changes. Then it plans a prefix that narrows, without --prune and with it.
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
	lists.prints(1, "plan", shown(t, "plan"))
	w.Mark = w.AuditMark()
	p := w.Start()
	w.WaitInSync(source, a, b, c)
	w.WaitGone("gone", a)
	w.WaitGone("settings", d)
	w.Untouched(mine)
	w.Stop(p)
	w.ExpectWrites("settings", "update "+a, "delete "+b, "create "+b, "create "+c, "delete "+d)
	w.ExpectWrites("gone", "delete "+a)

	narrow := admin(w)
	narrow.flags = narrow.flags[1:] // without the prefix
	const only = " --namespace-prefix=team-a"
	narrow.says(1, "plan"+only, "out_of_scope  team-b/settings  ", "\nIn all: out_of_scope 2.")
	narrow.says(0, "purge --out-of-scope --prune --yes"+only+",team-b", "team-c/settings", "Deleted 1 of 1 copies.")
	w.Absent("settings", c)
	narrow.says(1, "plan --prune"+only, "delete  team-b/settings  ", "\nIn all: delete 1.")
}

// TestKubectlPurge deletes the copies of a source, and then of the instance: nothing else, nothing that has changed
// since it was listed, and nothing while a controller of the instance is ready, or before the answer is yes.
func TestKubectlPurge(t *testing.T) {
	t.Parallel()
	w, p := installChecked(t)
	a := w.NS("a")
	settings, other := w.CreateSource(w.Home, "settings"), w.CreateSource(w.Home, "other")
	w.WaitInSync(settings, a)
	w.WaitInSync(other, a)
	foreign := w.Create(a, "foreign", suite.WithLabel(w.Label, plan.CopyValue))
	lists := []rbacv1.PolicyRule{may("", "configmaps", "list", "delete"), may("", "namespaces", "list")}
	purger := w.as(newPerson(w.World, "purger", append(lists, may("apps", "deployments", "list"))...).kubeconfig)
	purger.says(1, "purge --yes", "Refused: the controller of Deployment mirror-system/mirror-controller runs")
	newPerson(w.World, "blind", lists...).says(2, "purge --yes", "cannot check that no controller runs: ")
	w.Stop(p)
	w.Report(0)
	purger.prints(0, "purge --dry-run", "OPERATION  CONFIGMAP  SOURCE\ndelete  team-a/other  platform/other\n"+
		"delete  team-a/settings  platform/settings\nIn all: delete 2.")
	purger.says(1, "plan --instance=another", "\nIn all: all copies of the installed controller, ",
		" stay and are in the way: ")
	elsewhere := w.CreateNamespace("other-"+w.Home, nil).Name
	theirs := w.Create(elsewhere, "settings", w.MarksOfCopy(a, elsewhere, "settings")...)
	purger.says(1, "purge", "Nothing was changed. --yes answers the question.")
	w.Edit(a, "settings", plantest.Finalizer)
	purger.says(1, "purge platform/settings --yes", "Deleted 0 of 1 copies; failed: 1, ", ": the finalizer ")
	w.Untouched(theirs)
	cmd := w.Cluster.Command(w.Context(), suite.Plugin(), "purge", purger.flags[0], "--kubeconfig="+purger.kubeconfig)
	stdin, noInput := cmd.StdinPipe()
	stderr, noOutput := cmd.StderrPipe()
	if err := errors.Join(noInput, noOutput, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	problems := bufio.NewReader(stderr)
	if question, err := problems.ReadString(']'); err != nil {
		t.Fatalf("the program ended without a question: %s", question)
	}
	w.WaitInSync(other, a)
	theirs = w.Edit(elsewhere, "settings", suite.WithoutAnnotation(plan.CopyAnnotation))
	fmt.Fprintln(stdin, "y")
	out, _ := io.ReadAll(problems)
	_ = cmd.Wait() // the exit code tells
	const left = "Deleted 1 of 3 copies; failed: 2, the first because of: "
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), left) {
		t.Errorf("got exit code %d and %s, want 1 and %s", code, out, left)
	}
	w.Absent("other", a)
	w.Untouched(theirs, foreign, settings)
}
