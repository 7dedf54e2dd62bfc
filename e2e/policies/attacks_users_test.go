package policies

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const setLabel = `{"metadata":{"labels":{"mirror":"true"}}}`

// targetAttacks are requests of a tenant who may edit in a target, and nowhere else.
func (w *attacked) targetAttacks() []attack {
	copied := shape(w.Copied)
	backup := func(namespace, name string) []suite.Option { return w.MarksOfCopy(platform, teamB, name) }
	const setMarks = `{"metadata":{"annotations":{"mirror-controller.github.io/copy":"team-a/tenant-patches-the-marks-of-a-copy",` +
		`"mirror-controller.github.io/instance":"default"}}}`
	return []attack{
		// Forge.
		{row{"tenant creates a copy", inTarget, teamA, nil, create(copied), forges}, unchanged},
		{row{"tenant creates a copy without the label", inTarget, teamA, nil, create(copied.but(noLabel)), forges}, unchanged},
		{row{"tenant creates a copy of no source", inTarget, teamA, nil, create(copied.but(suite.WithoutAnnotation(plan.SourceAnnotation))), forges}, unchanged},
		{row{"tenant updates an object into a copy", inTarget, teamA, plain, change(copied), forges}, unchanged},
		{row{"tenant patches the marks of a copy", inTarget, teamA, plain, patch(types.MergePatchType, setMarks), forges}, unchanged},
		{row{"tenant updates a labelled object into a copy", inTarget, teamA, with(asCopy), change(copied), forges}, unchanged},
		{row{"tenant updates a restored backup into a copy", inTarget, teamA, backup, change(copied), forges}, unchanged},
		{row{"tenant updates a copy of another instance", inTarget, teamA, copied.but(otherInstance), change(copied), forges}, unchanged},
		{row{"tenant recreates a copy", inTarget, teamA, copied, recreate(copied), forges}, restored},
		{row{"tenant restores a backup elsewhere", inTarget, teamA, nil, create(backup), ""}, kept},
		{row{"tenant creates a copy of another instance", inTarget, teamA, nil, create(copied.but(otherInstance)), ""}, kept},
		{row{"tenant creates an object with the label of a copy", inTarget, teamA, nil, create(with(asCopy)), ""}, kept},

		// Edit.
		{row{"tenant edits a copy", inTarget, teamA, copied, changeBy(other), ""}, restored},
		{row{"tenant applies to a copy", inTarget, teamA, copied, apply("team", "red"), ""}, restored},
		{row{"tenant adds a key to a copy", inTarget, teamA, copied, changeBy(suite.WithKey("more", "x")), ""}, restored},
		{row{"tenant empties a copy", inTarget, teamA, copied, changeBy(suite.WithData(nil)), ""}, restored},
		{row{"tenant changes the checksum of a copy", inTarget, teamA, copied, changeBy(suite.WithAnnotation(plan.ChecksumAnnotation, "x")), ""}, restored},
		{row{"tenant makes a copy immutable", inTarget, teamA, copied, changeBy(suite.SetImmutable), ""}, restored},
		{row{"tenant makes a copy immutable with other data", inTarget, teamA, copied, changeBy(suite.SetImmutable, other), ""}, restored},
		{row{"tenant takes the label off a copy", inTarget, teamA, copied, changeBy(noLabel), ""}, restored},
		{row{"tenant labels a copy as a source", inTarget, teamA, copied, changeBy(asSource), ""}, restored},
		{row{"tenant annotates a copy for another replicator", inTarget, teamA, copied, changeBy(suite.WithAnnotation("replicate-to", "*")), ""}, kept},
		{row{"tenant gives a copy a label", inTarget, teamA, copied, changeBy(suite.WithLabel("team", "red")), ""}, kept},
		{row{"tenant deletes a copy by hand", inTarget, teamA, copied, remove, ""}, restored},
		{row{"tenant deletes copies as a collection", inTarget, teamA, copied, removeSelected, ""}, restored},
		{row{"tenant has a copy garbage collected", inTarget, teamA, copied, changeBy(owned), ""}, restored},

		// Release, and stand in the way.
		{row{"tenant takes the marks off a copy", inTarget, teamA, copied, changeBy(noMarks), ""}, kept},
		{row{"tenant edits the source of a copy", inTarget, teamA, copied, changeBy(suite.WithAnnotation(plan.SourceAnnotation, "platform/other")), ""}, kept},
		{row{"tenant makes a copy one of another place", inTarget, teamA, copied, changeBy(suite.WithAnnotation(plan.CopyAnnotation, "team-b/x")), ""}, kept},
		{row{"tenant makes a copy one of another instance", inTarget, teamA, copied, changeBy(otherInstance), ""}, kept},
		{row{"tenant edits an object in the way", inTarget, teamA, with(wanted), changeBy(other), ""}, kept},
		{row{"tenant deletes an object in the way", inTarget, teamA, with(wanted), remove, ""}, restored},
		{row{"tenant hands an object in the way over", inTarget, teamA, with(wanted), changeBy(handOver, asCopy), ""}, restored},
		{row{"tenant asks for adoption", inTarget, teamA, plain, changeBy(handOver, asCopy), ""}, kept},

		// Publish.
		{row{"tenant publishes from a target", inTarget, teamA, nil, create(source), needsVerb}, unchanged},
		{row{"tenant labels an object of a target as a source", inTarget, teamA, plain, changeBy(asSource), needsVerb}, unchanged},
		{row{"tenant makes an object in the way a source", inTarget, teamA, with(wanted), changeBy(asSource), needsVerb}, unchanged},
		{row{"tenant makes a copy a source", inTarget, teamA, copied, changeBy(asSource, noMarks), needsVerb}, unchanged},
		{row{"tenant restores a copy elsewhere as a source", inTarget, teamA, nil, create(shape(backup).but(asSource)), needsVerb}, unchanged},

		// Elsewhere.
		{row{"tenant publishes outside the target", inTarget, platform, nil, create(source), "cannot create"}, unchanged},
		{row{"tenant changes a source outside the target", inTarget, platform, source, patch(types.MergePatchType, `{"data":{"key":"other"}}`), "cannot patch"}, unchanged},
		{row{"tenant deletes a source outside the target", inTarget, platform, source, remove, "cannot delete"}, unchanged},
		{row{"tenant deletes a copy of others", inTarget, teamB, copied, remove, "cannot delete"}, unchanged},
		{row{"tenant opts the target out", inTarget, teamA, copied, labelPlace("mirror", plan.OptOutValue), "cannot patch"}, unchanged},
	}
}

// homeAttacks are requests of somebody who may edit in the namespace of sources, which is no target, without the verb.
func (w *attacked) homeAttacks() []attack {
	copied := shape(w.Copied)
	return []attack{
		// Publish.
		{row{"editor creates a source", inHome, platform, nil, create(source), needsVerb}, unchanged},
		{row{"editor creates a source without a name", inHome, platform, nil, createUnnamed(source), needsVerb}, unchanged},
		{row{"editor applies a source", inHome, platform, nil, apply("mirror", "true"), needsVerb}, unchanged},
		{row{"editor sets the label by update", inHome, platform, plain, changeBy(asSource), needsVerb}, unchanged},
		{row{"editor sets the label by merge patch", inHome, platform, plain, patch(types.MergePatchType, setLabel), needsVerb}, unchanged},
		{row{"editor sets the label by strategic merge patch", inHome, platform, plain, patch(types.StrategicMergePatchType, setLabel), needsVerb}, unchanged},
		{row{"editor sets the label by JSON patch", inHome, platform, plain,
			patch(types.JSONPatchType, `[{"op":"add","path":"/metadata/labels","value":{"mirror":"true"}}]`), needsVerb}, unchanged},
		{row{"editor sets the label by apply", inHome, platform, plain, apply("mirror", "true"), needsVerb}, unchanged},
		{row{"editor mints a token of the deploy account and publishes", inHome, platform, nil, w.mint(deployer, create(source)), ""}, mirrored},

		// Change and withdraw.
		{row{"editor changes the data of a source", inHome, platform, source, changeBy(other), needsVerb}, unchanged},
		{row{"editor patches the data of a source", inHome, platform, source, patch(types.MergePatchType, `{"data":{"key":"other"}}`), needsVerb}, unchanged},
		{row{"editor applies the data of a source", inHome, platform, source, apply("team", "red"), needsVerb}, unchanged},
		{row{"editor narrows a source", inHome, platform, source, changeBy(suite.WithAnnotation(plan.PrefixAnnotation, "team-b")), needsVerb}, unchanged},
		{row{"editor has a source garbage collected", inHome, platform, source, changeBy(owned), needsVerb}, unchanged},
		{row{"editor passes a source off as a copy", inHome, platform, source, change(copied.but(asSource)), needsVerb}, unchanged},
		{row{"editor unpublishes", inHome, platform, source, changeBy(noLabel), needsVerb}, unchanged},
		{row{"editor sets the label of a source to another value", inHome, platform, source, changeBy(suite.WithLabel(plan.DefaultLabel, "off")), needsVerb}, unchanged},
		{row{"editor deletes a source", inHome, platform, source, remove, needsVerb}, unchanged},
		{row{"editor deletes a collection with a source", inHome, platform, source, removeSelected, needsVerb}, unchanged},
		{row{"editor lets a deleted source go", inHome, platform, source.but(held), func(ctx context.Context, p place) error {
			if err := remove(ctx, w.at(deployer, p.namespace, p.name)); err != nil {
				return err
			}
			return changeBy(free)(ctx, p)
		}, ""}, cleared},

		// What is no source.
		{row{"editor creates a plain object", inHome, platform, nil, create(plain), ""}, kept},
		{row{"editor changes a plain object", inHome, platform, plain, changeBy(other), ""}, kept},
		{row{"editor deletes a plain object", inHome, platform, plain, remove, ""}, kept},
		{row{"editor sets the label to another value", inHome, platform, plain, changeBy(suite.WithLabel(plan.DefaultLabel, "off")), ""}, kept},
		{row{"editor creates a copy outside the targets", inHome, platform, nil, create(copied), forges}, unchanged},
		{row{"editor changes a copy in a target", inHome, teamA, copied, patch(types.MergePatchType, `{"data":{"key":"other"}}`), "cannot patch"}, unchanged},
		{row{"editor creates an object in a target", inHome, teamA, nil, create(plain), "cannot create"}, unchanged},
	}
}

// deployerAttacks are requests of an account that deploys sources.
func (w *attacked) deployerAttacks() []attack {
	copied := shape(w.Copied)
	narrow := func(prefixes string) request { return changeBy(suite.WithAnnotation(plan.PrefixAnnotation, prefixes)) }
	selectBy := func(selector string) request {
		return changeBy(suite.WithAnnotation(plan.SelectorAnnotation, selector))
	}
	return []attack{
		{row{"deployer creates a source", deployer, platform, nil, create(source), ""}, mirrored},
		{row{"deployer creates an immutable source", deployer, platform, nil, create(source.but(suite.SetImmutable)), ""}, mirrored},
		{row{"deployer applies a source", deployer, platform, nil, apply("mirror", "true"), ""}, mirrored},
		{row{"deployer sets the label by update", deployer, platform, plain, changeBy(asSource), ""}, mirrored},
		{row{"deployer sets the label by patch", deployer, platform, plain, patch(types.MergePatchType, setLabel), ""}, mirrored},
		{row{"deployer changes the data of a source", deployer, platform, source, changeBy(other), ""}, mirrored},
		{row{"deployer narrows a source", deployer, platform, source, narrow("team-b"), ""}, onlyIn(teamB)},
		{row{"deployer asks for more than the flags allow", deployer, platform, source, narrow("dev-,team-b,kube-"), ""}, onlyIn(teamB)},
		{row{"deployer selects by a label", deployer, platform, source, selectBy("team=red"), ""}, onlyIn(red, frozen)},
		{row{"deployer selects who has opted out", deployer, platform, source, selectBy("mirror=false"), ""}, onlyIn()},
		{row{"deployer selects by nonsense", deployer, platform, source, selectBy("tier in (gold"), ""}, kept},
		{row{"deployer unpublishes", deployer, platform, source, changeBy(noLabel), ""}, withdrawn},
		{row{"deployer deletes a source", deployer, platform, source, remove, ""}, cleared},
		{row{"deployer deletes a collection with a source", deployer, platform, source, removeSelected, ""}, cleared},
		{row{"deployer passes a source off as a copy", deployer, platform, source, change(copied.but(asSource)), ""}, withdrawn},
		{row{"deployer forges a copy at home", deployer, platform, nil, create(w.copyOf(teamA, "")), ""}, cleared},
		{row{"deployer publishes a reserved name", deployer, platform, nil, to(reservedName, create(source)), ""}, notCopied(reservedName)},
		{row{"deployer publishes elsewhere", deployer, platformToo, nil, create(source), "cannot create"}, unchanged},
		{row{"deployer publishes in a target", deployer, teamA, nil, create(source), "cannot create"}, unchanged},
		{row{"deployer changes a copy", deployer, teamA, copied, patch(types.MergePatchType, `{"data":{"key":"other"}}`), "cannot patch"}, unchanged},
		{row{"deployer deletes a copy", deployer, teamA, copied, remove, "cannot delete"}, unchanged},
		{row{"deployer creates a copy", deployer, teamA, nil, create(copied), "cannot create"}, unchanged},
	}
}

// creatorAttacks are requests of somebody who may create, label and delete namespaces, and so decides who receives.
func (w *attacked) creatorAttacks() []attack {
	optOut := labelPlace("mirror", plan.OptOutValue)
	return []attack{
		{row{"creator creates a target", creator, "team-new", nil, createPlace("", ""), ""}, filled},
		{row{"creator creates an excluded namespace", creator, "kube-new", nil, createPlace("", ""), ""}, empty},
		{row{"creator creates a namespace without the prefix", creator, "other-new", nil, createPlace("", ""), ""}, empty},
		{row{"creator creates a namespace with the prefix in the middle", creator, "the-team-new", nil, createPlace("", ""), ""}, empty},
		{row{"creator creates a namespace that opts out", creator, "team-new-out", nil, createPlace("mirror", plan.OptOutValue), ""}, empty},
		{row{"creator creates a namespace that opts out in other words", creator, "team-new-no", nil, createPlace("mirror", "no"), ""}, filled},
		{row{"creator opts a target out", creator, leaves, nil, optOut, ""}, empty},
		{row{"creator takes an opt-out back", creator, joins, nil, labelPlace("mirror", ""), ""}, filled},
		{row{"creator deletes a target", creator, ends, nil, deletePlace, ""}, gone},
		{row{"creator creates an object in a target", creator, teamA, nil, create(plain), "cannot create"}, unchanged},
		{row{"creator publishes", creator, platform, nil, create(source), "cannot create"}, unchanged},
		{row{"creator deletes a copy", creator, teamA, w.Copied, remove, "cannot delete"}, unchanged},
		{row{"creator reads copies", creator, teamA, w.Copied, changeBy(other), "cannot get"}, unchanged},
	}
}
