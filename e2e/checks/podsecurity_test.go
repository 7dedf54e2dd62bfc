package checks

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// TestPodSecurityRestricted judges the Pod of the Deployment by the strictest Pod Security Standard, in each installation. TestPodSecurity of package
// policies sees that Pods which violate it are refused.
func TestPodSecurityRestricted(t *testing.T) {
	for _, i := range installations {
		t.Run(i.name, func(t *testing.T) {
			deployment, err := i.render(t).Deployment()
			if err != nil {
				t.Fatal(err)
			}
			if forbidden := violations(t, deployment.Spec.Template); forbidden != "" {
				t.Errorf("the Pod violates restricted: %s", forbidden)
			}
		})
	}
}

// violations returns what the newest version of restricted forbids of the Pod; empty if nothing.
func violations(t *testing.T, pod corev1.PodTemplateSpec) string {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
	return result.ForbiddenDetail()
}
