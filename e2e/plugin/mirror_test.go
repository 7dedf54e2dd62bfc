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

// kubectlMirror runs kubectl mirror as the admin, with the settings of the world's controller.
func kubectlMirror(w *suite.World, args ...string) answer {
	w.Helper()
	return byFlags(w, w.Cluster.AdminKubeconfig(), args...)
}

// byFlags runs kubectl mirror as the user of a kubeconfig, with the settings of the world's controller as flags.
func byFlags(w *suite.World, kubeconfig string, args ...string) answer {
	w.Helper()
	return mirrorAs(w, kubeconfig, append(args, w.Args()...)...)
}

// expect fails the test if the answer is another one. Lines begin as the first line of want does.
func expect(w *suite.World, got answer, code int, want string) {
	w.Helper()
	want = strings.TrimSpace(want)
	if got.code != code || got.out != want {
		w.Errorf("got exit code %d and\n%s\nwant %d and\n%s\nstderr: %s", got.code, got.out, code, want, got.err)
	}
}

// expectIn fails the test if the answer has another exit code, or lacks one of the texts on stdout or stderr.
func expectIn(w *suite.World, got answer, code int, texts ...string) {
	w.Helper()
	for _, text := range texts {
		if got.code != code || !strings.Contains(got.out+"\n"+got.err, text) {
			w.Errorf("got exit code %d and\n%s\nstderr: %s\nwant %d and %q", got.code, got.out, got.err, code, text)
		}
	}
}

// shown returns what the manual shows for a command of kubectl mirror, with runs of blanks as the answers have them.
func shown(t *testing.T, command string) string {
	t.Helper()
	_, output, _ := strings.Cut(manual.Find(t, "deploy/docs/kubectl-mirror.md", "$ kubectl mirror "+command+"\n").Text, "\n")
	return runsOfBlanks.ReplaceAllString(output, "  ")
}

// may is a rule that allows the verbs.
func may(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// newPerson returns the kubeconfig of a user with these permissions in the whole cluster.
func newPerson(w *suite.World, name string, rules ...rbacv1.PolicyRule) string {
	w.Helper()
	name = w.Account() + "." + name
	meta := metav1.ObjectMeta{Name: name}
	_, err := w.Admin.RbacV1().ClusterRoles().Create(w.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if err == nil {
		_, err = w.Admin.RbacV1().ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: user(name),
		}, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	return login(w, name, &authorizationv1.ResourceAttributes{Verb: rules[0].Verbs[0], Group: rules[0].APIGroups[0], Resource: rules[0].Resources[0]})
}

func user(name string) []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
}

// newMember returns a function that runs kubectl mirror as a user with a ClusterRole in one namespace, and nothing
// else.
func newMember(w *suite.World, role, namespace string) func(args ...string) answer {
	w.Helper()
	name := w.Account() + "." + namespace
	_, err := w.Admin.RbacV1().RoleBindings(namespace).Create(w.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: user(name),
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	kubeconfig := login(w, name, &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "events"})
	return func(args ...string) answer {
		return mirrorAs(w, kubeconfig, append(args, "-n", namespace, "--mirror-label="+w.Label, "--instance="+w.Instance)...)
	}
}

// login returns the kubeconfig of a user, as soon as the user has a permission.
func login(w *suite.World, name string, permission *authorizationv1.ResourceAttributes) string {
	w.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: permission}}
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
	return kubeconfig
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
