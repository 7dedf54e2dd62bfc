package packaging

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
)

// TestHelmTest compares the Pod that `helm test` makes with those of the Deployment: it runs the same image in the same place, as
// another account, and neither the Service nor the Deployment takes it for theirs.
func TestHelmTest(t *testing.T) {
	installed, tests := apart(charted(t, "blue", "my-system", set(teams,
		`image={"repository":"registry.example/m","tag":"v1","pullPolicy":"Always"}`, `imagePullSecrets=[{"name":"pull"}]`,
		`nodeSelector={"disk":"fast"}`, `tolerations=[{"key":"spot"}]`)...))
	d, err := installed.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	for _, o := range tests {
		if o.GetKind() == "Pod" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &pod); err != nil {
				t.Fatal(err)
			}
		}
	}
	place := func(spec corev1.PodSpec) any {
		c := spec.Containers[0]
		return []any{c.Image, c.ImagePullPolicy, c.SecurityContext, spec.SecurityContext, spec.ImagePullSecrets, spec.NodeSelector, spec.Tolerations}
	}
	theirs := d.Spec.Template.Spec
	if difference := diff.Diff(place(theirs), place(pod.Spec)); difference != "" {
		t.Errorf("Deployment (-), test (+)\n%s", difference)
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil || selector.Matches(labels.Set(pod.Labels)) || pod.Spec.ServiceAccountName == theirs.ServiceAccountName {
		t.Errorf("it counts as a Pod of the Deployment, by %v, or runs as its account (%v)", pod.Labels, err)
	}
}
