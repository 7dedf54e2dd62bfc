package plugin

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// dialogue is a run of kubectl mirror at a terminal.
type dialogue struct {
	*suite.World
	cmd      *exec.Cmd
	terminal *os.File // of the user
	problems *bufio.Reader
	out, err bytes.Buffer
}

// converse begins a dialogue as the user of the kubeconfig.
func converse(w *suite.World, kubeconfig string, args ...string) *dialogue {
	w.Helper()
	terminal, program := openTerminal(w)
	d := &dialogue{World: w, terminal: terminal}
	d.cmd = w.Cluster.Command(w.Context(), plugin(), append(args, "--kubeconfig="+kubeconfig, "--controller="+suite.AccountNamespace+"/"+w.Account())...)
	d.cmd.Stdin, d.cmd.Stdout = program, &d.out
	problems, err := d.cmd.StderrPipe()
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	d.problems = bufio.NewReader(problems)
	return d
}

// openTerminal returns the two sides of a new terminal.
func openTerminal(w *suite.World) (user, program *os.File) {
	w.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = user.Close() })
	number, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		program, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(number)), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = program.Close() })
	return user, program
}

// await reads what the program says until it ends so.
func (d *dialogue) await(end string) {
	d.Helper()
	for !strings.HasSuffix(d.err.String(), end) {
		b, err := d.problems.ReadByte()
		if err != nil {
			d.Fatalf("the program ended without %q: %s", end, d.err.String())
		}
		d.err.WriteByte(b)
	}
}

// typed types a line and returns what the run comes to.
func (d *dialogue) typed(line string) answer {
	d.Helper()
	if _, err := io.WriteString(d.terminal, line+"\n"); err != nil {
		d.Fatal(err)
	}
	return d.end()
}

// end returns what the run comes to.
func (d *dialogue) end() answer {
	d.Helper()
	if _, err := io.Copy(&d.err, d.problems); err != nil {
		d.Fatal(err)
	}
	var exit *exec.ExitError
	if err := d.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		d.Fatal(err)
	}
	return answer{d.cmd.ProcessState.ExitCode(), anonymous(d.World, d.out.String()), anonymous(d.World, d.err.String())}
}

// question is the end of what the program asks.
const question = " [y/N] "

// newPerson returns the kubeconfig of a user with these permissions in the whole cluster. No policy confines a person, as it does
// the accounts of the world.
func newPerson(w *suite.World, name string, rules ...rbacv1.PolicyRule) string {
	w.Helper()
	name = w.Account() + "." + name
	meta := metav1.ObjectMeta{Name: name}
	_, err := w.Admin.RbacV1().ClusterRoles().Create(w.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if err == nil {
		_, err = w.Admin.RbacV1().ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	return login(w, name, &authorizationv1.ResourceAttributes{Verb: rules[0].Verbs[0], Group: rules[0].APIGroups[0], Resource: rules[0].Resources[0]})
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

// may is a rule that allows the verbs.
func may(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}
