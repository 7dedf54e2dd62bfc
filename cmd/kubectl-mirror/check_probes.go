package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// probe is a ConfigMap that the account of the controller has asked for by dry-run, and the answer.
type probe struct {
	namespace string
	err       error
}

// readProbes asks as the account for what the policy has to refuse, as the controller's self-check does, if the user may
// impersonate the account.
func (c *cli) readProbes(ctx context.Context, r *factReader) error {
	if !r.expects(policyConfined) {
		return nil
	}
	permission := fmt.Sprintf("impersonate serviceaccounts/%s in namespace %s", r.account.Name, r.account.Namespace)
	may, err := r.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "impersonate", Resource: "serviceaccounts", Namespace: r.account.Namespace, Name: r.account.Name,
		}},
	}, metav1.CreateOptions{})
	if err != nil || !may.Status.Allowed {
		r.probes.missing = permission
		return nil
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: userOf(r.account)}
	as, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	rules, elsewhere := r.rules(), ""
	if rules != nil {
		elsewhere = r.noTarget(ctx, rules)
	}
	for _, cm := range mirror.Probes(rules, r.account.Namespace, elsewhere) {
		_, err := as.CoreV1().ConfigMaps(cm.Namespace).Create(ctx, cm, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		r.probes.value = append(r.probes.value, probe{cm.Namespace, err})
	}
	return ctx.Err()
}

// rules are those of the policies, or else of the Deployment; nil if both are malformed.
func (r *factReader) rules() *plan.Rules {
	known, err := r.annotations()
	for _, o := range []*mirror.Options{known, r.process.Options} {
		if err == nil && o.Options.Validate() == nil {
			return plan.NewRules(&o.Options)
		}
		err = r.process.invalid
	}
	return nil
}

// noTarget returns a namespace that is no target by its name, and not that of the account; empty if none is known. The oldest
// is the least likely to go before it is asked about.
func (r *factReader) noTarget(ctx context.Context, rules *plan.Rules) string {
	namespaces, err := (&cluster{client: r.client}).listNamespaces(ctx)
	namespaces = slices.DeleteFunc(namespaces, func(ns *corev1.Namespace) bool {
		return ns.Name == r.account.Namespace || rules.AllowsTarget(ns.Name) || plan.Terminating(ns)
	})
	if err != nil || len(namespaces) == 0 {
		return ""
	}
	return slices.MinFunc(namespaces, func(a, b *corev1.Namespace) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	}).Name
}

// probeLines tell what became of the probes. Without the policy there is nothing to ask.
func (f *facts) probeLines() (lines []checkLine) {
	if !f.expects(policyConfined) {
		return nil
	}
	if f.probes.missing != "" {
		return []checkLine{notAllowed(f.probes.missing).named("probe")}
	}
	for i, p := range f.probes.value {
		name, what := "probe/unmarked", "any ConfigMap in namespace "+p.namespace
		if i > 0 {
			name, what = "probe/elsewhere", "a copy in namespace "+p.namespace+", which is no target"
		}
		lines = append(lines, f.probeLine(p, what).named(name))
	}
	return lines
}

func (f *facts) probeLine(p probe, what string) checkLine {
	switch {
	case p.err == nil:
		return todo("see the lines above, and wait a few seconds after a change",
			"the API server would let the controller create %s: no policy confines it", what)
	case mirror.RefusedAsConfined(p.err):
		return fine("by dry-run, a policy refuses the controller to create %s", what)
	}
	return unknown("the controller asked by dry-run for %s, and the answer was: %s", what, strings.Join(strings.Fields(p.err.Error()), " "))
}
