package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
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
	// open says that no policy confines the account: the self-check has to find that.
	open bool
	// bound is for an installation without bindings, to which users add one of their own.
	bound bool
}

// top is a kustomization above default.
func top(lines string) map[string]string {
	return map[string]string{"top": "resources: [../deploy/default]\n" + lines}
}

// flagAndSetting are patches that add a flag and set the annotation of its name.
func flagAndSetting(name, value string) string {
	return "patches:\n" + addFlag("-", "--"+name+"="+value) + setting(name, value)
}

func addFlag(at, flag string) string {
	return fmt.Sprintf("- target: {kind: Deployment}\n  patch: |\n    - {op: add, path: /spec/template/spec/containers/0/args/%s, value: %q}\n", at, flag)
}

func setFlag(flag string) string {
	return fmt.Sprintf("- target: {kind: Deployment}\n  patch: |\n    - {op: replace, path: /spec/template/spec/containers/0/args/0, value: %q}\n", flag)
}

func setting(name, value string) string {
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
var overlays = []overlay{
	{name: "default", files: top("")},
	{name: "namespace", files: top("namespace: my-system\n"), account: serviceAccount("my-system", "mirror-controller")},
	{name: "prefix", files: top("patches:\n" + setFlag("--namespace-prefix=dev-") + setting("namespace-prefix", "dev-")),
		in: []string{formerly}, out: []string{teamA}},
	{name: "namespace and prefix", files: top("namespace: my-system\npatches:\n" + setFlag("--namespace-prefix=dev-") + setting("namespace-prefix", "dev-")),
		account: serviceAccount("my-system", "mirror-controller"), in: []string{formerly}, out: []string{teamA}},
	{name: "name prefix", files: top("namePrefix: blue-\n"), account: serviceAccount("mirror-system", "blue-mirror-controller")},
	{name: "name suffix", files: top("nameSuffix: -blue\n"), account: serviceAccount("mirror-system", "mirror-controller-blue")},
	{name: "renamed account", files: top(renamed), account: serviceAccount("mirror-system", "theirs")},
	{name: "another flag first", files: top("patches:\n" + addFlag("0", "-v=2"))},
	{name: "leader election first", files: top("patches:\n" + addFlag("0", "--leader-elect"))},
	{name: "repeated prefix", files: top("patches:\n" + addFlag("-", "--namespace-prefix=dev-") + setting("namespace-prefix", "team-,dev-")),
		in: []string{teamA, formerly}, out: []string{platform}},
	{name: "mirror label", files: top(flagAndSetting("mirror-label", "share")), label: "share"},
	{name: "exclusion", files: top(flagAndSetting("exclude-namespace", "team-a")), in: []string{teamB}, out: []string{teamA}},
	{name: "selector", files: top("patches:\n" + addFlag("-", "--namespace-selector=team,!frozen") +
		setting("namespace-selector", "team Exists\nfrozen DoesNotExist")), in: []string{red}, out: []string{teamA, frozen}},
	{name: "all namespaces", files: top("patches:\n" + setFlag("--all-namespaces") + setting("all-namespaces", "true")),
		in: []string{teamA, formerly}, out: []string{excluded}},
	{name: "labels on all", files: top("labels:\n- {pairs: {app.kubernetes.io/name: theirs, app.kubernetes.io/instance: theirs}, includeSelectors: true}\n")},
	{name: "annotations on all", files: top("commonAnnotations: {example.com/team: theirs}\n")},
	{name: "flags narrower than the settings", files: top("patches:\n" + setFlag("--namespace-prefix=team-b")), in: []string{teamA, teamB}},
	{name: "flags wider than the settings", files: top("patches:\n" + setFlag("--namespace-prefix=team-,dev-"))},
	{name: "lost annotations", files: top(annotationOff), in: []string{}, out: []string{teamA, formerly}},
	{name: "lost label", files: top(labelLost), open: true},
	{name: "policies below, settings above", files: map[string]string{
		"middle": "resources: [../deploy/default]\nnamespace: my-system\n",
		"top":    "resources: [../middle]\nnamespace: your-system\nnamePrefix: blue-\npatches:\n" + setFlag("--namespace-prefix=dev-") + setting("namespace-prefix", "dev-"),
	}, account: serviceAccount("your-system", "blue-mirror-controller"), in: []string{formerly}, out: []string{teamA}},
}

// examples are copies of deploy/example with changes at its top.
var examples = []overlay{
	{name: "example", edit: func(s string) string { return s }},
	{name: "example with settings", account: serviceAccount("my-system", "mirror-controller"), label: "share", in: []string{formerly, teamB}, out: []string{teamA},
		edit: strings.NewReplacer("namespace: mirror-system", "namespace: my-system", "namespace-prefix=team-", "namespace-prefix=dev-,team-",
			"exclude-namespace=kube-*", "exclude-namespace=team-a", "mirror-label=mirror", "mirror-label=share").Replace},
	{name: "example for labels", in: []string{red}, out: []string{teamA, frozen},
		edit: func(s string) string {
			return regexp.MustCompile(`(?m)^# (    |  patch:|- target:)`).ReplaceAllString(s, "$1")
		}},
	{name: "example with another flag first and a name prefix", account: serviceAccount("mirror-system", "blue-mirror-controller"),
		in: []string{formerly}, out: []string{teamA},
		edit: func(s string) string {
			s = strings.Replace(s, "namespace-prefix=team-", "namespace-prefix=dev-", 1)
			return strings.Replace(s, "  patch: |\n", "  patch: |\n    - {op: add, path: /spec/template/spec/containers/0/args/0, value: -v=2}\n", 1) + "namePrefix: blue-\n"
		}},
}

// charts are values of the chart, with the release mirror-controller in mirror-system.
var charts = []overlay{
	{name: "chart", helm: []string{"namespacePrefixes={team-}"}},
	{name: "chart with an account", helm: []string{"namespacePrefixes={team-}", "serviceAccount.name=theirs"}, account: serviceAccount("mirror-system", "theirs")},
	{name: "chart with names", helm: []string{"namespacePrefixes={dev-}", "fullnameOverride=blue"}, account: serviceAccount("mirror-system", "blue"),
		in: []string{formerly}, out: []string{teamA}},
	{name: "chart with two prefixes and an exclusion", helm: []string{"namespacePrefixes={team-,dev-}", "excludeNamespaces={team-a}"},
		in: []string{formerly, teamB}, out: []string{teamA}},
	{name: "chart with a label", helm: []string{"namespacePrefixes={team-}", "mirrorLabel=share"}, label: "share"},
	{name: "chart with more arguments", helm: []string{"namespacePrefixes={team-}", "extraArgs={-v=2}", "logging.format=json"}},
	{name: "chart for labels", helm: []string{"namespacePrefixes={team-}", "namespaceSelector[0].key=team", "namespaceSelector[0].operator=In",
		"namespaceSelector[0].values={red,blue}", "namespaceSelector[1].key=frozen", "namespaceSelector[1].operator=DoesNotExist"},
		in: []string{red}, out: []string{teamA, frozen}},
	{name: "chart for all namespaces", helm: []string{"allNamespaces=true"}, in: []string{teamA, formerly}, out: []string{excluded}},
	{name: "chart without its own bindings", helm: []string{"namespacePrefixes={team-}", "rbac.create=false"}, open: true, bound: true},
}

// TestC48Overlays installs the policies as users do who put kustomizations above the shipped ones.
// The controller's account is confined all the same, or its self-check says that it is not.
func TestC48Overlays(t *testing.T) {
	t.Parallel()
	w := newPoliced(t)
	version, err := w.cluster.KubectlCommand(t.Context(), "version", "--client").Output()
	if err != nil {
		t.Fatal(err)
	}
	w.figure("kustomizations were rendered by %s", strings.Join(strings.Fields(string(version)), " "))
	w.testOverlays(t, slices.Concat(overlays, examples))
	t.Run("two-installations", w.testTwoInstallations)
}

// TestChartOverlays does the same with values of the chart.
func TestChartOverlays(t *testing.T) {
	t.Parallel()
	newPoliced(t).testOverlays(t, charts)
}

func (w *policed) testOverlays(t *testing.T, all []overlay) {
	w.withdraw(w.render(t, overlays[0])) // which the site has, too
	for _, o := range all {
		t.Run(strings.ReplaceAll(o.name, " ", "-"), func(t *testing.T) { w.testOverlay(t, o) })
	}
}

func (w *policed) testOverlay(t *testing.T, o overlay) {
	if o.account == "" {
		o.account = controller
	}
	if o.in == nil {
		o.in, o.out = []string{teamA}, []string{formerly, platform}
	}
	label := w.label
	defer func() { w.label = label }()
	if o.label != "" {
		w.label = o.label
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
}

// testTwoInstallations installs the controller twice, by one kustomization.
func (w *policed) testTwoInstallations(t *testing.T) {
	one := func(name, prefix string) string {
		return "resources: [../deploy/default]\nnamespace: " + name + "-system\nnamePrefix: " + name + "-\npatches:\n" +
			setFlag("--namespace-prefix="+prefix) + setting("namespace-prefix", prefix) + addFlag("-", "--instance="+name) + setting("instance", name)
	}
	m := w.render(t, overlay{files: map[string]string{
		"red": one("red", "team-"), "blue": one("blue", "dev-"), "top": "resources: [../red, ../blue]\n",
	}})
	w.enforce(t, m)
	defer w.withdraw(m)
	instance := w.instance
	defer func() { w.instance = instance }()
	const policy = "" // which of the two refuses first is open
	w.instance = "red"
	w.expectHeld(t, policy, serviceAccount("red-system", "red-mirror-controller"), []string{teamA}, []string{formerly, platform})
	w.instance = "blue"
	w.expectHeld(t, policy, serviceAccount("blue-system", "blue-mirror-controller"), []string{formerly}, []string{teamA, platform})
}

// render returns what kubectl or helm makes of the overlay.
func (w *policed) render(t *testing.T, o overlay) shipped.Manifests {
	t.Helper()
	if o.helm != nil {
		m, err := newHelm(t).Template(t.Context(), "mirror-controller", deployed("chart"), "mirror-system", "--set="+strings.Join(o.helm, ","))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(deployed("."))); err != nil {
		t.Fatal(err)
	}
	if o.edit != nil {
		content, err := os.ReadFile(deployed("example/kustomization.yaml"))
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
	out, err := w.cluster.KubectlCommand(t.Context(), "kustomize", filepath.Join(dir, "top")).Output()
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
func (w *policed) enforce(t *testing.T, m shipped.Manifests) (policy string) {
	t.Helper()
	canary := boundAccount("canary", "admin", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "canaries", Name: "canary"},
		map[string]string{"instance": "canary"})
	for _, o := range m {
		if o.GetKind() == "ValidatingAdmissionPolicyBinding" && strings.Contains(o.GetName(), "-confined") && !strings.Contains(o.GetName(), "-others") {
			policy = o.GetName()
			canary.Labels, _, _ = unstructured.NestedStringMap(o.Object, "spec", "paramRef", "selector", "matchLabels")
		}
	}
	w.kubectl(t, m, true, "apply", "--server-side", "--force-conflicts", "--filename=-")
	if _, err := w.admin.RbacV1().ClusterRoleBindings().Create(w.ctx, canary, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the policies are in force", func() error { return inForce("", w.probe(probed, platform)) })
	return policy
}

// withdraw deletes what enforce has made that would judge the next.
func (w *policed) withdraw(m shipped.Manifests) {
	w.Helper()
	w.kubectl(w.T, m, false, "delete", "--ignore-not-found", "--filename=-")
	if _, err := w.admin.RbacV1().ClusterRoleBindings().Get(w.ctx, "canary", metav1.GetOptions{}); err != nil {
		return // before the first
	}
	w.until("the policies are out of force", func() error { return w.probe(probed, platform) })
	if err := w.admin.RbacV1().ClusterRoleBindings().Delete(w.ctx, "canary", metav1.DeleteOptions{}); err != nil {
		w.Error(err)
	}
}

// kubectl runs kubectl with those of the objects that decide about requests; with namespaces and accounts if they are to be
// there.
func (w *policed) kubectl(t *testing.T, m shipped.Manifests, accounts bool, args ...string) {
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
	cmd := w.cluster.KubectlCommand(w.background(), args...)
	cmd.Stdin = &all
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", args[0], err, out)
	}
}

// probe asks for a ConfigMap as the user, and has none made.
func (w *policed) probe(user, namespace string, o ...option) error {
	_, err := w.as(user).CoreV1().ConfigMaps(namespace).Create(w.ctx, configMap(namespace, namedSource, o...), dryCreate)
	return err
}

// expectHeld fails the test unless the user may create copies in some namespaces, not in others, and nothing else.
func (w *policed) expectHeld(t *testing.T, policy, user string, in, out []string) {
	t.Helper()
	ask := func(namespace string) error { return w.probe(user, namespace, w.copied(namespace, namedSource)...) }
	w.until(user+" has its permissions", func() error {
		_, err := w.as(user).CoreV1().ConfigMaps(platform).List(w.ctx, metav1.ListOptions{})
		return err
	})
	for _, namespace := range in {
		expectAnswer(t, policy, "", ask(namespace))
		expectAnswer(t, policy, wouldBeOne, w.probe(user, namespace))
	}
	for _, namespace := range out {
		expectAnswer(t, policy, notThere, ask(namespace))
	}
	expectAnswer(t, policy, notThere, w.probe(user, excluded))
	// Nobody else is confined.
	for _, namespace := range slices.Concat(in, out) {
		expectAnswer(t, policy, "", w.probe(operator, namespace))
	}
}

const wouldBeOne = "would not be a copy of instance"

// expectOpen fails the test unless no policy confines the user, and a controller that runs as the user says so.
func (w *policed) expectOpen(t *testing.T, o overlay, args []string) {
	t.Helper()
	namespace, name := accountOf(o.account)
	if o.bound {
		binding := boundAccount("theirs", "cluster-admin", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, nil)
		binding.Labels = nil
		w.bindAccount(binding)
	}
	w.until("nothing is refused", func() error { return w.probe(o.account, platform) })
	as, err := w.installed.As(w.ctx, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	as.Namespace = namespace
	p, err := as.Start(shipped.RunOptions{Replace: true, Args: slices.Concat(args, alone)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.stop(p)
	w.waitLog(p, "No admission policy confines this account")
}
