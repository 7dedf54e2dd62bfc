package policies

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// The shipped policies: which requests they let pass and which they refuse. That they let pass what the controller needs
// is shown by all tests, which run with the first policy in force.

const (
	publishersPolicy = "mirror-controller-publishers"
	protectedPolicy  = "mirror-controller-protected-copies"
)

// More controllers, each with a ClusterRoleBinding of its own. bindAccounts has their settings.
const (
	unbounded = "system:serviceaccount:more-controllers:unbounded"
	everyone  = "system:serviceaccount:more-controllers:everywhere"
	selective = "system:serviceaccount:more-controllers:selective"
	malformed = "system:serviceaccount:more-controllers:malformed"
	copying   = "system:serviceaccount:more-controllers:copying"
	another   = "system:serviceaccount:more-controllers:another"
	choosy    = "system:serviceaccount:more-controllers:choosy"
	pruning   = "system:serviceaccount:more-controllers:pruning"
	unsure    = "system:serviceaccount:more-controllers:unsure"
	unlabeled = "system:serviceaccount:more-controllers:unlabeled"
)

// TestPolicies sends requests of all kinds of users to a cluster. The policies come into force one after the other, so
// that each answers for itself, and those that are there already let pass what the next has to let pass.
func TestPolicies(t *testing.T) {
	t.Parallel()
	w := New(t)
	w.bindAccounts()
	sharing := []string{unbounded, everyone, selective, malformed, copying, choosy, pruning, unsure} // the instance
	for _, user := range append(sharing, controller, another) {
		w.Until(user+" is confined", func() error { return InForce(suite.ConfinedPolicy, w.Probe(user, platform)) })
	}
	t.Run("unlabeled", func(t *testing.T) { expectAnswer(t, suite.ConfinedPolicy, "", w.Probe(unlabeled, platform)) })
	t.Run("confined", func(t *testing.T) { w.check(t, suite.ConfinedPolicy, w.confinedRows()) })
	t.Run("targets", func(t *testing.T) { w.check(t, suite.ConfinedPolicy, w.targetRows()) })
	t.Run("scope", func(t *testing.T) { w.check(t, suite.ConfinedPolicy, w.scopeRows()) })
	t.Run("keys", func(t *testing.T) { w.check(t, suite.ConfinedPolicy, w.keyRows()) })
	t.Run("others", w.testOthers)

	for _, user := range sharing {
		w.unbind(user)
	}
	w.applyPolicies("admission")
	w.bindPublishers()
	w.Until("publishing is refused", func() error { return InForce(publishersPolicy, w.Probe(tenant, platform, asSource)) })
	for user, namespace := range holders {
		w.Until(user+" may publish", func() error { return w.Probe(user, namespace, asSource) })
	}
	t.Run("publishers", func(t *testing.T) { w.check(t, publishersPolicy, w.publisherRows()) })
	t.Run("forgers", func(t *testing.T) { w.check(t, publishersPolicy, w.forgerRows()) })

	w.applyPolicies("protect-copies")
	protected := w.Create(teamA, "protected", w.Copied(teamA, "protected")...)
	w.Until("the copies are protected", func() error {
		return InForce(protectedPolicy, w.as(tenant).CoreV1().ConfigMaps(teamA).Delete(w.Context(), protected.Name, DryDelete))
	})
	t.Run("protected", func(t *testing.T) { w.check(t, protectedPolicy, w.protectedRows()) })
	t.Run("namespace", w.testNamespaceDeletion)
	t.Run("self-tests", w.testSelfTests)
	t.Run("publishers of the manual", w.testManualPublishers)
	t.Run("command of the refusal", w.testRefusalGrants)
	w.expectNoWarnings(suite.ConfinedPolicy, suite.ConfinedPolicy+"-others", publishersPolicy, protectedPolicy)
}

// holders are the users who hold the verb mirror, and a namespace where they do.
var holders = map[string]string{publisher: platform, elsewhere: teamA, byName: platform, operator: platform}

func (w *Policed) bindPublishers() {
	w.Helper()
	w.bind(platform, "ClusterRole", "mirror-controller-publisher", publisher)
	w.bind(teamA, "ClusterRole", "mirror-controller-publisher", elsewhere)
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}}
	rule.Verbs, rule.ResourceNames = []string{"mirror"}, []string{NamedSource}
	w.bind(platform, "Role", w.role(platform, byName, rule), byName)
}

func (w *Policed) role(namespace, name string, rule rbacv1.PolicyRule) string {
	w.Helper()
	_, err := w.Admin.RbacV1().Roles(namespace).Create(w.Context(),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return name
}

// bindAccounts binds the accounts of more controllers, each with settings of its own.
func (w *Policed) bindAccounts() {
	w.Helper()
	for user, settings := range map[string]map[string]string{
		unbounded: {"namespace-prefix": ""},
		everyone:  {"all-namespaces": "true", "exclude-namespace": "team-b,plat*"},
		selective: {"namespace-prefix": "team-",
			"namespace-selector": "team In blue,red\nenv NotIn prod,red\nmirrored Exists\nfrozen DoesNotExist\n"},
		malformed: {"namespace-prefix": "team-", "namespace-selector": "team=red"},
		copying:   {"namespace-prefix": "team-", "copy-label": "team,example.com/*", "copy-annotation": "note"},
		choosy:    {"namespace-prefix": "team-", "source-namespace": "platform-too,platform"},
		pruning: {"namespace-prefix": "team-", "namespace-selector": "frozen DoesNotExist",
			"source-namespace": "platform-too,platform", "prune": "true"},
		unsure:    {"namespace-prefix": "team-", "prune": "True"},
		another:   {"namespace-prefix": "dev-,team-", "mirror-label": "share", "instance": "third"},
		unlabeled: {"namespace-prefix": "team-"},
	} {
		namespace, name := accountOf(user)
		binding := suite.BoundAccount(name, "mirror-controller",
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, settings)
		if user == unlabeled {
			binding.Labels = nil
		}
		w.BindAccount(binding)
	}
}

// unbind deletes the binding of an account of bindAccounts, and waits until the account has no permissions.
func (w *Policed) unbind(user string) {
	w.Helper()
	_, name := accountOf(user)
	if err := w.Admin.RbacV1().ClusterRoleBindings().Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Until(user+" has no permissions", func() error {
		_, err := w.as(user).CoreV1().ConfigMaps(platform).List(w.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
}

// applyPolicies applies what a component decides by: policies and roles.
func (w *Policed) applyPolicies(component string) {
	w.Helper()
	rendered, err := RenderWith(w.T, "", component)
	if err != nil {
		w.Fatal(err)
	}
	rendered = slices.DeleteFunc(rendered, func(o *unstructured.Unstructured) bool {
		return !strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") && o.GetKind() != "ClusterRole"
	})
	if err := rendered.Apply(w.Context(), w.Cluster.Admin()); err != nil {
		w.Fatal(err)
	}
}

// expectNoWarnings fails the test if the API server finds fault with the types in an expression.
func (w *Policed) expectNoWarnings(policies ...string) {
	w.Helper()
	for _, name := range policies {
		var policy *admissionregistrationv1.ValidatingAdmissionPolicy
		w.Until("the types of "+name+" are checked", func() (err error) {
			policy, err = w.Admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(w.Context(), name, metav1.GetOptions{})
			if err == nil && policy.Status.ObservedGeneration != policy.Generation {
				err = errors.New("not yet")
			}
			return err
		})
		if checking := policy.Status.TypeChecking; checking != nil && len(checking.ExpressionWarnings) > 0 {
			w.Errorf("%s: %v", name, checking.ExpressionWarnings)
		}
	}
}
