package policies

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/overlay"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The policies, by their names.
const (
	confined   = suite.ConfinedPolicy
	others     = suite.ConfinedPolicy + "-others"
	publishers = "mirror-controller-publishers"
	protected  = "mirror-controller-protected-copies"
)

// Users. All people may edit ConfigMaps everywhere, and differ in where they hold the verb mirror.
const (
	tenant    = "tenant"    // nowhere: an admin of namespaces by the ClusterRole that every cluster has
	publisher = "publisher" // in platform, by the shipped ClusterRole
	elsewhere = "elsewhere" // in team-a, likewise
	byName    = "by-name"   // in platform, for one ConfigMap
	operator  = "operator"  // everywhere: a cluster admin

	controller = "system:serviceaccount:mirror-system:mirror-controller"
	// unlabeled has the permissions of the controller by a ClusterRoleBinding without the label.
	unlabeled = more + "unlabeled"
	// more begins the accounts of moreControllers.
	more = "system:serviceaccount:more-controllers:"
)

// Namespaces.
const (
	platform, platformToo = "platform", "platform-too" // of sources
	teamA, teamB          = "team-a", "team-b"         // targets
	formerly              = "dev-a"                    // a target by prefixes of an earlier time
	theTeam               = "the-team-a"               // has the prefix in the middle
	optedOut              = "team-out"                 // a target by its name
	red, frozen           = "team-red", "team-frozen"  // targets with labels
)

// inhabit makes the namespaces, the people and unlabeled.
const inhabit = `
for namespace in platform platform-too team-a team-b dev-a the-team-a team-out team-red team-frozen; do
  kubectl create namespace $namespace
done
kubectl label namespace team-out mirror=false
kubectl label namespace team-red team-frozen team=red mirrored=
kubectl label namespace team-frozen frozen=yes
kubectl create clusterrolebinding admins --clusterrole=admin \
  --user=tenant --user=publisher --user=elsewhere --user=by-name
kubectl create clusterrolebinding operator --clusterrole=cluster-admin --user=operator
kubectl create clusterrolebinding unlabeled --clusterrole=mirror-controller --serviceaccount=more-controllers:unlabeled
kubectl create clusterrolebinding system --clusterrole=admin --user=system:kube-controller-manager \
  --user=system:serviceaccount:kube-system:storage-version-migrator-controller
`

// letPublish gives people the verb mirror.
const letPublish = `
kubectl create rolebinding holders -n platform --clusterrole=mirror-controller-publisher --user=publisher
kubectl create rolebinding holders -n team-a --clusterrole=mirror-controller-publisher --user=elsewhere
kubectl create role by-name -n platform --verb=mirror --resource=configmaps --resource-name=` + probed + `
kubectl create rolebinding by-name -n platform --role=by-name --user=by-name
`

// holders are the users who hold the verb mirror, and a namespace where they do.
var holders = map[string]string{publisher: platform, elsewhere: teamA, byName: platform, operator: platform}

func TestMain(m *testing.M) { suite.Main(m) }

// newUsers starts a cluster with the namespaces and the users. Its world has the shipped label and instance.
func newUsers(t *testing.T) *users {
	t.Helper()
	w := &users{suite.NewAlone(t)}
	w.Label, w.Instance = plan.DefaultLabel, "default"
	w.Sh(inhabit)
	return w
}

// TestPolicies sends requests of all kinds of users to a cluster. The policies come into force one after the other, so
// that each answers for itself, and those that are there already let pass what the next has to let pass.
// Cases C02, C05 and C17.
func TestPolicies(t *testing.T) {
	t.Parallel()
	w := newUsers(t)
	w.Until("the controller is confined", func() error { return inForce(confined, w.probe(controller, platform)) })
	t.Run("confined", func(t *testing.T) { w.check(t, confined, w.confinedRows()) })
	t.Run("more controllers", w.testMoreControllers)
	t.Run("events and leases", w.testEventsAndLeases)

	w.bindController("third", map[string]string{"namespace-prefix": "dev-,team-", "mirror-label": "share",
		"instance": "third", "exclude-namespace": "team-b", "namespace-selector": "frozen DoesNotExist"})
	w.apply(overlay.Render(t, map[string]string{"top": overlay.Above("deploy/base", "", "admission")}))
	w.Sh(letPublish)
	w.Until("publishing is refused", func() error { return inForce(publishers, w.probe(tenant, platform, asSource)) })
	for user, namespace := range holders {
		w.Until(user+" may publish", func() error { return w.probe(user, namespace, asSource) })
	}
	w.Until("the other controllers of this instance are gone", func() error {
		return w.probe(controller, teamA, w.copied)
	})
	t.Run("publishers", func(t *testing.T) { w.check(t, publishers, w.publisherRows()) })
	t.Run("forgers", func(t *testing.T) { w.check(t, publishers, w.forgerRows()) })

	w.apply(overlay.Render(t, map[string]string{"top": overlay.Above("deploy/base", "", "protect-copies")}))
	w.Create(teamA, "protected", w.copied)
	w.Until("the copies are protected", func() error {
		return inForce(protected, w.as(tenant).CoreV1().ConfigMaps(teamA).Delete(w.Context(), "protected", dryDelete))
	})
	t.Run("protected", func(t *testing.T) { w.check(t, protected, w.protectedRows()) })
	t.Run("namespace", w.testNamespaceDeletion)
	t.Run("publishers of the manual", w.testManualPublishers)
	t.Run("command of the refusal", w.testRefusalGrants)
	w.expectNoWarnings()
}

// row is a request for a ConfigMap of its own, and what becomes of it.
type row struct {
	name      string
	as        string
	namespace string
	there     []suite.Option // what stands there before; nil: nothing
	send      request
	refused   string // what the refusal says; empty: it is let pass
}

// check sends the requests of the rows and compares the answers.
func (w *users) check(t *testing.T, policy string, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			name := strings.ToLower(strings.ReplaceAll(r.name, " ", "-"))
			if r.there != nil {
				cm := suite.ConfigMap(r.namespace, name, r.there...)
				if _, err := w.Admin.CoreV1().ConfigMaps(r.namespace).Create(w.Context(), cm, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			expectAnswer(t, policy, r.refused, r.send(w.Context(), w.at(r.as, r.namespace, name)))
		})
	}
}

// expectAnswer fails the test unless err is the policy's refusal that says so, or nil if refused is empty.
func expectAnswer(t *testing.T, policy, refused string, err error) {
	t.Helper()
	switch {
	case refused == "" && err != nil:
		t.Errorf("not let pass: %v", err)
	case refused != "" && err == nil:
		t.Error("let pass")
	case refused != "" && (!suite.RefusedBy(err, policy) || !strings.Contains(err.Error(), refused)):
		t.Errorf("the answer is %q, want a refusal by %s that says %q", err, policy, refused)
	}
}

// testMoreControllers asks as controllers with settings of all kinds. Their bindings go with this part of the test.
func (w *users) testMoreControllers(t *testing.T) {
	part := *w.World
	part.T = t
	for name, settings := range moreControllers {
		(&users{&part}).bindController(name, settings)
	}
	w.check(t, confined, w.settingRows())
}

// bindController binds an account to the permissions and the settings of a controller, and waits until it is confined.
func (w *users) bindController(name string, settings map[string]string) {
	w.Helper()
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "more-controllers", Name: name}
	w.BindAccount(suite.BoundAccount(name, "mirror-controller", account, settings))
	user := cluster.ServiceAccountUser(account.Namespace, name)
	w.Until(name+" is confined", func() error { return inForce(confined, w.probe(user, platform)) })
}

// apply creates what of the manifests decides about requests. What is there already stays as it is.
func (w *users) apply(m shipped.Manifests) {
	w.Helper()
	decide := []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"ClusterRole", "ClusterRoleBinding", "Namespace", "ServiceAccount"}
	m = slices.DeleteFunc(m, func(o *unstructured.Unstructured) bool { return !slices.Contains(decide, o.GetKind()) })
	for _, o := range m {
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") {
			o.SetNamespace("") // kustomize does not know that they have none; kubectl takes it off
		}
	}
	if err := m.Apply(w.Context(), w.Cluster.Admin()); err != nil {
		w.Fatal(err)
	}
}

// expectNoWarnings fails the test if the API server finds fault with the types in an expression of a policy.
func (w *users) expectNoWarnings() {
	w.Helper()
	w.Until("the types in the policies are checked", func() error {
		all, err := w.Admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, policy := range all.Items {
			if policy.Status.ObservedGeneration != policy.Generation {
				return errors.New(policy.Name + " is not checked yet")
			}
			if checked := policy.Status.TypeChecking; checked != nil && len(checked.ExpressionWarnings) > 0 {
				w.Errorf("%s: %v", policy.Name, checked.ExpressionWarnings)
			}
		}
		return nil
	})
}

// TestPodIsRestricted asks the API server to take the Pod of the shipped Deployment into the shipped namespace, which
// enforces the Pod Security Standard restricted, and one as root.
func TestPodIsRestricted(t *testing.T) {
	t.Parallel()
	site := suite.Shared(t)
	create := func(change func(*corev1.SecurityContext)) error {
		deployment, err := site.Installed.Manifests.Deployment()
		if err != nil {
			t.Fatal(err)
		}
		spec := deployment.Spec.Template.Spec
		change(spec.Containers[0].SecurityContext)
		_, err = site.Admin.CoreV1().Pods(deployment.Namespace).Create(t.Context(),
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}, Spec: spec}, dryCreate)
		return err
	}
	if err := create(func(*corev1.SecurityContext) {}); err != nil {
		t.Error(err)
	}
	err := create(func(c *corev1.SecurityContext) { c.RunAsUser = new(int64(0)) })
	if !strings.Contains(fmt.Sprint(err), `violates PodSecurity "restricted`) {
		t.Errorf("got error %v, want that root violates restricted", err)
	}
}
