package policies

import (
	"context"
	"syscall"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

const isAProtected = "only mirror-controller may change or delete it: change the source instead"

// protectedRows are requests about copies. Those of a third instance have settings of their own.
func (w *Policed) protectedRows() []row {
	copied := w.copied
	third := have(copied, thirdInstance)
	const reserved = "istio-ca-root-cert"
	return append(bySystem(teamA, copied), []row{
		{"tenant changes a copy", tenant, teamA, have(copied), change(other), isAProtected},
		{"tenant patches a copy", tenant, teamA, have(copied), patch(repair), isAProtected},
		{"tenant releases a copy", tenant, teamA, have(copied), change(noLabel, noMarks), isAProtected},
		{"tenant deletes a copy", tenant, teamA, have(copied), remove, isAProtected},
		{"tenant deletes a copy that has lost its label", tenant, teamA, have(copied, noLabel), remove, isAProtected},
		{"publisher deletes a copy", elsewhere, teamA, have(copied), remove, isAProtected},
		{"cluster admin changes a copy", operator, teamA, have(copied), change(other), isAProtected},
		{"another controller deletes a copy", unlabeled, teamA, have(copied), remove, isAProtected},
		{"controller changes a copy", controller, teamA, have(copied), change(other), ""},
		{"tenant lets a deleted copy go", tenant, teamA, have(copied, held), w.letGo(controller), ""},

		// Settings.
		{"tenant deletes a copy of a third instance", tenant, formerly, third, remove, isAProtected},
		{"tenant deletes one where labels do not match", tenant, frozen, third, remove, ""},
		{"tenant deletes one where the namespace is excluded", tenant, teamB, third, remove, ""},
		{"tenant deletes one where the owner has opted out of another label", tenant, optedOut, third, remove, isAProtected},

		// What is no copy.
		{"tenant deletes a plain object", tenant, teamA, have(), remove, ""},
		{"tenant deletes a copy that earlier prefixes have left", tenant, formerly, have(copied), remove, ""},
		{"tenant changes a copy where the owner has opted out", tenant, optedOut, have(copied), change(other), ""},
		{"tenant changes a forged copy of a reserved name", tenant, teamA,
			have(w.copyNamed(reserved)), to(reserved, change(other)), ""},
		{"tenant deletes a copy of another instance", tenant, teamA, have(copied, otherInstance), remove, ""},
		{"tenant deletes a restored backup", tenant, teamA, have(w.backup), remove, ""},
		{"tenant deletes what names a source in no valid namespace", tenant, teamA,
			have(w.copyOf("Not_A_Name", "")), remove, ""},
		{"tenant deletes what names a source of another name", tenant, teamA, have(w.copyOf(platform, "-too")), remove, ""},
		{"tenant deletes what names itself as the source", tenant, teamA, have(w.copyOf(teamA, "")), remove, ""},
	}...)
}

// bySystem are deletions by the accounts of Kubernetes that clean up, and migrate what is stored.
func bySystem(namespace string, there suite.Option) (rows []row) {
	const account = "system:serviceaccount:kube-system:"
	for name, user := range map[string]string{
		"controller manager": "system:kube-controller-manager", "namespace controller": account + "namespace-controller",
		"garbage collector": account + "generic-garbage-collector",
		"migrator":          account + "storage-version-migrator-controller",
	} {
		rows = append(rows, row{name + " deletes", user, namespace, have(there), remove, ""})
	}
	return rows
}

// letGo takes the finalizer off an object that another user has deleted.
func (w *Policed) letGo(deleter string) request {
	return func(ctx context.Context, p place) error {
		if err := remove(ctx, w.at(deleter, p.namespace, p.name)); err != nil {
			return err
		}
		return change(free)(ctx, p)
	}
}

// testNamespaceDeletion deletes a namespace that holds sources and protected copies. Before anybody empties it, a
// tenant may do that too; then the namespace controller does, and the namespace goes.
func (w *Policed) testNamespaceDeletion(t *testing.T) {
	const going = "team-going"
	w.CreateNamespace(going, nil)
	for _, name := range []string{"mine", "stays"} {
		w.Create(going, "copy-"+name, w.copied)
		w.CreateSource(going, "source-"+name)
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
		w.Until("a tenant may empty a namespace that goes", func() error {
			return remove(w.Context(), w.at(tenant, going, name))
		})
	}
	expectAnswer(t, protected, isAProtected, change(other)(w.Context(), w.at(tenant, going, "copy-stays")))
	expectAnswer(t, publishers, needsVerb, change(other)(w.Context(), w.at(tenant, going, "source-stays")))
	manager(syscall.SIGCONT)
	w.WaitNamespaceGone(going)
}
