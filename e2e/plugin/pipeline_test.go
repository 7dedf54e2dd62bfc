package plugin

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const pipelinePage = "deploy/docs/pipelines.md"

// applyPipeline applies what the page has, and returns its account, and the command of its Job.
func applyPipeline(w *suite.World) (account *user, command string) {
	w.Helper()
	names := strings.NewReplacer("namespace: platform", "namespace: "+w.Home, "=platform", "="+w.Home)
	objects := names.Replace(manual.Find(w, pipelinePage, "kind: ServiceAccount\n").Text)
	job := names.Replace(manual.Find(w, pipelinePage, "kind: Job\n").Text)
	// On the server's side, as two tests may do it at once: else both create it.
	w.Sh("kubectl apply --server-side -f " + suite.Deployed("components/admission/publishers/rbac.yaml"))
	w.Sh("kubectl create --validate=strict -f - <<'END'\n" + objects + "---\n" + job + "END")
	kubeconfig, err := w.Cluster.ServiceAccountKubeconfig(w.Context(), w.Home, "pipeline")
	if err != nil {
		w.Fatal(err)
	}
	w.Until("the account may publish", func() error {
		mayPublish := "kubectl auth can-i mirror configmaps -n " + w.Home + " --kubeconfig=" + kubeconfig
		return w.Cluster.Shell(w.Context(), mayPublish).Run()
	})
	_, command, _ = strings.Cut(job, "command: [/kubectl-mirror, ")
	command, _, _ = strings.Cut(strings.NewReplacer(",", "", w.Home, "platform").Replace(command), "]")
	return &user{w: w, kubeconfig: kubeconfig, flags: w.Args()[1:]}, command
}

// TestC62AChangeInStages does what the pages have: a pipeline adds the annotation to two sources in one commit, and
// removes it in the next, and so does a person with one source. A change reaches the canary and no others, and the end
// of the hold takes it to all.
func TestC62AChangeInStages(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "canary")
	a, b, canary := w.NS("a"), w.NS("b"), w.NS("canary")
	w.LabelNamespace(canary, "tier", "canary")
	pipeline, step := applyPipeline(w)
	step += patiently // the page has five minutes
	apply := func(colour, annotation string) {
		t.Helper()
		for _, name := range []string{"settings", "ca-bundle"} {
			w.Sh("kubectl apply --kubeconfig=" + pipeline.kubeconfig + " -f - <<'END'\n" +
				"apiVersion: v1\nkind: ConfigMap\ndata: {colour: " + colour + "}\n" + annotation +
				"  labels: {" + w.Label + ": 'true'}\n  name: " + name + "\n  namespace: " + w.Home + "\nEND")
		}
	}
	w.Start()
	apply("blue", "metadata:\n")
	pipeline.says(0, step, "platform/settings: InSync, 3 synced", "platform/ca-bundle: InSync, 3 synced")
	w.ExpectInSync(w.Live(w.Home, "settings"), a, b, canary)
	kept := w.Copies("settings", a, b)
	apply("red", manual.Find(t, pipelinePage, "rollout: tier=canary").Text)
	pipeline.says(0, step, "platform/settings: InSync, 1 synced, 2 held", "platform/ca-bundle: InSync, 1 synced, 2 held")
	w.ExpectInSync(w.Live(w.Home, "settings"), canary)
	w.Untouched(kept...)
	apply("red", "metadata:\n")
	pipeline.says(0, step, "platform/settings: InSync, 3 synced", "platform/ca-bundle: InSync, 3 synced")
	w.ExpectInSync(w.Live(w.Home, "settings"), a, b, canary)
	flags := strings.Join(w.Args(), " ") + patiently
	names := strings.NewReplacer("kubectl mirror wait settings", suite.Plugin()+" wait settings "+flags,
		"-n platform", "-n "+w.Home)
	stages := strings.SplitAfter(names.Replace(manual.Commands(t, "deploy/docs/staging.md", "rollout=tier=canary")), "\n")
	said := anonymous(w, w.Sh(strings.Join(stages[:3], "")))
	if !strings.Contains(said, "platform/settings: InSync, 1 synced, 2 held") {
		t.Errorf("wait said: %s", said)
	}
	w.ExpectInSync(w.Live(w.Home, "settings"), canary)
	w.Sh(stages[3])
	w.WaitInSync(w.Live(w.Home, "settings"), a, b, canary)

	// A second stage with a typing error reaches nobody.
	w.Edit(w.Home, "settings", suite.WithAnnotation(plan.RolloutAnnotation, "tier=canry"), suite.WithKey("key", "new"))
	admin(w).says(0, "wait platform/settings", "platform/settings: InSync, 3 held")
	w.Edit(w.Home, "settings", suite.WithoutAnnotation(plan.RolloutAnnotation))
	w.Sh(names.Replace(manual.Commands(t, "deploy/docs/staging.md", "paused=true")))
	w.Edit(w.Home, "settings", suite.WithKey("colour", "grey"))
	w.WaitEvent(w.Home, "settings", "Held", "3 of 3 namespaces")
	admin(w).says(0, "wait platform/settings", "InSync, 3 held")
	w.WaitInSync(w.Edit(w.Home, "settings", suite.WithoutAnnotation(plan.PausedAnnotation)), a, b, canary)

	// A namespace that was just created.
	added := w.CreateNamespace(w.NS("new"), nil).Name
	names = strings.NewReplacer("team-new", added, "kubectl mirror explain", suite.Plugin()+" explain")
	w.Sh(names.Replace(manual.Commands(t, "deploy/docs/pipelines.md", "--for=create")))
	w.ExpectInSync(w.Live(w.Home, "settings"), added)
}

// TestC88WaitBehindABalancer has a pipeline wait behind a balancer, which answers in one way after another, each for
// six looks, and so for as many seconds. Then a controller starts. The command prints each error once.
func TestC88WaitBehindABalancer(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	pipeline, _ := applyPipeline(w)
	w.WithProxyAs(pipeline.kubeconfig)
	w.CreateSource(w.Home, "settings")
	faults := []struct {
		kind faultproxy.Kind
		line string
	}{
		{faultproxy.BadGateway, "502 Bad Gateway"},
		{faultproxy.Unavailable, "503 Service Unavailable"},
		{faultproxy.GatewayTimeout, "504 Gateway Timeout"},
		{faultproxy.Unauthorized, "a fault of the test"},
		{faultproxy.Forbidden, "forbidden: a fault of the test"},
		{faultproxy.ResetBefore, "stream error: "},
	}
	const looks = 6
	var last *faultproxy.Injection
	for _, fault := range faults {
		// The first look has an answer: before that, a refusal would end the command.
		last = w.Proxy.Inject(faultproxy.Rule{
			Namespaces: []string{w.Home}, Resources: []string{"events"}, Skip: 1, Count: looks, Kind: fault.kind,
		})
	}
	args := append([]string{"wait", w.Home + "/settings", "--timeout=1h", "--kubeconfig=" + w.Proxy.Kubeconfig()},
		pipeline.flags...)
	wait := w.Cluster.Command(w.Context(), suite.Plugin(), args...)
	var stdout, stderr bytes.Buffer
	wait.Stdout, wait.Stderr = &stdout, &stderr
	if err := wait.Start(); err != nil {
		t.Fatal(err)
	}
	w.Await("the balancer has answered in all ways", func() bool { return last.Fired() == looks })
	w.Start()
	if err := wait.Wait(); err != nil || !strings.Contains(stdout.String(), "/settings: InSync, 1 synced\n") {
		t.Errorf("got %v and\n%s%s", err, &stdout, &stderr)
	}
	for _, step := range faults {
		if n := strings.Count(stderr.String(), "until the timeout: "+step.line); n != 1 {
			t.Errorf("got %d lines with %q, want 1:\n%s", n, step.line, &stderr)
		}
	}
}
