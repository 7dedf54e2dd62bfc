package policies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// overlay is an installation as users make one, and what its policies then let the controller do.
type overlay struct {
	name  string
	files map[string]string // kustomizations by folder, beside deploy/; the one in "top" is rendered
	edit  func(string) string
	helm  []string // or the values of a chart

	account string // of the Deployment; empty: the shipped one
	label   string // --mirror-label, if it is not the default
	// In the namespaces of in it may create copies, in those of out it may not. Without: team-a; dev-a and platform.
	in, out []string
	prune   bool // it may delete copies in those of out
	// open says that no policy confines the account: the self-check has to find that.
	open bool
}

// top is a kustomization above default.
func top(lines string) map[string]string {
	return map[string]string{"top": "resources: [../deploy/default]\n" + lines}
}

func AddFlag(at, flag string) string {
	return fmt.Sprintf("- target: {kind: Deployment}\n  patch: |\n    - {op: add, path: /spec/template/spec/containers/0/args/%s, value: %q}\n", at, flag)
}

func SetFlag(flag string) string {
	return fmt.Sprintf("- target: {kind: Deployment}\n  patch: |\n    - {op: replace, path: /spec/template/spec/containers/0/args/0, value: %q}\n", flag)
}

func Setting(name, value string) string {
	return fmt.Sprintf("- target: {kind: ClusterRoleBinding}\n  patch: |\n    - {op: add, path: /metadata/annotations/mirror-controller.github.io~1%s, value: %q}\n", name, value)
}

func serviceAccount(namespace, name string) string {
	return cluster.ServiceAccountUser(namespace, name)
}

const (
	labelLost     = "patches:\n- target: {kind: ClusterRoleBinding}\n  patch: |\n    - {op: remove, path: /metadata/labels}\n"
	annotationOff = "patches:\n- target: {kind: ClusterRoleBinding}\n  patch: |\n    - {op: remove, path: /metadata/annotations}\n"
	// renamed is a ServiceAccount of another name: kustomize changes all that refer to it.
	renamed = "patches:\n- target: {kind: ServiceAccount}\n  options: {allowNameChange: true}\n  patch: |\n" +
		"    - {op: replace, path: /metadata/name, value: theirs}\n"
)

// overlays are the ones above default. Wherever nothing else is said, copies belong into team-a, and not into dev-a.
// TestPolicies has what the policies make of each setting.
var overlays = []overlay{
	{name: "namespace and prefix",
		files:   top("namespace: my-system\npatches:\n" + SetFlag("--namespace-prefix=dev-") + Setting("namespace-prefix", "dev-")),
		account: serviceAccount("my-system", "mirror-controller"), in: []string{formerly}, out: []string{teamA}},
	{name: "renamed account", files: top(renamed), account: serviceAccount("mirror-system", "theirs")},
	{name: "labels and annotations on all", files: top("commonAnnotations: {example.com/team: theirs}\n" +
		"labels:\n- {pairs: {app.kubernetes.io/name: theirs, app.kubernetes.io/instance: theirs}, includeSelectors: true}\n")},
	{name: "flags wider than the settings", files: top("patches:\n" + SetFlag("--namespace-prefix=team-,dev-"))},
	{name: "prune", files: top("patches:\n" + AddFlag("-", "--prune") + Setting("prune", "true")), prune: true},
	{name: "lost annotations", files: top(annotationOff), in: []string{}, out: []string{teamA, formerly}},
	{name: "lost label", files: top(labelLost), open: true},
	{name: "policies below, settings above", files: map[string]string{
		"middle": "resources: [../deploy/default]\nnamespace: my-system\n",
		"top": "resources: [../middle]\nnamespace: your-system\nnamePrefix: blue-\npatches:\n" +
			SetFlag("--namespace-prefix=dev-") + Setting("namespace-prefix", "dev-"),
	}, account: serviceAccount("your-system", "blue-mirror-controller"), in: []string{formerly}, out: []string{teamA}},
}

// charts are values of the chart, with the release mirror-controller in mirror-system. Package packaging compares the
// settings with those of kustomizations.
var charts = []overlay{
	{name: "chart", helm: []string{"namespacePrefixes={team-}"}},
	{name: "chart that prunes", helm: []string{"namespacePrefixes={team-}", "prune=true"}, prune: true},
	{name: "chart with names", helm: []string{"namespacePrefixes={dev-}", "fullnameOverride=blue", "serviceAccount.name=theirs"},
		account: serviceAccount("mirror-system", "theirs"), in: []string{formerly}, out: []string{teamA}},
}

// CheckCharts installs the policies by values of the chart.
func CheckCharts(t *testing.T) {
	t.Helper()
	New(t).CheckOverlays(t, charts)
}

func (w *Policed) CheckOverlays(t *testing.T, all []overlay) {
	w.withdraw(w.render(t, overlay{files: top("")})) // which the site has, too
	for _, o := range all {
		t.Run(strings.ReplaceAll(o.name, " ", "-"), func(t *testing.T) { w.testOverlay(t, o) })
	}
}

func (w *Policed) testOverlay(t *testing.T, o overlay) {
	if o.account == "" {
		o.account = controller
	}
	if o.in == nil {
		o.in, o.out = []string{teamA}, []string{formerly, platform}
	}
	label := w.Label
	defer func() { w.Label = label }()
	if o.label != "" {
		w.Label = o.label
	}
	m := w.render(t, o)
	deployment, err := m.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	if user := serviceAccount(deployment.Namespace, deployment.Spec.Template.Spec.ServiceAccountName); user != o.account {
		t.Errorf("the controller runs as %s, want %s", user, o.account)
	}
	policy := w.enforce(t, m)
	defer w.withdraw(m)
	if o.open {
		w.expectOpen(t, o, deployment.Spec.Template.Spec.Containers[0].Args)
		return
	}
	w.expectHeld(t, policy, o.account, o.in, o.out)
	w.expectScope(t, policy, o)
}

// render returns what kubectl or helm makes of the overlay.
func (w *Policed) render(t *testing.T, o overlay) shipped.Manifests {
	t.Helper()
	if o.helm != nil {
		m, err := NewHelm(t).Template(t.Context(), "mirror-controller", suite.Deployed("chart"), "mirror-system", "--set="+strings.Join(o.helm, ","))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(suite.Deployed("."))); err != nil {
		t.Fatal(err)
	}
	if o.edit != nil {
		content, err := os.ReadFile(suite.Deployed("example/kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		o.files = map[string]string{"top": o.edit(strings.ReplaceAll(string(content), "- ../", "- ../deploy/"))}
	}
	for folder, content := range o.files {
		folder = filepath.Join(dir, folder)
		if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	out, err := w.Cluster.KubectlCommand(t.Context(), "kustomize", filepath.Join(dir, "top")).Output()
	if err != nil {
		t.Fatalf("kubectl kustomize: %v: %s", err, exitText(err))
	}
	m, err := shipped.Parse(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// exitText returns what a program has said of an error.
func exitText(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}

// probed is a user whom the policies confine if they are in force at all: without settings it has no targets.
var probed = serviceAccount("canaries", "canary")

// enforce applies what decides about requests, waits until it does, and returns the name of the policy that confines.
func (w *Policed) enforce(t *testing.T, m shipped.Manifests) (policy string) {
	t.Helper()
	canary := suite.BoundAccount("canary", "admin", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "canaries", Name: "canary"},
		map[string]string{"instance": "canary"})
	for _, o := range m {
		if o.GetKind() == "ValidatingAdmissionPolicyBinding" && strings.Contains(o.GetName(), "-confined") && !strings.Contains(o.GetName(), "-others") {
			policy = o.GetName()
			canary.Labels, _, _ = unstructured.NestedStringMap(o.Object, "spec", "paramRef", "selector", "matchLabels")
		}
	}
	w.kubectl(t, m, true, "apply", "--server-side", "--force-conflicts", "--filename=-")
	if _, err := w.Admin.RbacV1().ClusterRoleBindings().Create(w.Context(), canary, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Until("the policies are in force", func() error { return InForce("", w.Probe(probed, platform)) })
	return policy
}

// withdraw deletes what enforce has made that would judge the next.
func (w *Policed) withdraw(m shipped.Manifests) {
	w.Helper()
	w.kubectl(w.T, m, false, "delete", "--ignore-not-found", "--filename=-")
	if _, err := w.Admin.RbacV1().ClusterRoleBindings().Get(w.Context(), "canary", metav1.GetOptions{}); err != nil {
		return // before the first
	}
	w.Until("the policies are out of force", func() error { return w.Probe(probed, platform) })
	if err := w.Admin.RbacV1().ClusterRoleBindings().Delete(w.Context(), "canary", metav1.DeleteOptions{}); err != nil {
		w.Error(err)
	}
}

// kubectl runs kubectl with those of the objects that decide about requests; with namespaces and accounts if they are to be
// there.
func (w *Policed) kubectl(t *testing.T, m shipped.Manifests, accounts bool, args ...string) {
	t.Helper()
	var all bytes.Buffer
	for _, o := range m {
		switch kind := o.GetKind(); {
		case strings.HasPrefix(kind, "ValidatingAdmissionPolicy"), strings.HasPrefix(kind, "ClusterRole"),
			accounts && (kind == "Namespace" || kind == "ServiceAccount"):
			if err := json.NewEncoder(&all).Encode(o.Object); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := w.Cluster.KubectlCommand(w.Background(), args...)
	cmd.Stdin = &all
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", args[0], err, out)
	}
}

// Probe asks for a ConfigMap as the user, and has none made.
func (w *Policed) Probe(user, namespace string, o ...suite.Option) error {
	_, err := w.as(user).CoreV1().ConfigMaps(namespace).Create(w.Context(), suite.ConfigMap(namespace, NamedSource, o...), dryCreate)
	return err
}

// expectHeld fails the test unless the user may create copies in some namespaces, not in others, and nothing else.
func (w *Policed) expectHeld(t *testing.T, policy, user string, in, out []string) {
	t.Helper()
	ask := func(namespace string) error { return w.Probe(user, namespace, w.Copied(namespace, NamedSource)...) }
	w.Until(user+" has its permissions", func() error {
		_, err := w.as(user).CoreV1().ConfigMaps(platform).List(w.Context(), metav1.ListOptions{})
		return err
	})
	for _, namespace := range in {
		expectAnswer(t, policy, "", ask(namespace))
		expectAnswer(t, policy, wouldBeOne, w.Probe(user, namespace))
	}
	for _, namespace := range out {
		expectAnswer(t, policy, suite.NotThere, ask(namespace))
	}
	expectAnswer(t, policy, suite.NotThere, w.Probe(user, excluded))
	// Nobody else is confined.
	for _, namespace := range slices.Concat(in, out) {
		expectAnswer(t, policy, "", w.Probe(operator, namespace))
	}
}

// expectScope fails the test unless the account may delete copies in the namespaces of in, and in others only if it prunes.
func (w *Policed) expectScope(t *testing.T, policy string, o overlay) {
	t.Helper()
	const name = "left-behind"
	refused := suite.NotThere
	if o.prune {
		refused = ""
	}
	for i, namespace := range slices.Concat(o.in, o.out) {
		w.Create(namespace, name, w.MarksOfCopy(platformToo, namespace, name)...)
		want := refused
		if i < len(o.in) {
			want = ""
		}
		expectAnswer(t, policy, want, w.as(o.account).CoreV1().ConfigMaps(namespace).Delete(w.Context(), name, DryDelete))
		if err := w.Admin.CoreV1().ConfigMaps(namespace).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

const wouldBeOne = "would not be a copy of instance"

// expectOpen fails the test unless no policy confines the user, and a controller that runs as the user says so.
func (w *Policed) expectOpen(t *testing.T, o overlay, args []string) {
	t.Helper()
	namespace, name := accountOf(o.account)
	w.Until("nothing is refused", func() error { return w.Probe(o.account, platform) })
	as, err := w.Installed.As(w.Context(), namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	as.Namespace = namespace
	p, err := as.Start(shipped.RunOptions{Replace: true, Args: slices.Concat(args, suite.Alone)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop(p)
	w.WaitLog(p, "No admission policy confines this account")
}
