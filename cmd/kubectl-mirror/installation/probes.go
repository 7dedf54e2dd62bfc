package installation

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// addProbes asks as the account, by dry-run, for what the policy confined has to refuse, as the controller's self-check does. If the user
// may not impersonate the account, one request is enough to know.
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
	if may := addProbe(ctx, r, as, "probe/unmarked", mirror.Probes(nil, home, "")[0], "any ConfigMap in namespace "+home); !may || c.noDeployment != nil || c.invalid != nil {
		return
	}
	rules := plan.NewRules(&c.process.Options.Options)
	if ns := c.elsewhere(ctx, rules); ns != "" {
		addProbe(ctx, r, as, "probe/elsewhere", mirror.Probes(rules, home, ns)[1], "a copy in namespace "+ns+", which is no target")
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

// elsewhere returns a namespace that is no target by the flags, and not that of the account; empty if none is known. The oldest one is the
// least likely to go before the probe.
func (c *checker) elsewhere(ctx context.Context, rules *plan.Rules) (name string) {
	oldest := metav1.Now()
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.Client.CoreV1().Namespaces().List(ctx, o)
	}
	// Without the permission there is none.
	_ = pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		ns := o.(*corev1.Namespace)
		if ns.Name != c.Account.Namespace && !rules.AllowsTarget(ns.Name) && !plan.Terminating(ns) && ns.CreationTimestamp.Before(&oldest) {
			name, oldest = ns.Name, ns.CreationTimestamp
		}
		return nil
	})
	return name
}
