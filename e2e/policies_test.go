package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The shipped policies: which requests they let pass and which they refuse. That they let pass what the controller needs
// is shown by all tests, which run with the first policy in force.

const (
	publishersPolicy = "mirror-controller-publishers"
	protectedPolicy  = "mirror-controller-protected-copies"
)

// Users. All people may edit ConfigMaps everywhere, and differ in where they hold the verb mirror.
const (
	tenant    = "tenant"    // nowhere: an admin of namespaces by the ClusterRole that every cluster has
	publisher = "publisher" // in platform, by the shipped ClusterRole
	elsewhere = "elsewhere" // in team-a, likewise
	byName    = "by-name"   // in platform, for one ConfigMap
	owner     = "owner"     // in platform, by a role with all verbs
	operator  = "operator"  // everywhere: a cluster admin

	namespaceController = "system:serviceaccount:kube-system:namespace-controller"
	garbageCollector    = "system:serviceaccount:kube-system:generic-garbage-collector"

	controller = "system:serviceaccount:mirror-system:mirror-controller"
)

// More controllers, each with a ClusterRoleBinding of its own. bindAccounts has their settings.
const (
	several   = "system:serviceaccount:more-controllers:several"
	unbounded = "system:serviceaccount:more-controllers:unbounded"
	unset     = "system:serviceaccount:more-controllers:unset"
	everyone  = "system:serviceaccount:more-controllers:everywhere"
	selective = "system:serviceaccount:more-controllers:selective"
	malformed = "system:serviceaccount:more-controllers:malformed"
	copying   = "system:serviceaccount:more-controllers:copying"
	another   = "system:serviceaccount:more-controllers:another"
	unlabeled = "system:serviceaccount:more-controllers:unlabeled"
)

// Namespaces.
const (
	platform, platformToo = "platform", "platform-too" // of sources
	teamA, teamB          = "team-a", "team-b"         // targets
	formerly              = "dev-a"                    // a target by prefixes of an earlier time
	theTeam               = "the-team-a"               // has the prefix in the middle
	excluded              = "kube-public"
	optedOut              = "team-out"                // a target by its name
	red, frozen           = "team-red", "team-frozen" // targets with labels
)

// row is a request for a ConfigMap of its own, and what becomes of it.
type row struct {
	name      string
	as        string
	namespace string
	there     shape // what stands there before; nil: nothing
	send      request
	refused   string // what the refusal says; empty: it is let pass
}

// slug is the name of the ConfigMap that the row is about.
func (r row) slug() string { return strings.ToLower(strings.ReplaceAll(r.name, " ", "-")) }

// policed is the world in which the policies are in force. It has the shipped label and instance.
type policed struct {
	*world
	clients map[string]kubernetes.Interface
}

// as returns a client for the user.
func (w *policed) as(user string) kubernetes.Interface {
	w.Helper()
	if w.clients[user] == nil {
		cfg := w.cluster.Admin()
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			w.Fatal(err)
		}
		w.clients[user] = client
	}
	return w.clients[user]
}

func (w *policed) at(user, namespace, name string) place {
	w.Helper()
	return place{w.as(user).CoreV1().ConfigMaps(namespace), w.as(user), namespace, name}
}

// check sends the requests of the rows and compares the answers.
func (w *policed) check(t *testing.T, policy string, rows []row) {
	t.Helper()
	for _, r := range rows {
		name := r.slug()
		t.Run(name, func(t *testing.T) {
			if r.there != nil {
				cm := configMap(r.namespace, name, r.there(r.namespace, name)...)
				if _, err := w.admin.CoreV1().ConfigMaps(r.namespace).Create(w.ctx, cm, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			expectAnswer(t, policy, r.refused, r.send(w.ctx, w.at(r.as, r.namespace, name)))
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
	case refused != "" && (!refusedBy(err, policy) || !strings.Contains(err.Error(), refused)):
		t.Errorf("the answer is %q, want a refusal by %s that says %q", err, policy, refused)
	}
}

// TestPolicies sends requests of all kinds of users to a cluster. The policies come into force one after the other, so
// that each answers for itself, and those that are there already let pass what the next has to let pass.
func TestPolicies(t *testing.T) {
	t.Parallel()
	w := newPoliced(t)
	probe := func(user, namespace string, o ...option) error {
		_, err := w.as(user).CoreV1().ConfigMaps(namespace).Create(w.ctx, configMap(namespace, namedSource, o...), dryCreate)
		return err
	}

	w.bindAccounts()
	for _, user := range []string{controller, several, unbounded, unset, everyone, selective, malformed, copying, another} {
		w.until(user+" is confined", func() error { return inForce(confinedPolicy, probe(user, platform)) })
	}
	t.Run("unlabeled", func(t *testing.T) { expectAnswer(t, confinedPolicy, "", probe(unlabeled, platform)) })
	t.Run("confined", func(t *testing.T) { w.check(t, confinedPolicy, w.confinedRows()) })
	t.Run("targets", func(t *testing.T) { w.check(t, confinedPolicy, w.targetRows()) })
	t.Run("keys", func(t *testing.T) { w.check(t, confinedPolicy, w.keyRows()) })
	t.Run("others", w.testOthers)

	for _, user := range []string{several, unbounded, unset, everyone, selective, malformed, copying} {
		w.unbind(user) // they share an instance with the shipped one
	}
	w.applyPolicies("admission")
	w.bindPublishers()
	w.until("publishing is refused", func() error { return inForce(publishersPolicy, probe(tenant, platform, asSource)) })
	for user, namespace := range holders {
		w.until(user+" may publish", func() error { return probe(user, namespace, asSource) })
	}
	t.Run("publishers", func(t *testing.T) { w.check(t, publishersPolicy, w.publisherRows()) })
	t.Run("forgers", func(t *testing.T) { w.check(t, publishersPolicy, w.forgerRows()) })

	w.applyPolicies("protect-copies")
	protected := w.create(teamA, "protected", w.copied(teamA, "protected")...)
	w.until("the copies are protected", func() error {
		return inForce(protectedPolicy, w.as(tenant).CoreV1().ConfigMaps(teamA).Delete(w.ctx, protected.Name, dryDelete))
	})
	t.Run("protected", func(t *testing.T) { w.check(t, protectedPolicy, w.protectedRows()) })
	t.Run("namespace", w.testNamespaceDeletion)
	t.Run("self-tests", w.testSelfTests)
	t.Run("publishers of the manual", w.testManualPublishers)
	w.expectNoWarnings(confinedPolicy, confinedPolicy+"-others", publishersPolicy, protectedPolicy)
}

var (
	dryCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	dryDelete = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
)

// inForce returns nil if err is a refusal by the policy.
func inForce(policy string, err error) error {
	if refusedBy(err, policy) {
		return nil
	}
	return fmt.Errorf("%s is not in force: the answer was %v", policy, err)
}

func newPoliced(t *testing.T) *policed {
	t.Helper()
	s, err := newSite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &policed{newWorldAt(t, s), map[string]kubernetes.Interface{}}
	w.label, w.instance = plan.DefaultLabel, "default"
	for _, namespace := range []string{platform, platformToo, teamA, teamB, formerly, theTeam} {
		w.createNamespace(namespace, nil)
	}
	w.createNamespace(optedOut, map[string]string{w.label: plan.OptOutValue})
	w.createNamespace(red, map[string]string{"team": "red", "mirrored": ""})
	w.createNamespace(frozen, map[string]string{"team": "red", "mirrored": "", "frozen": "yes"})
	w.bind("", "ClusterRole", "admin", tenant, publisher, elsewhere, byName, owner)
	w.bind("", "ClusterRole", "cluster-admin", operator)
	return w
}

// namedSource is the ConfigMap that byName may publish.
const namedSource = "holder-of-the-name-creates-a-source"

// holders are the users who hold the verb mirror, and a namespace where they do.
var holders = map[string]string{publisher: platform, elsewhere: teamA, byName: platform, owner: platform, operator: platform}

func (w *policed) bindPublishers() {
	w.Helper()
	w.bind(platform, "ClusterRole", "mirror-controller-publisher", publisher)
	w.bind(teamA, "ClusterRole", "mirror-controller-publisher", elsewhere)
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}}
	rule.Verbs, rule.ResourceNames = []string{"mirror"}, []string{namedSource}
	w.bind(platform, "Role", w.role(platform, byName, rule), byName)
	rule.Verbs, rule.ResourceNames = []string{"*"}, nil
	w.bind(platform, "Role", w.role(platform, owner, rule), owner)
}

func (w *policed) role(namespace, name string, rule rbacv1.PolicyRule) string {
	w.Helper()
	_, err := w.admin.RbacV1().Roles(namespace).Create(w.ctx,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return name
}

// bind gives users a role in the namespace; a ClusterRole in all of them if there is none.
func (w *policed) bind(namespace, kind, role string, users ...string) {
	w.Helper()
	var subjects []rbacv1.Subject
	for _, user := range users {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	meta := metav1.ObjectMeta{Name: "test-" + role}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}
	var err error
	if namespace == "" {
		_, err = w.admin.RbacV1().ClusterRoleBindings().Create(w.ctx,
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		_, err = w.admin.RbacV1().RoleBindings(namespace).Create(w.ctx,
			&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// bindAccounts binds the accounts of more controllers, each with settings of its own.
func (w *policed) bindAccounts() {
	w.Helper()
	for user, settings := range map[string]map[string]string{
		several:   {"namespace-prefix": "team-,kube-"},
		unbounded: {"namespace-prefix": ""},
		unset:     nil,
		everyone:  {"all-namespaces": "true", "exclude-namespace": "team-b,plat*"},
		selective: {"namespace-prefix": "team-", "namespace-selector": "team In blue,red\nenv NotIn prod,red\nmirrored Exists\nfrozen DoesNotExist\n"},
		malformed: {"namespace-prefix": "team-", "namespace-selector": "team=red"},
		copying:   {"namespace-prefix": "team-", "copy-label": "team,example.com/*", "copy-annotation": "note"},
		another:   {"namespace-prefix": "team-", "mirror-label": "share", "instance": "third"},
		unlabeled: {"namespace-prefix": "team-"},
	} {
		namespace, name := accountOf(user)
		binding := boundAccount(name, "mirror-controller",
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, settings)
		if user == unlabeled {
			binding.Labels = nil
		}
		w.bindAccount(binding)
	}
}

// accountOf returns namespace and name of the ServiceAccount.
func accountOf(user string) (namespace, name string) {
	namespace, name, _ = strings.Cut(strings.TrimPrefix(user, "system:serviceaccount:"), ":")
	return namespace, name
}

// unbind deletes the binding of an account of bindAccounts, and waits until the account has no permissions.
func (w *policed) unbind(user string) {
	w.Helper()
	_, name := accountOf(user)
	if err := w.admin.RbacV1().ClusterRoleBindings().Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.until(user+" has no permissions", func() error {
		_, err := w.as(user).CoreV1().ConfigMaps(platform).List(w.ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
}

// applyPolicies applies what a component decides by: policies and roles.
func (w *policed) applyPolicies(component string) {
	w.Helper()
	rendered, err := renderWith(w.T, "", component)
	if err != nil {
		w.Fatal(err)
	}
	rendered = slices.DeleteFunc(rendered, func(o *unstructured.Unstructured) bool {
		return !strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") && o.GetKind() != "ClusterRole"
	})
	if err := rendered.Apply(w.ctx, w.cluster.Admin()); err != nil {
		w.Fatal(err)
	}
}

// renderWith renders what a user's kustomization makes of the base in a copy of deploy/, with components and more lines.
func renderWith(t *testing.T, lines string, components ...string) (shipped.Manifests, error) {
	t.Helper()
	dir := t.TempDir()
	whole := "resources: [../deploy/" + filepath.Base(*manifests) + "]\ncomponents:\n"
	for _, component := range components {
		whole += "- ../deploy/components/" + component + "\n"
	}
	folder := filepath.Join(dir, "whole")
	err := errors.Join(os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(deployed("."))), os.Mkdir(folder, 0o755),
		os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(whole+lines), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return shipped.Render(folder)
}

// expectNoWarnings fails the test if the API server finds fault with the types in an expression.
func (w *policed) expectNoWarnings(policies ...string) {
	w.Helper()
	for _, name := range policies {
		var policy *admissionregistrationv1.ValidatingAdmissionPolicy
		w.until("the types of "+name+" are checked", func() (err error) {
			policy, err = w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(w.ctx, name, metav1.GetOptions{})
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
