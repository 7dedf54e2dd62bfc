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
	k := &checker{counts: map[string]int{}}
	cmd := &cobra.Command{Use: "check", Short: "Check the installation of the controller, line by line", Long: checkHelp,
		Args: cobra.NoArgs}
	cmd.Flags().BoolVar(&k.confined, "confined", true, "Expect the policies that confine the controller.")
	cmd.Flags().BoolVar(&k.publishers, "publishers", true, "Expect the policy that says who may publish.")
	cmd.Flags().BoolVar(&k.protected, "protect-copies", false, "Expect the policy that protects copies.")
	return c.command(cmd, true, func(ctx context.Context, s *session, _ []types.NamespacedName) (_ printed, err error) {
		if s.settings.deployment == nil {
			return nil, errors.New("check is about an installed controller: choose it with --controller")
		}
		k.session = s
		if k.as, err = c.client(k.account()); err == nil {
			k.check(ctx)
		}
		return k, err
	})
}

// Results of a check.
const (
	resultOK        = "ok"
	resultTodo      = "to do"
	resultUnknown   = "not checked"
	resultNotProbed = "not probed"
)

// line is the result of one check.
type line struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
}

func ok(text string) line { return line{Result: resultOK, Detail: text} }

// todo is a fault of the installation. The text ends with the likely remedy.
func todo(text string) line { return line{Result: resultTodo, Detail: text} }

func unknown(err error) line { return line{Result: resultUnknown, Detail: err.Error()} }

// checker checks one installation.
type checker struct {
	Checks []line         `json:"checks"`
	counts map[string]int // by result

	*session                        `json:"-"`
	as                              kubernetes.Interface // the account of the controller
	confined, publishers, protected bool                 // expected
}

// check runs each check that is expected. A policy is known by a part of its name.
func (k *checker) check(ctx context.Context) {
	for _, c := range []struct {
		name     string
		expected bool
		run      func(context.Context) line
	}{
		{"controller", true, k.checkController},
		{"permissions", true, k.checkPermissions},
		{"probe/copy", true, k.probeCopy},
		{"probe/confined", k.confined, k.probeConfined},
		{"settings", k.confined || k.publishers || k.protected, k.checkSettings},
		{"publishers", k.publishers, k.bound("publisher", "only holders of the verb mirror publish", "admission/publishers")},
		{"probe/protect-copies", k.protected, k.probeProtected},
	} {
		if c.expected {
			is := c.run(ctx)
			k.Checks = append(k.Checks, line{c.name, is.Result, strings.ReplaceAll(is.Detail, "\n", ", ")})
			k.counts[is.Result]++
		}
	}
}

// account returns the user as which the controller runs.
func (k *checker) account() string {
	d := k.settings.deployment
	return account(d.Namespace, cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default"))
}

func account(namespace, name string) string { return "system:serviceaccount:" + namespace + ":" + name }

// checkController looks whether all replicas are ready, and one of them writes.
func (k *checker) checkController(ctx context.Context) line {
	d := k.settings.deployment
	s, wanted, writes := d.Status, *d.Spec.Replicas, true // the API server sets it
	text := fmt.Sprintf("Deployment %s: %d of %d replicas are ready, image %s",
		keyOf(d), s.ReadyReplicas, wanted, containerOf(d).Image)
	if k.settings.leaderElect {
		leader, err := k.settings.leader(ctx, k.Client)
		if err != nil {
			return unknown(err)
		}
		writes = leader != ""
		text += fmt.Sprintf("; Lease %s/%s: %s", k.settings.leaseNamespace, k.settings.leaseName,
			cmp.Or(leader, "nobody holds it"))
	}
	switch {
	case wanted > 1 && !k.settings.leaderElect:
		return todo(text + ": all of them write: add --leader-elect to the arguments")
	case wanted == 0:
		return todo(text + ": kubectl -n " + d.Namespace + " scale deployment " + d.Name + " --replicas=1")
	case s.ObservedGeneration < d.Generation, s.UpdatedReplicas < wanted, s.ReadyReplicas < wanted, !writes:
		return todo(text + ": kubectl -n " + d.Namespace + " describe deployment " + d.Name + ", and the logs of its Pods")
	}
	return ok(text)
}

// needs are what the ClusterRole in deploy/base/rbac.yaml grants in the core group.
var needs = []string{"get configmaps", "list configmaps", "watch configmaps", "create configmaps", "update configmaps",
	"delete configmaps", "create events", "patch events", "get namespaces", "list namespaces",
	"watch namespaces"}

const granted = ": grant it as deploy/base/rbac.yaml does"

// checkPermissions asks, as the account of the controller, for all that it needs in each namespace.
func (k *checker) checkPermissions(ctx context.Context) line {
	var lacks []string
	for _, need := range needs {
		verb, resource, _ := strings.Cut(need, " ")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Resource: resource, Verb: verb}}}
		review, err := k.as.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return unknown(err)
		}
		if !review.Status.Allowed {
			lacks = append(lacks, need)
		}
	}
	if len(lacks) > 0 {
		return todo(k.account() + " may not " + strings.Join(lacks, ", ") + granted)
	}
	return ok(k.account() + " may do what the controller needs")
}

func (k *checker) end() error {
	if k.counts[resultTodo] == 0 && k.counts[resultUnknown] > 0 {
		return exitUnknown
	}
	return verdict(k.counts[resultTodo] == 0)
}

func (k *checker) table(w io.Writer) {
	var rows [][]any
	for _, l := range k.Checks {
		rows = append(rows, []any{l.Check, l.Result, l.Detail})
	}
	printTable(w, []string{"Check", "Result", "Detail"}, rows)
	fmt.Fprintf(w, "%d ok, %d to do, %d not checked, %d not probed.\n", k.counts[resultOK], k.counts[resultTodo],
		k.counts[resultUnknown], k.counts[resultNotProbed])
}
