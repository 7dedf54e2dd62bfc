package install

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/plugin"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestChartSelfTest runs what `helm test` would run, as the account that it would make: all is checked, each permission is used,
// and none is missing.
func TestChartSelfTest(t *testing.T) {
	t.Parallel()
	w := installChart(t, []string{"--set=namespacePrefixes={none-}"}, "a")
	w.run("upgrade", w.release, suite.Deployed("chart"), "--reuse-values", "--set=namespacePrefixes={"+w.Prefix+",dev-}", "--set=admissionPolicy.protectCopies=true")
	w.waitConfined()
	w.StartChecked()
	hooks, err := shipped.Parse(strings.NewReader(w.run("get", "hooks", w.release)))
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	var rules []rbacv1.PolicyRule
	var all bytes.Buffer
	for _, o := range hooks {
		if o.GetAnnotations()["helm.sh/hook"] != "test" {
			continue
		}
		var role rbacv1.ClusterRole // which a Role is as well, for its rules
		switch o.GetKind() {
		case "Pod":
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &pod)
		case "Role", "ClusterRole":
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role)
			rules = append(rules, role.Rules...)
		}
		if err == nil {
			err = json.NewEncoder(&all).Encode(o.Object)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	create := w.Cluster.KubectlCommand(w.Context(), "create", "--validate=strict", "--filename=-")
	create.Stdin = &all
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	kubeconfig, err := w.Cluster.ServiceAccountKubeconfig(w.Context(), pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		t.Fatal(err)
	}
	args := pod.Spec.Containers[0].Args
	if want := []string{"check", "--controller=" + w.Namespace + "/" + w.FullName, "--confined=true", "--publishers=true"}; !slices.Equal(args, want) {
		t.Fatalf("the arguments are %q, want %q", args, want)
	}
	mark, err := w.Cluster.Audit().Mark()
	if err != nil {
		t.Fatal(err)
	}
	plugin.ExpectLines(t, w.Checked(kubeconfig, args[2:]...), 0, "probe/copy/team-  ok", "7 ok, 0 to do, 0 not checked.")
	expectUsed(w.World, mark, cluster.ServiceAccountUser(pod.Namespace, pod.Spec.ServiceAccountName), rules)

	err = w.Admin.AppsV1().Deployments(w.Namespace).Delete(w.Context(), w.FullName, metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Checked(kubeconfig, args[2:]...); got.Code() != 2 {
		t.Errorf("got exit code %d without a controller, want 2", got.Code())
	}
}

// expectUsed fails the test if the user has not used each verb on each resource of the rules, or was refused anything.
func expectUsed(w *suite.World, mark cluster.Mark, user string, rules []rbacv1.PolicyRule) {
	w.Helper()
	events, _, err := w.Cluster.Audit().Since(mark)
	if err != nil {
		w.Fatal(err)
	}
	used := map[string]bool{}
	for _, e := range events {
		switch {
		case e.User.Username == user && e.As.Username != "":
			used["impersonate /serviceaccounts"] = true // what the controller is refused is what check asks for
		case e.User.Username == user:
			used[e.Verb+" "+e.Object.APIGroup+"/"+e.Object.Resource] = true
			if e.Response.Code >= 400 {
				w.Errorf("refused: %v", e)
			}
		}
	}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				if key := verb + " " + rule.APIGroups[0] + "/" + resource; !used[key] {
					w.Errorf("the permission to %s is not used", key)
				}
			}
		}
	}
}
