package checks

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// TestPodSecurityRestricted judges the Pod of the Deployment by the strictest Pod Security Standard, in each installation.
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

// TestPodSecurityIsJudged loosens one setting at a time, each of which restricted asks for.
func TestPodSecurityIsJudged(t *testing.T) {
	yes, root := true, int64(0)
	loosen := map[string]func(*corev1.PodSpec, *corev1.SecurityContext){
		"root":                 func(_ *corev1.PodSpec, c *corev1.SecurityContext) { c.RunAsUser = &root },
		"perhaps root":         func(p *corev1.PodSpec, _ *corev1.SecurityContext) { p.SecurityContext.RunAsNonRoot = nil },
		"no seccomp profile":   func(p *corev1.PodSpec, _ *corev1.SecurityContext) { p.SecurityContext.SeccompProfile = nil },
		"privilege escalation": func(_ *corev1.PodSpec, c *corev1.SecurityContext) { c.AllowPrivilegeEscalation = &yes },
		"capabilities":         func(_ *corev1.PodSpec, c *corev1.SecurityContext) { c.Capabilities = nil },
		"the host's network":   func(p *corev1.PodSpec, _ *corev1.SecurityContext) { p.HostNetwork = true },
	}
	for name, spoil := range loosen {
		t.Run(name, func(t *testing.T) {
			deployment, err := installations[0].render(t).Deployment()
			if err != nil {
				t.Fatal(err)
			}
			pod := deployment.Spec.Template
			spoil(&pod.Spec, pod.Spec.Containers[0].SecurityContext)
			if violations(t, pod) == "" {
				t.Error("nothing is found, want a violation")
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
