package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// admin returns the admin, with the settings of the world's controller as flags.
func admin(w *suite.World) *user {
	return &user{w: w, kubeconfig: w.Cluster.AdminKubeconfig(), flags: w.Args()}
}

// shown returns what the manual shows for a command of kubectl mirror, with runs of blanks as the answers have them.
func shown(t *testing.T, command string) string {
	t.Helper()
	block := manual.Find(t, "deploy/docs/kubectl-mirror.md", "$ kubectl mirror "+command+"\n")
	_, output, _ := strings.Cut(block.Text, "\n")
	return runsOfBlanks.ReplaceAllString(output, "  ")
}

// may is a rule that allows the verbs.
func may(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// newPerson returns a user with these permissions in the whole cluster, and the settings of the world's controller as
// flags.
func newPerson(w *suite.World, name string, rules ...rbacv1.PolicyRule) *user {
	w.Helper()
	name = w.Account() + "." + name
	meta, rbac := metav1.ObjectMeta{Name: name}, w.Admin.RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}
	_, err := rbac.ClusterRoles().Create(w.Context(), role, metav1.CreateOptions{})
	if err == nil {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: roleOf(name), Subjects: subject(name)}
		_, err = rbac.ClusterRoleBindings().Create(w.Context(), binding, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	r := rules[0]
	return login(w, name, w.Args(),
		authorizationv1.ResourceAttributes{Verb: r.Verbs[0], Group: r.APIGroups[0], Resource: r.Resources[0]})
}

func roleOf(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

func subject(name string) []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
}

// newMember returns a user with a ClusterRole in one namespace, and nothing else.
func newMember(w *suite.World, role, namespace string) *user {
	w.Helper()
	name := w.Account() + "." + namespace
	meta := metav1.ObjectMeta{Name: name}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: roleOf(role), Subjects: subject(name)}
	_, err := w.Admin.RbacV1().RoleBindings(namespace).Create(w.Context(), binding, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return login(w, name, []string{"-n", namespace, "--mirror-label=" + w.Label, "--instance=" + w.Instance},
		authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "events"})
}

// login returns a user as soon as the user has a permission.
func login(w *suite.World, name string, flags []string, permission authorizationv1.ResourceAttributes) *user {
	w.Helper()
	review := &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &permission},
	}
	w.Until(name+" has the permissions", func() error {
		answer, err := w.Admin.AuthorizationV1().SubjectAccessReviews().Create(w.Context(), review, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("not yet")
		}
		return err
	})
	kubeconfig, err := w.Cluster.Kubeconfig(cluster.User{Name: name})
	if err != nil {
		w.Fatal(err)
	}
	return &user{w: w, kubeconfig: kubeconfig, flags: flags}
}

// TestKubectlFindsPlugin has kubectl find the plug-in and its completion by their names.
func TestKubectlFindsPlugin(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	path, err := filepath.Abs(plugin())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"kubectl-mirror", "kubectl_complete-mirror"} {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for want, args := range map[string][]string{
		"kubectl-mirror ": {"mirror", "--version"},
		"status\t":        {"__complete", "mirror", "sta"},
	} {
		cmd := w.Cluster.Command(w.Context(), w.Cluster.Kubectl(), args...)
		cmd.Env = append(cmd.Env, "PATH="+dir, "KUBECONFIG="+w.Cluster.AdminKubeconfig())
		out, err := cmd.Output()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("kubectl %q: got %q, %v, want something that begins with %q", args, out, err, want)
		}
	}
}
