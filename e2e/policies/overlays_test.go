package policies

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// examples are copies of deploy/example with changes at its top.
var examples = []overlay{
	{name: "example", edit: func(s string) string { return s }},
	{name: "example that prunes", edit: strings.NewReplacer("prune=false", "prune=true").Replace, prune: true},
	{name: "example with settings", account: serviceAccount("my-system", "mirror-controller"), label: "share", in: []string{formerly, teamB}, out: []string{teamA},
		edit: strings.NewReplacer("namespace: mirror-system", "namespace: my-system", "namespace-prefix=team-", "namespace-prefix=dev-,team-",
			"exclude-namespace=kube-*", "exclude-namespace=team-a", "mirror-label=mirror", "mirror-label=share").Replace},
	{name: "example for labels", in: []string{red}, out: []string{teamA, frozen},
		edit: func(s string) string {
			s = strings.ReplaceAll(s, "platform,infra", platform+","+platformToo)
			return regexp.MustCompile(`(?m)^# (    |  patch:|- target:)`).ReplaceAllString(s, "$1")
		}},
}

// TestC48Overlays installs the policies as users do who put kustomizations above the shipped ones.
// The controller's account is confined all the same, or its self-check says that it is not.
func TestC48Overlays(t *testing.T) {
	t.Parallel()
	w := New(t)
	version, err := w.Cluster.KubectlCommand(t.Context(), "version", "--client").Output()
	if err != nil {
		t.Fatal(err)
	}
	w.Logf("kustomizations were rendered by %s", strings.Join(strings.Fields(string(version)), " "))
	w.CheckOverlays(t, slices.Concat(overlays, examples))
	t.Run("two-installations", w.testTwoInstallations)
}

// testTwoInstallations installs the controller twice, by one kustomization.
func (w *Policed) testTwoInstallations(t *testing.T) {
	one := func(name, prefix string) string {
		return "resources: [../deploy/default]\nnamespace: " + name + "-system\nnamePrefix: " + name + "-\npatches:\n" +
			SetFlag("--namespace-prefix="+prefix) + Setting("namespace-prefix", prefix) + AddFlag("-", "--instance="+name) + Setting("instance", name)
	}
	m := w.render(t, overlay{files: map[string]string{
		"red": one("red", "team-"), "blue": one("blue", "dev-"), "top": "resources: [../red, ../blue]\n",
	}})
	w.enforce(t, m)
	defer w.withdraw(m)
	instance := w.Instance
	defer func() { w.Instance = instance }()
	const policy = "" // which of the two refuses first is open
	w.Instance = "red"
	w.expectHeld(t, policy, serviceAccount("red-system", "red-mirror-controller"), []string{teamA}, []string{formerly, platform})
	w.Instance = "blue"
	w.expectHeld(t, policy, serviceAccount("blue-system", "blue-mirror-controller"), []string{formerly}, []string{teamA, platform})
}
