package policies

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestPodSecurity asks the API server to take the Pod of the shipped Deployment into the shipped namespace, which enforces the
// Pod Security Standard restricted, and Pods that are a little less careful: it knows the difference.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	root, yes := int64(0), true
	pods := map[string]struct {
		change  func(*corev1.PodSpec)
		refused string
	}{
		"as shipped":           {func(*corev1.PodSpec) {}, ""},
		"root":                 {func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.RunAsUser = &root }, "runAsUser=0"},
		"privilege escalation": {func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AllowPrivilegeEscalation = &yes }, "allowPrivilegeEscalation"},
		"the host's files": {func(p *corev1.PodSpec) {
			p.Volumes = append(p.Volumes, corev1.Volume{Name: "host",
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}, "hostPath"},
	}
	for name, pod := range pods {
		t.Run(name, func(t *testing.T) {
			deployment, err := suite.Shared(t).Installed.Manifests.Deployment()
			if err != nil {
				t.Fatal(err)
			}
			template := deployment.Spec.Template
			pod.change(&template.Spec)
			_, err = suite.Shared(t).Admin.CoreV1().Pods(deployment.Namespace).Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Labels: template.Labels},
				Spec:       template.Spec,
			}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case pod.refused == "" && err != nil:
				t.Error(err)
			case pod.refused != "" && (!apierrors.IsForbidden(err) ||
				!strings.Contains(err.Error(), `violates PodSecurity "restricted`) || !strings.Contains(err.Error(), pod.refused)):
				t.Errorf("got error %v, want that %s violates restricted", err, pod.refused)
			}
		})
	}
}
