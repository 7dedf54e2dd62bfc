package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestKubectlPlan has everything that a controller changes when it takes over, planned first and then done: the audit log shows
// the very changes.
func TestKubectlPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c", "d")
	a, b, c, d := w.ns("a"), w.ns("b"), w.ns("c"), w.ns("d")
	source := w.createSource(w.home, "settings")
	gone := w.createSource(w.home, "gone")
	first := w.start()
	w.waitInSync(source, a, b, c, d)
	w.waitInSync(gone, a, b, c, d)
	w.expect(w.mirror("plan"), 0, "Changes: none.")
	w.stop(first)

	w.edit(a, "settings", withKey("key", "secret"))
	w.edit(b, "settings", setImmutable, withKey("key", "edited"))
	w.delete(c, "settings")
	w.labelNamespace(d, w.label, plan.OptOutValue)
	w.edit(w.home, "gone", withoutLabel(w.label))
	mine := w.create(w.createNamespace(w.ns("e"), nil).Name, "settings")
	want := shown(t, "plan")
	got := w.mirror("plan")
	w.expect(got, 1, want)
	// The same by flags, as a user who may read only.
	lists := mayList("", "configmaps", "namespaces")
	w.expect(w.byFlags(w.reader("reader", lists), "plan"), 1, want)
	w.expectError(w.byFlags(w.reader("other", lists), "plan", "--diff"), "get ConfigMap ")
	if strings.Contains(got.out, "secret") || !strings.Contains(w.mirror("plan", "--diff").out, "-  key: secret\n") {
		t.Error("data shows without --diff, or not with it")
	}

	mark, err := w.cluster.Audit().Mark()
	if err != nil {
		t.Fatal(err)
	}
	w.start()
	w.waitInSync(source, a, b, c)
	w.waitGone("gone", a, b, c, d)
	w.waitGone("settings", d)
	w.expect(w.mirror("plan"), 0, "Changes: none.\nLeft alone: 1 foreign ConfigMap: kubectl mirror status SOURCE names the namespaces.")
	w.untouched(mine)
	expectPlanned(w, got, w.writesSince(mark))
}

// writesSince returns the changes that the world's controller has made to ConfigMaps, as plan prints them: an operation and an
// object each.
func (w *world) writesSince(mark cluster.Mark) (out []string) {
	w.Helper()
	events, _, err := w.cluster.Audit().Since(mark)
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range events {
		write := e.Verb == "create" || e.Verb == "update" || e.Verb == "delete"
		if write && e.User.Username == w.installed.User && e.Object.Resource == "configmaps" && e.Response.Code < 300 &&
			!strings.Contains(e.RequestURI, "dryRun=All") {
			out = append(out, w.anonymous(fmt.Sprintf("%s %s/%s", e.Verb, e.Object.Namespace, e.Object.Name)))
		}
	}
	return out
}

// expectPlanned fails the test if what was done is something else than the plan.
func expectPlanned(w *world, planned answer, done []string) {
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
	w := newWorld(t)
	all := w.createMany(12)
	source := w.createSource(w.home, "settings")
	w.start()
	w.waitInSync(source, all...)
	prefix := "--namespace-prefix=" + w.prefix + "n0000"
	w.expect(w.mirror("plan", prefix), 1, `
Changes: none.
Blocked: 11 of 12 copies are out of scope of the flags, which is more than --prune-limit=50% allows: none of them is deleted. Is a flag mistyped? --prune-limit=100% deletes them.`)
	got := w.mirror("plan", prefix, "--prune-limit=100%")
	if lines := strings.Split(got.out, "\n"); got.code != 1 || len(lines) != 13 || lines[12] != "Changes: delete 11." {
		t.Errorf("got exit code %d and\n%s\nwant 1, and 11 deletions", got.code, got.out)
	}
	if want := controllerSettings + ", changed by --namespace-prefix, --prune-limit"; got.err != want {
		t.Errorf("stderr is %q, want %q", got.err, want)
	}
	w.copies("settings", all...)
}
