package policies

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// setLeaseNamespace changes the namespace in which the policies let the account of the world have its Lease.
func setLeaseNamespace(w *suite.World, namespace string) {
	w.Helper()
	setSetting(w, "leader-elect-resource-namespace", namespace)
}

// setSetting changes what the policies know of a flag of the world.
func setSetting(w *suite.World, flag, value string) {
	w.Helper()
	patch := fmt.Sprintf(`{"metadata": {"annotations": {"%s/%s": %q}}}`, plan.Domain, flag, value)
	_, err := w.Admin.RbacV1().ClusterRoleBindings().Patch(w.Context(), w.Account(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// TestAccountsAreConfined has both kinds of accounts of a world ask for a copy in a target, and for one elsewhere. RBAC
// allows both.
func TestAccountsAreConfined(t *testing.T) {
	t.Parallel()
	w := At(suite.New(t, "a"))
	rules, _ := w.ShippedRules()
	// As somebody else who impersonates it, by the audit log, or expectConfined would find the refusals.
	for _, user := range []string{w.Installed.User, w.NewAccount("bare", rules).User} {
		ask := func(namespace string) error {
			const name = "settings"
			cm := suite.ConfigMap(namespace, name, w.MarksOfCopy(w.Home, namespace, name)...)
			_, err := w.as(user).CoreV1().ConfigMaps(namespace).Create(w.Context(), cm, dryCreate)
			return err
		}
		w.Until(user+" has its permissions", func() error { return ask(w.NS("a")) })
		expectAnswer(t, suite.ConfinedPolicy, suite.NotThere, ask(w.Home))
	}
}
