package policies

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Accounts that attack, each with the permissions that it has in an ordinary cluster. The fifth is the controller's own, of
// which somebody else has the token.
const (
	inTarget = "edit-in-target" // edit in team-a
	inHome   = "edit-in-home"   // edit in platform, which is no target
	creator  = "creator"        // creates, labels and deletes namespaces, and nothing else
	deployer = "system:serviceaccount:platform:deployer"
)

// attack is a request, and what the controller, which runs, makes of it.
type attack struct {
	row
	effect effect
}

// effect returns nil when the cluster is what the request and the controller have made of it.
type effect func(w *attacked, at place) error

// byRBAC is how the refusal begins that a role, not a policy, is the reason of.
const byRBAC = "cannot "

// attacked is a cluster with the policies that most clusters want, a controller that runs as installed, and the accounts.
type attacked struct {
	*Policed
	before  map[string]map[string]string // resourceVersions of each name, before its request, by namespace
	answers map[string]error
	left    map[string]string // the resourceVersion of each name in its namespace, right behind the answer
}

// TestAttacks has accounts do what they may and may not. It sends all requests before it looks for effects, so that it waits only
// once for the controller's delays.
func TestAttacks(t *testing.T) {
	t.Parallel()
	w := newAttacked(t)
	rows := slices.Concat(w.controllerAttacks(), w.targetAttacks(), w.homeAttacks(), w.deployerAttacks(), w.creatorAttacks(), w.roleAttacks())
	for _, r := range rows {
		w.prepare(t, r)
	}
	w.Eventually("the controller has seen what is there", func() error { return w.allPrepared(rows) })
	w.late("before")
	for _, r := range rows {
		w.before[r.slug()] = w.must(w.everywhere(r.slug()))
	}
	for _, r := range rows {
		w.answers[r.slug()] = r.send(w.Context(), w.at(r.as, r.namespace, r.slug()))
		w.left[r.slug()] = w.must(w.everywhere(r.slug()))[r.namespace]
	}
	w.late("behind")
	accounts := map[string]int{}
	for _, r := range rows {
		accounts[r.as]++
		t.Run(r.slug(), func(t *testing.T) {
			expectRefusal(t, r.refused, w.answers[r.slug()])
			if err := w.Seen.Eventually(w.Context(), suite.Patience, func() error { return r.effect(w, w.at(r.as, r.namespace, r.slug())) }); err != nil {
				t.Errorf("the effect: %v", err)
			}
		})
	}
	w.Logf("%d attacks: %v", len(rows), accounts)
	if len(accounts) != 5 || len(rows) < 130 {
		t.Errorf("%d rows of %d accounts, want 130 of 5", len(rows), len(accounts))
	}
}

// expectRefusal fails the test unless a policy says so, or RBAC, or nobody if refused is empty.
func expectRefusal(t *testing.T, refused string, err error) {
	t.Helper()
	if !strings.HasPrefix(refused, byRBAC) {
		expectAnswer(t, "", refused, err)
		return
	}
	if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), suite.Refusal) || !strings.Contains(err.Error(), refused) {
		t.Errorf("the answer is %v, want that the account %s", err, refused)
	}
}

func newAttacked(t *testing.T) *attacked {
	t.Helper()
	w := &attacked{New(t), map[string]map[string]string{}, map[string]error{}, map[string]string{}}
	w.applyPolicies("admission")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "deployer"}}
	if _, err := w.Admin.CoreV1().ServiceAccounts(platform).Create(w.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.bind(teamA, "ClusterRole", "edit", inTarget)
	w.bind(platform, "ClusterRole", "edit", inHome, deployer)
	w.bind(platform, "ClusterRole", "mirror-controller-publisher", deployer)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: creator}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get", "update", "patch", "delete"}},
	}}
	if _, err := w.Admin.RbacV1().ClusterRoles().Create(w.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.bind("", "ClusterRole", creator, creator)
	w.Until("publishing is refused", func() error { return InForce(publishersPolicy, w.Probe(inHome, platform, asSource)) })
	w.Until("the deploy account may publish", func() error { return w.Probe(deployer, platform, asSource) })
	w.Until("the creator may create", func() error {
		_, err := w.as(creator).CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, dryCreate)
		return err
	})
	w.Until("the tenant may edit", func() error { return w.Probe(inTarget, teamA) })

	installed, err := shipped.Deployed(w.Context(), w.Cluster, "mirror-system", "mirror-controller", *suite.Binary)
	if err != nil {
		t.Fatal(err)
	}
	// Nobody starts it again if it loses its lease because the machine is slow.
	patient := []string{"--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m"}
	p, err := installed.Start(shipped.RunOptions{Args: patient})
	if err != nil {
		t.Fatal(err)
	}
	w.StopAtEnd(p)
	w.WaitLog(p, suite.Leading)
	w.CreateNamespace(leaves, nil)
	w.CreateNamespace(ends, nil)
	w.CreateNamespace(joins, map[string]string{w.Label: plan.OptOutValue})
	w.WaitInSync(w.CreateSource(platform, forAll), leaves, ends)
	return w
}

// targetNamespaces are those into which the controller copies all the time, and stage are all that rows of ConfigMaps are about.
var (
	targetNamespaces = []string{teamA, teamB, red, frozen}
	stage            = slices.Concat(targetNamespaces, []string{platform, platformToo, formerly, theTeam, optedOut, excluded})
)

// wanted is the mark of what stands in the way of a source of that name.
var wanted = suite.WithAnnotation(wantedMark, "")

const wantedMark = "example.com/wanted"

func hasWanted(cm *corev1.ConfigMap) bool {
	_, ok := cm.Annotations[wantedMark]
	return ok
}

// prepare makes what is to be there before the request. A copy, and what is wanted, have a source.
func (w *attacked) prepare(t *testing.T, r attack) {
	t.Helper()
	if r.there == nil {
		return
	}
	name := r.slug()
	cm := w.created(t, r.namespace, name, r.there(r.namespace, name))
	if hasWanted(cm) || w.hasSource(cm) {
		w.created(t, platform, name, []suite.Option{asSource})
	}
}

func (w *attacked) created(t *testing.T, namespace, name string, o []suite.Option) *corev1.ConfigMap {
	t.Helper()
	cm, err := w.Admin.CoreV1().ConfigMaps(namespace).Create(w.Context(), suite.ConfigMap(namespace, name, o...), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

// hasSource reports whether the ConfigMap is by its marks a copy, there, of a source of its name in platform.
func (w *attacked) hasSource(cm *corev1.ConfigMap) bool {
	here, there := cm.Namespace+"/"+cm.Name, platform+"/"+cm.Name
	a := cm.Annotations
	return a[plan.CopyAnnotation] == here && a[plan.InstanceAnnotation] == w.Instance && a[plan.SourceAnnotation] == there && here != there
}

// allPrepared returns nil when each copy that there is to be is in sync with its source, and each source has its copies.
func (w *attacked) allPrepared(rows []attack) error {
	var errs []error
	for _, r := range rows {
		name := r.slug()
		cm := w.Seen.ConfigMap(r.namespace, name)
		if r.there == nil || cm == nil {
			continue
		}
		switch {
		case cm.Labels[w.Label] == plan.SourceValue:
			errs = append(errs, w.mirroredFrom(r.namespace, name, targetNamespaces))
		case w.hasSource(cm):
			errs = append(errs, w.mirroredFrom(platform, name, targetNamespaces))
		case hasWanted(cm):
			for _, target := range targetNamespaces {
				if target != r.namespace {
					errs = append(errs, w.inSyncNow(platform, target, name))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// late returns when the controller has done what is up to now to do, also what it waits a second for.
func (w *attacked) late(name string) {
	w.Helper()
	source := w.CreateSource(w.Home, "late-"+name)
	w.WaitInSync(source, targetNamespaces...)
	w.Delete(w.Home, source.Name)
	w.WaitGone(source.Name, targetNamespaces...)
}

// everywhere returns the resourceVersions of all ConfigMaps of the name, by namespace.
func (w *attacked) everywhere(name string) (map[string]string, error) {
	list, err := w.Admin.CoreV1().ConfigMaps("").List(w.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, cm := range list.Items {
		if slices.Contains(stage, cm.Namespace) {
			out[cm.Namespace] = cm.ResourceVersion
		}
	}
	return out, nil
}

func (w *attacked) must(versions map[string]string, err error) map[string]string {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	return versions
}

// expectVersions returns nil if the resourceVersions of the name are these.
func (w *attacked) expectVersions(name string, want map[string]string) error {
	now, err := w.everywhere(name)
	if err == nil && !maps.Equal(now, want) {
		err = fmt.Errorf("the resourceVersions are %v, want %v", now, want)
	}
	return err
}

// Effects.

// unchanged: nothing of that name is another anywhere.
func unchanged(w *attacked, at place) error {
	return w.expectVersions(at.name, w.before[at.name])
}

// kept expects that the result of the request stays as it is, and that no other object of that name changes.
func kept(w *attacked, at place) error {
	want := maps.Clone(w.before[at.name])
	if want[at.namespace] = w.left[at.name]; want[at.namespace] == "" {
		delete(want, at.namespace)
	}
	return w.expectVersions(at.name, want)
}

// restored: all targets have a copy in sync with the source in platform.
func restored(w *attacked, at place) error {
	return w.mirroredFrom(platform, at.name, targetNamespaces)
}

// mirrored: the object is a source, and all targets have its copy.
func mirrored(w *attacked, at place) error {
	return w.mirroredFrom(at.namespace, at.name, targetNamespaces)
}

// onlyIn: the object is a source, and only these namespaces have its copy.
func onlyIn(namespaces ...string) effect {
	return func(w *attacked, at place) error { return w.mirroredFrom(at.namespace, at.name, namespaces) }
}

// withdrawn: no target has a copy.
func withdrawn(w *attacked, at place) error {
	if having := w.Having(targetNamespaces, at.name); len(having) > 0 {
		return fmt.Errorf("there is one in %v", having)
	}
	return nil
}

// cleared: there is nothing of that name where the request went, nor in any target.
func cleared(w *attacked, at place) error {
	if w.Seen.ConfigMap(at.namespace, at.name) != nil {
		return errors.New("it is still there")
	}
	return withdrawn(w, at)
}

// mirroredFrom returns nil if these namespaces, but for that of the source, have a copy that is in sync, and no others on the
// stage.
func (w *attacked) mirroredFrom(namespace, name string, targets []string) error {
	for _, target := range stage {
		switch {
		case target == namespace:
		case slices.Contains(targets, target):
			if err := w.inSyncNow(namespace, target, name); err != nil {
				return err
			}
		case target != formerly && w.Seen.ConfigMap(target, name) != nil:
			return fmt.Errorf("there is one in %s", target)
		}
	}
	return nil
}

func (w *attacked) inSyncNow(namespace, target, name string) error {
	source := w.Seen.ConfigMap(namespace, name)
	if source == nil || source.Labels[w.Label] != plan.SourceValue {
		return fmt.Errorf("%s/%s is no source", namespace, name)
	}
	return w.InSync(source, target)
}
