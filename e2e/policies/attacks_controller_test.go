package policies

import (
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// controllerAttacks are requests of somebody who has the token of the controller, while the controller itself runs.
func (w *attacked) controllerAttacks() []attack {
	copied := shape(w.Copied)
	backup := func(namespace, name string) []suite.Option { return w.MarksOfCopy(platform, teamB, name) }
	label := func(key string) suite.Option { return suite.WithLabel(key, "x") }
	note := func(key string) suite.Option { return suite.WithAnnotation(key, "x") }
	both := []suite.Option{label("team"), label("example.com/x"), note("note")}
	const hasOptedOut = "have not opted out: " + optedOut + " is not one of them"
	return []attack{
		// Where.
		{row{"copy created", controller, teamA, nil, create(copied), ""}, cleared},
		{row{"copy created outside the prefix", controller, platform, nil, create(copied), suite.NotThere}, unchanged},
		{row{"copy created where the prefix is in the middle", controller, theTeam, nil, create(copied), suite.NotThere}, unchanged},
		{row{"copy created in an excluded namespace", controller, excluded, nil, create(copied), suite.NotThere}, unchanged},
		{row{"copy created where the owner has opted out", controller, optedOut, nil, create(copied), hasOptedOut}, unchanged},
		{row{"copy changed outside the prefix", controller, formerly, copied, changeBy(other), suite.NotThere}, unchanged},
		{row{"copy deleted that earlier prefixes have left", controller, formerly, copied, remove, ""}, kept},
		{row{"foreign object deleted outside the prefix", controller, platform, plain, remove, suite.NotThere}, unchanged},
		{row{"object handed over outside the prefix", controller, platform, with(handOver), change(copied), suite.NotThere}, unchanged},
		{row{"object handed over and deleted outside the prefix", controller, platform, with(handOver), remove, suite.NotThere}, unchanged},
		{row{"object handed over where the owner has opted out", controller, optedOut, with(handOver), change(copied), hasOptedOut}, unchanged},

		// What is created.
		{row{"plain object created", controller, teamA, nil, create(plain), wouldNotBe}, unchanged},
		{row{"copy created without the label", controller, teamA, nil, create(copied.but(noLabel)), wouldNotBe}, unchanged},
		{row{"copy created as a source", controller, teamA, nil, create(copied.but(asSource)), wouldNotBe}, unchanged},
		{row{"copy created with a finalizer", controller, teamA, nil, create(copied.but(held)), noHolds}, unchanged},
		{row{"copy created with an owner", controller, teamA, nil, create(copied.but(owned)), noHolds}, unchanged},
		{row{"label alone created", controller, teamA, nil, create(with(asCopy)), wouldNotBe}, unchanged},
		{row{"copy created of another instance", controller, teamA, nil, create(copied.but(otherInstance)), wouldNotBe}, unchanged},
		{row{"copy created that names another place", controller, teamA, nil, create(backup), wouldNotBe}, unchanged},
		{row{"copy created without a source", controller, teamA, nil, create(copied.but(suite.WithoutAnnotation(plan.SourceAnnotation))), wouldNotBe}, unchanged},
		{row{"copy created of a source of another name", controller, teamA, nil, create(w.copyOf(platform, "-too")), wouldNotBe}, unchanged},
		{row{"copy created of a source nowhere", controller, teamA, nil, create(w.copyOf("", "")), wouldNotBe}, unchanged},
		{row{"copy created of a source in no valid namespace", controller, teamA, nil, create(w.copyOf("Not_A_Name", "")), wouldNotBe}, unchanged},
		{row{"copy created of itself", controller, teamA, nil, create(w.copyOf(teamA, "")), wouldNotBe}, unchanged},
		{row{"copy created with a name to be made up", controller, teamA, nil, createUnnamed(copied), wouldNotBe}, unchanged},

		// What is changed.
		{row{"copy changed", controller, teamA, copied, changeBy(other), ""}, restored},
		{row{"label dropped by the controller", controller, teamA, copied, changeBy(noLabel), wouldNotBe}, unchanged},
		{row{"copy made a source", controller, teamA, copied, changeBy(asSource), wouldNotBe}, unchanged},
		{row{"copy released", controller, teamA, copied, changeBy(noMarks), wouldNotBe}, unchanged},
		{row{"copy moved to another instance", controller, teamA, copied, changeBy(otherInstance), wouldNotBe}, unchanged},
		{row{"copy taken from another instance", controller, teamA, copied.but(otherInstance), change(copied), notCopy}, unchanged},
		{row{"finalizer set", controller, teamA, copied, changeBy(held), noHolds}, unchanged},
		{row{"owner set", controller, teamA, copied, changeBy(owned), noHolds}, unchanged},
		{row{"label forged on a foreign object", controller, teamA, with(asCopy), change(copied), notCopy}, unchanged},
		{row{"foreign object changed", controller, teamA, plain, changeBy(other), notCopy}, unchanged},
		{row{"foreign object in the way changed", controller, teamA, with(wanted), changeBy(other), notCopy}, unchanged},
		{row{"foreign object adopted without leave", controller, teamA, plain, change(copied), notCopy}, unchanged},
		{row{"foreign object adopted", controller, teamA, with(handOver), change(copied.but(suite.WithoutAnnotation(plan.AdoptAnnotation))), ""}, cleared},
		{row{"foreign object adopted with the label", controller, teamA, with(handOver, asCopy), change(copied), ""}, cleared},
		{row{"foreign object changed and not adopted", controller, teamA, with(handOver), changeBy(other), wouldNotBe}, unchanged},
		{row{"restored backup changed", controller, teamA, backup, change(copied), notCopy}, unchanged},
		{row{"object with a finalizer adopted", controller, teamA, with(handOver, held), change(copied), notCopy}, unchanged},
		{row{"copy of another instance adopted", controller, teamA, copied.but(otherInstance, handOver), change(copied), notCopy}, unchanged},

		// What is deleted.
		{row{"copy deleted", controller, teamA, copied, remove, ""}, restored},
		{row{"immutable object that was handed over recreated", controller, teamA, with(suite.SetImmutable, handOver), recreate(copied), ""}, cleared},
		{row{"foreign object deleted", controller, teamA, plain, remove, notCopy}, unchanged},
		{row{"foreign object in the way deleted", controller, teamA, with(wanted), remove, notCopy}, unchanged},
		{row{"foreign object with the label deleted", controller, teamA, with(asCopy), remove, notCopy}, unchanged},
		{row{"restored backup deleted", controller, teamA, backup, remove, notCopy}, unchanged},
		{row{"copy of another instance deleted", controller, teamA, copied.but(otherInstance), remove, notCopy}, unchanged},
		{row{"copies deleted as a collection", controller, teamA, copied, removeSelected, "cannot deletecollection"}, unchanged},

		// Which keys.
		{row{"copy created with a label", controller, teamA, nil, create(copied.but(label("team"))), notItsKey}, unchanged},
		{row{"copy created with an annotation", controller, teamA, nil, create(copied.but(note("replicate-to"))), notItsKey}, unchanged},
		{row{"copy created with a list of copied keys", controller, teamA, nil, create(copied.but(note(plan.CopiedAnnotation))), ""}, cleared},
		{row{"copy created with the annotation of a source", controller, teamA, nil, create(copied.but(note(plan.PrefixAnnotation))), notItsKey}, unchanged},
		{row{"label added", controller, teamA, copied, changeBy(label("team")), notItsKey}, unchanged},
		{row{"annotation added", controller, teamA, copied, changeBy(note("replicate-to")), notItsKey}, unchanged},
		{row{"adoption asked for", controller, teamA, copied, changeBy(handOver), notItsKey}, unchanged},
		{row{"label and annotation of others kept", controller, teamA, copied.but(both...), changeBy(other), ""}, restored},
		{row{"label and annotation of others changed", controller, teamA, copied.but(both...), changeBy(suite.WithLabel("team", "y"), suite.WithAnnotation("note", "y")), ""}, kept},
		{row{"label and annotation of others removed", controller, teamA, copied.but(both...), changeBy(suite.WithoutLabel("team"), suite.WithoutAnnotation("note")), ""}, kept},
	}
}
