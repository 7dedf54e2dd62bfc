package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const checkHelp = `Check the installation of the controller. "to do" is a fault, with its cause and what to do about it;
"not checked" names the permission that you lack; "not probed": there is no namespace in which to ask.

The command asks the API server, by dry-run and as the account of the controller, whether it accepts what the controller
has to write, and refuses what it must not. That takes the permission to impersonate the account.

Exit codes: 0 all well, 1 something to do, 2 nothing to do is known, and not all could be checked.`

func newCheck(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the installation of the controller, line by line",
		Long:  checkHelp,
		Args:  cobra.NoArgs,
	}
	k := &checker{}
	flags := cmd.Flags()
	flags.BoolVar(&k.confined, "confined", true,
		"Expect the policies that confine the controller.")
	flags.BoolVar(&k.publishers, "publishers", true,
		"Expect the policy that says who may publish.")
	flags.BoolVar(&k.protected, "protect-copies", false,
		"Expect the policy that protects copies.")
	return c.command(cmd, true, func(
		ctx context.Context, s *session, _ []types.NamespacedName,
	) error {
		err := s.begin(ctx)
		if err != nil {
			return err
		}
		if s.settings.deployment == nil {
			return errors.New("check is about an installed controller: choose it with --controller")
		}
		k.session = s
		k.asController, err = c.client(k.account())
		if err != nil {
			return err
		}
		k.check(ctx)
		s.print(k)
		return k.verdict()
	})
}

// checker checks one installation. It is also the answer of the command.
type checker struct {
	Checks []finding `json:"checks"`

	*session     `json:"-"`
	asController kubernetes.Interface // asks in the name of the controller's account

	// These are the policies that are expected: those of
	// deploy/components/admission and of deploy/components/protect-copies.
	confined   bool
	publishers bool
	protected  bool
}

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`  // the name of the check
	Result string `json:"result"` // one of the four
	Detail string `json:"detail"` // what was found and, of a fault, what to do about it
}

// Results of a check.
const (
	resultOK        = "ok"
	resultTodo      = "to do"       // a fault of the installation
	resultUnknown   = "not checked" // the user may not see it, or it could not be asked
	resultNotProbed = "not probed"  // there is no namespace in which to ask
)

// ok is what has to be so.
func ok(text string) finding { return finding{Result: resultOK, Detail: text} }

// todo is a fault of the installation. The text ends with the likely remedy.
func todo(text string) finding { return finding{Result: resultTodo, Detail: text} }

// unknown is what the user may not see, or what could not be asked.
func unknown(err error) finding { return finding{Result: resultUnknown, Detail: err.Error()} }

// check runs each check that is expected. Each is a line of the answer:
//
//	controller      all replicas are ready, and one of them writes
//	permissions     RBAC grants the account what the controller needs
//	probe/copy      the API server would accept a copy
//	probe/confined  policies would refuse the controller what is no copy
//	settings        the policies go by the flags of the controller
//	publishers      a policy that says who may publish is bound
//	protect-copies  a policy that protects copies is bound
func (k *checker) check(ctx context.Context) {
	for _, c := range []struct {
		name     string
		expected bool
		run      func(context.Context) finding
	}{
		{"controller", true, k.checkController},
		{"permissions", true, k.checkPermissions},
		{"probe/copy", true, k.probeCopy},
		{"probe/confined", k.confined, k.probeConfined},
		{"settings", k.confined || k.publishers || k.protected, k.checkSettings},
		{"publishers", k.publishers, k.checkPolicy(
			"labelled-or-marked", "only holders of the verb mirror publish", "admission/publishers")},
		{"protect-copies", k.protected, k.checkPolicy(
			"marked", "only the controller changes copies", "protect-copies")},
	} {
		if c.expected {
			found := c.run(ctx)
			found.Check = c.name
			found.Detail = strings.ReplaceAll(found.Detail, "\n", ", ") // one line
			k.Checks = append(k.Checks, found)
		}
	}
}

// account returns the user as which the controller runs.
func (k *checker) account() string {
	d := k.settings.deployment
	return account(d.Namespace, cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default"))
}

// account returns how the API server calls a service account as a user.
func account(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// checkController looks whether all replicas are ready, and one of them writes.
func (k *checker) checkController(ctx context.Context) finding {
	d := k.settings.deployment
	status := d.Status
	wanted := *d.Spec.Replicas // the API server sets it
	text := fmt.Sprintf("Deployment %s: %d of %d replicas are ready, image %s",
		keyOf(d), status.ReadyReplicas, wanted, containerOf(d).Image)
	line, _, err := k.settings.stalled(ctx, k.Client)
	if err != nil {
		return unknown(err)
	}
	if line != "" {
		text += "; " + line
	}

	kubectl := ": kubectl -n " + d.Namespace
	// Ready replicas may be those of the former version of the Deployment.
	isRolledOut := status.UpdatedReplicas >= wanted && status.ReadyReplicas >= wanted
	switch {
	case wanted > 1 && !k.settings.leaderElect:
		return todo(text + ": all of them write: add --leader-elect to the arguments")
	case !isRolledOut, line != "":
		return todo(text + kubectl + " describe deployment " + d.Name +
			", and the logs of its Pods")
	}
	return ok(text)
}

// permissions are what deploy/base/rbac.yaml grants: the ClusterRole in the core
// group, for all namespaces, and the Role for the Lease.
var permissions = []string{
	"get configmaps", "list configmaps", "watch configmaps",
	"create configmaps", "update configmaps", "delete configmaps",
	"create events", "patch events",
	"get namespaces", "list namespaces", "watch namespaces",
	"create leases", "get leases", "update leases",
}

// grantThem is the remedy for a permission that is missing.
const grantThem = ": grant it as deploy/base/rbac.yaml does"

// checkPermissions asks, as the account of the controller, for each permission.
func (k *checker) checkPermissions(ctx context.Context) finding {
	var lacks []string
	// A review about oneself takes no permission: whoever may impersonate the
	// account can ask.
	for _, permission := range permissions {
		verb, resource, _ := strings.Cut(permission, " ")
		asked := &authorizationv1.ResourceAttributes{Resource: resource, Verb: verb}
		if resource == "leases" {
			if !k.settings.leaderElect {
				continue
			}
			asked.Group = coordinationv1.GroupName
			asked.Namespace = k.settings.leaseNamespace
			if verb != "create" { // which RBAC cannot restrict to a name
				asked.Name = k.settings.leaseName
			}
		}
		review := &authorizationv1.SelfSubjectAccessReview{}
		review.Spec.ResourceAttributes = asked
		review, err := k.asController.AuthorizationV1().SelfSubjectAccessReviews().
			Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return unknown(err)
		}
		if !review.Status.Allowed {
			lacks = append(lacks, permission)
		}
	}
	if len(lacks) > 0 {
		return todo(k.account() + " may not " + strings.Join(lacks, ", ") + grantThem)
	}
	return ok(k.account() + " may do what the controller needs")
}

// count returns how many checks have a result.
func (k *checker) count(result string) (n int) {
	for _, c := range k.Checks {
		if c.Result == result {
			n++
		}
	}
	return n
}

// verdict returns exitNo if there is something to do, whatever could not be
// checked.
func (k *checker) verdict() exitCode {
	switch {
	case k.count(resultTodo) > 0:
		return exitNo
	case k.count(resultUnknown) > 0:
		return exitUnknown
	}
	return exitYes
}

// table prints one row a check, and the number of checks by result.
func (k *checker) table(w io.Writer) {
	var rows [][]any
	for _, c := range k.Checks {
		rows = append(rows, []any{c.Check, c.Result, c.Detail})
	}
	printTable(w, []string{"Check", "Result", "Detail"}, rows)
	fmt.Fprintf(w, "%d ok, %d to do, %d not checked, %d not probed.\n",
		k.count(resultOK), k.count(resultTodo), k.count(resultUnknown), k.count(resultNotProbed))
}
