package installation

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// addProbes asks as the account, by dry-run, for what the policy confined has to refuse, as the controller's self-check does.
// If the user may not impersonate the account, one request is enough to know.
func (c *checker) addProbes(ctx context.Context, r *Report) {
	if !c.Probes || !c.expects("confined") {
		return
	}
	as, err := c.As(c.user())
	if err != nil {
		r.add("probe/unmarked", "", err)
		return
	}
	home := c.Account.Namespace
	may := addProbe(ctx, r, as, "probe/unmarked", mirror.Probes(nil, home, "")[0], "any ConfigMap in namespace "+home)
	if !may || c.noDeployment != nil || c.invalid != nil {
		return
	}
	rules := plan.NewRules(&c.process.Options.Options)
	for _, ns := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} { // which are always there
		if ns != home && !rules.AllowsTarget(ns) {
			addProbe(ctx, r, as, "probe/elsewhere", mirror.Probes(rules, home, ns)[1], "a copy in namespace "+ns+", which is no target")
			return
		}
	}
}

// addProbe asks for a ConfigMap by dry-run, and returns whether the user may ask as the account.
func addProbe(ctx context.Context, r *Report, as kubernetes.Interface, check string, cm *corev1.ConfigMap, text string) (may bool) {
	_, err := as.CoreV1().ConfigMaps(cm.Namespace).Create(ctx, cm, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	_, refused := answer(cm, err)
	may = refused == nil || !strings.HasPrefix(refused.Error(), "you may not impersonate")
	switch {
	case err == nil:
		err = todo("see the lines above, and wait a few seconds after a change",
			"the API server would let the controller create %s: no policy confines it", text)
	case mirror.RefusedAsConfined(err):
		err = nil
	case may:
		err = fmt.Errorf("the controller asked by dry-run for %s, and the answer was: %w", text, err)
	default:
		err = refused
	}
	r.add(check, "by dry-run, a policy refuses the controller to create "+text, err)
	return may
}
