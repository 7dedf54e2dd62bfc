package policies

import (
	"context"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

func (w *Policed) protectedRows() []row {
	copied := shape(w.Copied)
	return []row{
		{"tenant changes a copy", tenant, teamA, copied, changeBy(other), isAProtected},
		{"tenant patches a copy", tenant, teamA, copied, patch(types.MergePatchType, `{"data":{"key":"other"}}`), isAProtected},
		{"tenant applies to a copy", tenant, teamA, copied, apply("team", "red"), isAProtected},
		{"tenant drops the label of a copy", tenant, teamA, copied, changeBy(noLabel), isAProtected},
		{"tenant forges the label of a copy", tenant, teamA, copied, changeBy(asSource), isAProtected},
		{"tenant drops label and marks of a copy", tenant, teamA, copied, changeBy(noLabel, noMarks), isAProtected},
		{"tenant releases a copy", tenant, teamA, copied, changeBy(noMarks), isAProtected},
		{"tenant has the garbage collector delete a copy", tenant, teamA, copied, changeBy(owned), isAProtected},
		{"tenant deletes a copy", tenant, teamA, copied, remove, isAProtected},
		{"tenant deletes a collection with a copy", tenant, teamA, copied, removeSelected, isAProtected},
		{"tenant deletes a copy labelled as a source", tenant, teamA, copied.but(asSource), remove, isAProtected},
		{"publisher changes a copy", publisher, teamA, copied, changeBy(other), isAProtected},
		{"cluster admin changes a copy", operator, teamA, copied, changeBy(other), isAProtected},
		{"cluster admin deletes a copy", operator, teamA, copied, remove, isAProtected},
		{"tenant deletes a copy that earlier prefixes have left", tenant, formerly, copied, remove, ""},
		{"tenant changes a copy where the owner has opted out", tenant, optedOut, copied, changeBy(other), ""},
		{"tenant deletes a copy in an excluded namespace", tenant, excluded, copied, remove, ""},
		{"tenant changes what names itself as a copy outside the targets", tenant, platform, w.copyOf(teamA, ""), changeBy(other), ""},
		{"tenant changes a forged copy of a reserved name", tenant, teamA, w.copyNamed("istio-ca-root-cert"), to("istio-ca-root-cert", changeBy(other)), ""},
		{"tenant deletes a forged copy of a reserved name", tenant, teamA, w.copyNamed("openshift-service-ca.crt"), to("openshift-service-ca.crt", remove), ""},
		{"tenant deletes a copy that has lost its label", tenant, teamA, copied.but(noLabel), remove, isAProtected},
		{"tenant deletes what names a source in no valid namespace", tenant, teamA, w.copyOf("Not_A_Name", ""), remove, ""},
		{"controller changes a copy", controller, teamA, copied, changeBy(other), ""},
		{"controller restores a label", controller, teamA, copied.but(noLabel), changeBy(asCopy), ""},
		{"controller restores a forged label", controller, teamA, copied.but(asSource), changeBy(asCopy), ""},
		{"controller recreates a copy", controller, teamA, copied.but(suite.SetImmutable), recreate(copied), ""},
		{"controller deletes a copy", controller, teamA, copied, remove, ""},
		{"another controller deletes a copy", unlabeled, teamA, copied, remove, isAProtected},
		{"namespace controller deletes a copy", namespaceController, teamA, copied, remove, ""},
		{"namespace controller deletes a collection with a copy", namespaceController, teamA, copied, removeSelected, ""},
		{"garbage collector deletes a copy", garbageCollector, teamA, copied, remove, ""},
		{"tenant lets a deleted copy go", tenant, teamA, copied.but(held), func(ctx context.Context, p place) error {
			if err := remove(ctx, w.at(controller, p.namespace, p.name)); err != nil {
				return err
			}
			return changeBy(free)(ctx, p)
		}, ""},
		{"tenant changes a foreign object with the label", tenant, teamA, with(asCopy), changeBy(other), ""},
		{"tenant hands an object over", tenant, teamA, plain, changeBy(handOver, asCopy), ""},
		{"tenant deletes a plain object", tenant, teamA, plain, remove, ""},
		{"tenant deletes a copy of another instance", tenant, teamA, copied.but(otherInstance), remove, ""},
		{"tenant deletes a restored backup", tenant, teamA,
			func(_, name string) []suite.Option { return w.Copied(teamB, name) }, remove, ""},
		{"tenant deletes what names a source nowhere", tenant, teamA, w.copyOf("", ""), remove, ""},
		{"tenant deletes what names a source of another name", tenant, teamA, w.copyOf(platform, "-too"), remove, ""},
		{"tenant deletes what names itself as the source", tenant, teamA, w.copyOf(teamA, ""), remove, ""},
		{"publisher changes a source", publisher, platform, source, changeBy(other), ""},
		{"publisher deletes a source", publisher, platform, source, remove, ""},
		{"publisher deletes a copy", publisher, teamA, copied, remove, isAProtected},
		// Without a made-up owner, or the real garbage collector deletes the copy first.
		{"garbage collector lets a copy go", garbageCollector, teamA, copied.but(held), patch(types.MergePatchType, `{"metadata": {"finalizers": null}}`), ""},
		{"tenant annotates a copy", tenant, teamA, copied, changeBy(suite.WithAnnotation("team", "red")), isAProtected},
		{"tenant makes a copy immutable", tenant, teamA, copied, changeBy(suite.SetImmutable), isAProtected},
		{"tenant makes a copy that of another instance", tenant, teamA, copied, changeBy(otherInstance), isAProtected},
		{"tenant holds a copy with a finalizer", tenant, teamA, copied, changeBy(held), isAProtected},
		{"publisher gives a source the label of a copy", publisher, platform, source, changeBy(asCopy), ""},
		{"tenant takes the label off what is no copy", tenant, teamA, with(asCopy), changeBy(noLabel), ""},
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
	expectAnswer(t, protectedPolicy, isAProtected, remove(w.Context(), w.at(tenant, going, "copy-mine")))
	expectAnswer(t, publishersPolicy, needsVerb, remove(w.Context(), w.at(tenant, going, "source-mine")))
	if t.Failed() {
		return // what is waited for below needs them
	}
	manager(syscall.SIGSTOP)
	defer manager(syscall.SIGCONT)
	w.DeleteNamespace(going)
	for _, name := range []string{"copy-mine", "source-mine"} {
		w.Until("a tenant may empty a namespace that goes", func() error { return remove(w.Context(), w.at(tenant, going, name)) })
	}
	expectAnswer(t, protectedPolicy, isAProtected, changeBy(other)(w.Context(), w.at(tenant, going, "copy-stays")))
	expectAnswer(t, publishersPolicy, needsVerb, changeBy(other)(w.Context(), w.at(tenant, going, "source-stays")))
	manager(syscall.SIGCONT)
	w.WaitNamespaceGone(going)
}
