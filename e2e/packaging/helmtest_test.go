package packaging

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
)

// TestHelmTest shows what `helm test` makes: a Pod that checks this installation with the image of the controller, as an account
// that may read and nothing else. It is gone when it has succeeded, and the Service and the Deployment never take it for theirs.
func TestHelmTest(t *testing.T) {
	for name, c := range map[string]struct {
		values []string
		args   string
	}{
		"default":  {nil, "check --controller=my-system/blue-mirror-controller --policies=confined,publishers --probes=false"},
		"policies": {[]string{`admissionPolicy={"confined":false,"protectCopies":true}`}, "check --controller=my-system/blue-mirror-controller --policies=protected-copies,publishers --probes=false"},
		"none":     {[]string{`admissionPolicy={"confined":false,"publishers":false}`}, "check --controller=my-system/blue-mirror-controller --policies= --probes=false"},
		"Pod": {[]string{`image={"repository":"registry.example/m","tag":"v1","pullPolicy":"Always"}`, `imagePullSecrets=[{"name":"pull"}]`, `nodeSelector={"disk":"fast"}`,
			`tolerations=[{"key":"spot"}]`}, "check --controller=my-system/blue-mirror-controller --policies=confined,publishers --probes=false"},
	} {
		t.Run(name, func(t *testing.T) {
			m := charted(t, "blue", "my-system", set(append([]string{teams}, c.values...)...)...)
			installed, tests := apart(m)
			d, err := installed.Deployment()
			if err != nil {
				t.Fatal(err)
			}
			var pod corev1.Pod
			kinds := sets.New[string]()
			for _, o := range tests {
				kinds.Insert(o.GetKind())
				if policy := o.GetAnnotations()["helm.sh/hook-delete-policy"]; policy != "before-hook-creation,hook-succeeded" || o.GetName() != "blue-mirror-controller-check" {
					t.Errorf("%s: is deleted at %q", identity(o), policy)
				}
				if o.GetKind() != "Pod" {
					continue
				}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &pod); err != nil {
					t.Fatal(err)
				}
			}
			if want := sets.New("ClusterRole", "ClusterRoleBinding", "Pod", "Role", "RoleBinding", "ServiceAccount"); !kinds.Equal(want) {
				t.Fatalf("it makes %v, want %v", sets.List(kinds), sets.List(want))
			}
			container, main, spec := pod.Spec.Containers[0], d.Spec.Template.Spec.Containers[0], d.Spec.Template.Spec
			if got := strings.Join(container.Args, " "); got != c.args || !slices.Equal(container.Command, []string{"/kubectl-mirror"}) {
				t.Errorf("it runs %q %q, want %q", container.Command, got, c.args)
			}
			same := func(what string, have, want any) {
				a, _ := json.Marshal(have) // they came from JSON
				b, _ := json.Marshal(want)
				if string(a) != string(b) {
					t.Errorf("%s: is %s, want that of the Deployment: %s", what, a, b)
				}
			}
			same("image", container.Image, main.Image)
			same("pull policy", container.ImagePullPolicy, main.ImagePullPolicy)
			same("pull secrets", pod.Spec.ImagePullSecrets, spec.ImagePullSecrets)
			same("security context", container.SecurityContext, main.SecurityContext)
			same("security context of the Pod", pod.Spec.SecurityContext, spec.SecurityContext)
			same("node selector", pod.Spec.NodeSelector, spec.NodeSelector)
			same("tolerations", pod.Spec.Tolerations, spec.Tolerations)
			selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
			if err != nil || selector.Matches(labels.Set(pod.Labels)) || pod.Spec.ServiceAccountName == spec.ServiceAccountName {
				t.Errorf("it counts as a Pod of the Deployment, by %v, or runs as its account (%v)", pod.Labels, err)
			}
			roles, err := tests.Roles()
			if err != nil {
				t.Fatal(err)
			}
			clusterRoles, err := tests.ClusterRoles()
			if err != nil {
				t.Fatal(err)
			}
			for _, rule := range append(roles[0].Rules, clusterRoles[0].Rules...) {
				if slices.ContainsFunc(rule.Verbs, func(verb string) bool { return verb != "get" && verb != "list" }) {
					t.Errorf("it may %v %v", rule.Verbs, rule.Resources)
				}
			}
		})
	}
	for name, value := range map[string]string{"switched off": "tests.enabled=false", "no roles": "rbac.create=false"} {
		if _, tests := apart(charted(t, "blue", "my-system", set(teams, value)...)); len(tests) > 0 {
			t.Errorf("%s: there are tests all the same: %v", name, slices.Collect(maps.Keys(byIdentity(t, tests))))
		}
	}
}
