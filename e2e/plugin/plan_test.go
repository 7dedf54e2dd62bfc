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

// TestKubectlPlanOfPruneLimit plans a change of flags that the prune limit blocks, and one that lifts the limit.
func TestKubectlPlanOfPruneLimit(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	all := w.CreateMany(12)
	source := w.CreateSource(w.Home, "settings")
	w.Start()
	w.WaitInSync(source, all...)
	prefix := "--namespace-prefix=" + w.Prefix + "n0000"
	expect(w, kubectlMirror(w, "plan", prefix), 1, `
Changes: none.
Blocked: 11 of 12 copies are out of scope of the flags, which is more than --prune-limit=50% allows: none of them is deleted. Is a flag mistyped? --prune-limit=100% deletes them.`)
	got := kubectlMirror(w, "plan", prefix, "--prune-limit=100%")
	if lines := strings.Split(got.out, "\n"); got.code != 1 || len(lines) != 13 || lines[12] != "Changes: delete 11." {
		t.Errorf("got exit code %d and\n%s\nwant 1, and 11 deletions", got.code, got.out)
	}
	if want := controllerSettings + ", changed by --namespace-prefix, --prune-limit"; got.err != want {
		t.Errorf("stderr is %q, want %q", got.err, want)
	}
	w.Copies("settings", all...)
}
