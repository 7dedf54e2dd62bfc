package policies

import (
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// stolenRows are requests of somebody who has the token of the controller.
func (w *Policed) stolenRows() []row {
	copied := shape(w.Copied)
	backup := func(namespace, name string) []suite.Option { return w.MarksOfCopy(platform, teamB, name) }
	label := func(key string) suite.Option { return suite.WithLabel(key, "x") }
	note := func(key string) suite.Option { return suite.WithAnnotation(key, "x") }
	both := []suite.Option{label("team"), label("example.com/x"), note("note")}
	const hasOptedOut = "have not opted out: " + optedOut + " is not one of them"
	return []row{
		// Where.
		{"copy created", controller, teamA, nil, create(copied), ""},
		{"copy created outside the prefix", controller, platform, nil, create(copied), suite.NotThere},
		{"copy created where the prefix is in the middle", controller, theTeam, nil, create(copied), suite.NotThere},
		{"copy created in an excluded namespace", controller, excluded, nil, create(copied), suite.NotThere},
		{"copy created where the owner has opted out", controller, optedOut, nil, create(copied), hasOptedOut},
		{"copy changed outside the prefix", controller, formerly, copied, changeBy(other), suite.NotThere},
		{"copy deleted that earlier prefixes have left", controller, formerly, copied, remove, ""},
		{"foreign object deleted outside the prefix", controller, platform, plain, remove, suite.NotThere},
		{"object handed over outside the prefix", controller, platform, with(handOver), change(copied), suite.NotThere},
		{"object handed over and deleted outside the prefix", controller, platform, with(handOver), remove, suite.NotThere},
		{"object handed over where the owner has opted out", controller, optedOut, with(handOver), change(copied), hasOptedOut},

		// What is created.
		{"plain object created", controller, teamA, nil, create(plain), wouldNotBe},
		{"copy created without the label", controller, teamA, nil, create(copied.but(noLabel)), wouldNotBe},
		{"copy created as a source", controller, teamA, nil, create(copied.but(asSource)), wouldNotBe},
		{"copy created with a finalizer", controller, teamA, nil, create(copied.but(held)), noHolds},
		{"copy created with an owner", controller, teamA, nil, create(copied.but(owned)), noHolds},
		{"label alone created", controller, teamA, nil, create(with(asCopy)), wouldNotBe},
		{"copy created of another instance", controller, teamA, nil, create(copied.but(otherInstance)), wouldNotBe},
		{"copy created that names another place", controller, teamA, nil, create(backup), wouldNotBe},
		{"copy created without a source", controller, teamA,
			nil, create(copied.but(suite.WithoutAnnotation(plan.SourceAnnotation))), wouldNotBe},
		{"copy created of a source of another name", controller, teamA, nil, create(w.copyOf(platform, "-too")), wouldNotBe},
		{"copy created of a source nowhere", controller, teamA, nil, create(w.copyOf("", "")), wouldNotBe},
		{"copy created of a source in no valid namespace", controller, teamA,
			nil, create(w.copyOf("Not_A_Name", "")), wouldNotBe},
		{"copy created of itself", controller, teamA, nil, create(w.copyOf(teamA, "")), wouldNotBe},
		{"copy created with a name to be made up", controller, teamA, nil, createUnnamed(copied), wouldNotBe},

		// What is changed.
		{"copy changed", controller, teamA, copied, changeBy(other), ""},
		{"label dropped by the controller", controller, teamA, copied, changeBy(noLabel), wouldNotBe},
		{"copy made a source", controller, teamA, copied, changeBy(asSource), wouldNotBe},
		{"copy released", controller, teamA, copied, changeBy(noMarks), wouldNotBe},
		{"copy moved to another instance", controller, teamA, copied, changeBy(otherInstance), wouldNotBe},
		{"copy taken from another instance", controller, teamA, copied.but(otherInstance), change(copied), notCopy},
		{"finalizer set", controller, teamA, copied, changeBy(held), noHolds},
		{"owner set", controller, teamA, copied, changeBy(owned), noHolds},
		{"label forged on a foreign object", controller, teamA, with(asCopy), change(copied), notCopy},
		{"foreign object changed", controller, teamA, plain, changeBy(other), notCopy},
		{"foreign object adopted without leave", controller, teamA, plain, change(copied), notCopy},
		{"foreign object adopted", controller, teamA,
			with(handOver), change(copied.but(suite.WithoutAnnotation(plan.AdoptAnnotation))), ""},
		{"foreign object adopted with the label", controller, teamA, with(handOver, asCopy), change(copied), ""},
		{"foreign object changed and not adopted", controller, teamA, with(handOver), changeBy(other), wouldNotBe},
		{"restored backup changed", controller, teamA, backup, change(copied), notCopy},
		{"object with a finalizer adopted", controller, teamA, with(handOver, held), change(copied), notCopy},
		{"copy of another instance adopted", controller, teamA, copied.but(otherInstance, handOver), change(copied), notCopy},

		// What is deleted.
		{"copy deleted", controller, teamA, copied, remove, ""},
		{"immutable object that was handed over recreated", controller, teamA,
			with(suite.SetImmutable, handOver), recreate(copied), ""},
		{"foreign object deleted", controller, teamA, plain, remove, notCopy},
		{"foreign object with the label deleted", controller, teamA, with(asCopy), remove, notCopy},
		{"restored backup deleted", controller, teamA, backup, remove, notCopy},
		{"copy of another instance deleted", controller, teamA, copied.but(otherInstance), remove, notCopy},

		// Which keys.
		{"copy created with a label", controller, teamA, nil, create(copied.but(label("team"))), notItsKey},
		{"copy created with an annotation", controller, teamA, nil, create(copied.but(note("replicate-to"))), notItsKey},
		{"copy created with a list of copied keys", controller, teamA, nil, create(copied.but(note(plan.CopiedAnnotation))), ""},
		{"copy created with the annotation of a source", controller, teamA,
			nil, create(copied.but(note(plan.PrefixAnnotation))), notItsKey},
		{"label added", controller, teamA, copied, changeBy(label("team")), notItsKey},
		{"annotation added", controller, teamA, copied, changeBy(note("replicate-to")), notItsKey},
		{"adoption asked for", controller, teamA, copied, changeBy(handOver), notItsKey},
		{"label and annotation of others kept", controller, teamA, copied.but(both...), changeBy(other), ""},
		{"label and annotation of others changed", controller, teamA,
			copied.but(both...), changeBy(suite.WithLabel("team", "y"), suite.WithAnnotation("note", "y")), ""},
		{"label and annotation of others removed", controller, teamA,
			copied.but(both...), changeBy(suite.WithoutLabel("team"), suite.WithoutAnnotation("note")), ""},
	}
}
