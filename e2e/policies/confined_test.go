package policies

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// What the policies say.
const (
	noPrefix     = "namespace-prefix, which is missing, that are not excluded"
	notCopy      = "is not a copy of instance \"default\", and it was not handed over"
	wouldNotBe   = "would not be a copy of instance \"default\" with the label mirror=copy"
	needsVerb    = "needs the verb \"mirror\" on configmaps there. An admin grants it: kubectl create rolebinding publishers -n "
	ofOthers     = "another controller writes"
	notItsSource = "may only write and delete copies of sources in the namespaces \"platform-too\" or \"platform\""
	notItsKey    = "may only add its own labels and annotations"
	notItsEvent  = "may only write its own Events, about ConfigMaps and its Lease"
	notItsLease  = "may only write its own Lease, mirror-system/mirror-controller"
	forges       = "only the controller of ClusterRoleBinding mirror-controller creates copies of instance \"default\""
	noHolds      = "without changing finalizers and owner references"
	isAProtected = "only mirror-controller may change or delete it: change the source instead"
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
		{"copy outside handed over and deleted", controller, formerly, copied.but(handOver), remove, suite.NotThere},
		{"object with a finalizer adopted", controller, teamA, with(handOver, held), change(copied), notCopy},
		{"copy of another instance adopted", controller, teamA, copied.but(otherInstance, handOver), change(copied), notCopy},
		{"copy of another source labelled as one adopted", controller, teamA,
			copied.but(suite.WithAnnotation(plan.SourceAnnotation, "platform/other"), asSource, handOver), change(copied), ""},
		{"source adopted", controller, teamA, source.but(handOver), change(copied), notCopy},

		// Others are not held.
		{"plain object created by a tenant", tenant, platform, nil, create(plain), ""},
	}
}

// targetRows are requests of controllers with settings of all kinds: where they may write.
func (w *Policed) targetRows() []row {
	copied := shape(w.Copied)
	shared := copied.but(noLabel, suite.WithLabel("share", plan.CopyValue), suite.WithAnnotation(plan.InstanceAnnotation, "third"))
	return []row{
		{"copy created where the owner has opted out of another label", another, optedOut, nil, create(shared), ""},
		{"copy created with the second of two prefixes", another, teamA, nil, create(shared), ""},
		{"copy created with the shipped label and instance", another, teamA,
			nil, create(copied), `of instance "third" with the label share=copy`},
		{"copy created with an empty prefix", unbounded, teamA, nil, create(copied), noPrefix},
		{"copy created anywhere", everyone, formerly, nil, create(copied), ""},
		{"copy created anywhere in a namespace excluded by name", everyone, teamB, nil, create(copied), suite.NotThere},
		{"copy created anywhere in a namespace excluded by prefix", everyone, platform, nil, create(copied), suite.NotThere},
		{"copy created where all labels match", selective, red, nil, create(copied), ""},
		{"copy created where one label does not match", selective, frozen, nil, create(copied), suite.NotThere},
		{"copy created where labels are absent", selective, teamA, nil, create(copied), suite.NotThere},
		{"copy created with a malformed selector", malformed, red, nil, create(copied), suite.NotThere},
	}
}

// scopeRows are deletions by controllers with settings of all kinds, and what the namespace of a source decides.
func (w *Policed) scopeRows() []row {
	copied := shape(w.Copied)
	ofOther := w.copyOf("platform-other", "")
	return []row{
		{"copy deleted with an empty prefix", unbounded, teamA, copied, remove, noPrefix},
		{"copy deleted anywhere", everyone, formerly, copied, remove, ""},
		{"copy deleted in a namespace excluded by name", everyone, teamB, copied, remove, suite.NotThere},
		{"copy deleted in a namespace excluded by prefix", everyone, platformToo, copied, remove, suite.NotThere},
		{"copy deleted where all labels match", selective, red, copied, remove, ""},
		{"copy deleted where one label does not match", selective, frozen, copied, remove, suite.NotThere},
		{"copy deleted with a malformed selector", malformed, red, copied, remove, suite.NotThere},

		{"copy created of a source that is allowed", choosy, teamA, nil, create(copied), ""},
		{"copy created of a source that is not allowed", choosy, teamA, nil, create(ofOther), notItsSource},
		{"copy given to a source that is not allowed", choosy, teamA, copied, change(ofOther), notItsSource},
		{"copy taken over from a source that is not allowed", choosy, teamA, ofOther, change(copied), ""},
		{"copy deleted of a source that is allowed", choosy, teamA, copied, remove, ""},
		{"copy deleted of a source that is not allowed", choosy, teamA, ofOther, remove, notItsSource},
		{"object handed over deleted where sources are named", choosy, teamA, with(handOver), remove, ""},

		{"copy pruned outside the prefix", pruning, formerly, copied, remove, ""},
		{"copy pruned of a source that is not allowed", pruning, teamA, ofOther, remove, ""},
		{"copy pruned where one label does not match", pruning, frozen, copied, remove, ""},
		{"copy pruned of another instance", pruning, formerly, copied.but(otherInstance), remove, suite.NotThere},
		{"object handed over pruned outside the prefix", pruning, platform, with(handOver), remove, suite.NotThere},
		{"plain object pruned", pruning, teamA, plain, remove, notCopy},
		{"copy created outside the prefix with pruning", pruning, formerly, nil, create(copied), suite.NotThere},
		{"copy changed outside the prefix with pruning", pruning, formerly, copied, changeBy(other), suite.NotThere},
		{"copy created of a source that is not allowed with pruning", pruning, teamA, nil, create(ofOther), notItsSource},
		{"copy pruned by another value", unsure, formerly, copied, remove, suite.NotThere},
	}
}

// keyRows are requests with labels and annotations that are not of the controller, whose settings list none, and those of
// copying.
func (w *Policed) keyRows() []row {
	copied := shape(w.Copied)
	label := func(key string) suite.Option { return suite.WithLabel(key, "x") }
	note := func(key string) suite.Option { return suite.WithAnnotation(key, "x") }
	both := []suite.Option{label("team"), label("example.com/x"), note("note")}
	return []row{
		{"annotation created", controller, teamA, nil, create(copied.but(note("replicate-to"))), notItsKey},
		{"list of copied keys created", controller, teamA, nil, create(copied.but(note(plan.CopiedAnnotation))), ""},
		{"label added", controller, teamA, copied, changeBy(label("team")), notItsKey},
		{"label and annotation of others changed", controller, teamA,
			copied.but(both...), changeBy(suite.WithLabel("team", "y"), suite.WithAnnotation("note", "y")), ""},
		{"copied keys created", copying, teamA, nil, create(copied.but(both...)), ""},
		{"label created like a copied annotation", copying, teamA, nil, create(copied.but(label("note"))), notItsKey},
		{"annotation created like a copied label", copying, teamA, nil, create(copied.but(note("team"))), notItsKey},
		{"label created with the beginning of a copied one", copying, teamA, nil, create(copied.but(label("teams"))), notItsKey},
	}
}

// testOthers sends what the controller writes besides ConfigMaps.
func (w *Policed) testOthers(t *testing.T) {
	event := func(reporter, apiVersion, kind, namespace, name string) func(context.Context) error {
		e := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, GenerateName: "probe-"},
			InvolvedObject: corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name},
			Reason:         "Mirrored", Type: "Normal",
			Source: corev1.EventSource{Component: reporter}, ReportingController: reporter,
		}
		return func(ctx context.Context) error {
			_, err := w.as(controller).CoreV1().Events(namespace).Create(ctx, e, dryCreate)
			return err
		}
	}
	about := func(apiVersion, kind, namespace, name string) func(context.Context) error {
		return event("mirror-controller", apiVersion, kind, namespace, name)
	}
	lease := func(namespace, name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := w.as(controller).CoordinationV1().Leases(namespace).Create(ctx,
				&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, dryCreate)
			return err
		}
	}
	for _, reporter := range []string{"kubelet", "mirror-controller"} {
		_, err := w.Admin.CoreV1().Events(platform).Create(w.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: platform, Name: "of-" + reporter},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: platform, Name: "any"},
			Reason:         "Mirrored", Type: "Normal", ReportingController: reporter,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	// RBAC lets the controller write Events of the core group and its Lease, so it takes more for the rest.
	w.bindEventsAndLeases()
	for name, c := range map[string]struct {
		send    func(context.Context) error
		refused string
	}{
		"event about a ConfigMap":            {about("v1", "ConfigMap", platform, "any"), ""},
		"event about its Lease":              {about("coordination.k8s.io/v1", "Lease", "mirror-system", "mirror-controller"), ""},
		"event about another Lease":          {about("coordination.k8s.io/v1", "Lease", "mirror-system", "another"), notItsEvent},
		"event about a Secret":               {about("v1", "Secret", platform, "any"), notItsEvent},
		"event about another kind ConfigMap": {about("example.com/v1", "ConfigMap", platform, "any"), notItsEvent},
		"event in the name of another":       {event("kubelet", "v1", "ConfigMap", platform, "any"), notItsEvent},
		"event of another counted":           {w.patchEvent("of-kubelet", `{"count": 2}`), notItsEvent},
		"its event counted":                  {w.patchEvent("of-mirror-controller", `{"count": 2}`), ""},
		"its event made another's":           {w.patchEvent("of-mirror-controller", `{"reportingComponent": "kubelet"}`), notItsEvent},
		"events.k8s.io about a ConfigMap":    {w.newEvent("ConfigMap"), ""},
		"events.k8s.io about a Pod":          {w.newEvent("Pod"), notItsEvent},
		"its Lease":                          {lease("mirror-system", "mirror-controller"), ""},
		"Lease of its name elsewhere":        {lease(platform, "mirror-controller"), notItsLease},
	} {
		t.Run(name, func(t *testing.T) { expectAnswer(t, suite.ConfinedPolicy+"-others", c.refused, c.send(w.Context())) })
	}
}

// bindEventsAndLeases gives the controller all verbs on Events and Leases everywhere.
func (w *Policed) bindEventsAndLeases() {
	w.Helper()
	rules := []rbacv1.PolicyRule{{
		APIGroups: []string{"", "events.k8s.io", "coordination.k8s.io"}, Resources: []string{"events", "leases"},
		Verbs: []string{"*"},
	}}
	_, err := w.Admin.RbacV1().ClusterRoles().Create(w.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "events-and-leases"}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.bind("", "ClusterRole", "events-and-leases", controller)
	w.Until("the permissions", func() error {
		_, err := w.as(controller).CoordinationV1().Leases(platform).List(w.Context(), metav1.ListOptions{})
		return err
	})
}

func (w *Policed) patchEvent(name, patch string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.as(controller).CoreV1().Events(platform).Patch(ctx, name, types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{DryRun: dryCreate.DryRun})
		return err
	}
}

// newEvent creates an event of the group events.k8s.io about an object of the kind.
func (w *Policed) newEvent(kind string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.as(controller).EventsV1().Events(platform).Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: platform, GenerateName: "probe-"}, EventTime: metav1.NowMicro(),
			ReportingController: "mirror-controller", ReportingInstance: "probe",
			Action: "Mirror", Reason: "Mirrored", Type: "Normal",
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: platform, Name: "any"},
		}, dryCreate)
		return err
	}
}
