package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const checkHelp = `Check the installation of the controller, line by line. "to do" is a fault, with the cause that the
API server tells and what to do about it; "not checked" names the permission that you lack; "not probed": there is no
namespace in which to ask.

The command asks the API server, by dry-run and as the account of the controller, whether it accepts what the controller
has to write, and refuses what it must not. That takes the permission to impersonate the account.

Exit codes: 0 all well, 1 something to do, 2 nothing to do is known, and not all could be checked.`

func newCheck(c *cli) *cobra.Command {
	k := &checker{}
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

// fault is an error of the installation. It ends with the likely remedy.
type fault string

func (f fault) Error() string { return string(f) }

// checker checks one installation.
type checker struct {
	Checks []line `json:"checks"`

	*session                        `json:"-"`
	as                              kubernetes.Interface // the account of the controller
	confined, publishers, protected bool                 // expected
}

// check runs each check that is expected. A policy is known by a part of its name.
func (k *checker) check(ctx context.Context) {
	for _, c := range []struct {
		name     string
		expected bool
		run      func(context.Context) (string, error)
	}{
		{"controller", true, k.checkController},
		{"permissions", true, k.checkPermissions},
		{"probe/copy", true, k.probeCopy},
		{"probe/confined", k.confined, k.probeConfined},
		{"settings", k.confined, k.checkSettings},
		{"publishers", k.publishers, k.bound("-publishers", "only holders of the verb mirror publish", "admission/publishers")},
		{"protect-copies", k.protected, k.bound("-protected-copies", "only the controller changes copies", "protect-copies")},
	} {
		if c.expected {
			text, err := c.run(ctx)
			k.add(c.name, text, err)
		}
	}
}

// errNotProbed is no fault, and lacks no permission.
var errNotProbed = errors.New("no namespace is a target yet")

// add adds a line: what is well, or else whether there is a fault.
func (k *checker) add(check, text string, err error) {
	result := resultOK
	if err != nil {
		result, text = resultUnknown, strings.ReplaceAll(err.Error(), "\n", ", ")
	}
	if f := fault(""); errors.As(err, &f) {
		result = resultTodo
	} else if errors.Is(err, errNotProbed) {
		result = resultNotProbed
	}
	k.Checks = append(k.Checks, line{check, result, text})
}

// account returns the user as which the controller runs.
func (k *checker) account() string {
	name := cmp.Or(k.settings.deployment.Spec.Template.Spec.ServiceAccountName, "default")
	return fmt.Sprintf("system:serviceaccount:%s:%s", k.settings.deployment.Namespace, name)
}

// checkController looks whether all replicas are ready, and one of them writes.
func (k *checker) checkController(ctx context.Context) (text string, err error) {
	d, leader := k.settings.deployment, ""
	s, wanted := d.Status, *d.Spec.Replicas // the API server sets it
	text = fmt.Sprintf("Deployment %s: %d of %d replicas are ready, image %s",
		keyOf(d), s.ReadyReplicas, wanted, containerOf(d).Image)
	if k.settings.leaderElect {
		leader, err = k.settings.leader(ctx, k.Client)
		text += fmt.Sprintf("; Lease %s/%s: %s", k.settings.leaseNamespace, k.settings.leaseName, cmp.Or(leader, "nobody holds it"))
	}
	switch {
	case err != nil:
	case wanted > 1 && !k.settings.leaderElect:
		err = fault(text + ": all of them write: add --leader-elect to the arguments")
	case wanted == 0, s.ObservedGeneration < d.Generation, s.UpdatedReplicas < wanted, s.ReadyReplicas < wanted,
		k.settings.leaderElect && leader == "":
		err = fault(text + ": kubectl -n " + d.Namespace + " describe deployment " + d.Name + ", and the logs of its Pods")
	}
	return text, err
}

// needs are what the roles in deploy/base/rbac.yaml grant.
var needs = []struct{ group, resource, verbs string }{
	{"", "configmaps", "get list watch create update patch delete"},
	{"", "namespaces", "get list watch"},
	{"", "events", "create patch"},
	{"coordination.k8s.io", "leases", "create get update"},
}

const granted = ": grant it as deploy/base/rbac.yaml does"

// checkPermissions asks, as the account of the controller, for all that it needs.
func (k *checker) checkPermissions(ctx context.Context) (string, error) {
	var lacks []string
	for _, n := range needs {
		for verb := range strings.FieldsSeq(n.verbs) {
			a := authorizationv1.ResourceAttributes{Group: n.group, Resource: n.resource, Verb: verb}
			if n.resource == "leases" {
				a.Namespace, a.Name = k.settings.leaseNamespace, k.settings.leaseName
			}
			if verb == "create" {
				a.Name = "" // no role can name what is to be created
			}
			review := &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
			review, err := k.as.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return "", err
			}
			if !review.Status.Allowed && (n.resource != "leases" || k.settings.leaderElect) {
				lacks = append(lacks, verb+" "+n.resource)
			}
		}
	}
	if len(lacks) > 0 {
		return "", fault(k.account() + " may not " + strings.Join(lacks, ", ") + granted)
	}
	return k.account() + " may do what the controller needs", nil
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// unmarked returns a ConfigMap that a confined controller cannot create.
func unmarked(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mirror-controller-check"}}
}

// probeCopy asks whether the controller may create copies in a target. One namespace may refuse for reasons of its own,
// such as a quota.
func (k *checker) probeCopy(ctx context.Context) (string, error) {
	const most = 3
	home := append(slices.Clone(k.settings.SourceNamespaces), k.settings.deployment.Namespace)[0]
	namespaces, err := (&snapshot.Reader{Client: k.as}).Namespaces(ctx)
	if err != nil {
		return "", refusal(err)
	}
	targets := slices.Sorted(maps.Keys(namespaces))
	targets = slices.DeleteFunc(targets, func(name string) bool {
		return name == home || k.Rules.Exclusion(plan.AnySource(), namespaces[name]) != plan.NotExcluded
	})
	err = errNotProbed
	for _, target := range targets[:min(most, len(targets))] {
		cm := k.Rules.Desired(k.Rules.ParseSource(unmarked(home)), target, nil)
		if _, err = k.as.CoreV1().ConfigMaps(target).Create(ctx, cm, dryRun); err == nil {
			return "the controller may create copies in namespace " + target, nil
		}
		err = refusal(err)
	}
	return "", err
}

// probeConfined asks for what the two policies that confine the controller have to refuse.
func (k *checker) probeConfined(ctx context.Context) (string, error) {
	own := k.settings.deployment.Namespace
	event := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: "mirror-controller-check"},
		InvolvedObject:      corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: own, Name: "any"},
		ReportingController: "another",
	}
	const aConfigMap, anEvent = "any ConfigMap in its namespace", "an Event of another reporter"
	_, err := k.as.CoreV1().ConfigMaps(own).Create(ctx, unmarked(own), dryRun)
	if err = k.mustRefuse(aConfigMap, err); err != nil {
		return "", err
	}
	_, err = k.as.CoreV1().Events(own).Create(ctx, event, dryRun)
	return "policies refuse the controller to create " + aConfigMap + ", and " + anEvent, k.mustRefuse(anEvent, err)
}

// confinedPolicy matches the refusal of the policy in deploy/components/admission/confined, whatever a kustomization
// adds to its name.
var confinedPolicy = regexp.MustCompile(`ValidatingAdmissionPolicy '[^']*confined[^']*'`)

// refusedAsConfined reports whether err is the refusal of the policy that confines the controller.
func refusedAsConfined(err error) bool {
	return apierrors.IsForbidden(err) && confinedPolicy.MatchString(err.Error())
}

const followArguments = ": have the annotations of the ClusterRoleBinding follow the arguments: see deploy/docs/policies.md"

// refusal is the fault that the API server refuses what the controller has to do, with the likely remedy.
func refusal(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "cannot impersonate"):
		return fmt.Errorf("you may not impersonate the account of the controller: %w", err)
	case refusedAsConfined(err):
		return fault(text + followArguments)
	case strings.Contains(text, " cannot "):
		return fault(text + granted)
	default:
		return fault(text)
	}
}

// mustRefuse judges the answer to a request that a policy has to refuse.
func (k *checker) mustRefuse(text string, answer error) error {
	switch {
	case answer == nil:
		return fault("the API server would let the controller create " + text + ": no policy confines it: install " +
			"deploy/components/admission again; its label and " + k.account() + " must be in the ClusterRoleBinding")
	case refusedAsConfined(answer):
		return nil
	}
	return fmt.Errorf("asked for %s as the account of the controller, the answer was: %w", text, answer)
}

// bound returns a check that a policy is bound.
func (k *checker) bound(part, does, component string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		list, err := k.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
		isBound := slices.ContainsFunc(list.Items, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return strings.Contains(b.Spec.PolicyName, part) && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
		})
		if err == nil && !isBound {
			err = fault("no policy is bound by which " + does + ": install deploy/components/" + component)
		}
		return does, err
	}
}

// checkSettings compares the flags with the annotations by which the policies go, and with which they know the account.
func (k *checker) checkSettings(ctx context.Context) (string, error) {
	const label = plan.Domain + "/installation"
	list, err := k.Client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(list.Items, func(b rbacv1.ClusterRoleBinding) bool {
		return slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
			return fmt.Sprintf("system:serviceaccount:%s:%s", s.Namespace, s.Name) == k.account()
		})
	})
	if i < 0 {
		return "", fault("no ClusterRoleBinding with the label " + label + " names " + k.account() +
			": bind the account as deploy/base/rbac.yaml does")
	}
	if differs := k.settings.differsFrom(list.Items[i].Annotations); len(differs) > 0 {
		return "", fault("the annotations of ClusterRoleBinding " + list.Items[i].Name + " differ from the flags: " +
			strings.Join(differs, "; ") + followArguments)
	}
	return "the annotations of ClusterRoleBinding " + list.Items[i].Name + " follow the flags", nil
}

// annotated are the flags that annotations repeat: see deploy/docs/policies.md.
var annotated = append(deciding[:8:8], "leader-elect-resource-name", "leader-elect-resource-namespace")

// differsFrom returns how annotations differ from the flags that they repeat. Where there is none, the default counts.
func (s *settings) differsFrom(annotations map[string]string) (differs []string) {
	for _, name := range annotated {
		flag := s.flags.Lookup(name)
		value, ok := annotations[plan.Domain+"/"+name]
		if !ok {
			value = flag.DefValue
		}
		wanted := flag.Value.String()
		if name == "namespace-selector" {
			wanted = requirements(wanted)
		}
		if items(value) != items(wanted) {
			differs = append(differs, fmt.Sprintf("%s is %q, and the flag %q", name, value, wanted))
		}
	}
	return differs
}

// operators are those of a requirement of a selector, as the annotation has them.
var operators = map[selection.Operator]string{
	selection.In: "In", selection.Equals: "In", selection.DoubleEquals: "In", selection.NotIn: "NotIn",
	selection.NotEquals: "NotIn", selection.Exists: "Exists", selection.DoesNotExist: "DoesNotExist",
}

// requirements returns a selector as the annotation has it: one requirement a line, such as "team In red,blue".
func requirements(selector string) string {
	parsed, _ := labels.ParseToRequirements(selector) // it is valid
	var lines []string
	for _, r := range parsed {
		values := strings.Join(r.Values().List(), ",")
		lines = append(lines, strings.TrimSpace(r.Key()+" "+operators[r.Operator()]+" "+values))
	}
	return strings.Join(lines, "\n")
}

// items returns the items of an annotation in a fixed order.
func items(value string) string {
	all := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '\n' })
	slices.Sort(all)
	return strings.Join(all, ",")
}

// counts returns the number of checks with each result.
func (k *checker) counts() map[string]int {
	n := map[string]int{}
	for _, l := range k.Checks {
		n[l.Result]++
	}
	return n
}

func (k *checker) end() error {
	switch n := k.counts(); {
	case n[resultTodo] > 0:
		return exitNo
	case n[resultUnknown] > 0:
		return exitUnknown
	}
	return exitYes
}

func (k *checker) table(w io.Writer) {
	var rows [][]any
	for _, l := range k.Checks {
		rows = append(rows, []any{l.Check, l.Result, l.Detail})
	}
	printTable(w, []string{"Check", "Result", "Detail"}, rows)
	n := k.counts()
	fmt.Fprintf(w, "%d ok, %d to do, %d not checked.\n", n[resultOK], n[resultTodo], n[resultUnknown])
}
