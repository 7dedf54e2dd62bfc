package policies

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
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
func (w *users) confinedRows() []row {
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

		{"copy repaired beside labels and annotations of others", controller, teamA,
			have(copied, theirs, asSource), change(asCopy, other), ""},

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
func (w *users) settingRows() []row {
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

const (
	needsVerb = "needs the verb \"mirror\" on configmaps there. " +
		"An admin grants it: kubectl create rolebinding publishers -n "
	forges = "only the controller of ClusterRoleBinding mirror-controller creates copies of instance \"default\""
)

// publisherRows are requests about sources, of people who may edit ConfigMaps, without the verb and with it.
func (w *users) publisherRows() []row {
	copied := w.copied
	const reserved = "openshift-service-ca.crt"
	return append(bySystem(platform, asSource), []row{
		// Publish, change and withdraw.
		{"editor creates a source", tenant, platform, nil, create(asSource), needsVerb},
		{"editor labels an object", tenant, platform, have(), change(asSource), needsVerb},
		{"editor labels an object by a patch", tenant, platform, have(),
			patch(`[{"op": "add", "path": "/metadata/labels", "value": {"mirror": "true"}}]`), needsVerb},
		{"editor changes a source", tenant, platform, have(asSource), change(other), needsVerb},
		{"editor unpublishes", tenant, platform, have(asSource), change(noLabel), needsVerb},
		{"editor deletes a source", tenant, platform, have(asSource), remove, needsVerb},
		{"editor passes a source off as a copy", tenant, platform, have(asSource), change(copied, asSource), needsVerb},
		{"publisher creates a source", publisher, platform, nil, create(asSource), ""},
		{"publisher changes a source", publisher, platform, have(asSource), change(other), ""},
		{"publisher deletes a source", publisher, platform, have(asSource), remove, ""},
		{"publisher publishes in another namespace", publisher, platformToo, nil, create(asSource), needsVerb},
		{"holder of the name creates a source", byName, platform, nil, create(asSource), ""},
		{"holder of another name creates a source", byName, platform, nil, create(asSource), needsVerb},
		{"holder of a name creates a source without one", byName, platform, nil, create(unnamed, asSource), needsVerb},
		{"cluster admin creates a source", operator, platform, nil, create(asSource), ""},
		{"editor lets a deleted source go", tenant, platform, have(asSource, held), w.letGo(operator), ""},
		{"editor creates a source by the label of another controller", tenant, platform,
			nil, create(suite.WithLabel("share", plan.SourceValue)), needsVerb},

		// What is no source.
		{"editor changes a plain object", tenant, platform, have(), change(other), ""},
		{"editor sets the label to another value", tenant, platform,
			have(), change(suite.WithLabel(plan.DefaultLabel, "off")), ""},
		{"owner of a reserved name updates what was labelled before", tenant, teamB,
			have(w.copyNamed(reserved), noMarks, asSource), to(reserved, change(other)), ""},
		{"tenant puts the label of a copy back", tenant, teamA, have(copied, asSource), change(asCopy), ""},
		{"tenant makes a copy labelled as a source one", tenant, teamA, have(copied, asSource), change(noMarks), needsVerb},
	}...)
}

// forgerRows are requests that make an object name itself as a copy.
func (w *users) forgerRows() []row {
	copied := w.copied
	return []row{
		{"tenant creates a copy of a third instance", tenant, teamA, nil,
			create(copied, thirdInstance),
			"only the controller of ClusterRoleBinding third creates copies of instance \"third\""},
		{"tenant creates a copy", tenant, teamA, nil, create(copied, noLabel), forges},
		{"tenant updates an object into a copy", tenant, teamA, have(), change(copied), forges},
		{"tenant updates a restored backup into a copy", tenant, teamA, have(w.backup), change(copied), forges},
		{"tenant updates a copy of another instance", tenant, teamA, have(copied, otherInstance), change(copied), forges},
		{"tenant updates the certificates of the cluster into a copy", tenant, teamA,
			nil, to("kube-root-ca.crt", change(copied)), forges},
		{"tenant restores a backup elsewhere", tenant, teamA, nil, create(w.backup), ""},
		{"tenant creates a copy of another instance", tenant, teamA, nil, create(copied, otherInstance), ""},
		{"tenant edits a copy", tenant, teamA, have(copied), change(other), ""},
		{"tenant takes the marks off a copy", tenant, teamA, have(copied), change(noMarks), ""},
		{"publisher in the target creates a copy", elsewhere, teamA, nil, create(copied), ""},
		{"another controller creates a copy", unlabeled, teamA, nil, create(copied), forges},
		{"controller creates a copy", controller, teamA, nil, create(copied), ""},
	}
}

const isAProtected = "only mirror-controller may change or delete it: change the source instead"

// protectedRows are requests about copies. Those of a third instance have settings of their own.
func (w *users) protectedRows() []row {
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
func (w *users) letGo(deleter string) request {
	return func(ctx context.Context, p place) error {
		return errors.Join(remove(ctx, w.at(deleter, p.namespace, p.name)), change(free)(ctx, p))
	}
}

// testNamespaceDeletion deletes a namespace that holds sources and protected copies. Before anybody empties it, a
// tenant may do that too; then the namespace controller does, and the namespace goes.
func (w *users) testNamespaceDeletion(t *testing.T) {
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
