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
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const checkHelp = `Check the installation of the controller, line by line:

  ok           it is as it should be
  to do        a fault, with the cause that the API server tells, and what to do about it
  not checked  you lack a permission, or the API server gave no clear answer
  not probed   there is no namespace in which to ask

The command asks the API server, by dry-run and as the account of the controller, whether it accepts what the controller has to
write, and refuses what it must not. That takes the permission to impersonate the account.

Exit codes: 0 all well, 1 something to do, 2 unknown: nothing to do is known, and not all could be checked.`

// Results of a check.
const (
	resultOK        = "ok"
	resultTodo      = "to do"
	resultUnknown   = "not checked"
	resultNotProbed = "not probed"
)

func newCheck(c *cli) *cobra.Command {
	var output outputFlag
	k := &checker{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the installation of the controller, line by line",
		Long:  checkHelp,
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if given := c.settings.given(); len(given) > 0 {
				return fmt.Errorf("%s: check is about what is installed, and takes no settings but --controller", strings.Join(given, ", "))
			}
			if k.client, err = c.client(""); err != nil {
				return err
			}
			found, err := deploymentsOf(cmd.Context(), k.client, *c.settings.controller)
			switch {
			case apierrors.IsNotFound(err), err == nil && len(found) == 0:
				k.add("deployment", resultTodo, "there is no such Deployment", "install it as deploy/docs/install.md says, or name it by --controller")
			case err != nil:
				return fmt.Errorf("cannot find the controller: %w", err)
			case len(found) > 1:
				return fmt.Errorf("found %d controllers: choose one with --controller", len(found))
			default:
				k.deployment = &found[0]
				if k.process, err = processOf(k.deployment); err == nil {
					k.as, err = c.client(k.account())
				}
				if err != nil {
					return fmt.Errorf("arguments of Deployment %s: %w", keyOf(k.deployment), err)
				}
				k.check(cmd.Context())
			}
			return cmp.Or(output.print(cmd.OutOrStdout(), k), k.verdict())
		},
	}
	output.bind(cmd)
	cmd.Flags().BoolVar(&k.confined, "confined", true, "Expect the policies that confine the controller.")
	cmd.Flags().BoolVar(&k.publishers, "publishers", true, "Expect the policy that says who may publish.")
	return cmd
}

// line is the result of one check.
type line struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"` // the likely one
}

// checker checks one installation.
type checker struct {
	Checks []line `json:"checks"`

	client, as           kubernetes.Interface // of the user, and of the account of the controller
	confined, publishers bool                 // expected
	deployment           *appsv1.Deployment
	process              *process
}

func (k *checker) add(check, result, detail, remedy string) {
	k.Checks = append(k.Checks, line{check, result, detail, remedy})
}

// account returns the user as which the controller runs.
func (k *checker) account() string {
	name := cmp.Or(k.deployment.Spec.Template.Spec.ServiceAccountName, "default")
	return fmt.Sprintf("system:serviceaccount:%s:%s", k.deployment.Namespace, name)
}

func (k *checker) check(ctx context.Context) {
	k.checkDeployment()
	k.checkLeader(ctx)
	k.probe(ctx)
	if k.publishers {
		k.checkPublishers(ctx)
	}
}

func (k *checker) checkDeployment() {
	d, key, kubectl := k.deployment, keyOf(k.deployment), "kubectl -n "+k.deployment.Namespace+" "
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	switch s := d.Status; {
	case wanted == 0:
		k.add("deployment", resultTodo, fmt.Sprintf("Deployment %s has no replicas: nothing is mirrored", key), kubectl+"scale deployment "+d.Name+" --replicas=1")
	case s.ObservedGeneration < d.Generation || s.UpdatedReplicas < wanted || s.ReadyReplicas < wanted:
		k.add("deployment", resultTodo, fmt.Sprintf("Deployment %s is not ready: %d of %d replicas are up to date, and %d are ready",
			key, s.UpdatedReplicas, wanted, s.ReadyReplicas), kubectl+"describe pods, and "+kubectl+"logs deployment/"+d.Name)
	default:
		k.add("deployment", resultOK, fmt.Sprintf("Deployment %s: %d of %d replicas are ready, image %s", key, s.ReadyReplicas, wanted, containerOf(d).Image), "")
	}
}

// checkLeader looks whether somebody renews the Lease.
func (k *checker) checkLeader(ctx context.Context) {
	if !k.process.leaderElect {
		if r := k.deployment.Spec.Replicas; r != nil && *r > 1 {
			k.add("leader", resultTodo, fmt.Sprintf("all of the %d replicas write", *r), "add --leader-elect to the arguments of the Deployment")
		}
		return
	}
	key, remedy := k.process.leaseNamespace+"/"+k.process.leaseName, fmt.Sprintf("kubectl -n %s logs deployment/%s", k.deployment.Namespace, k.deployment.Name)
	lease, err := k.client.CoordinationV1().Leases(k.process.leaseNamespace).Get(ctx, k.process.leaseName, metav1.GetOptions{})
	s := lease.Spec
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		k.add("leader", resultUnknown, err.Error(), "")
	case err != nil || s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil:
		k.add("leader", resultTodo, "nobody holds Lease "+key+": nothing is mirrored", remedy)
	case k.now(ctx).After(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second)):
		k.add("leader", resultTodo, fmt.Sprintf("nobody has renewed Lease %s since %s: nothing is mirrored", key, s.RenewTime.UTC().Format(time.RFC3339)), remedy)
	default:
		holder, _, _ := strings.Cut(*s.HolderIdentity, "_") // the name of the Pod and a number
		k.add("leader", resultOK, holder+" holds Lease "+key, "")
	}
}

// now returns the time of the API server, which everybody may ask for: the machine of the user may have another.
func (k *checker) now(ctx context.Context) time.Time {
	review, err := k.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.CreationTimestamp.IsZero() {
		return time.Now()
	}
	return review.CreationTimestamp.Time
}

var dryRun = []string{metav1.DryRunAll}

// probe asks by dry-run, as the account of the controller, for what it has to be allowed, and for what it must be refused.
func (k *checker) probe(ctx context.Context) {
	reader := &snapshot.Reader{Client: k.as, Rules: plan.NewRules(&k.process.Options.Options)}
	namespaces, err := reader.Namespaces(ctx)
	if err != nil && strings.Contains(err.Error(), "cannot impersonate") {
		k.add("probes", resultUnknown, "you may not impersonate the account of the controller: "+err.Error(), "")
		return
	}
	if err != nil {
		k.add("probe/namespaces", resultTodo, err.Error(), grantRemedy)
		return
	}
	names := slices.Sorted(maps.Keys(namespaces))
	prefixes := k.process.NamespacePrefixes
	if k.process.AllNamespaces {
		prefixes = []string{""}
	}
	for _, prefix := range prefixes {
		k.probeCopies(ctx, reader.Rules, prefix, slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			ns := namespaces[name]
			return !strings.HasPrefix(name, prefix) || name == k.home() || reader.Rules.Exclusion(plan.AnySource(), ns) != plan.NotExcluded
		}))
	}
	if !k.confined {
		return
	}
	outside := "" // one of those that are always there
	for _, name := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		if name != k.deployment.Namespace && !reader.Rules.AllowsTarget(name) {
			outside = name
		}
	}
	for i, cm := range mirror.Probes(reader.Rules, k.deployment.Namespace, outside) {
		name := [...]string{"probe/unmarked", "probe/elsewhere"}[i]
		text := [...]string{"any ConfigMap in namespace ", "a copy in a namespace that is no target, "}[i] + cm.Namespace
		k.mustRefuse(name, text, k.createAs(ctx, cm))
	}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: k.deployment.Namespace, Name: "mirror-controller-check"},
		InvolvedObject:      corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: k.deployment.Namespace, Name: "any"},
		ReportingController: "another"}
	_, err = k.as.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{DryRun: dryRun})
	k.mustRefuse("probe/event", "an Event of another reporter", err)
}

// home is the namespace of the source of a probe.
func (k *checker) home() string {
	if all := k.process.SourceNamespaces; len(all) > 0 {
		return all[0]
	}
	return k.deployment.Namespace
}

func (k *checker) createAs(ctx context.Context, cm *corev1.ConfigMap) error {
	_, err := k.as.CoreV1().ConfigMaps(cm.Namespace).Create(ctx, cm, metav1.CreateOptions{DryRun: dryRun})
	return err
}

// probeCopies asks whether the controller may create, update and delete copies in a target of a prefix. One namespace may refuse
// for reasons of its own, such as a quota.
func (k *checker) probeCopies(ctx context.Context, rules *plan.Rules, prefix string, targets []string) {
	const tries = 3
	name := "probe/copy/" + prefix
	if len(targets) == 0 {
		k.add(name, resultNotProbed, fmt.Sprintf("no target begins with %q", prefix), "")
		return
	}
	var err error
	for _, target := range targets[:min(tries, len(targets))] {
		cm := mirror.Probes(rules, k.home(), target)[1]
		if err = k.createAs(ctx, cm); err != nil {
			continue
		}
		_, updated := k.as.CoreV1().ConfigMaps(target).Update(ctx, cm, metav1.UpdateOptions{DryRun: dryRun})
		deleted := k.as.CoreV1().ConfigMaps(target).Delete(ctx, cm.Name, metav1.DeleteOptions{DryRun: dryRun})
		if err = errors.Join(ignoreNotFound(updated), ignoreNotFound(deleted)); err == nil {
			k.add(name, resultOK, "the controller may write copies in namespace "+target, "")
			return
		}
	}
	k.add(name, resultTodo, strings.ReplaceAll(err.Error(), "\n", ", "), k.remedy(err))
}

// ignoreNotFound drops the answer to a request that RBAC allows, about an object that is not there.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

const grantRemedy = "grant it as deploy/base/rbac.yaml does"

// boundBy finds the ClusterRoleBinding whose annotations a refusal of the policy goes by.
var boundBy = regexp.MustCompile(`ClusterRoleBinding ([-.a-zA-Z0-9]+)`)

// remedy returns the likely remedy if the API server refuses a copy.
func (k *checker) remedy(refused error) string {
	text := refused.Error()
	switch m := boundBy.FindStringSubmatch(text); {
	case mirror.RefusedAsConfined(refused) && m != nil && !k.process.AllNamespaces:
		return fmt.Sprintf("kubectl annotate --overwrite clusterrolebinding %s %s/namespace-prefix=%s", m[1], plan.Domain, strings.Join(k.process.NamespacePrefixes, ","))
	case mirror.RefusedAsConfined(refused):
		return "give the ClusterRoleBinding of the controller annotations as the arguments of its Deployment are: see deploy/docs/policies.md"
	case strings.Contains(text, " cannot "):
		return grantRemedy
	}
	return ""
}

// mustRefuse adds the answer to a request that the policy has to refuse.
func (k *checker) mustRefuse(check, text string, answer error) {
	switch {
	case answer == nil:
		k.add(check, resultTodo, "the API server would let the controller create "+text+": no policy confines it",
			"install deploy/components/admission, and see that the ClusterRoleBinding names "+k.account()+" and has the label that the policies select")
	case mirror.RefusedAsConfined(answer):
		k.add(check, resultOK, "a policy refuses the controller to create "+text, "")
	default:
		k.add(check, resultUnknown, "the controller asked for "+text+", and the answer was: "+answer.Error(), "")
	}
}

// checkPublishers looks for the policy that says who may publish.
func (k *checker) checkPublishers(ctx context.Context) {
	bindings, err := k.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		k.add("publishers", resultUnknown, err.Error(), "")
		return
	}
	for _, b := range bindings.Items {
		if strings.Contains(b.Spec.PolicyName, "-publishers") && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
			k.add("publishers", resultOK, "only holders of the verb mirror publish", "")
			return
		}
	}
	k.add("publishers", resultTodo, "no policy is bound by which only holders of the verb mirror publish",
		"install deploy/components/admission/publishers, or say --publishers=false")
}

func (k *checker) verdict() (err error) {
	for _, l := range k.Checks {
		switch l.Result {
		case resultTodo:
			return errNo
		case resultUnknown:
			err = errUnknown
		}
	}
	return err
}

func (k *checker) table(w io.Writer, wide bool) error {
	counts := map[string]int{}
	var rows [][]any
	for _, l := range k.Checks {
		counts[l.Result]++
		text := l.Detail
		if l.Remedy != "" {
			text += ": " + l.Remedy
		}
		rows = append(rows, []any{l.Check, l.Result, printable(text)})
	}
	if err := printTable(w, wide, []string{"Check", "Result", "Detail"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d ok, %d to do, %d not checked.\n", counts[resultOK], counts[resultTodo], counts[resultUnknown])
	return err
}

func (k *checker) names() (names []string) {
	for _, l := range k.Checks {
		names = append(names, l.Check)
	}
	return names
}
