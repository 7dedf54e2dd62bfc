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
	noHolds      = "without changing finalizers and owner references"
)

// repair is a patch that restores data and label.
const repair = `[{"op": "add", "path": "/data", "value": {"key": "restored"}},
	{"op": "add", "path": "/metadata/labels/mirror", "value": "copy"}]`

// confinedRows are requests of somebody who has the token of the controller. That the policy lets pass what the
// controller sends is shown by contract.TestEachKindOfWrite, and by all tests beside it.
func (w *Policed) confinedRows() []row {
	copied := w.copied
	const hasOptedOut = "have not opted out: " + optedOut + " is not one of them"
	return []row{
		// Where.
		{"copy created outside the prefix", controller, platform, nil, create(copied), suite.NotThere},
		{"copy created where the prefix is in the middle", controller, theTeam, nil, create(copied), suite.NotThere},
		{"copy created where the owner has opted out", controller, optedOut, nil, create(copied), hasOptedOut},
		{"copy changed outside the prefix", controller, formerly, have(copied), change(other), suite.NotThere},
		{"copy deleted outside the prefix", controller, formerly, have(copied), remove, suite.NotThere},
		{"object handed over and deleted outside the prefix", controller, platform, have(handOver), remove, suite.NotThere},

		// What it may write.
		{"plain object created", controller, teamA, nil, create(), wouldNotBe},
		{"copy created as a source", controller, teamA, nil, create(copied, asSource), wouldNotBe},
		{"copy created of another instance", controller, teamA, nil, create(copied, otherInstance), wouldNotBe},
		{"copy created that names another place", controller, teamA, nil, create(w.backup), wouldNotBe},
		{"copy created of a source of another name", controller, teamA, nil, create(w.copyOf(platform, "-too")), wouldNotBe},
		{"copy created of a source in no valid namespace", controller, teamA,
			nil, create(w.copyOf("Not_A_Name", "")), wouldNotBe},
		{"copy created of itself", controller, teamA, nil, create(w.copyOf(teamA, "")), wouldNotBe},
		{"copy created with a name to be made up", controller, teamA, nil, create(unnamed, copied), wouldNotBe},
		{"copy released", controller, teamA, have(copied), change(noMarks), wouldNotBe},
		{"copy created with a finalizer", controller, teamA, nil, create(copied, held), noHolds},
		{"finalizer of others taken away", controller, teamA, have(copied, held), change(free), noHolds},
		{"owner set", controller, teamA, have(copied), change(owned), noHolds},
		{"copy changed that others hold", controller, teamA, have(copied, held), change(other), ""},
		{"reserved name created", controller, teamA, nil, create(w.copyNamed("openshift-service-ca.crt")), ofOthers},

		// What it may write to, and delete.
		{"foreign object changed", controller, teamA, have(), change(copied), notCopy},
		{"foreign object deleted", controller, teamA, have(), remove, notCopy},
		{"label forged by somebody and put back", controller, teamA, have(copied, asSource), change(asCopy), ""},
		{"restored backup changed", controller, teamA, have(w.backup), change(copied), notCopy},
		{"copy of another instance deleted", controller, teamA, have(copied, otherInstance), remove, notCopy},
		{"object with a finalizer adopted", controller, teamA, have(handOver, held), change(copied), notCopy},
		{"copy of another instance adopted", controller, teamA,
			have(copied, otherInstance, handOver), change(copied), notCopy},
		{"copy of another source labelled as one adopted", controller, teamA,
			have(copied, suite.WithAnnotation(plan.SourceAnnotation, "platform/other"), asSource, handOver), change(copied), ""},
		{"source adopted", controller, teamA, have(asSource, handOver), change(copied), notCopy},

		// Labels and annotations that mark no copy are not judged: a mutating policy may add them.
		{"copy created with labels and annotations of others", controller, teamA, nil, create(copied, theirs), ""},
		{"labels and annotations of others added", controller, teamA, have(copied), change(theirs), ""},
		{"list of copied keys written", controller, teamA,
			have(copied), change(suite.WithAnnotation(plan.CopiedAnnotation, "label:team")), ""},

		// A patch is judged by the object that it makes.
		{"copy repaired beside labels and annotations of others", controller, teamA,
			have(copied, theirs, asSource), patch(repair), ""},
		{"copy patched outside the prefix", controller, formerly, have(copied, theirs), patch(repair), suite.NotThere},
		{"foreign object patched", controller, teamA, have(theirs), patch(repair), notCopy},
		{"copy patched into a source", controller, teamA, have(copied, theirs),
			patch(`[{"op": "add", "path": "/metadata/labels/mirror", "value": "true"}]`), wouldNotBe},
		{"copy released by a patch", controller, teamA, have(copied, theirs),
			patch(`[{"op": "remove", "path": "/metadata/annotations"}]`), wouldNotBe},
		{"finalizer added by a patch", controller, teamA, have(copied, theirs),
			patch(`[{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold"]}]`), noHolds},
		{"plain object created by a patch", controller, teamA, nil, apply, wouldNotBe},

		// Others are not confined.
		{"plain object created by a tenant", tenant, platform, nil, create(), ""},
		{"plain object created without the label", unlabeled, platform, nil, create(), ""},
	}
}

// moreControllers have settings of their own, each in the annotations of its own ClusterRoleBinding.
var moreControllers = map[string]map[string]string{
	"unbounded": {},
	"everyone":  {"all-namespaces": "true", "exclude-namespace": "team-b,plat*"},
	"selective": {"namespace-prefix": "team-",
		"namespace-selector": "team In blue,red\nenv NotIn prod,red\nmirrored Exists\nfrozen DoesNotExist\n"},
	"malformed": {"namespace-prefix": "team-", "namespace-selector": "team=red"},
	"choosy":    {"namespace-prefix": "team-", "source-namespace": "platform-too,platform"},
	"pruning": {"namespace-prefix": "team-", "namespace-selector": "frozen DoesNotExist",
		"source-namespace": "platform-too,platform", "prune": "true"},
	"unsure":  {"namespace-prefix": "team-", "prune": "True"},
	"another": {"namespace-prefix": "dev-,team-", "mirror-label": "share", "instance": "third"},
}

// settingRows are requests of more controllers: what each setting changes.
func (w *Policed) settingRows() []row {
	copied := w.copied
	shared := have(copied, noLabel, suite.WithLabel("share", plan.CopyValue), thirdInstance)
	ofOther := w.copyOf("platform-other", "")
	return []row{
		// Targets.
		{"copy created with the second of two prefixes", more + "another", teamA, nil, create(shared...), ""},
		{"copy created where the owner has opted out of another label", more + "another", optedOut,
			nil, create(shared...), ""},
		{"copy created with the shipped label and instance", more + "another", teamA,
			nil, create(copied), `of instance "third" with the label share=copy`},
		{"copy created without settings", more + "unbounded", teamA, nil, create(copied), noPrefix},
		{"copy deleted without settings", more + "unbounded", teamA, have(copied), remove, noPrefix},
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
		{"copy given to a source that is not allowed", more + "choosy", teamA, have(copied), change(ofOther), notItsSource},
		{"copy taken over from a source that is not allowed", more + "choosy", teamA, have(ofOther), change(copied), ""},
		{"copy deleted of a source that is allowed", more + "choosy", teamA, have(copied), remove, ""},
		{"copy deleted of a source that is not allowed", more + "choosy", teamA, have(ofOther), remove, notItsSource},
		{"object handed over deleted where sources are named", more + "choosy", teamA, have(handOver), remove, ""},

		// With prune all copies may be deleted, and nothing else is allowed.
		{"copy pruned outside the prefix", more + "pruning", formerly, have(copied), remove, ""},
		{"copy pruned of a source that is not allowed", more + "pruning", teamA, have(ofOther), remove, ""},
		{"copy pruned of another instance", more + "pruning", formerly, have(copied, otherInstance), remove, suite.NotThere},
		{"object handed over pruned outside the prefix", more + "pruning", platform, have(handOver), remove, suite.NotThere},
		{"plain object pruned", more + "pruning", teamA, have(), remove, notCopy},
		{"copy created outside the prefix with pruning", more + "pruning", formerly, nil, create(copied), suite.NotThere},
		{"copy changed outside the prefix with pruning", more + "pruning", formerly,
			have(copied), change(other), suite.NotThere},
		{"copy created of a source that is not allowed with pruning", more + "pruning", teamA,
			nil, create(ofOther), notItsSource},
		{"copy pruned by another value", more + "unsure", formerly, have(copied), remove, suite.NotThere},
	}
}
