package policies

import (
	"context"
	"syscall"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const isAProtected = "only mirror-controller may change or delete it: change the source instead"

// protectedRows are requests about copies. Those of a third instance have settings of their own.
func (w *Policed) protectedRows() []row {
	copied := shape(w.Copied)
	third := copied.but(suite.WithAnnotation(plan.InstanceAnnotation, "third"))
	const reserved = "istio-ca-root-cert"
	return append(bySystem(teamA, copied), []row{
		{"tenant changes a copy", tenant, teamA, copied, changeBy(other), isAProtected},
		{"tenant releases a copy", tenant, teamA, copied, changeBy(noLabel, noMarks), isAProtected},
		{"tenant deletes a copy", tenant, teamA, copied, remove, isAProtected},
		{"tenant deletes a copy that has lost its label", tenant, teamA, copied.but(noLabel), remove, isAProtected},
		{"publisher deletes a copy", elsewhere, teamA, copied, remove, isAProtected},
		{"cluster admin changes a copy", operator, teamA, copied, changeBy(other), isAProtected},
		{"another controller deletes a copy", unlabeled, teamA, copied, remove, isAProtected},
		{"controller changes a copy", controller, teamA, copied, changeBy(other), ""},
		{"tenant lets a deleted copy go", tenant, teamA, copied.but(held), w.letGo(controller), ""},

		// Settings.
		{"tenant deletes a copy of a third instance", tenant, formerly, third, remove, isAProtected},
		{"tenant deletes one where labels do not match", tenant, frozen, third, remove, ""},
		{"tenant deletes one where the namespace is excluded", tenant, teamB, third, remove, ""},
		{"tenant deletes one where the owner has opted out of another label", tenant, optedOut, third, remove, isAProtected},

		// What is no copy.
		{"tenant deletes a plain object", tenant, teamA, plain, remove, ""},
		{"tenant deletes a copy that earlier prefixes have left", tenant, formerly, copied, remove, ""},
		{"tenant changes a copy where the owner has opted out", tenant, optedOut, copied, changeBy(other), ""},
		{"tenant changes a forged copy of a reserved name", tenant, teamA,
			w.copyNamed(reserved), to(reserved, changeBy(other)), ""},
		{"tenant deletes a copy of another instance", tenant, teamA, copied.but(otherInstance), remove, ""},
		{"tenant deletes a restored backup", tenant, teamA,
			func(_, name string) []suite.Option { return w.Copied(teamB, name) }, remove, ""},
		{"tenant deletes what names a source in no valid namespace", tenant, teamA, w.copyOf("Not_A_Name", ""), remove, ""},
		{"tenant deletes what names a source of another name", tenant, teamA, w.copyOf(platform, "-too"), remove, ""},
		{"tenant deletes what names itself as the source", tenant, teamA, w.copyOf(teamA, ""), remove, ""},
	}...)
}

// bySystem are deletions by the accounts of Kubernetes that clean up, and migrate what is stored.
func bySystem(namespace string, there shape) (rows []row) {
	const account = "system:serviceaccount:kube-system:"
	for name, user := range map[string]string{
		"controller manager": "system:kube-controller-manager", "namespace controller": account + "namespace-controller",
		"garbage collector": account + "generic-garbage-collector", "migrator": account + "storage-version-migrator-controller",
	} {
		rows = append(rows, row{name + " deletes", user, namespace, there, remove, ""})
	}
	return rows
}

// letGo takes the finalizer off an object that another user has deleted.
func (w *Policed) letGo(deleter string) request {
	return func(ctx context.Context, p place) error {
		if err := remove(ctx, w.at(deleter, p.namespace, p.name)); err != nil {
			return err
		}
		return changeBy(free)(ctx, p)
	}
}

// testNamespaceDeletion deletes a namespace that holds sources and protected copies. Before anybody empties it, a
// tenant may do that too; then the namespace controller does, and the namespace goes.
func (w *Policed) testNamespaceDeletion(t *testing.T) {
	const going = "team-going"
	w.CreateNamespace(going, nil)
	source := []suite.Option{suite.WithLabel(w.Label, plan.SourceValue)}
	for _, name := range []string{"mine", "stays"} {
		w.Create(going, "copy-"+name, w.Copied(going, "copy-"+name)...)
		w.Create(going, "source-"+name, source...)
	}
	manager := func(sig syscall.Signal) {
		if err := w.Cluster.Signal(cluster.ControllerManager, sig); err != nil {
			t.Fatal(err)
		}
	}
	expectAnswer(t, protected, isAProtected, remove(w.Context(), w.at(tenant, going, "copy-mine")))
	expectAnswer(t, publishers, needsVerb, remove(w.Context(), w.at(tenant, going, "source-mine")))
	if t.Failed() {
		return // what is waited for below needs them
	}
	manager(syscall.SIGSTOP)
	defer manager(syscall.SIGCONT)
	w.DeleteNamespace(going)
	for _, name := range []string{"copy-mine", "source-mine"} {
		w.Until("a tenant may empty a namespace that goes", func() error { return remove(w.Context(), w.at(tenant, going, name)) })
	}
	expectAnswer(t, protected, isAProtected, changeBy(other)(w.Context(), w.at(tenant, going, "copy-stays")))
	expectAnswer(t, publishers, needsVerb, changeBy(other)(w.Context(), w.at(tenant, going, "source-stays")))
	manager(syscall.SIGCONT)
	w.WaitNamespaceGone(going)
}
