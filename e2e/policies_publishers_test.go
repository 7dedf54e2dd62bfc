package e2e

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

func (w *policed) publisherRows() []row {
	copied := shape(w.copied)
	const setLabel = `{"metadata":{"labels":{"mirror":"true"}}}`
	return []row{
		// Publish.
		{"tenant creates a source", tenant, platform, nil, create(source), needsVerb},
		{"tenant creates a source without a name", tenant, platform, nil, createUnnamed(source), needsVerb},
		{"tenant applies a source", tenant, platform, nil, apply("mirror", "true"), needsVerb},
		{"tenant sets the label by update", tenant, platform, plain, changeBy(asSource), needsVerb},
		{"tenant sets the label by merge patch", tenant, platform, plain, patch(types.MergePatchType, setLabel), needsVerb},
		{"tenant sets the label by strategic merge patch", tenant, platform, plain, patch(types.StrategicMergePatchType, setLabel), needsVerb},
		{"tenant sets the label by JSON patch", tenant, platform, plain,
			patch(types.JSONPatchType, `[{"op":"add","path":"/metadata/labels","value":{"mirror":"true"}}]`), needsVerb},
		{"tenant sets the label by apply", tenant, platform, plain, apply("mirror", "true"), needsVerb},
		{"publisher creates a source", publisher, platform, nil, create(source), ""},
		{"publisher creates a source without a name", publisher, platform, nil, createUnnamed(source), ""},
		{"publisher applies a source", publisher, platform, nil, apply("mirror", "true"), ""},
		{"publisher sets the label by update", publisher, platform, plain, changeBy(asSource), ""},
		{"publisher sets the label by patch", publisher, platform, plain, patch(types.MergePatchType, setLabel), ""},
		{"publisher publishes in another namespace", publisher, platformToo, nil, create(source), needsVerb},
		{"holder of another namespace creates a source", elsewhere, platform, nil, create(source), needsVerb},
		{"holder of the namespace creates a source", elsewhere, teamA, nil, create(source), ""},
		{"holder of the name creates a source", byName, platform, nil, create(source), ""},
		{"holder of another name creates a source", byName, platform, nil, create(source), needsVerb},
		{"holder of a name creates a source without one", byName, platform, nil, createUnnamed(source), needsVerb},
		{"owner with all verbs creates a source", owner, platform, nil, create(source), ""},
		{"cluster admin creates a source", operator, platform, nil, create(source), ""},

		// Change.
		{"tenant changes the data of a source", tenant, platform, source, changeBy(other), needsVerb},
		{"tenant patches the data of a source", tenant, platform, source, patch(types.MergePatchType, `{"data":{"key":"other"}}`), needsVerb},
		{"tenant applies the data of a source", tenant, platform, source, apply("team", "red"), needsVerb},
		{"tenant narrows a source", tenant, platform, source, changeBy(withAnnotation(plan.PrefixAnnotation, "team-b")), needsVerb},
		{"tenant has the garbage collector delete a source", tenant, platform, source, changeBy(owned), needsVerb},
		{"tenant passes a source off as a copy", tenant, platform, source, change(copied.but(asSource)), needsVerb},
		{"publisher changes the data of a source", publisher, platform, source, changeBy(other), ""},
		{"cluster admin changes the data of a source", operator, platform, source, changeBy(other), ""},

		// Withdraw.
		{"tenant unpublishes", tenant, platform, source, changeBy(noLabel), needsVerb},
		{"tenant sets the label of a source to another value", tenant, platform, source, changeBy(withLabel(plan.DefaultLabel, "off")), needsVerb},
		{"tenant deletes a source", tenant, platform, source, remove, needsVerb},
		{"tenant deletes a collection with a source", tenant, platform, source, removeSelected, needsVerb},
		{"holder of another namespace deletes a source", elsewhere, platform, source, remove, needsVerb},
		{"publisher unpublishes", publisher, platform, source, changeBy(noLabel), ""},
		{"publisher deletes a source", publisher, platform, source, remove, ""},
		{"publisher deletes a collection with a source", publisher, platform, source, removeSelected, ""},
		{"namespace controller deletes a source", namespaceController, platform, source, remove, ""},
		{"namespace controller deletes a collection with a source", namespaceController, platform, source, removeSelected, ""},
		{"garbage collector deletes a source", garbageCollector, platform, source, remove, ""},
		{"tenant lets a deleted source go", tenant, platform, source.but(held), func(ctx context.Context, p place) error {
			if err := remove(ctx, w.at(publisher, p.namespace, p.name)); err != nil {
				return err
			}
			return changeBy(free)(ctx, p)
		}, ""},

		// What is no source.
		{"tenant creates a plain object", tenant, platform, nil, create(plain), ""},
		{"tenant changes a plain object", tenant, platform, plain, changeBy(other), ""},
		{"tenant deletes a plain object", tenant, platform, plain, remove, ""},
		{"tenant sets the label to another value", tenant, platform, plain, changeBy(withLabel(plan.DefaultLabel, "off")), ""},
		{"tenant labels a copy as a source", tenant, teamA, copied, changeBy(asSource), ""},
		{"tenant puts the label of a copy back", tenant, teamA, copied.but(asSource), changeBy(asCopy), ""},
		{"tenant deletes a copy labelled as a source", tenant, teamA, copied.but(asSource), remove, ""},
		{"controller restores a copy labelled as a source", controller, teamA, copied.but(asSource), changeBy(asCopy), ""},
		{"tenant makes a copy a source", tenant, teamA, copied, changeBy(asSource, noMarks), needsVerb},
		{"tenant makes a copy labelled as a source one", tenant, teamA, copied.but(asSource), changeBy(noMarks), needsVerb},
		{"tenant restores a copy elsewhere as a source", tenant, teamA, nil,
			create(func(_, name string) []option { return append(w.copied(teamB, name), asSource) }), needsVerb},
	}
}

// forgerRows are requests that make an object name itself as a copy.
func (w *policed) forgerRows() []row {
	copied := shape(w.copied)
	restored := func(namespace, name string) []option { return w.marksOfCopy(platform, teamB, name) }
	const setMarks = `{"metadata":{"annotations":{"mirror-controller.github.io/copy":"team-a/tenant-patches-the-marks-of-a-copy",` +
		`"mirror-controller.github.io/instance":"default"}}}`
	return []row{
		{"tenant creates a copy", tenant, teamA, nil, create(copied), forges},
		{"tenant creates a copy without the label", tenant, teamA, nil, create(copied.but(noLabel)), forges},
		{"tenant creates a copy of no source", tenant, teamA, nil, create(copied.but(withoutAnnotation(plan.SourceAnnotation))), forges},
		{"tenant creates a copy outside the targets", tenant, platform, nil, create(copied), forges},
		{"tenant updates an object into a copy", tenant, teamA, plain, change(copied), forges},
		{"tenant patches the marks of a copy", tenant, teamA, plain, patch(types.MergePatchType, setMarks), forges},
		{"tenant updates a labelled object into a copy", tenant, teamA, with(asCopy), change(copied), forges},
		{"tenant updates a restored backup into a copy", tenant, teamA, restored, change(copied), forges},
		{"tenant updates a copy of another instance", tenant, teamA, copied.but(otherInstance), change(copied), forges},
		{"tenant updates the certificates of the cluster into a copy", tenant, teamA, nil, to("kube-root-ca.crt", change(copied)), forges},
		{"tenant recreates a copy", tenant, teamA, copied, recreate(copied), forges},
		{"publisher elsewhere creates a copy", publisher, teamA, nil, create(copied), forges},
		{"another controller creates a copy", unlabeled, teamA, nil, create(copied), forges},
		{"publisher in the target creates a copy", elsewhere, teamA, nil, create(copied), ""},
		{"cluster admin restores a copy", operator, teamA, nil, create(copied), ""},
		{"cluster admin updates an object into a copy", operator, teamA, plain, change(copied), ""},
		{"controller creates a copy", controller, teamA, nil, create(copied), ""},
		{"controller recreates an immutable copy", controller, teamA, copied.but(setImmutable), recreate(copied), ""},
		{"controller adopts", controller, teamA, with(handOver), change(copied.but(withoutAnnotation(plan.AdoptAnnotation))), ""},
		{"tenant edits a copy", tenant, teamA, copied, changeBy(other), ""},
		{"tenant edits the source of a copy", tenant, teamA, copied, changeBy(withAnnotation(plan.SourceAnnotation, "platform/other")), ""},
		{"tenant takes the label off a copy", tenant, teamA, copied, changeBy(noLabel), ""},
		{"tenant takes the marks off a copy", tenant, teamA, copied, changeBy(noMarks), ""},
		{"tenant deletes a copy by hand", tenant, teamA, copied, remove, ""},
		{"tenant asks for adoption", tenant, teamA, plain, changeBy(handOver, asCopy), ""},
		{"tenant restores a backup elsewhere", tenant, teamA, nil, create(restored), ""},
		{"tenant creates a copy of another instance", tenant, teamA, nil, create(copied.but(otherInstance)), ""},
		{"tenant creates an object with the label of a copy", tenant, teamA, nil, create(with(asCopy)), ""},
	}
}
