package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The shipped policies: which requests they let pass and which they refuse. That what the controller needs is let pass is
// shown by all tests, which run with the first policy in force.

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
	several    = "system:serviceaccount:several-system:several-mirror-controller"     // with the prefixes team- and kube-
	unbounded  = "system:serviceaccount:unbounded-system:unbounded-mirror-controller" // with an empty prefix
)

// Namespaces.
const (
	platform, platformToo = "platform", "platform-too" // of sources
	teamA, teamB          = "team-a", "team-b"         // targets
	formerly              = "dev-a"                    // a target by prefixes of an earlier time
	theTeam               = "the-team-a"               // has the prefix in the middle
	excluded              = "kube-public"
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

// A shape is what a ConfigMap has besides data of its own, which depends on where it stands.
type shape func(namespace, name string) []option

func with(o ...option) shape { return func(string, string) []option { return o } }

// but is the shape with more on top.
func (s shape) but(more ...option) shape {
	return func(namespace, name string) []option { return slices.Concat(s(namespace, name), more) }
}

// place is where a request goes.
type place struct {
	corev1client.ConfigMapInterface
	namespace, name string
}

type request func(ctx context.Context, p place) error

func create(s shape) request {
	return func(ctx context.Context, p place) error {
		_, err := p.Create(ctx, configMap(p.namespace, p.name, s(p.namespace, p.name)...), metav1.CreateOptions{})
		return err
	}
}

// createUnnamed leaves the name to the API server.
func createUnnamed(s shape) request {
	return func(ctx context.Context, p place) error {
		cm := configMap(p.namespace, "", s(p.namespace, "")...)
		cm.GenerateName = "unnamed-"
		_, err := p.Create(ctx, cm, metav1.CreateOptions{})
		return err
	}
}

// change reads the ConfigMap and replaces it by itself with changes.
func change(s shape) request {
	return func(ctx context.Context, p place) error {
		cm, err := p.Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, o := range s(p.namespace, p.name) {
			o(cm)
		}
		_, err = p.Update(ctx, cm, metav1.UpdateOptions{})
		return err
	}
}

func changeBy(o ...option) request { return change(with(o...)) }

func patch(kind types.PatchType, body string) request {
	return func(ctx context.Context, p place) error {
		_, err := p.Patch(ctx, p.name, kind, []byte(body), metav1.PatchOptions{})
		return err
	}
}

// apply is a server-side apply of a label and data.
func apply(label, value string) request {
	return func(ctx context.Context, p place) error {
		cm := applycorev1.ConfigMap(p.name, p.namespace).WithLabels(map[string]string{label: value}).
			WithData(map[string]string{"key": "applied"})
		_, err := p.Apply(ctx, cm, metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err
	}
}

func remove(ctx context.Context, p place) error { return p.Delete(ctx, p.name, metav1.DeleteOptions{}) }

// removeSelected deletes all that a selector finds, which is the one.
func removeSelected(ctx context.Context, p place) error {
	return p.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + p.name})
}

// recreate deletes the ConfigMap and creates it with other data, as has to be done with an immutable one.
func recreate(s shape) request {
	return func(ctx context.Context, p place) error {
		if err := remove(ctx, p); err != nil {
			return err
		}
		return create(s.but(withData(map[string]string{"key": "other"})))(ctx, p)
	}
}

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
	return place{w.as(user).CoreV1().ConfigMaps(namespace), namespace, name}
}

// check sends the requests of the rows and compares the answers.
func (w *policed) check(t *testing.T, policy string, rows []row) {
	t.Helper()
	for _, r := range rows {
		name := strings.ToLower(strings.ReplaceAll(r.name, " ", "-"))
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

	w.applyPolicies(w.render("several", "admission/confined"))
	w.applyPolicies(w.render("unbounded", "admission/confined"))
	for _, user := range []string{controller, several, unbounded} {
		w.until(user+" is confined", func() error { return inForce(confinedPolicy, probe(user, platform)) })
	}
	t.Run("confined", func(t *testing.T) { w.check(t, confinedPolicy, w.confinedRows()) })

	w.applyPolicies(w.render("", "admission"))
	w.bindPublishers()
	w.until("publishing is refused", func() error { return inForce(publishersPolicy, probe(tenant, platform, asSource)) })
	for user, namespace := range holders {
		w.until(user+" may publish", func() error { return probe(user, namespace, asSource) })
	}
	t.Run("publishers", func(t *testing.T) { w.check(t, publishersPolicy, w.publisherRows()) })

	w.applyPolicies(w.render("", "protect-copies"))
	protected := w.create(teamA, "protected", w.copied(teamA, "protected")...)
	w.until("the copies are protected", func() error {
		return inForce(protectedPolicy, w.as(tenant).CoreV1().ConfigMaps(teamA).Delete(w.ctx, protected.Name, dryDelete))
	})
	t.Run("protected", func(t *testing.T) { w.check(t, protectedPolicy, w.protectedRows()) })
	t.Run("namespace", w.testNamespaceDeletion)
	t.Run("self-tests", w.testSelfTests)
	w.expectNoWarnings(confinedPolicy, publishersPolicy, protectedPolicy)
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

// settings are what somebody puts below the components, by name: a namespace and a prefix of names, and the argument.
var settings = map[string]string{
	"several":   "--namespace-prefix=team-,kube-",
	"unbounded": "--namespace-prefix=",
}

// render returns the base with components, and with settings of the name, if it is not empty.
func (w *policed) render(name string, components ...string) shipped.Manifests {
	w.Helper()
	m, err := renderWith(w.T, name, settings[name], components...)
	if err != nil {
		w.Fatal(err)
	}
	return m
}

// renderWith renders what a user's kustomizations make of a copy of deploy/.
func renderWith(t *testing.T, name, argument string, components ...string) (shipped.Manifests, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(deployed("."))); err != nil {
		t.Fatal(err)
	}
	write := func(folder, content string) {
		folder = filepath.Join(dir, folder)
		if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	below := "../deploy/" + filepath.Base(*manifests)
	if name != "" {
		write("settings", fmt.Sprintf(`
resources: [%s]
namespace: %s-system
namePrefix: %[2]s-
patches:
- target: {kind: Deployment}
  patch: |
    - {op: replace, path: /spec/template/spec/containers/0/args/0, value: "%s"}
`, below, name, argument))
		below = "../settings"
	}
	whole := "resources: [" + below + "]\ncomponents:\n"
	for _, component := range components {
		whole += "- ../deploy/components/" + component + "\n"
	}
	write("whole", whole)
	return shipped.Render(filepath.Join(dir, "whole"))
}

// applyPolicies applies what decides about requests: policies, which are named after their account if there are such
// already, and roles.
func (w *policed) applyPolicies(m shipped.Manifests) {
	w.Helper()
	account := ""
	for _, o := range m {
		if o.GetKind() == "ServiceAccount" {
			account, _ = strings.CutSuffix(o.GetName(), "mirror-controller")
		}
	}
	var some shipped.Manifests
	for _, o := range m {
		switch o.GetKind() {
		case "ValidatingAdmissionPolicyBinding":
			if err := setPolicyName(o, strings.TrimSuffix(o.GetName()+"-"+account, "-")); err != nil {
				w.Fatal(err)
			}
			some = append(some, o)
		case "ValidatingAdmissionPolicy":
			o.SetName(strings.TrimSuffix(o.GetName()+"-"+account, "-"))
			some = append(some, o)
		case "ClusterRole", "ClusterRoleBinding":
			some = append(some, o)
		}
	}
	if err := some.Apply(w.ctx, w.cluster.Admin()); err != nil {
		w.Fatal(err)
	}
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

// Shapes.

// copied is a copy by all marks.
func (w *policed) copied(namespace, name string) []option {
	return w.marksOfCopy(platform, namespace, name)
}

// copyNamed is a copy under another name.
func (w *policed) copyNamed(name string) shape {
	return func(namespace, _ string) []option {
		return append(w.copied(namespace, name), func(cm *corev1.ConfigMap) { cm.Name = name })
	}
}

// copyOf is a copy by all marks but for its source, which is in the namespace under its own name and more.
func (w *policed) copyOf(source, more string) shape {
	return func(namespace, name string) []option {
		return append(w.copied(namespace, name), withAnnotation(plan.SourceAnnotation, source+"/"+name+more))
	}
}

var (
	plain    = with()
	source   = with(withLabel(plan.DefaultLabel, plan.SourceValue))
	other    = withData(map[string]string{"key": "other"})
	noLabel  = withoutLabel(plan.DefaultLabel)
	asSource = withLabel(plan.DefaultLabel, plan.SourceValue)
	asCopy   = withLabel(plan.DefaultLabel, plan.CopyValue)
	handOver = withAnnotation(plan.AdoptAnnotation, plan.AdoptValue)
	noMarks  = func(cm *corev1.ConfigMap) { cm.Annotations = nil }
	held     = func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/hold"} }
	free     = func(cm *corev1.ConfigMap) { cm.Finalizers = nil }
	owned    = func(cm *corev1.ConfigMap) {
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}}
	}
	otherInstance = withAnnotation(plan.InstanceAnnotation, "another")
)

// What the policies say.
const (
	notThere     = "is none of them"
	notCopy      = "is not a copy of instance \"default\" by its annotations, and was not handed over"
	wouldNotBe   = "would not be one of instance \"default\", with the label mirror=copy"
	needsVerb    = "needs the verb \"mirror\" on configmaps there, such as ClusterRole mirror-controller-publisher gives"
	ofOthers     = "another controller writes"
	noHolds      = "it sets no finalizers and no owners"
	isAProtected = "only mirror-controller may change or delete it: change the source, and it follows"
)

func (w *policed) confinedRows() []row {
	copied := shape(w.copied)
	restored := func(namespace, name string) []option { return w.marksOfCopy(platform, teamB, name) }
	return []row{
		// Where.
		{"copy created", controller, teamA, nil, create(copied), ""},
		{"copy created outside the prefix", controller, platform, nil, create(copied), notThere},
		{"copy created where the prefix is in the middle", controller, theTeam, nil, create(copied), notThere},
		{"copy created with the first of several prefixes", several, teamA, nil, create(copied), ""},
		{"copy created in an excluded namespace", several, excluded, nil, create(copied), notThere},
		{"copy created with an empty prefix", unbounded, teamA, nil, create(copied), notThere},
		{"copy changed outside the prefix", controller, formerly, copied, changeBy(other), notThere},
		{"copy deleted that earlier prefixes have left", controller, formerly, copied, remove, ""},
		{"foreign object deleted outside the prefix", controller, platform, plain, remove, notThere},
		{"object handed over outside the prefix", controller, platform, with(handOver), change(copied), notThere},
		{"object handed over and deleted outside the prefix", controller, platform, with(handOver), remove, notThere},

		// What is created.
		{"plain object created", controller, teamA, nil, create(plain), wouldNotBe},
		{"source created", controller, teamA, nil, create(source), wouldNotBe},
		{"source created outside the prefix", controller, platform, nil, create(source), notThere},
		{"copy created without the label", controller, teamA, nil, create(copied.but(noLabel)), wouldNotBe},
		{"copy created as a source", controller, teamA, nil, create(copied.but(asSource)), wouldNotBe},
		{"copy created with a finalizer", controller, teamA, nil, create(copied.but(held)), noHolds},
		{"copy created with an owner", controller, teamA, nil, create(copied.but(owned)), noHolds},
		{"finalizer set", controller, teamA, copied, changeBy(held), noHolds},
		{"finalizer of others taken away", controller, teamA, copied.but(held), changeBy(free), noHolds},
		{"owner set", controller, teamA, copied, changeBy(owned), noHolds},
		{"copy changed that others hold", controller, teamA, copied.but(held), changeBy(other), ""},
		{"reserved name of the platform created", controller, teamA, nil, create(w.copyNamed("openshift-service-ca.crt")), ofOthers},
		{"reserved name of the mesh created", controller, teamA, nil, create(w.copyNamed("istio-ca-root-cert")), ofOthers},
		{"reserved name of the cluster created", controller, teamA, nil, create(w.copyNamed("kube-root-ca.crt")), ofOthers},
		{"label alone created", controller, teamA, nil, create(with(asCopy)), wouldNotBe},
		{"copy created of another instance", controller, teamA, nil, create(copied.but(otherInstance)), wouldNotBe},
		{"copy created that names another place", controller, teamA, nil, create(restored), wouldNotBe},
		{"copy created without a source", controller, teamA, nil, create(copied.but(withoutAnnotation(plan.SourceAnnotation))), wouldNotBe},
		{"copy created of a source of another name", controller, teamA, nil, create(w.copyOf(platform, "-too")), wouldNotBe},
		{"copy created of a source nowhere", controller, teamA, nil, create(w.copyOf("", "")), wouldNotBe},
		{"copy created of itself", controller, teamA, nil, create(w.copyOf(teamA, "")), wouldNotBe},
		{"copy created with a name to be made up", controller, teamA, nil, createUnnamed(copied), wouldNotBe},

		// What is changed.
		{"copy changed", controller, teamA, copied, changeBy(other), ""},
		{"label dropped by somebody and put back", controller, teamA, copied.but(noLabel), changeBy(asCopy, other), ""},
		{"label forged to true by somebody and put back", controller, teamA, copied.but(asSource), changeBy(asCopy), ""},
		{"label dropped by the controller", controller, teamA, copied, changeBy(noLabel), wouldNotBe},
		{"copy made a source", controller, teamA, copied, changeBy(asSource), wouldNotBe},
		{"copy made a source without marks", controller, teamA, copied, changeBy(asSource, noMarks), wouldNotBe},
		{"copy released", controller, teamA, copied, changeBy(noMarks), wouldNotBe},
		{"copy moved to another instance", controller, teamA, copied, changeBy(otherInstance), wouldNotBe},
		{"copy taken from another instance", controller, teamA, copied.but(otherInstance), change(copied), notCopy},
		{"label forged on a foreign object", controller, teamA, with(asCopy), change(copied), notCopy},
		{"foreign object changed", controller, teamA, plain, changeBy(other), notCopy},
		{"foreign object adopted without leave", controller, teamA, plain, change(copied), notCopy},
		{"foreign object adopted", controller, teamA, with(handOver), change(copied.but(withoutAnnotation(plan.AdoptAnnotation))), ""},
		{"foreign object adopted with the label", controller, teamA, with(handOver, asCopy), change(copied), ""},
		{"foreign object changed and not adopted", controller, teamA, with(handOver), changeBy(other), wouldNotBe},
		{"copy with a broken source adopted", controller, teamA,
			copied.but(handOver, withAnnotation(plan.SourceAnnotation, "nonsense")), change(copied), ""},
		{"restored backup changed", controller, teamA, restored, change(copied), notCopy},
		{"copy of another source labelled as one adopted", controller, teamA,
			copied.but(withAnnotation(plan.SourceAnnotation, "platform/other"), asSource, handOver), change(copied), ""},
		{"source adopted", controller, teamA, source.but(handOver), change(copied), notCopy},
		{"copy of another instance adopted", controller, teamA, copied.but(otherInstance, handOver), change(copied), notCopy},
		{"source changed", controller, teamA, source, changeBy(other), notCopy},
		{"source unlabelled", controller, teamA, source, changeBy(noLabel), notCopy},
		{"source overwritten by a copy", controller, teamA, source, change(copied), notCopy},
		{"source changed outside the prefix", controller, platform, source, changeBy(other), notThere},

		// What is deleted.
		{"copy deleted", controller, teamA, copied, remove, ""},
		{"copy without the label deleted", controller, teamA, copied.but(noLabel), remove, ""},
		{"copy with a forged label deleted", controller, teamA, copied.but(asSource), remove, ""},
		{"immutable copy recreated", controller, teamA, copied.but(setImmutable), recreate(copied), ""},
		{"immutable object that was handed over recreated", controller, teamA, with(setImmutable, handOver), recreate(copied), ""},
		{"foreign object deleted", controller, teamA, plain, remove, notCopy},
		{"foreign object with the label deleted", controller, teamA, with(asCopy), remove, notCopy},
		{"restored backup deleted", controller, teamA, restored, remove, notCopy},
		{"copy of another instance deleted", controller, teamA, copied.but(otherInstance), remove, notCopy},
		{"source deleted", controller, teamA, source, remove, notCopy},

		// Others are not held.
		{"plain object created by a tenant", tenant, platform, nil, create(plain), ""},
		{"copy deleted by a tenant", tenant, teamA, copied, remove, ""},
	}
}

func (w *policed) publisherRows() []row {
	copied := shape(w.copied)
	const setLabel = `{"metadata":{"labels":{"mirror":"true"}}}`
	return []row{
		// Publish.
		{"tenant creates a source", tenant, platform, nil, create(source), needsVerb},
		{"tenant creates a source without a name", tenant, platform, nil, createUnnamed(source), needsVerb},
		{"tenant applies a source", tenant, platform, nil, apply("mirror", "true"), needsVerb},
		{"tenant sets the label by update", tenant, platform, plain, changeBy(asSource), needsVerb},
		{"tenant sets the label by merge patch", tenant, platform, plain, patch(types.MergePatchType, setLabel), needsVerb},
		{"tenant sets the label by strategic merge patch", tenant, platform, plain, patch(types.StrategicMergePatchType, setLabel), needsVerb},
		{"tenant sets the label by JSON patch", tenant, platform, plain,
			patch(types.JSONPatchType, `[{"op":"add","path":"/metadata/labels","value":{"mirror":"true"}}]`), needsVerb},
		{"tenant sets the label by apply", tenant, platform, plain, apply("mirror", "true"), needsVerb},
		{"publisher creates a source", publisher, platform, nil, create(source), ""},
		{"publisher creates a source without a name", publisher, platform, nil, createUnnamed(source), ""},
		{"publisher applies a source", publisher, platform, nil, apply("mirror", "true"), ""},
		{"publisher sets the label by update", publisher, platform, plain, changeBy(asSource), ""},
		{"publisher sets the label by patch", publisher, platform, plain, patch(types.MergePatchType, setLabel), ""},
		{"publisher publishes in another namespace", publisher, platformToo, nil, create(source), needsVerb},
		{"holder of another namespace creates a source", elsewhere, platform, nil, create(source), needsVerb},
		{"holder of the namespace creates a source", elsewhere, teamA, nil, create(source), ""},
		{"holder of the name creates a source", byName, platform, nil, create(source), ""},
		{"holder of another name creates a source", byName, platform, nil, create(source), needsVerb},
		{"holder of a name creates a source without one", byName, platform, nil, createUnnamed(source), needsVerb},
		{"owner with all verbs creates a source", owner, platform, nil, create(source), ""},
		{"cluster admin creates a source", operator, platform, nil, create(source), ""},

		// Change.
		{"tenant changes the data of a source", tenant, platform, source, changeBy(other), needsVerb},
		{"tenant patches the data of a source", tenant, platform, source, patch(types.MergePatchType, `{"data":{"key":"other"}}`), needsVerb},
		{"tenant applies the data of a source", tenant, platform, source, apply("team", "red"), needsVerb},
		{"tenant narrows a source", tenant, platform, source, changeBy(withAnnotation(plan.PrefixAnnotation, "team-b")), needsVerb},
		{"tenant has the garbage collector delete a source", tenant, platform, source, changeBy(owned), needsVerb},
		{"tenant passes a source off as a copy", tenant, platform, source, change(copied.but(asSource)), needsVerb},
		{"publisher changes the data of a source", publisher, platform, source, changeBy(other), ""},
		{"cluster admin changes the data of a source", operator, platform, source, changeBy(other), ""},

		// Withdraw.
		{"tenant unpublishes", tenant, platform, source, changeBy(noLabel), needsVerb},
		{"tenant sets the label of a source to another value", tenant, platform, source, changeBy(withLabel(plan.DefaultLabel, "off")), needsVerb},
		{"tenant deletes a source", tenant, platform, source, remove, needsVerb},
		{"tenant deletes a collection with a source", tenant, platform, source, removeSelected, needsVerb},
		{"holder of another namespace deletes a source", elsewhere, platform, source, remove, needsVerb},
		{"publisher unpublishes", publisher, platform, source, changeBy(noLabel), ""},
		{"publisher deletes a source", publisher, platform, source, remove, ""},
		{"publisher deletes a collection with a source", publisher, platform, source, removeSelected, ""},
		{"namespace controller deletes a source", namespaceController, platform, source, remove, ""},
		{"namespace controller deletes a collection with a source", namespaceController, platform, source, removeSelected, ""},
		{"garbage collector deletes a source", garbageCollector, platform, source, remove, ""},
		{"tenant lets a deleted source go", tenant, platform, source.but(held), func(ctx context.Context, p place) error {
			if err := remove(ctx, w.at(publisher, p.namespace, p.name)); err != nil {
				return err
			}
			return changeBy(free)(ctx, p)
		}, ""},

		// What is no source.
		{"tenant creates a plain object", tenant, platform, nil, create(plain), ""},
		{"tenant changes a plain object", tenant, platform, plain, changeBy(other), ""},
		{"tenant deletes a plain object", tenant, platform, plain, remove, ""},
		{"tenant sets the label to another value", tenant, platform, plain, changeBy(withLabel(plan.DefaultLabel, "off")), ""},
		{"tenant labels a copy as a source", tenant, teamA, copied, changeBy(asSource), ""},
		{"tenant puts the label of a copy back", tenant, teamA, copied.but(asSource), changeBy(asCopy), ""},
		{"tenant deletes a copy labelled as a source", tenant, teamA, copied.but(asSource), remove, ""},
		{"controller restores a copy labelled as a source", controller, teamA, copied.but(asSource), changeBy(asCopy), ""},
		{"tenant makes a copy a source", tenant, teamA, copied, changeBy(asSource, noMarks), needsVerb},
		{"tenant makes a copy labelled as a source one", tenant, teamA, copied.but(asSource), changeBy(noMarks), needsVerb},
		{"tenant restores a copy elsewhere as a source", tenant, teamA, nil,
			create(func(_, name string) []option { return append(w.copied(teamB, name), asSource) }), needsVerb},
	}
}

func (w *policed) protectedRows() []row {
	copied := shape(w.copied)
	return []row{
		{"tenant changes a copy", tenant, teamA, copied, changeBy(other), isAProtected},
		{"tenant patches a copy", tenant, teamA, copied, patch(types.MergePatchType, `{"data":{"key":"other"}}`), isAProtected},
		{"tenant applies to a copy", tenant, teamA, copied, apply("team", "red"), isAProtected},
		{"tenant drops the label of a copy", tenant, teamA, copied, changeBy(noLabel), isAProtected},
		{"tenant forges the label of a copy", tenant, teamA, copied, changeBy(asSource), isAProtected},
		{"tenant drops label and marks of a copy", tenant, teamA, copied, changeBy(noLabel, noMarks), isAProtected},
		{"tenant releases a copy", tenant, teamA, copied, changeBy(noMarks), isAProtected},
		{"tenant has the garbage collector delete a copy", tenant, teamA, copied, changeBy(owned), isAProtected},
		{"tenant deletes a copy", tenant, teamA, copied, remove, isAProtected},
		{"tenant deletes a collection with a copy", tenant, teamA, copied, removeSelected, isAProtected},
		{"tenant deletes a copy labelled as a source", tenant, teamA, copied.but(asSource), remove, isAProtected},
		{"publisher changes a copy", publisher, teamA, copied, changeBy(other), isAProtected},
		{"cluster admin changes a copy", operator, teamA, copied, changeBy(other), isAProtected},
		{"cluster admin deletes a copy", operator, teamA, copied, remove, isAProtected},
		{"tenant deletes a copy that earlier prefixes have left", tenant, formerly, copied, remove, isAProtected},
		{"controller changes a copy", controller, teamA, copied, changeBy(other), ""},
		{"controller restores a label", controller, teamA, copied.but(noLabel), changeBy(asCopy), ""},
		{"controller restores a forged label", controller, teamA, copied.but(asSource), changeBy(asCopy), ""},
		{"controller recreates a copy", controller, teamA, copied.but(setImmutable), recreate(copied), ""},
		{"controller deletes a copy", controller, teamA, copied, remove, ""},
		{"another controller deletes a copy", several, teamA, copied, remove, isAProtected},
		{"namespace controller deletes a copy", namespaceController, teamA, copied, remove, ""},
		{"namespace controller deletes a collection with a copy", namespaceController, teamA, copied, removeSelected, ""},
		{"garbage collector deletes a copy", garbageCollector, teamA, copied, remove, ""},
		{"tenant lets a deleted copy go", tenant, teamA, copied.but(held), func(ctx context.Context, p place) error {
			if err := remove(ctx, w.at(controller, p.namespace, p.name)); err != nil {
				return err
			}
			return changeBy(free)(ctx, p)
		}, ""},
		{"tenant changes a foreign object with the label", tenant, teamA, with(asCopy), changeBy(other), ""},
		{"tenant hands an object over", tenant, teamA, plain, changeBy(handOver, asCopy), ""},
		{"tenant deletes a plain object", tenant, teamA, plain, remove, ""},
		{"tenant deletes a copy of another instance", tenant, teamA, copied.but(otherInstance), remove, ""},
		{"tenant deletes a restored backup", tenant, teamA,
			func(_, name string) []option { return w.copied(teamB, name) }, remove, ""},
		{"tenant deletes what names a source nowhere", tenant, teamA, w.copyOf("", ""), remove, ""},
		{"tenant deletes what names a source of another name", tenant, teamA, w.copyOf(platform, "-too"), remove, ""},
		{"tenant deletes what names itself as the source", tenant, teamA, w.copyOf(teamA, ""), remove, ""},
		{"publisher changes a source", publisher, platform, source, changeBy(other), ""},
		{"publisher deletes a source", publisher, platform, source, remove, ""},
		{"publisher deletes a copy", publisher, teamA, copied, remove, isAProtected},
		{"garbage collector lets a copy go", garbageCollector, teamA, copied.but(owned, held), // or the real one is faster
			patch(types.MergePatchType, `{"metadata": {"ownerReferences": null}}`), ""},
		{"tenant annotates a copy", tenant, teamA, copied, changeBy(withAnnotation("team", "red")), isAProtected},
		{"tenant makes a copy immutable", tenant, teamA, copied, changeBy(setImmutable), isAProtected},
		{"tenant makes a copy that of another instance", tenant, teamA, copied, changeBy(otherInstance), isAProtected},
		{"tenant holds a copy with a finalizer", tenant, teamA, copied, changeBy(held), isAProtected},
		{"publisher gives a source the label of a copy", publisher, platform, source, changeBy(asCopy), ""},
		{"tenant takes the label off what is no copy", tenant, teamA, with(asCopy), changeBy(noLabel), ""},
		{"tenant creates an object with the marks of a copy", tenant, teamA, nil, create(copied), ""},
	}
}

// testNamespaceDeletion deletes a namespace that holds sources and protected copies. Before anybody empties it, a
// tenant may do that too; then the namespace controller does, and the namespace goes.
func (w *policed) testNamespaceDeletion(t *testing.T) {
	const going = "team-going"
	w.createNamespace(going, nil)
	source := []option{withLabel(w.label, plan.SourceValue)}
	for _, name := range []string{"mine", "stays"} {
		w.create(going, "copy-"+name, w.copied(going, "copy-"+name)...)
		w.create(going, "source-"+name, source...)
	}
	manager := func(sig syscall.Signal) {
		if err := w.cluster.Signal(cluster.ControllerManager, sig); err != nil {
			t.Fatal(err)
		}
	}
	expectAnswer(t, protectedPolicy, isAProtected, remove(w.ctx, w.at(tenant, going, "copy-mine")))
	expectAnswer(t, publishersPolicy, needsVerb, remove(w.ctx, w.at(tenant, going, "source-mine")))
	if t.Failed() {
		return // what is waited for below needs them
	}
	manager(syscall.SIGSTOP)
	defer manager(syscall.SIGCONT)
	w.deleteNamespace(going)
	for _, name := range []string{"copy-mine", "source-mine"} {
		w.until("a tenant may empty a namespace that goes", func() error { return remove(w.ctx, w.at(tenant, going, name)) })
	}
	expectAnswer(t, protectedPolicy, isAProtected, changeBy(other)(w.ctx, w.at(tenant, going, "copy-stays")))
	expectAnswer(t, publishersPolicy, needsVerb, changeBy(other)(w.ctx, w.at(tenant, going, "source-stays")))
	manager(syscall.SIGCONT)
	w.waitNamespaceGone(going)
}

// selfTest finds, in the manual, an answer that a reader is to get, and the command to get it with.
var selfTest = regexp.MustCompile("(?s)must be refused with `([^`]+)`:\n\n```\n(.*?)```")

// testSelfTests runs the commands by which the manual has its readers see that the policies hold.
func (w *policed) testSelfTests(t *testing.T) {
	manual, err := os.ReadFile(deployed("README.md"))
	if err != nil {
		t.Fatal(err)
	}
	copied := w.create(teamA, "self-test", w.copied(teamA, "self-test")...)
	settings := []*strings.Replacer{
		strings.NewReplacer(), // as the controller that is shipped
		strings.NewReplacer("NAMESPACE", platform, "USER", tenant),
		strings.NewReplacer("NAMESPACE", teamA, "COPY", copied.Name),
	}
	found := selfTest.FindAllStringSubmatch(string(manual), -1)
	if len(found) != len(settings) {
		t.Fatalf("the manual has %d self-tests, want %d", len(found), len(settings))
	}
	for i, match := range found {
		answer, script := match[1], settings[i].Replace(match[2])
		cmd := w.cluster.Command(w.ctx, "sh", "-ec", script)
		cmd.Env = append(cmd.Env, "KUBECONFIG="+w.cluster.AdminKubeconfig(), "PATH="+filepath.Dir(w.cluster.Kubectl())+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), answer) {
			t.Errorf("%s: %v, %s", script, err, out)
		}
	}
}

// TestPoliciesFollowDeployment renders the policies with settings of all kinds below them: what stands in them as text
// is what the rendered Deployment, its account and the defaults of its flags are.
func TestPoliciesFollowDeployment(t *testing.T) {
	t.Parallel()
	for name, argument := range map[string]string{
		"": "", "one": "--namespace-prefix=dev-", "many": "--namespace-prefix=team-,dev-,kube-",
	} {
		t.Run(argument, func(t *testing.T) {
			m, err := renderWith(t, name, argument, "admission", "protect-copies")
			if err != nil {
				t.Fatal(err)
			}
			deployment, err := m.Deployment()
			if err != nil {
				t.Fatal(err)
			}
			pod := deployment.Spec.Template.Spec
			account := fmt.Sprintf("'system:serviceaccount:' + '%s' + ':' + '%s'", deployment.Namespace, pod.ServiceAccountName)
			var prefixes []string
			for _, arg := range pod.Containers[0].Args {
				if p, ok := strings.CutPrefix(arg, "--namespace-prefix="); ok {
					prefixes = append(prefixes, p)
				}
				for _, fixed := range []string{"--mirror-label", "--instance", "--exclude-namespace"} {
					if strings.HasPrefix(arg, fixed) {
						t.Errorf("the Deployment has %s, and the policies its default", arg)
					}
				}
			}
			defaults := mirror.NewOptions()
			expectVariables(t, m, map[string]string{
				"prefixes": "'" + strings.Join(prefixes, ",") + "'.split(',')",
				"excluded": "'" + strings.Join(defaults.ExcludeNamespaces, ",") + "'.split(',')",
				"label":    "'" + defaults.Label + "'",
				"instance": "'" + defaults.Instance + "'",
			})
			conditions := map[string]string{
				confinedPolicy:  "request.userInfo.username == " + account,
				protectedPolicy: "request.userInfo.username != " + account,
			}
			for _, policy := range policiesOf(t, m) {
				if want := conditions[policy.Name]; want != "" && policy.Spec.MatchConditions[0].Expression != want {
					t.Errorf("condition of %s: %s, want %s", policy.Name, policy.Spec.MatchConditions[0].Expression, want)
				}
				if s := policy.Spec.MatchConstraints.ObjectSelector; s != nil && s.MatchExpressions[0].Key != defaults.Label {
					t.Errorf("%s selects by %s", policy.Name, s.MatchExpressions[0].Key)
				}
			}
		})
	}
	if _, err := renderWith(t, "all", "--all-namespaces", "admission"); err == nil {
		t.Error("the policy was rendered for all namespaces, with which prefix?")
	}
}

func policiesOf(t *testing.T, m shipped.Manifests) []admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	var out []admissionregistrationv1.ValidatingAdmissionPolicy
	for _, o := range m {
		if o.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy); err != nil {
			t.Fatal(err)
		}
		out = append(out, policy)
	}
	if len(out) != 3 {
		t.Errorf("%d policies, want 3", len(out))
	}
	return out
}

// expectVariables fails the test unless the variables of these names are so in each policy that has them, and each name
// is in one.
func expectVariables(t *testing.T, m shipped.Manifests, want map[string]string) {
	t.Helper()
	found := map[string]bool{}
	for _, policy := range policiesOf(t, m) {
		for _, v := range policy.Spec.Variables {
			if expression, ok := want[v.Name]; ok {
				found[v.Name] = true
				if v.Expression != expression {
					t.Errorf("variable %s of %s is %s, want %s", v.Name, policy.Name, v.Expression, expression)
				}
			}
		}
	}
	if len(found) != len(want) {
		t.Errorf("variables %v, want all of %v", found, want)
	}
}
