package policies

import (
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// What the policy says of what it refuses. The rest of its texts stand in the rows.
const (
	noPrefix     = "namespace-prefix, which is missing, that are not excluded"
	notCopy      = "is not a copy of instance \"default\", and it was not handed over"
	wouldNotBe   = "would not be a copy of instance \"default\" with the label mirror=copy"
	ofOthers     = "another controller writes"
	notItsSource = "may only write and delete copies of sources in the namespaces \"platform-too\" or \"platform\""
	notItsKey    = "may only add its own labels and annotations"
	noHolds      = "without changing finalizers and owner references"
)

// confinedRows are requests of somebody who has the token of the controller: each rule lets one pass and refuses one.
func (w *Policed) confinedRows() []row {
	copied := shape(w.Copied)
	backup := func(namespace, name string) []suite.Option { return w.MarksOfCopy(platform, teamB, name) }
	const hasOptedOut = "have not opted out: " + optedOut + " is not one of them"
	return []row{
		// Where.
		{"copy created", controller, teamA, nil, create(copied), ""},
		{"copy created outside the prefix", controller, platform, nil, create(copied), suite.NotThere},
		{"copy created where the prefix is in the middle", controller, theTeam, nil, create(copied), suite.NotThere},
		{"copy created where the owner has opted out", controller, optedOut, nil, create(copied), hasOptedOut},
		{"copy changed outside the prefix", controller, formerly, copied, changeBy(other), suite.NotThere},
		{"copy deleted outside the prefix", controller, formerly, copied, remove, suite.NotThere},
		{"copy deleted where the owner has opted out", controller, optedOut, copied, remove, ""},
		{"object handed over and deleted outside the prefix", controller, platform, with(handOver), remove, suite.NotThere},

		// What it may write.
		{"plain object created", controller, teamA, nil, create(plain), wouldNotBe},
		{"copy created as a source", controller, teamA, nil, create(copied.but(asSource)), wouldNotBe},
		{"copy created of another instance", controller, teamA, nil, create(copied.but(otherInstance)), wouldNotBe},
		{"copy created that names another place", controller, teamA, nil, create(backup), wouldNotBe},
		{"copy created of a source of another name", controller, teamA, nil, create(w.copyOf(platform, "-too")), wouldNotBe},
		{"copy created of a source in no valid namespace", controller, teamA,
			nil, create(w.copyOf("Not_A_Name", "")), wouldNotBe},
		{"copy created of itself", controller, teamA, nil, create(w.copyOf(teamA, "")), wouldNotBe},
		{"copy created with a name to be made up", controller, teamA, nil, createUnnamed(copied), wouldNotBe},
		{"copy changed", controller, teamA, copied, changeBy(other), ""},
		{"copy released", controller, teamA, copied, changeBy(noMarks), wouldNotBe},
		{"copy created with a finalizer", controller, teamA, nil, create(copied.but(held)), noHolds},
		{"finalizer of others taken away", controller, teamA, copied.but(held), changeBy(free), noHolds},
		{"owner set", controller, teamA, copied, changeBy(owned), noHolds},
		{"copy changed that others hold", controller, teamA, copied.but(held), changeBy(other), ""},
		{"reserved name created", controller, teamA, nil, create(w.copyNamed("openshift-service-ca.crt")), ofOthers},

		// What it may write to, and delete.
		{"foreign object changed", controller, teamA, plain, change(copied), notCopy},
		{"foreign object deleted", controller, teamA, plain, remove, notCopy},
		{"copy deleted", controller, teamA, copied, remove, ""},
		{"immutable copy created again", controller, teamA, copied.but(immutable), recreate(copied.but(other)), ""},
		{"label forged by somebody and put back", controller, teamA, copied.but(asSource), changeBy(asCopy), ""},
		{"restored backup changed", controller, teamA, backup, change(copied), notCopy},
		{"copy of another instance deleted", controller, teamA, copied.but(otherInstance), remove, notCopy},
		{"foreign object adopted", controller, teamA,
			with(handOver), change(copied.but(suite.WithoutAnnotation(plan.AdoptAnnotation))), ""},
		{"immutable object that was handed over adopted", controller, teamA, with(handOver, immutable), recreate(copied), ""},
		{"object with a finalizer adopted", controller, teamA, with(handOver, held), change(copied), notCopy},
		{"copy of another instance adopted", controller, teamA, copied.but(otherInstance, handOver), change(copied), notCopy},
		{"copy of another source labelled as one adopted", controller, teamA,
			copied.but(suite.WithAnnotation(plan.SourceAnnotation, "platform/other"), asSource, handOver), change(copied), ""},
		{"source adopted", controller, teamA, source.but(handOver), change(copied), notCopy},

		// Others are not confined.
		{"plain object created by a tenant", tenant, platform, nil, create(plain), ""},
		{"plain object created without the label", unlabeled, platform, nil, create(plain), ""},
	}
}

// moreControllers have settings of their own, each in the annotations of its own ClusterRoleBinding.
var moreControllers = map[string]map[string]string{
	"unbounded": {},
	"everyone":  {"all-namespaces": "true", "exclude-namespace": "team-b,plat*"},
	"selective": {"namespace-prefix": "team-",
		"namespace-selector": "team In blue,red\nenv NotIn prod,red\nmirrored Exists\nfrozen DoesNotExist\n"},
	"malformed": {"namespace-prefix": "team-", "namespace-selector": "team=red"},
	"copying":   {"namespace-prefix": "team-", "copy-label": "team,example.com/*", "copy-annotation": "note"},
	"choosy":    {"namespace-prefix": "team-", "source-namespace": "platform-too,platform"},
	"pruning": {"namespace-prefix": "team-", "namespace-selector": "frozen DoesNotExist",
		"source-namespace": "platform-too,platform", "prune": "true"},
	"unsure":  {"namespace-prefix": "team-", "prune": "True"},
	"another": {"namespace-prefix": "dev-,team-", "mirror-label": "share", "instance": "third"},
}

// settingRows are requests of more controllers: what each setting changes.
func (w *Policed) settingRows() []row {
	copied := shape(w.Copied)
	shared := copied.but(noLabel, suite.WithLabel("share", plan.CopyValue), suite.WithAnnotation(plan.InstanceAnnotation, "third"))
	ofOther := w.copyOf("platform-other", "")
	label := func(key string) suite.Option { return suite.WithLabel(key, "x") }
	note := func(key string) suite.Option { return suite.WithAnnotation(key, "x") }
	both := []suite.Option{label("team"), label("example.com/x"), note("note")}
	return []row{
		// Targets.
		{"copy created with the second of two prefixes", more + "another", teamA, nil, create(shared), ""},
		{"copy created where the owner has opted out of another label", more + "another", optedOut, nil, create(shared), ""},
		{"copy created with the shipped label and instance", more + "another", teamA,
			nil, create(copied), `of instance "third" with the label share=copy`},
		{"copy created without settings", more + "unbounded", teamA, nil, create(copied), noPrefix},
		{"copy deleted without settings", more + "unbounded", teamA, copied, remove, noPrefix},
		{"copy created anywhere", more + "everyone", formerly, nil, create(copied), ""},
		{"copy created in a namespace excluded by name", more + "everyone", teamB, nil, create(copied), suite.NotThere},
		{"copy created in a namespace excluded by prefix", more + "everyone", platform, nil, create(copied), suite.NotThere},
		{"copy created where all labels match", more + "selective", red, nil, create(copied), ""},
		{"copy created where one label does not match", more + "selective", frozen, nil, create(copied), suite.NotThere},
		{"copy created where labels are absent", more + "selective", teamA, nil, create(copied), suite.NotThere},
		{"copy created with a malformed selector", more + "malformed", red, nil, create(copied), suite.NotThere},

		// Sources.
		{"copy created of a source that is allowed", more + "choosy", teamA, nil, create(copied), ""},
		{"copy created of a source that is not allowed", more + "choosy", teamA, nil, create(ofOther), notItsSource},
		{"copy given to a source that is not allowed", more + "choosy", teamA, copied, change(ofOther), notItsSource},
		{"copy taken over from a source that is not allowed", more + "choosy", teamA, ofOther, change(copied), ""},
		{"copy deleted of a source that is allowed", more + "choosy", teamA, copied, remove, ""},
		{"copy deleted of a source that is not allowed", more + "choosy", teamA, ofOther, remove, notItsSource},
		{"object handed over deleted where sources are named", more + "choosy", teamA, with(handOver), remove, ""},

		// With prune all copies may be deleted, and nothing else is allowed.
		{"copy pruned outside the prefix", more + "pruning", formerly, copied, remove, ""},
		{"copy pruned of a source that is not allowed", more + "pruning", teamA, ofOther, remove, ""},
		{"copy pruned of another instance", more + "pruning", formerly, copied.but(otherInstance), remove, suite.NotThere},
		{"object handed over pruned outside the prefix", more + "pruning", platform, with(handOver), remove, suite.NotThere},
		{"plain object pruned", more + "pruning", teamA, plain, remove, notCopy},
		{"copy created outside the prefix with pruning", more + "pruning", formerly, nil, create(copied), suite.NotThere},
		{"copy changed outside the prefix with pruning", more + "pruning", formerly, copied, changeBy(other), suite.NotThere},
		{"copy created of a source that is not allowed with pruning", more + "pruning", teamA,
			nil, create(ofOther), notItsSource},
		{"copy pruned by another value", more + "unsure", formerly, copied, remove, suite.NotThere},

		// Labels and annotations of others: the settings of the controller list none.
		{"annotation created", controller, teamA, nil, create(copied.but(note("replicate-to"))), notItsKey},
		{"list of copied keys created", controller, teamA, nil, create(copied.but(note(plan.CopiedAnnotation))), ""},
		{"label added", controller, teamA, copied, changeBy(label("team")), notItsKey},
		{"label and annotation of others changed", controller, teamA,
			copied.but(both...), changeBy(suite.WithLabel("team", "y"), suite.WithAnnotation("note", "y")), ""},
		{"copied keys created", more + "copying", teamA, nil, create(copied.but(both...)), ""},
		{"label created like a copied annotation", more + "copying", teamA,
			nil, create(copied.but(label("note"))), notItsKey},
		{"annotation created like a copied label", more + "copying", teamA, nil, create(copied.but(note("team"))), notItsKey},
		{"label created with the beginning of a copied one", more + "copying", teamA,
			nil, create(copied.but(label("teams"))), notItsKey},
	}
}
