package plugin

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/policies"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

const pipelinePage = "deploy/docs/pipelines.md"

// TestDocsPipeline applies what the page has, and runs the command of its Job as its account: first for a commit that
// adds the annotation of the page to a source, then for one that removes it.
func TestDocsPipeline(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "canary")
	a, b, canary := w.NS("a"), w.NS("b"), w.NS("canary")
	w.LabelNamespace(canary, "tier", "canary")
	names := strings.NewReplacer("namespace: platform", "namespace: "+w.Home, "=platform", "="+w.Home)
	account := names.Replace(manual.Find(t, pipelinePage, "kind: ServiceAccount\n").Text)
	job := names.Replace(manual.Find(t, pipelinePage, "kind: Job\n").Text)
	policies.Sh(w, "kubectl apply -f "+suite.Deployed("components/admission/publishers/rbac.yaml"))
	policies.Sh(w, "kubectl apply --validate=strict -f - <<'END'\n"+account+"---\n"+job+"END")
	kubeconfig, err := w.Cluster.ServiceAccountKubeconfig(w.Context(), w.Home, "pipeline")
	if err != nil {
		t.Fatal(err)
	}
	var asked batchv1.Job
	if err := yaml.UnmarshalStrict([]byte(job), &asked); err != nil {
		t.Fatal(err)
	}
	command := asked.Spec.Template.Spec.Containers[0].Command
	if command[0] != "/kubectl-mirror" {
		t.Fatalf("the Job runs %q", command)
	}
	pipeline := &user{w: w, kubeconfig: kubeconfig, flags: []string{"--mirror-label=" + w.Label, "--instance=" + w.Instance}}
	step := strings.ReplaceAll(strings.Join(command[1:], " "), w.Home, "platform")
	apply := func(colour, annotation string) {
		t.Helper()
		for _, name := range []string{"settings", "ca-bundle"} {
			policies.Sh(w, "kubectl apply --kubeconfig="+kubeconfig+" -f - <<'END'\n"+
				"apiVersion: v1\nkind: ConfigMap\ndata: {colour: "+colour+"}\n"+annotation+
				"  labels: {"+w.Label+": 'true'}\n  name: "+name+"\n  namespace: "+w.Home+"\nEND")
		}
	}
	w.Until("the account may publish", func() error {
		return w.Cluster.Shell(w.Context(), "kubectl auth can-i mirror configmaps -n "+w.Home+" --kubeconfig="+kubeconfig).Run()
	})
	w.Start()
	apply("blue", "metadata:\n")
	pipeline.says(0, step, "platform/settings: InSync, 3 synced", "platform/ca-bundle: InSync, 3 synced")
	apply("green", manual.Find(t, pipelinePage, "rollout: tier=canary").Text)
	pipeline.says(0, step, "platform/settings: InSync, 1 synced, 2 held", "platform/ca-bundle: InSync, 1 synced, 2 held")
	w.WaitInSync(w.Live(w.Home, "settings"), canary)
	apply("green", "metadata:\n")
	pipeline.says(0, step, "platform/settings: InSync, 3 synced", "platform/ca-bundle: InSync, 3 synced")
	for _, target := range []string{a, b, canary} {
		if err := w.InSync(w.Live(w.Home, "settings"), target); err != nil {
			t.Error(err)
		}
	}
}
