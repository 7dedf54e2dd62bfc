package policies

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// stamp is the label that a policy of the cluster adds to each ConfigMap in the namespaces of a world.
const stamp = "example.com/cost-centre"

const stampAll = `kubectl create -f - <<'END'
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: stamp-WORLD}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
  matchConditions:
  - {name: the-world, expression: "request.namespace.startsWith('WORLD-') || request.namespace == 'home-WORLD'"}
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'` + stamp + `': 'platform'}}}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: stamp-WORLD}
spec: {policyName: stamp-WORLD}
END`

// stampConfigMaps puts the policy in force until the test ends.
func stampConfigMaps(w *suite.World) {
	w.Helper()
	ofWorld := strings.NewReplacer("WORLD", w.Instance)
	w.Sh(ofWorld.Replace(stampAll))
	w.Cleanup(func() {
		const lift = "kubectl delete mutatingadmissionpolicy,mutatingadmissionpolicybinding stamp-WORLD"
		w.CleanUp(w.Cluster.Shell(w.Background(), ofWorld.Replace(lift)).Run())
	})
	w.Await("the policy is in force", func() bool {
		cm, err := w.Admin.CoreV1().ConfigMaps(w.Home).Create(w.Context(), suite.ConfigMap(w.Home, "probe"), dryCreate)
		return err == nil && cm.Labels[stamp] != ""
	})
}

// TestC78MutatingPolicy has a policy of the cluster add a label to each ConfigMap, from the creation of one source and
// later than that of another. The shipped policies let the controller create, update and repair copies all the same,
// and it does not fight for the label.
func TestC78MutatingPolicy(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	if v, err := w.Admin.Discovery().ServerVersion(); err == nil && v.Minor == "35" {
		t.Skip("Kubernetes 1.35 has no MutatingAdmissionPolicy by default")
	}
	a, b := w.NS("a"), w.NS("b")
	w.Start()
	w.WaitInSync(w.CreateSource(w.Home, "later"), a, b)
	stampConfigMaps(w)
	w.WaitInSync(w.CreateSource(w.Home, "from-the-start"), a, b)
	for _, name := range []string{"later", "from-the-start"} {
		w.Row(name, func(w *suite.World) {
			source := w.Edit(w.Home, name, suite.WithKey("key", "two"))
			w.WaitInSync(source, a, b)
			for _, damage := range []suite.Option{suite.WithKey("key", "edited"), suite.WithoutLabel(w.Label)} {
				w.Edit(a, name, damage)
				w.WaitInSync(source, a)
			}
			w.Delete(b, name)
			w.WaitInSync(source, a, b)
			w.ExpectQuiet(name, a, b)
			for _, cm := range w.Copies(name, a, b) {
				if cm.Labels[stamp] == "" {
					w.Errorf("the copy in %s lacks the label of the policy", cm.Namespace)
				}
			}
			w.WaitEvent(w.Home, name, plan.ReasonMirrored)
			for reason, n := range w.Reasons(w.Home, name) {
				if reason != plan.ReasonMirrored {
					w.Errorf("%s was reported %d times", reason, n)
				}
			}
		})
	}
}
