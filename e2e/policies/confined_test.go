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
	needsVerb    = "needs the verb \"mirror\" on configmaps there, which the ClusterRole with \"publisher\" in its name grants"
	ofOthers     = "another controller writes"
	notItsKey    = "may only add its own labels and annotations"
	notItsEvent  = "may only write its own Events, about ConfigMaps and its Lease"
	notItsLease  = "may only write its own Lease, mirror-system/mirror-controller"
	forges       = "only the controller of ClusterRoleBinding mirror-controller creates copies of instance \"default\""
	noHolds      = "without changing finalizers and owner references"
	isAProtected = "only mirror-controller may change or delete it: change the source instead"
)

// confinedRows are requests about what a controller that runs would change at once, or never meets. stolenRows are the others.
func (w *Policed) confinedRows() []row {
	copied := shape(w.Copied)
	return []row{
		// Where.
		{"copy created with the first of several prefixes", several, teamA, nil, create(copied), ""},
		{"copy created in an excluded namespace", several, excluded, nil, create(copied), suite.NotThere},

		// What is created.
		{"finalizer of others taken away", controller, teamA, copied.but(held), changeBy(free), noHolds},
		{"copy changed that others hold", controller, teamA, copied.but(held), changeBy(other), ""},
		{"reserved name of the platform created", controller, teamA, nil, create(w.copyNamed("openshift-service-ca.crt")), ofOthers},
		{"reserved name of the mesh created", controller, teamA, nil, create(w.copyNamed("istio-ca-root-cert")), ofOthers},
		{"reserved name of the cluster created", controller, teamA, nil, create(w.copyNamed("kube-root-ca.crt")), ofOthers},

		// What is changed.
		{"label dropped by somebody and put back", controller, teamA, copied.but(noLabel), changeBy(asCopy, other), ""},
		{"label forged to true by somebody and put back", controller, teamA, copied.but(asSource), changeBy(asCopy), ""},
		{"copy with a broken source adopted", controller, teamA,
			copied.but(handOver, suite.WithAnnotation(plan.SourceAnnotation, "nonsense")), change(copied), ""},
		{"copy of another source labelled as one adopted", controller, teamA,
			copied.but(suite.WithAnnotation(plan.SourceAnnotation, "platform/other"), asSource, handOver), change(copied), ""},

		// What is deleted.
		{"copy without the label deleted", controller, teamA, copied.but(noLabel), remove, ""},
		{"copy with a forged label deleted", controller, teamA, copied.but(asSource), remove, ""},
		{"immutable copy recreated", controller, teamA, copied.but(suite.SetImmutable), recreate(copied), ""},

		// Sources: the publishers' policy would refuse these as well.
		{"source created outside the prefix", controller, platform, nil, create(source), suite.NotThere},
		{"source changed outside the prefix", controller, platform, source, changeBy(other), suite.NotThere},
		{"source deleted outside the prefix", controller, platform, source, remove, suite.NotThere},
		{"source created", controller, teamA, nil, create(source), wouldNotBe},
		{"copy made a source without marks", controller, teamA, copied, changeBy(asSource, noMarks), wouldNotBe},
		{"source adopted", controller, teamA, source.but(handOver), change(copied), notCopy},
		{"source changed", controller, teamA, source, changeBy(other), notCopy},
		{"source unlabelled", controller, teamA, source, changeBy(noLabel), notCopy},
		{"source overwritten by a copy", controller, teamA, source, change(copied), notCopy},
		{"source deleted", controller, teamA, source, remove, notCopy},

		// Others are not held.
		{"plain object created by a tenant", tenant, platform, nil, create(plain), ""},
		{"copy deleted by a tenant", tenant, teamA, copied, remove, ""},
	}
}

// targetRows are requests of controllers with settings of all kinds: where they may write.
func (w *Policed) targetRows() []row {
	copied := shape(w.Copied)
	shared := copied.but(noLabel, suite.WithLabel("share", plan.CopyValue), suite.WithAnnotation(plan.InstanceAnnotation, "third"))
	const hasOptedOut = "have not opted out: " + optedOut + " is not one of them"
	return []row{
		{"copy changed where the owner has opted out", controller, optedOut, copied, changeBy(other), hasOptedOut},
		{"copy deleted where the owner has opted out", controller, optedOut, copied, remove, ""},
		{"copy created where the owner has opted out of another label", another, optedOut, nil, create(shared), ""},
		{"copy created with an empty prefix", unbounded, teamA, nil, create(copied), noPrefix},
		{"copy created without settings", unset, teamA, nil, create(copied), noPrefix},
		{"copy deleted without settings", unset, teamA, copied, remove, ""},
		{"copy created anywhere", everyone, formerly, nil, create(copied), ""},
		{"copy created anywhere in a namespace excluded by name", everyone, teamB, nil, create(copied), suite.NotThere},
		{"copy created anywhere in a namespace excluded by prefix", everyone, platform, nil, create(copied), suite.NotThere},
		{"copy created anywhere where the owner has opted out", everyone, optedOut, nil, create(copied), hasOptedOut},
		{"copy created where all labels match", selective, red, nil, create(copied), ""},
		{"copy created where one label does not match", selective, frozen, nil, create(copied), suite.NotThere},
		{"copy created where labels are absent", selective, teamA, nil, create(copied), suite.NotThere},
		{"copy deleted where labels are absent", selective, teamA, copied, remove, ""},
		{"copy created with a malformed selector", malformed, red, nil, create(copied), suite.NotThere},
		{"copy created of another instance and label", another, teamA, nil, create(shared), ""},
		{"copy created with the shipped label and instance", another, teamA, nil, create(copied), `of instance "third" with the label share=copy`},
		{"copy of the shipped instance deleted", another, teamA, copied, remove, `is not a copy of instance "third"`},
	}
}

// keyRows are requests with labels and annotations that are not of the controller.
func (w *Policed) keyRows() []row {
	copied := shape(w.Copied)
	label := func(key string) suite.Option { return suite.WithLabel(key, "x") }
	note := func(key string) suite.Option { return suite.WithAnnotation(key, "x") }
	both := []suite.Option{label("team"), label("example.com/x"), note("note")}
	return []row{
		{"copied keys created", copying, teamA, nil, create(copied.but(both...)), ""},
		{"copied keys added", copying, teamA, copied, changeBy(both...), ""},
		{"label created like a copied annotation", copying, teamA, nil, create(copied.but(label("note"))), notItsKey},
		{"annotation created like a copied label", copying, teamA, nil, create(copied.but(note("team"))), notItsKey},
		{"label created with the beginning of a copied one", copying, teamA, nil, create(copied.but(label("teams"))), notItsKey},
	}
}

// testOthers sends what the controller writes besides ConfigMaps.
func (w *Policed) testOthers(t *testing.T) {
	event := func(change func(*eventsv1.Event)) func(context.Context) error {
		e := &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: platform, GenerateName: "probe-"}, EventTime: metav1.NowMicro(),
			ReportingController: "mirror-controller", ReportingInstance: "probe", Action: "Mirror", Reason: "Mirrored", Type: "Normal",
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: platform, Name: "any"},
		}
		change(e)
		return func(ctx context.Context) error {
			_, err := w.as(controller).EventsV1().Events(e.Namespace).Create(ctx, e, dryCreate)
			return err
		}
	}
	about := func(apiVersion, kind, namespace, name string) func(context.Context) error {
		return event(func(e *eventsv1.Event) {
			e.Namespace = namespace
			e.Regarding = corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name}
		})
	}
	lease := func(namespace, name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := w.as(controller).CoordinationV1().Leases(namespace).Create(ctx,
				&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, dryCreate)
			return err
		}
	}
	old := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: platform, Name: "of-another"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: platform, Name: "any"},
		Reason:         "Started", Type: "Normal", ReportingController: "kubelet",
	}
	if _, err := w.Admin.CoreV1().Events(platform).Create(w.Context(), old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// RBAC lets the controller write Events of one kind and its Lease, so it takes more for the rest.
	w.bindEventsAndLeases()
	for name, c := range map[string]struct {
		send    func(context.Context) error
		refused string
	}{
		"event about a ConfigMap":            {event(func(*eventsv1.Event) {}), ""},
		"event about its Lease":              {about("coordination.k8s.io/v1", "Lease", "mirror-system", "mirror-controller"), ""},
		"event about another Lease":          {about("coordination.k8s.io/v1", "Lease", "mirror-system", "another"), notItsEvent},
		"event about its Lease elsewhere":    {about("coordination.k8s.io/v1", "Lease", platform, "mirror-controller"), notItsEvent},
		"event about a Secret":               {about("v1", "Secret", platform, "any"), notItsEvent},
		"event about a Pod":                  {about("v1", "Pod", platform, "any"), notItsEvent},
		"event about another kind ConfigMap": {about("example.com/v1", "ConfigMap", platform, "any"), notItsEvent},
		"event in the name of another":       {event(func(e *eventsv1.Event) { e.ReportingController = "kubelet" }), notItsEvent},
		"event of another continued":         {w.patchEvent(old.Name), notItsEvent},
		"event of the old kind":              {w.coreEvent("ConfigMap", "mirror-controller"), ""},
		"event of the old kind about a Pod":  {w.coreEvent("Pod", "mirror-controller"), notItsEvent},
		"event of the old kind of another":   {w.coreEvent("ConfigMap", "kubelet"), notItsEvent},
		"its Lease":                          {lease("mirror-system", "mirror-controller"), ""},
		"another Lease":                      {lease("mirror-system", "another"), notItsLease},
		"Lease of its name elsewhere":        {lease(platform, "mirror-controller"), notItsLease},
	} {
		t.Run(name, func(t *testing.T) { expectAnswer(t, suite.ConfinedPolicy+"-others", c.refused, c.send(w.Context())) })
	}
}

// bindEventsAndLeases gives the controller all verbs on Events and Leases everywhere.
func (w *Policed) bindEventsAndLeases() {
	w.Helper()
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"", "events.k8s.io", "coordination.k8s.io"}, Resources: []string{"events", "leases"}, Verbs: []string{"*"}}}
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

func (w *Policed) patchEvent(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.as(controller).EventsV1().Events(platform).Patch(ctx, name, types.MergePatchType,
			[]byte(`{"metadata": {"labels": {"a": "b"}}}`), metav1.PatchOptions{})
		return err
	}
}

// coreEvent creates an event of the core group about an object of the kind.
func (w *Policed) coreEvent(kind, reporter string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.as(controller).CoreV1().Events(platform).Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: platform, GenerateName: "probe-"},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: platform, Name: "any"},
			Reason:         "Mirrored", Type: "Normal", ReportingController: reporter,
		}, dryCreate)
		return err
	}
}
