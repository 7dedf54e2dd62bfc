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
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := w.Admin.RbacV1().ClusterRoles().Create(w.Context(), role, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	r := rules[0]
	may := authorizationv1.ResourceAttributes{Verb: r.Verbs[0], Group: r.APIGroups[0], Resource: r.Resources[0]}
	return bound(w, name, name, may, w.Args())
}

// newMember returns a user with a ClusterRole in one namespace, and nothing else.
func newMember(w *suite.World, role, namespace string) *user {
	w.Helper()
	may := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "events"}
	return bound(w, w.Account()+"."+namespace, role, may,
		[]string{"-n", namespace, "--mirror-label=" + w.Label, "--instance=" + w.Instance})
}

// bound binds a ClusterRole to a user, in the namespace of a permission or, if it has none, in all, and returns the
// user, who has the permission.
func bound(
	w *suite.World, name, role string, permission authorizationv1.ResourceAttributes, flags []string) *user {
	w.Helper()
	meta, rbac := metav1.ObjectMeta{Name: name}, w.Admin.RbacV1()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	kubeconfig, err := w.Cluster.Kubeconfig(cluster.User{Name: name})
	switch {
	case err != nil:
	case permission.Namespace == "":
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
		_, err = rbac.ClusterRoleBindings().Create(w.Context(), binding, metav1.CreateOptions{})
	default:
		binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
		_, err = rbac.RoleBindings(permission.Namespace).Create(w.Context(), binding, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	review := &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &permission},
	}
	w.Until(name+" has the permission", func() error {
		answer, err := w.Admin.AuthorizationV1().SubjectAccessReviews().Create(w.Context(), review, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("not yet")
		}
		return err
	})
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
