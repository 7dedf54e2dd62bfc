package main

import (
	"cmp"
	"context"
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

// Results of a check.
const (
	resultOK        = "ok"
	resultTodo      = "to do"
	resultUnknown   = "not checked"
	resultNotProbed = "not probed"
)

func newCheck(c *cli) *cobra.Command {
	k := &checker{}
	cmd := c.command("check", "Check the installation of the controller, line by line", checkHelp, "",
		cobra.NoArgs,
		func(cmd *cobra.Command, _ []string) (_ printed, err error) {
			for _, name := range deciding {
				if c.settings.Changed(name) {
					return nil, fmt.Errorf("--%s: check is about an installed controller: choose it with --controller", name)
				}
			}
			if k.session, err = c.begin(cmd); err != nil {
				return nil, err
			}
			if k.as, err = c.client(k.account()); err != nil {
				return nil, err
			}
			k.checkDeployment()
			k.checkLeader(cmd.Context())
			k.probe(cmd.Context())
			if k.confined {
				k.checkSettings(cmd.Context())
			}
			k.checkBindings(cmd.Context())
			return k, nil
		})
	cmd.Flags().BoolVar(&k.confined, "confined", true, "Expect the policies that confine the controller.")
	cmd.Flags().BoolVar(&k.publishers, "publishers", true, "Expect the policy that says who may publish.")
	cmd.Flags().BoolVar(&k.protected, "protect-copies", false, "Expect the policy that protects copies.")
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

	*session                        `json:"-"`
	as                              kubernetes.Interface // the account of the controller
	confined, publishers, protected bool                 // expected
}

func (k *checker) add(check, result, detail, remedy string) {
	k.Checks = append(k.Checks, line{check, result, strings.ReplaceAll(detail, "\n", ", "), remedy})
}

// account returns the user as which the controller runs.
func (k *checker) account() string {
	name := cmp.Or(k.settings.deployment.Spec.Template.Spec.ServiceAccountName, "default")
	return fmt.Sprintf("system:serviceaccount:%s:%s", k.settings.deployment.Namespace, name)
}

// checkDeployment looks whether all replicas are ready, and no more than one writes.
func (k *checker) checkDeployment() {
	d := k.settings.deployment
	s, wanted := d.Status, *d.Spec.Replicas // the API server sets it
	text := fmt.Sprintf("Deployment %s: %d of %d replicas are ready, image %s",
		keyOf(d), s.ReadyReplicas, wanted, containerOf(d).Image)
	switch {
	case wanted == 0 || s.ObservedGeneration < d.Generation || s.UpdatedReplicas < wanted || s.ReadyReplicas < wanted:
		k.add("deployment", resultTodo, text, "kubectl -n "+d.Namespace+" describe deployment "+d.Name+", and its Pods")
	case wanted > 1 && !k.settings.leaderElect:
		k.add("deployment", resultTodo, text+": all of them write", "add --leader-elect to the arguments")
	default:
		k.add("deployment", resultOK, text, "")
	}
}

// checkLeader looks whether somebody renews the Lease.
func (k *checker) checkLeader(ctx context.Context) {
	if !k.settings.leaderElect {
		return
	}
	lease, d := k.settings.leaseNamespace+"/"+k.settings.leaseName, k.settings.deployment
	switch holder, err := k.settings.leader(ctx, k.Client); {
	case err != nil:
		k.add("leader", resultUnknown, err.Error(), "")
	case holder == "":
		k.add("leader", resultTodo, "nobody holds Lease "+lease+": nothing is mirrored",
			"kubectl -n "+d.Namespace+" logs deployment/"+d.Name)
	default:
		k.add("leader", resultOK, holder+" holds Lease "+lease, "")
	}
}

var create = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// confinedPolicy matches the refusal of the policy in deploy/components/admission/confined, whatever a kustomization
// adds to its name.
var confinedPolicy = regexp.MustCompile(`ValidatingAdmissionPolicy '[^']*confined[^']*'`)

// refusedAsConfined reports whether err is the refusal of the policy that confines the controller.
func refusedAsConfined(err error) bool {
	return apierrors.IsForbidden(err) && confinedPolicy.MatchString(err.Error())
}

// unmarked returns a ConfigMap that a confined controller cannot create.
func unmarked(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mirror-controller-check"}}
}

// copyIn returns a ConfigMap with every mark of a copy. A confined controller can create it in targets alone.
func (k *checker) copyIn(namespace string) *corev1.ConfigMap {
	return k.Rules.Desired(k.Rules.ParseSource(unmarked(k.home())), namespace, nil)
}

// probe asks by dry-run, as the account of the controller, for what it has to be allowed, and for what it must be
// refused.
func (k *checker) probe(ctx context.Context) {
	namespaces, err := (&snapshot.Reader{Client: k.as}).Namespaces(ctx)
	switch {
	case err != nil && strings.Contains(err.Error(), "cannot impersonate"):
		k.add("probes", resultUnknown, "you may not impersonate the account of the controller: "+err.Error(), "")
		return
	case err != nil:
		k.add("probes", resultTodo, err.Error(), k.remedy(err))
		return
	}
	k.checkPermissions(ctx)
	var targets, elsewhere []string
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		switch ns := namespaces[name]; {
		case name == k.home() || plan.Terminating(ns):
		case k.Rules.Exclusion(plan.AnySource(), ns) == plan.NotExcluded:
			targets = append(targets, name)
		case !k.Rules.AllowsTarget(name):
			elsewhere = append(elsewhere, name)
		}
	}
	prefixes := k.settings.NamespacePrefixes
	if k.settings.AllNamespaces {
		prefixes = []string{""}
	}
	for _, prefix := range prefixes {
		k.probeCopies(ctx, prefix, targets)
	}
	if !k.confined {
		return
	}
	own := k.settings.deployment.Namespace
	_, err = k.as.CoreV1().ConfigMaps(own).Create(ctx, unmarked(own), create)
	k.mustRefuse("probe/unmarked", "any ConfigMap in namespace "+own, err)
	k.probeElsewhere(ctx, elsewhere)
	_, err = k.as.CoreV1().Events(own).Create(ctx, &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: "mirror-controller-check"},
		InvolvedObject:      corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: own, Name: "any"},
		ReportingController: "another",
	}, create)
	k.mustRefuse("probe/event", "an Event of another reporter", err)
}

// home is the namespace of the source of a probe.
func (k *checker) home() string {
	return append(slices.Clone(k.settings.SourceNamespaces), k.settings.deployment.Namespace)[0]
}

// probeElsewhere asks for copies in namespaces that are no targets: the policy may go by settings that allow more than
// the flags. Other answers, such as that of a quota, do not count beside a refusal.
func (k *checker) probeElsewhere(ctx context.Context, namespaces []string) {
	const most = 50
	where, answer := "a namespace that is", error(nil)
	for i, name := range namespaces[:min(most, len(namespaces))] {
		_, err := k.as.CoreV1().ConfigMaps(name).Create(ctx, k.copyIn(name), create)
		if err == nil {
			where, answer = "namespace "+name+", which is", nil
			break
		}
		if i == 0 || refusedAsConfined(err) {
			answer = err
		}
	}
	if len(namespaces) > 0 {
		k.mustRefuse("probe/elsewhere", "a copy in "+where+" no target", answer)
	}
}

// probeCopies asks whether the controller may create, update, patch and delete copies in a target of a prefix. One
// namespace may refuse for reasons of its own, such as a quota. All answers but the first are about an object that is
// not there.
func (k *checker) probeCopies(ctx context.Context, prefix string, targets []string) {
	const most = 3
	targets = slices.DeleteFunc(slices.Clone(targets), func(t string) bool { return !strings.HasPrefix(t, prefix) })
	if len(targets) == 0 {
		k.add("probe/copy/"+prefix, resultNotProbed, fmt.Sprintf("no target begins with %q", prefix), "")
		return
	}
	var refused error
	for _, target := range targets[:min(most, len(targets))] {
		cm, configMaps := k.copyIn(target), k.as.CoreV1().ConfigMaps(target)
		_, refused = configMaps.Create(ctx, cm, create)
		_, updated := configMaps.Update(ctx, cm, metav1.UpdateOptions{DryRun: create.DryRun})
		_, patched := configMaps.Patch(ctx, cm.Name, types.JSONPatchType, []byte("[]"),
			metav1.PatchOptions{DryRun: create.DryRun})
		deleted := configMaps.Delete(ctx, cm.Name, metav1.DeleteOptions{DryRun: create.DryRun})
		for _, err := range []error{updated, patched, deleted} {
			if !apierrors.IsNotFound(err) {
				refused = cmp.Or(refused, err)
			}
		}
		if refused == nil {
			k.add("probe/copy/"+prefix, resultOK, "the controller may write copies in namespace "+target, "")
			return
		}
	}
	k.add("probe/copy/"+prefix, resultTodo, refused.Error(), k.remedy(refused))
}

// remedy returns the likely remedy if the API server refuses a copy.
func (k *checker) remedy(refused error) string {
	switch {
	case refusedAsConfined(refused):
		return "have the annotations of the ClusterRoleBinding follow the arguments: see deploy/docs/policies.md"
	case strings.Contains(refused.Error(), " cannot "):
		return granted
	}
	return ""
}

// mustRefuse adds the answer to a request that the policy has to refuse.
func (k *checker) mustRefuse(check, text string, answer error) {
	switch {
	case answer == nil:
		k.add(check, resultTodo, "the API server would let the controller create "+text+": no policy confines it",
			"install deploy/components/admission again; its label and "+k.account()+" must be in the ClusterRoleBinding")
	case refusedAsConfined(answer):
		k.add(check, resultOK, "a policy refuses the controller to create "+text, "")
	default:
		k.add(check, resultUnknown, "the controller asked for "+text+", and the answer was: "+answer.Error(), "")
	}
}

// checkBindings looks for the policies that are about other accounts, and that no probe of ours can reach.
func (k *checker) checkBindings(ctx context.Context) {
	list, err := k.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	for _, p := range []struct {
		expected                     bool
		check, name, does, component string
	}{
		{k.publishers, "publishers", "-publishers", "only holders of the verb mirror publish", "admission/publishers"},
		{k.protected, "protect-copies", "-protected-copies", "only the controller changes copies", "protect-copies"},
	} {
		isBound := slices.ContainsFunc(list.Items, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return strings.Contains(b.Spec.PolicyName, p.name) && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
		})
		switch {
		case err != nil && p.expected:
			k.add(p.check, resultUnknown, err.Error(), "")
		case isBound:
			k.add(p.check, resultOK, p.does, "")
		case p.expected:
			k.add(p.check, resultTodo, "no policy is bound by which "+p.does,
				"install deploy/components/"+p.component+", or say --"+p.check+"=false")
		}
	}
}

// checkSettings compares the flags with the annotations by which the policies go, and with which they know the account.
func (k *checker) checkSettings(ctx context.Context) {
	const check, label = "settings", "mirror-controller.github.io/installation"
	list, err := k.Client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		k.add(check, resultUnknown, err.Error(), "")
		return
	}
	i := slices.IndexFunc(list.Items, func(b rbacv1.ClusterRoleBinding) bool {
		return slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
			return fmt.Sprintf("system:serviceaccount:%s:%s", s.Namespace, s.Name) == k.account()
		})
	})
	if i < 0 {
		k.add(check, resultTodo, "no ClusterRoleBinding with the label "+label+" names "+k.account(),
			"bind the account as deploy/base/rbac.yaml does")
		return
	}
	binding, differs := list.Items[i], []string(nil)
	for _, s := range k.settings.annotated() {
		value, ok := binding.Annotations[settingPrefix+s.name]
		if !ok {
			value = s.otherwise
		}
		if items(value) != items(s.value) {
			differs = append(differs, fmt.Sprintf("%s is %q, and the flag %q", s.name, value, s.value))
		}
	}
	if len(differs) > 0 {
		k.add(check, resultTodo, "the annotations of ClusterRoleBinding "+binding.Name+" differ from the flags: "+
			strings.Join(differs, "; "), "have them follow the arguments: see deploy/docs/policies.md")
		return
	}
	k.add(check, resultOK, "the annotations of ClusterRoleBinding "+binding.Name+" follow the flags", "")
}

// checkPermissions asks, as the account of the controller, for all that its roles grant in deploy/base/rbac.yaml.
func (k *checker) checkPermissions(ctx context.Context) {
	needs := []authorizationv1.ResourceAttributes{}
	add := func(group, resource, namespace, verbs string) {
		for verb := range strings.FieldsSeq(verbs) {
			needs = append(needs, authorizationv1.ResourceAttributes{
				Group: group, Resource: resource, Namespace: namespace, Verb: verb})
		}
	}
	add("", "configmaps", "", "get list watch create update patch delete")
	add("", "namespaces", "", "get list watch")
	add("", "events", "", "create patch")
	if k.settings.leaderElect {
		add("coordination.k8s.io", "leases", k.settings.leaseNamespace, "create get update")
	}
	var lacks []string
	for _, n := range needs {
		if n.Resource == "leases" && n.Verb != "create" {
			n.Name = k.settings.leaseName
		}
		review := &authorizationv1.SelfSubjectAccessReview{}
		review.Spec.ResourceAttributes = &n
		review, err := k.as.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		switch {
		case err != nil:
			k.add("permissions", resultUnknown, err.Error(), "")
			return
		case !review.Status.Allowed:
			lacks = append(lacks, n.Verb+" "+n.Resource)
		}
	}
	if len(lacks) > 0 {
		k.add("permissions", resultTodo, k.account()+" may not "+strings.Join(lacks, ", "), granted)
		return
	}
	k.add("permissions", resultOK, k.account()+" may do what the controller needs", "")
}

const granted = "grant it as deploy/base/rbac.yaml does"

func (k *checker) count(result string) (n int) {
	for _, l := range k.Checks {
		if l.Result == result {
			n++
		}
	}
	return n
}

func (k *checker) end() error {
	if k.count(resultTodo) == 0 && k.count(resultUnknown) > 0 {
		return exitUnknown
	}
	return verdict(k.count(resultTodo) == 0)
}

func (k *checker) table(w io.Writer, wide bool) {
	var rows [][]any
	for _, l := range k.Checks {
		rows = append(rows, []any{l.Check, l.Result, strings.TrimSuffix(l.Detail+": "+l.Remedy, ": ")})
	}
	printTable(w, wide, []string{"Check", "Result", "Detail"}, rows)
	fmt.Fprintf(w, "%d ok, %d to do, %d not checked.\n",
		k.count(resultOK), k.count(resultTodo), k.count(resultUnknown))
}
