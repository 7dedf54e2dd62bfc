// Package policies shows what the shipped manifests allow: the admission policies, the roles, and the arguments of the
// Deployment.
package policies

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Users. All people may edit ConfigMaps everywhere, and differ in where they hold the verb mirror.
const (
	tenant    = "tenant"    // nowhere: an admin of namespaces by the ClusterRole that every cluster has
	publisher = "publisher" // in platform, by the shipped ClusterRole
	elsewhere = "elsewhere" // in team-a, likewise
	byName    = "by-name"   // in platform, for one ConfigMap
	operator  = "operator"  // everywhere: a cluster admin

	namespaceController = "system:serviceaccount:kube-system:namespace-controller"
	garbageCollector    = "system:serviceaccount:kube-system:generic-garbage-collector"

	controller = "system:serviceaccount:mirror-system:mirror-controller"
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

// Policed is the world in which the policies are in force. It has the shipped label and instance.
type Policed struct {
	*suite.World
	clients map[string]kubernetes.Interface
}

// as returns a client for the user.
func (w *Policed) as(user string) kubernetes.Interface {
	w.Helper()
	if w.clients[user] == nil {
		cfg := w.Cluster.Admin()
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			w.Fatal(err)
		}
		w.clients[user] = client
	}
	return w.clients[user]
}

func (w *Policed) at(user, namespace, name string) place {
	w.Helper()
	return place{w.as(user).CoreV1().ConfigMaps(namespace), namespace, name}
}

// check sends the requests of the rows and compares the answers.
func (w *Policed) check(t *testing.T, policy string, rows []row) {
	t.Helper()
	for _, r := range rows {
		name := r.slug()
		t.Run(name, func(t *testing.T) {
			if r.there != nil {
				cm := suite.ConfigMap(r.namespace, name, r.there(r.namespace, name)...)
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

var (
	dryCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	DryDelete = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
)

// InForce returns nil if err is a refusal by the policy.
func InForce(policy string, err error) error {
	if suite.RefusedBy(err, policy) {
		return nil
	}
	return fmt.Errorf("%s is not in force: the answer was %v", policy, err)
}

// At returns the world with clients for all its users.
func At(w *suite.World) *Policed { return &Policed{w, map[string]kubernetes.Interface{}} }

// New starts a cluster with the namespaces and the users of the tests of policies.
func New(t *testing.T) *Policed {
	t.Helper()
	w := At(suite.NewAlone(t))
	w.Label, w.Instance = plan.DefaultLabel, "default"
	for _, namespace := range []string{platform, platformToo, teamA, teamB, formerly, theTeam} {
		w.CreateNamespace(namespace, nil)
	}
	w.CreateNamespace(optedOut, map[string]string{w.Label: plan.OptOutValue})
	w.CreateNamespace(red, map[string]string{"team": "red", "mirrored": ""})
	w.CreateNamespace(frozen, map[string]string{"team": "red", "mirrored": "", "frozen": "yes"})
	w.bind("", "ClusterRole", "admin", tenant, publisher, elsewhere, byName)
	w.bind("", "ClusterRole", "cluster-admin", operator)
	return w
}

// NamedSource is the ConfigMap that byName may publish.
const NamedSource = "holder-of-the-name-creates-a-source"

// bind gives users a role in the namespace; a ClusterRole in all of them if there is none.
func (w *Policed) bind(namespace, kind, role string, users ...string) {
	w.Helper()
	var subjects []rbacv1.Subject
	for _, user := range users {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	meta := metav1.ObjectMeta{Name: "test-" + role}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}
	var err error
	if namespace == "" {
		_, err = w.Admin.RbacV1().ClusterRoleBindings().Create(w.Context(),
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		_, err = w.Admin.RbacV1().RoleBindings(namespace).Create(w.Context(),
			&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// accountOf returns namespace and name of the ServiceAccount.
func accountOf(user string) (namespace, name string) {
	namespace, name, _ = strings.Cut(strings.TrimPrefix(user, "system:serviceaccount:"), ":")
	return namespace, name
}

// RenderWith renders what a user's kustomization makes of the base in a copy of deploy/, with components and more lines.
func RenderWith(t *testing.T, lines string, components ...string) (shipped.Manifests, error) {
	t.Helper()
	dir := t.TempDir()
	whole := "resources: [../deploy/" + filepath.Base(*suite.Manifests) + "]\ncomponents:\n"
	for _, component := range components {
		whole += "- ../deploy/components/" + component + "\n"
	}
	folder := filepath.Join(dir, "whole")
	err := errors.Join(os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(suite.Deployed("."))), os.Mkdir(folder, 0o755),
		os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(whole+lines), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return shipped.Render(folder)
}
