package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// The shipped policy that confines the controller is in force for all tests. It knows one account with one prefix, label
// and instance, and each world has others. So each has an account of its own, and for these accounts there is the policy
// once more, which reads from the name of the account what stands in the shipped one as text. The rules are the shipped
// ones. What they refuse fails the test, so that none is green because a policy has prevented the wrong write.
const (
	confinedPolicy   = "mirror-controller-confined"
	accountNamespace = "mirror-worlds"
	// bareNamespace has the accounts that get other permissions than the shipped ones. The policy tells by the beginning of a
	// namespace whose it is.
	bareNamespace = accountNamespace + "-bare"
)

// account is the name of the account of a world, in which its settings stand as settingsByAccount reads them. A part of
// a name cannot end with the dash of a prefix.
func (w *world) account() string {
	return strings.TrimSuffix(w.prefix, "-") + "." + w.label + "." + w.instance
}

// settingsByAccount are the variables of the policy that differ from the shipped one.
var settingsByAccount = map[string]string{
	"prefixes": "[request.userInfo.username.split(':')[3].split('.')[0] + '-']",
	"label":    "request.userInfo.username.split(':')[3].split('.')[1]",
	"instance": "request.userInfo.username.split(':')[3].split('.')[2]",
}

// confine has the policy in force for the shipped account and for those of worlds, which get its permissions.
func (s *site) confine(ctx context.Context) error {
	rendered, err := shipped.Render(deployed("default"))
	if err != nil {
		return err
	}
	objects := shipped.Manifests{object("v1", "Namespace", accountNamespace), object("v1", "Namespace", bareNamespace)}
	for _, o := range rendered {
		switch o.GetKind() {
		case "ClusterRoleBinding", "RoleBinding":
			o = o.DeepCopy()
			o.SetName(o.GetName() + "-of-worlds")
			o.Object["subjects"] = []any{map[string]any{
				"apiGroup": rbacv1.GroupName, "kind": rbacv1.GroupKind, "name": "system:serviceaccounts:" + accountNamespace,
			}}
			objects = append(objects, o)
		case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			if o.GetName() != confinedPolicy {
				continue
			}
			forWorlds, err := confinedByAccount(o)
			if err != nil {
				return err
			}
			objects = append(objects, o, forWorlds)
		}
	}
	if err := objects.Apply(ctx, s.cluster.Admin()); err != nil {
		return err
	}
	for _, user := range []string{s.installed.User, cluster.ServiceAccountUser(accountNamespace, "any.any.any")} {
		if err := s.waitConfined(ctx, user); err != nil {
			return err
		}
	}
	return nil
}

// deployed returns the path of a folder of deploy/, beside the kustomization that the tests install.
func deployed(name string) string { return filepath.Join(filepath.Dir(*manifests), name) }

func object(apiVersion, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	return o
}

// confinedByAccount returns the policy, or its binding, for the accounts of worlds.
func confinedByAccount(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	const name = confinedPolicy + "-worlds"
	if o.GetKind() == "ValidatingAdmissionPolicyBinding" {
		o = o.DeepCopy()
		return o, setPolicyName(o, name)
	}
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy); err != nil {
		return nil, err
	}
	policy.Name = name
	if len(policy.Spec.MatchConditions) != 1 {
		return nil, fmt.Errorf("%s has %d conditions, want that it is the controller's account", confinedPolicy, len(policy.Spec.MatchConditions))
	}
	policy.Spec.MatchConditions[0].Expression = fmt.Sprintf("request.userInfo.username.startsWith(%q)",
		"system:serviceaccount:"+accountNamespace)
	for name, expression := range settingsByAccount {
		i := slices.IndexFunc(policy.Spec.Variables, func(v admissionregistrationv1.Variable) bool { return v.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s has no variable %s", confinedPolicy, name)
		}
		policy.Spec.Variables[i].Expression = expression
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&policy)
	return &unstructured.Unstructured{Object: content}, err
}

// setPolicyName names a binding, and the policy that it binds.
func setPolicyName(binding *unstructured.Unstructured, name string) error {
	binding.SetName(name)
	return unstructured.SetNestedField(binding.Object, name, "spec", "policyName")
}

// waitConfined waits until the user is refused a ConfigMap that is no copy. Nothing tells when the API server has taken
// up a policy, and there is no world yet whose events would do for a clock.
func (s *site) waitConfined(ctx context.Context, user string) error {
	cfg := s.cluster.Admin()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, configMap(metav1.NamespaceDefault, probeName),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return refusedBy(err, confinedPolicy), nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s is confined: %w", user, err)
	}
	return nil
}

// refusedBy reports whether the error is the refusal of a policy whose name begins so.
func refusedBy(err error, policy string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), refusal+policy)
}

// refusal is what the API server says before the name of the policy that has refused a request.
const refusal = "ValidatingAdmissionPolicy '"

// takeAccount has the controllers of the world run from now on as the account for its settings.
func (w *world) takeAccount() {
	w.Helper()
	_, err := w.admin.CoreV1().ServiceAccounts(accountNamespace).Create(w.ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: w.account()}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	own := *w.site
	if own.installed, err = w.installed.As(w.ctx, accountNamespace, w.account()); err != nil {
		w.Fatal(err)
	}
	w.site = &own
	w.Cleanup(func() { w.expectConfined(own.installed.User) })
}

// expectConfined fails the test if the policy had to refuse anything to the user.
func (w *world) expectConfined(user string) {
	w.Helper()
	events, _, err := w.cluster.Audit().Since(w.mark)
	if err != nil {
		w.Error(err)
	}
	for _, e := range events {
		if e.User.Username == user && strings.Contains(e.Response.Message, refusal+confinedPolicy) {
			w.Errorf("the policy had to refuse %v: %s", e, e.Response.Message)
			return // one shows what is wrong, and it may be one of thousands
		}
	}
}

// TestAccountsAreConfined has both kinds of accounts of a world ask for a copy in a target, and for one elsewhere. RBAC
// allows both.
func TestAccountsAreConfined(t *testing.T) {
	t.Parallel()
	w := &policed{newWorld(t, "a"), map[string]kubernetes.Interface{}}
	rules, _ := w.shippedRules()
	// As somebody else who impersonates it, by the audit log, or expectConfined would find the refusals.
	for _, user := range []string{w.installed.User, w.newAccount("bare", rules).user} {
		ask := func(namespace string) error {
			const name = "settings"
			cm := configMap(namespace, name, w.marksOfCopy(w.home, namespace, name)...)
			_, err := w.as(user).CoreV1().ConfigMaps(namespace).Create(w.ctx, cm, dryCreate)
			return err
		}
		w.until(user+" has its permissions", func() error { return ask(w.ns("a")) })
		expectAnswer(t, confinedPolicy, notThere, ask(w.home))
	}
}
