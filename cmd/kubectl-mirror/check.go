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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
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

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// unmarked returns a ConfigMap that a confined controller cannot create.
func unmarked(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mirror-controller-check"}}
}

// probeCopy asks whether the controller may create copies in a target. One namespace may refuse for reasons of its own,
// such as a quota.
func (k *checker) probeCopy(ctx context.Context) line {
	home := append(slices.Clone(k.settings.SourceNamespaces), k.settings.deployment.Namespace)[0]
	namespaces, err := (&snapshot.Reader{Client: k.as}).Namespaces(ctx)
	if err != nil {
		return refusal(err)
	}
	is, most := line{Result: resultNotProbed, Detail: "no namespace is a target yet"}, 3
	for _, target := range slices.Sorted(maps.Keys(namespaces)) {
		isTarget := k.Rules.Exclusion(plan.AnySource(), namespaces[target]) == plan.NotExcluded
		if target == home || !isTarget || most == 0 {
			continue
		}
		cm := k.Rules.Desired(k.Rules.ParseSource(unmarked(home)), target, nil)
		if _, err = k.as.CoreV1().ConfigMaps(target).Create(ctx, cm, dryRun); err == nil {
			return ok("the controller may create copies in namespace " + target)
		}
		is, most = refusal(err), most-1
	}
	return is
}

// probeConfined asks for what the two policies that confine the controller have to refuse.
func (k *checker) probeConfined(ctx context.Context) line {
	own := k.settings.deployment.Namespace
	event := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: "mirror-controller-check"},
		InvolvedObject:      corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: own, Name: "any"},
		ReportingController: "another",
	}
	const aConfigMap, anEvent = "any ConfigMap in its namespace", "an Event of another reporter"
	_, byConfigMap := k.as.CoreV1().ConfigMaps(own).Create(ctx, unmarked(own), dryRun)
	_, byEvent := k.as.CoreV1().Events(own).Create(ctx, event, dryRun)
	return cmp.Or(k.unlessRefused(aConfigMap, byConfigMap), k.unlessRefused(anEvent, byEvent),
		ok("policies refuse the controller to create "+aConfigMap+", and "+anEvent))
}

// refusedAsConfined reports whether err is the refusal of the policy in deploy/components/admission/confined, whatever
// a kustomization adds to its name.
func refusedAsConfined(err error) bool {
	byPolicy, _ := regexp.MatchString(`ValidatingAdmissionPolicy '[^']*confined[^']*'`, err.Error())
	return byPolicy && apierrors.IsForbidden(err)
}

const followArguments = ": have the annotations of the ClusterRoleBinding follow the arguments: see " +
	"deploy/docs/policies.md"

// refusal says that the API server refuses what the controller has to do, with the likely remedy.
func refusal(err error) line {
	switch text := err.Error(); {
	case strings.Contains(text, "cannot impersonate"):
		return unknown(fmt.Errorf("you may not impersonate the account of the controller: %w", err))
	case refusedAsConfined(err):
		return todo(text + followArguments)
	case strings.Contains(text, " cannot "):
		return todo(text + granted)
	default:
		return todo(text)
	}
}

// unlessRefused judges the answer to a request that a policy has to refuse. It returns no line if it does.
func (k *checker) unlessRefused(text string, answer error) line {
	switch {
	case answer == nil:
		return todo("the API server would let the controller create " + text + ": no policy confines it: install " +
			"deploy/components/admission again; its label and " + k.account() + " must be in the ClusterRoleBinding")
	case refusedAsConfined(answer):
		return line{}
	}
	return unknown(fmt.Errorf("asked for %s as the account of the controller, the answer was: %w", text, answer))
}

// bound returns a check that a policy is there, and bound.
func (k *checker) bound(part, does, component string) func(context.Context) line {
	return func(ctx context.Context) line {
		client := k.Client.AdmissionregistrationV1()
		list, err := client.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
		for _, b := range list.Items {
			if strings.Contains(b.Spec.PolicyName, part) && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
				_, err = client.ValidatingAdmissionPolicies().Get(ctx, b.Spec.PolicyName, metav1.GetOptions{})
				if err == nil {
					return ok(does)
				}
			}
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return unknown(err)
		}
		return todo("no policy is bound by which " + does + ": install deploy/components/" + component)
	}
}

// probeProtected asks, by dry-run and as the user, to delete a copy in a target: only the policy refuses that to an
// admin. If RBAC refuses it, or there is no copy, the binding of the policy has to do.
func (k *checker) probeProtected(ctx context.Context) line {
	some := metav1.ListOptions{LabelSelector: k.Rules.Label() + "=" + plan.CopyValue, Limit: 10}
	copies, _ := k.as.CoreV1().ConfigMaps("").List(ctx, some)
	for _, cm := range copies.Items {
		at, o := k.Client.CoreV1().ConfigMaps(cm.Namespace), metav1.DeleteOptions{DryRun: dryRun.DryRun}
		ns, _ := k.as.CoreV1().Namespaces().Get(ctx, cm.Namespace, metav1.GetOptions{}) // on an error it has no name
		isProtected := k.Rules.Exclusion(plan.AnySource(), ns) == plan.NotExcluded && cm.DeletionTimestamp == nil
		if _, ours := k.Rules.SourceOf(&cm); ours && isProtected && at.Delete(ctx, cm.Name, o) == nil {
			return todo("the API server would let you delete copy " + cm.Namespace + "/" + cm.Name +
				": install deploy/components/protect-copies again")
		}
	}
	return k.bound("protected", "only the controller changes copies", "protect-copies")(ctx)
}

// checkSettings compares the flags with the annotations by which the policies go, and with which they know the account.
func (k *checker) checkSettings(ctx context.Context) line {
	const label = plan.Domain + "/installation"
	list, err := k.Client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return unknown(err)
	}
	isAccount := func(s rbacv1.Subject) bool { return account(s.Namespace, s.Name) == k.account() }
	for _, b := range list.Items {
		if !slices.ContainsFunc(b.Subjects, isAccount) {
			continue
		}
		text := "the annotations of ClusterRoleBinding " + b.Name
		if differs := k.settings.differsFrom(b.Annotations); len(differs) > 0 {
			return todo(text + " differ from the flags: " + strings.Join(differs, "; ") + followArguments)
		}
		return ok(text + " follow the flags")
	}
	return todo("no ClusterRoleBinding with the label " + label + " names " + k.account() +
		": bind the account as deploy/base/rbac.yaml does")
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
		if !items(value).Equal(items(wanted)) || name != "namespace-selector" && strings.Contains(value, "\n") {
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

// items returns the lines of an annotation, each with its items in order.
func items(value string) sets.Set[string] {
	all := sets.New[string]()
	for line := range strings.SplitSeq(value, "\n") {
		head := line[:strings.LastIndex(line, " ")+1]
		all.Insert(head + strings.Join(sets.List(sets.New(strings.Split(line[len(head):], ",")...)), ","))
	}
	return all.Delete("")
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
