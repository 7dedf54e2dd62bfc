package plugin

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// newViewer returns the kubeconfig of a user with the shipped ClusterRole for users of kubectl mirror.
func newViewer(w *suite.World) string { return newPerson(w, "viewer", ViewerRules(w)...) }

// TestKubectlStatus has a target in each state that needs no fault, as the controller left them. Before it runs, wait
// times out.
func TestKubectlStatus(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	expect(w, kubectlMirror(w, "status", "-A"), 0, "No sources found. -A shows those of all namespaces.")
	winner := w.CreateSource(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, a))
	loser := w.CreateSource(b, "settings")
	frozen := w.CreateSource(w.Home, "frozen")
	viewer := newViewer(w)
	got := byFlags(w, viewer, "wait", w.Home+"/frozen", "--timeout=3s")
	for strings.Contains(got.err, "over before the cluster was read") { // on a slow machine
		got = byFlags(w, viewer, "wait", w.Home+"/frozen", "--timeout=3s")
	}
	expect(w, got, 1, shown(t, "wait platform/frozen --timeout=3s"))
	expectIn(w, got, 1, "platform/frozen: OutOfSync, 3 pending\nTimed out after 3s")

	w.Start()
	w.WaitInSync(winner, a)
	w.WaitInSync(loser, c)
	w.WaitInSync(frozen, a, b, c)
	w.WaitEvent(b, "settings", "Superseded")
	expect(w, byFlags(w, viewer, "wait", "frozen", "-n", w.Home), 0, "platform/frozen: InSync, 3 synced")
	w.Edit(w.Home, "frozen", suite.WithAnnotation(plan.SelectorAnnotation, "a==b==c"))
	w.WaitEvent(w.Home, "frozen", "InvalidAnnotation")
	expect(w, byFlags(w, viewer, "status", "settings", "-n", b), 1, shown(t, "status settings -n team-b"))
	expect(w, byFlags(w, viewer, "status", "-A"), 1, shown(t, "status -A"))
	expect(w, byFlags(w, viewer, "status", "-n", b, "-o", "name"), 1, "configmap/settings -n team-b")
	expectIn(w, byFlags(w, viewer, "status", "configmap/other", "-n", b), 2, "no source team-b/other")
	half := newPerson(w, "half", may("", "namespaces", "list"))
	expectIn(w, byFlags(w, half, "status", "-A"), 2, "list ConfigMaps: configmaps is forbidden")
}

// TestKubectlOfProblems has a quota that refuses a copy and goes, a source that no namespace matches, and a copy that
// expires.
func TestKubectlOfProblems(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "bad", "good")
	bad, good, settings := w.NS("bad"), w.NS("good"), w.Home+"/settings"
	run, lift := suite.RefuseByQuota(w, bad)
	run.Args = append(run.Args, suite.Graced(time.Hour)...)
	w.StartWith(run)
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, good)
	w.WaitEvent(w.Home, "settings", "WriteFailed")
	viewer := newViewer(w)
	for _, args := range [][]string{{"status", settings}, {"wait", settings, "--timeout=5s"}} {
		expectIn(w, byFlags(w, viewer, args...), 1, "platform/settings: OutOfSync, 1 synced, 1 pending\nWarning WriteFailed: ", "exceeded quota: no-more", "team-bad  pending  there is no copy yet")
	}
	lift()
	expect(w, byFlags(w, viewer, "wait", settings), 0, "platform/settings: InSync, 2 synced")
	w.WaitInSync(source, bad)

	w.CreateSource(w.Home, "nowhere", suite.WithAnnotation(plan.PrefixAnnotation, "nowhere-"))
	for _, command := range []string{"status", "wait"} {
		expectIn(w, byFlags(w, viewer, command, w.Home+"/nowhere"), 1, "platform/nowhere: NoTargets\nno namespace is a target: "+
			`the source's annotation mirror-controller.github.io/namespace-prefix="nowhere-" rules the namespace out: correct the annotation`)
	}
	w.OptOut(plan.OptOutValue, "bad")
	w.WaitEvent(w.Home, "settings", "Expiring")
	expectIn(w, byFlags(w, viewer, "status", settings, "-o", "wide"), 1, "platform/settings: OutOfSync, 1 synced, 1 expiring\nWarning Expiring: ",
		"team-bad  expiring  delete  the namespace has the label mirror=false")
	expectIn(w, byFlags(w, viewer, "wait", settings), 0, "team-bad  expiring  the namespace has the label mirror=false")
}

// TestKubectlOfMany has 207 targets in sync, one of which has a label that means nothing.
func TestKubectlOfMany(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	all := w.CreateMany(207)
	w.LabelNamespace(all[0], w.Label, "False")
	w.Start()
	w.WaitInSync(w.CreateSource(w.Home, "settings"), all...)
	viewer := newViewer(w)
	expect(w, byFlags(w, viewer, "status", w.Home+"/settings"), 0, "platform/settings: InSync, 207 synced")
	expectIn(w, byFlags(w, viewer, "explain", "namespace/"+all[0]), 0, "Namespace team-n0000 is a target. Its label mirror=False means nothing: only mirror=false opts out.\n")
}

// TestKubectlPlan has everything that a controller changes when it takes over, planned first and then done: the audit
// log shows the very changes. Then it plans a prefix that narrows, without --prune and with it.
func TestKubectlPlan(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c", "d")
	a, b, c, d := w.NS("a"), w.NS("b"), w.NS("c"), w.NS("d")
	source, gone := w.CreateSource(w.Home, "settings"), w.CreateSource(w.Home, "gone")
	first := w.Start()
	w.WaitInSync(source, a, b, c, d)
	w.WaitInSync(gone, a, b, c, d)
	expect(w, kubectlMirror(w, "plan"), 0, "In all: nothing.")
	w.Stop(first)

	w.Edit(a, "settings", suite.WithKey("key", "secret"))
	w.Edit(b, "settings", suite.SetImmutable, suite.WithKey("key", "edited"))
	w.Delete(c, "settings")
	w.LabelNamespace(d, w.Label, plan.OptOutValue)
	w.Edit(w.Home, "gone", suite.WithoutLabel(w.Label))
	mine := w.Create(w.CreateNamespace(w.NS("e"), nil).Name, "settings")
	lists := newPerson(w, "reader", may("", "configmaps", "list"), may("", "namespaces", "list"))
	got := byFlags(w, lists, "plan")
	expect(w, got, 1, shown(t, "plan"))
	expectIn(w, byFlags(w, lists, "plan", "--diff"), 2, "get ConfigMap ")
	if strings.Contains(got.out, "secret") || !strings.Contains(kubectlMirror(w, "plan", "--diff").out, "-  key: secret\n") {
		t.Error("data shows without --diff, or not with it")
	}
	mark := w.AuditMark()
	p := w.Start()
	w.WaitInSync(source, a, b, c)
	w.WaitGone("gone", a, b, c, d)
	w.WaitGone("settings", d)
	w.Untouched(mine)
	w.Stop(p)
	expectPlanned(w, got, writesSince(w, mark))

	narrow := func(args ...string) answer {
		return mirrorAs(w, w.Cluster.AdminKubeconfig(), append(args, "--namespace-prefix="+a, "--mirror-label="+w.Label, "--instance="+w.Instance)...)
	}
	expectIn(w, narrow("plan"), 1, "out_of_scope  team-b/settings  ", "\nIn all: out_of_scope 2.")
	got = narrow("plan", "--prune")
	expectIn(w, got, 1, "\nIn all: delete 2.")
	expectIn(w, narrow("purge", "--out-of-scope", "--yes"), 0, "team-b/settings", "team-c/settings", "Deleted 2 of 2 copies.")
	w.Absent("settings", b, c)
	w.WaitInSync(source, a)
}

// writesSince returns the changes that the world's controller has made to ConfigMaps, as plan prints them: an operation
// and an object each.
func writesSince(w *suite.World, mark cluster.Mark) (out []string) {
	w.Helper()
	for _, e := range w.RequestsSince(mark) {
		write := e.Verb == "create" || e.Verb == "update" || e.Verb == "delete"
		if write && e.User.Username == w.Installed.User && e.Object.Resource == "configmaps" && e.Response.Code < 300 &&
			!strings.Contains(e.RequestURI, "dryRun=All") {
			out = append(out, anonymous(w, fmt.Sprintf("%s %s/%s", e.Verb, e.Object.Namespace, e.Object.Name)))
		}
	}
	return out
}

// expectPlanned fails the test if what was done is something else than the plan.
func expectPlanned(w *suite.World, planned answer, done []string) {
	w.Helper()
	var want []string
	for line := range strings.Lines(planned.out) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "create", "update", "delete":
			want = append(want, fields[0]+" "+fields[1])
		case "recreate":
			want = append(want, "delete "+fields[1], "create "+fields[1])
		}
	}
	slices.Sort(want)
	slices.Sort(done)
	if !slices.Equal(done, want) {
		w.Errorf("the controller did\n%s\nplanned was\n%s", strings.Join(done, "\n"), strings.Join(want, "\n"))
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
	expectIn(w, byFlags(w, viewer, "explain", a+"/settings"), 0, "There is no ConfigMap team-a/settings; the copy of platform/settings is pending: there is no copy yet.")
	w.Start()
	w.WaitInSync(source, a)
	expectIn(w, byFlags(w, viewer, "explain", "configmap/settings", "-n", a), 0, "ConfigMap team-a/settings is a copy of platform/settings, and in sync.")
	got := byFlags(w, viewer, "explain", b+"/settings")
	expectIn(w, got, 0, "it is deleted and created again, without others' metadata: it is immutable.", "+  key: public\n")
	w.Untouched(mine)
	follow(w, got)
	w.WaitInSync(source, b)

	w.LabelNamespace(a, w.Label, plan.OptOutValue)
	w.WaitGone("settings", a)
	got = byFlags(w, viewer, "explain", a+"/settings")
	expect(w, got, 0, shown(t, "explain team-a/settings"))
	follow(w, got)
	w.WaitInSync(source, a)
	expectIn(w, byFlags(w, viewer, "explain", "ns/"+a, "-o", "wide"), 0, "Namespace team-a is a target.\n", "yes  the namespace has no label mirror=false")
}

// follow runs the command that an explanation ends its remedy with.
func follow(w *suite.World, got answer) {
	w.Helper()
	_, command, _ := strings.Cut(got.out, "To change that: ")
	command, _, _ = strings.Cut(command, "\n")
	command = command[max(0, strings.Index(command, "kubectl ")):]
	command = strings.NewReplacer("team-", w.Prefix, " mirror-", " "+w.Label+"-").Replace(strings.ReplaceAll(command, " mirror-controller", " \x00"))
	command = strings.ReplaceAll(command, "\x00", "mirror-controller")
	if out, err := w.Cluster.Shell(w.Context(), command).CombinedOutput(); err != nil {
		w.Fatalf("%s: %v, %s", command, err, out)
	}
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
	purger := newPerson(w.World, "purger", may("", "configmaps", "list", "delete"), may("", "namespaces", "list"), may("apps", "deployments", "get", "list"))
	expectIn(w.World, w.asked(purger, "purge", "--yes"), 1, "Refused: Deployment mirror-system/mirror-controller has ready replicas")
	expectIn(w.World, byFlags(w.World, newPerson(w.World, "blind", may("", "configmaps", "list"), may("", "namespaces", "list")), "purge", "--yes"), 2, "cannot check that no controller runs: ")
	w.Stop(p)
	w.Report(func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 0 })
	expectIn(w.World, w.asked(purger, "purge", "-n", a, "--yes"), 2, "the command is about the whole cluster: leave it out")
	expect(w.World, w.asked(purger, "purge", "--dry-run"), 0, shown(t, "purge --dry-run"))
	theirs := w.Create(w.Elsewhere("other"), "settings", w.MarksOfCopy(a, "other-"+w.Home, "settings")...)
	expectIn(w.World, w.asked(purger, "purge"), 1, "Nothing was changed. --yes answers the question.")
	expectIn(w.World, w.asked(purger, "purge", w.Home+"/settings", "--yes"), 0, "Deleted 1 of 1 copy.")
	w.Absent("settings", a)
	w.Untouched(theirs)
	w.WaitInSync(other, a)
	expectIn(w.World, w.asked(purger, "purge", "--yes"), 0, "Deleted 2 of 2 copies.")
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
	cmd := w.Cluster.Command(w.Context(), plugin(), append(w.Args(), "purge", "--force", "--kubeconfig="+w.Cluster.AdminKubeconfig())...)
	stdin, err := cmd.StdinPipe()
	var problems io.ReadCloser
	if err == nil {
		problems, err = cmd.StderrPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for char := make([]byte, 1); !strings.HasSuffix(said.String(), " [y/N] "); said.Write(char) {
		if _, err := problems.Read(char); err != nil {
			t.Fatalf("the program ended without a question: %s", said.String())
		}
	}
	w.Untouched(there)
	there = w.Edit(a, "settings", suite.WithoutAnnotation(plan.CopyAnnotation))
	if _, err := io.WriteString(stdin, "y\n"); err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(problems)
	_ = cmd.Wait() // the exit code tells
	const want = "Deleted 1 of 2 copies; changed since they were listed, and left alone: 1. Run the command again."
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), want) {
		t.Errorf("got exit code %d and %q, want 1 and %q", code, out, want)
	}
	w.Untouched(there)
	w.Absent("settings", b)
}
