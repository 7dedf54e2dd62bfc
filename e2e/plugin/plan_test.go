package plugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestKubectlPlan has everything that a controller changes when it takes over, planned first and then done: the audit log shows
// the very changes.
func TestKubectlPlan(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c", "d")
	a, b, c, d := w.NS("a"), w.NS("b"), w.NS("c"), w.NS("d")
	source := w.CreateSource(w.Home, "settings")
	gone := w.CreateSource(w.Home, "gone")
	first := w.Start()
	w.WaitInSync(source, a, b, c, d)
	w.WaitInSync(gone, a, b, c, d)
	expect(w, kubectlMirror(w, "plan"), 0, "Changes: none.")
	w.Stop(first)

	w.Edit(a, "settings", suite.WithKey("key", "secret"))
	w.Edit(b, "settings", suite.SetImmutable, suite.WithKey("key", "edited"))
	w.Delete(c, "settings")
	w.LabelNamespace(d, w.Label, plan.OptOutValue)
	w.Edit(w.Home, "gone", suite.WithoutLabel(w.Label))
	mine := w.Create(w.CreateNamespace(w.NS("e"), nil).Name, "settings")
	want := shown(t, "plan")
	got := kubectlMirror(w, "plan")
	expect(w, got, 1, want)
	// The same by flags, as a user who may read only.
	lists := mayList("", "configmaps", "namespaces")
	expect(w, byFlags(w, newReader(w, "reader", lists), "plan"), 1, want)
	expectError(w, byFlags(w, newReader(w, "other", lists), "plan", "--diff"), "get ConfigMap ")
	if strings.Contains(got.out, "secret") || !strings.Contains(kubectlMirror(w, "plan", "--diff").out, "-  key: secret\n") {
		t.Error("data shows without --diff, or not with it")
	}

	mark, err := w.Cluster.Audit().Mark()
	if err != nil {
		t.Fatal(err)
	}
	w.Start()
	w.WaitInSync(source, a, b, c)
	w.WaitGone("gone", a, b, c, d)
	w.WaitGone("settings", d)
	expect(w, kubectlMirror(w, "plan"), 0, "Changes: none.\nLeft alone: 1 foreign ConfigMap: kubectl mirror status SOURCE names the namespaces.")
	w.Untouched(mine)
	expectPlanned(w, got, writesSince(w, mark))
}

// writesSince returns the changes that the world's controller has made to ConfigMaps, as plan prints them: an operation and an
// object each.
func writesSince(w *suite.World, mark cluster.Mark) (out []string) {
	w.Helper()
	events, _, err := w.Cluster.Audit().Since(mark)
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range events {
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

// TestKubectlPlanOfFlags plans a prefix that narrows, without --prune and with it, and one that widens again. A
// controller with those flags does what was planned.
func TestKubectlPlanOfFlags(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	all := w.CreateMany(12)
	source := w.CreateSource(w.Home, "settings")
	p := w.Start()
	w.WaitInSync(source, all...)
	w.Stop(p)
	prefix := "--namespace-prefix=" + w.Prefix + "n0000"
	got := kubectlMirror(w, "plan", prefix)
	lines := strings.Split(got.out, "\n")
	const row = "none  team-n0001/settings  platform/settings  --namespace-prefix does not allow the namespace"
	const end = "Changes: none.\nOut of scope: 11 copies stay unchanged. Is a flag mistyped? With --prune such copies are deleted."
	if got.code != 1 || len(lines) != 14 || lines[1] != row || !strings.HasSuffix(got.out, end) {
		t.Errorf("got exit code %d and\n%s\nwant 1, and 11 copies out of scope", got.code, got.out)
	}
	expect(w, kubectlMirror(w, "plan", "--prune"), 0, "Changes: none.")

	got = kubectlMirror(w, "plan", prefix, "--prune")
	if lines := strings.Split(got.out, "\n"); got.code != 1 || len(lines) != 13 || lines[12] != "Changes: delete 11." {
		t.Errorf("got exit code %d and\n%s\nwant 1, and 11 deletions", got.code, got.out)
	}
	if want := controllerSettings + ", changed by --namespace-prefix, --prune"; !strings.HasPrefix(got.err, want) {
		t.Errorf("stderr is %q, want %q", got.err, want)
	}
	mark := w.AuditMark()
	p = w.StartExactly(prefix, "--prune")
	w.WaitGone("settings", all[1:]...)
	w.Stop(p)
	w.WaitWrites("settings", 12+11)
	expectPlanned(w, got, writesSince(w, mark))

	got, mark = kubectlMirror(w, "plan"), w.AuditMark()
	w.Start()
	w.WaitInSync(source, all...)
	w.WaitWrites("settings", 12+11+11)
	expectPlanned(w, got, writesSince(w, mark))
}
