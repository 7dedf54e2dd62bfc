package policies

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/overlay"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// installation is what the policies of an overlay let one controller do.
type installation struct {
	in, out         string // a namespace where it may create copies, and one where it may not, besides those of sources
	label, instance string // of its copies; empty: as shipped
}

// overlays are kustomizations above deploy/default and copies of deploy/example. TestPolicies has what the policies
// make of each setting.
var overlays = map[string]struct {
	files         map[string]string
	installations []installation // in the order of their Deployments
}{
	"account with another name, labels and annotations on all": {
		map[string]string{"top": overlay.Above("deploy/default", "patches:\n"+
			"- target: {kind: ServiceAccount}\n  options: {allowNameChange: true}\n  patch: |\n"+
			"    - {op: replace, path: /metadata/name, value: theirs}\n"+
			"commonAnnotations: {example.com/team: theirs}\n"+
			"labels:\n- includeSelectors: true\n"+
			"  pairs: {app.kubernetes.io/name: theirs, app.kubernetes.io/instance: theirs}\n")},
		[]installation{{in: teamA, out: formerly}},
	},
	"policies below, settings above": {
		map[string]string{
			"middle": overlay.Above("deploy/default", "namespace: my-system\n"),
			"top": overlay.Above("middle", "namespace: your-system\nnamePrefix: blue-\npatches:\n"+
				overlay.SetPrefix("dev-")),
		},
		[]installation{{in: formerly, out: teamA}},
	},
	"two installations": {
		map[string]string{
			"red":  oneOfTwo("red", "team-"),
			"blue": oneOfTwo("blue", "dev-"),
			"top":  "resources: [../red, ../blue]\n",
		},
		[]installation{{in: teamA, out: formerly, instance: "red"}, {in: formerly, out: teamA, instance: "blue"}},
	},
	"example as it is": {map[string]string{"top": overlay.Example()}, []installation{{in: teamA, out: formerly}}},
	"example with settings": {
		map[string]string{"top": overlay.Example("namespace: mirror-system", "namespace: my-system",
			"namespace-prefix=team-", "namespace-prefix=dev-,team-", "exclude-namespace=kube-*", "exclude-namespace=team-a",
			"mirror-label=mirror", "mirror-label=share", "prune=false", "prune=true")},
		[]installation{{in: formerly, out: teamA, label: "share"}},
	},
	"example with the lines for labels": {
		map[string]string{"top": regexp.MustCompile(`(?m)^# (    |  patch:|- target:)`).
			ReplaceAllString(overlay.Example("platform,infra", platform), "$1")},
		[]installation{{in: red, out: frozen}},
	},
}

func oneOfTwo(name, prefix string) string {
	return overlay.Above("deploy/default", "namespace: "+name+"-system\nnamePrefix: "+name+"-\npatches:\n"+
		overlay.SetPrefix(prefix)+overlay.AddFlag("instance", name))
}

// TestC48Overlays installs the policies as users do who put kustomizations above the shipped ones. The account that the
// Deployment names is confined all the same.
func TestC48Overlays(t *testing.T) {
	t.Parallel()
	w := newUsers(t)
	w.withdraw() // the policies that the site has already
	for name, o := range overlays {
		t.Run(name, func(t *testing.T) {
			m := overlay.Render(t, o.files)
			accounts, flags, settings := read(t, m)
			w.apply(m)
			defer w.withdraw()
			if len(accounts) != len(o.installations) {
				t.Fatalf("there are Deployments for the accounts %q, want %d", accounts, len(o.installations))
			}
			for n, account := range accounts {
				w.expectConfined(t, account, o.installations[n])
			}
			for _, setting := range settings {
				if !slices.Contains(flags, setting) {
					t.Errorf("the policies read %s, and the Deployment has %q", setting, flags)
				}
			}
		})
	}
}

// withdraw deletes the policies, so that they do not stand in for those of the next overlay, and the settings of its
// controllers.
func (w *users) withdraw() {
	w.Helper()
	w.Sh("kubectl delete validatingadmissionpolicies,validatingadmissionpolicybindings --all")
	w.Until("the policies are out of force", func() error { return w.probe(w.Installed.User, platform) })
	w.Sh("kubectl delete clusterrolebindings --ignore-not-found mirror-controller " +
		"red-mirror-controller blue-mirror-controller")
}

// expectConfined fails the test unless the user may create copies where it should, and nowhere else.
func (w *users) expectConfined(t *testing.T, user string, i installation) {
	t.Helper()
	w.Until(user+" is confined", func() error { return inForce("", w.probe(user, platform)) })
	as := *w.World
	as.Label, as.Instance = cmp.Or(i.label, w.Label), cmp.Or(i.instance, w.Instance)
	ask := func(namespace string) error {
		return w.probe(user, namespace, as.MarksOfCopy(platform, namespace, probed)...)
	}
	w.Until(user+" may create copies in "+i.in, func() error { return ask(i.in) })
	for _, namespace := range []string{i.out, platform, "kube-public"} {
		expectAnswer(t, "", suite.NotThere, ask(namespace)) // of two installations either may refuse first
	}
}

// read returns as which users the Deployments run, their flags, and these as the policies read them from annotations.
func read(t *testing.T, m shipped.Manifests) (users, flags, settings []string) {
	t.Helper()
	for _, o := range m {
		switch o.GetKind() {
		case "Deployment":
			deployment, err := shipped.Manifests{o}.Deployment()
			if err != nil {
				t.Fatal(err)
			}
			pod := deployment.Spec.Template.Spec
			users = append(users, cluster.ServiceAccountUser(deployment.Namespace, pod.ServiceAccountName))
			flags = append(flags, pod.Containers[0].Args...)
		case "ClusterRoleBinding":
			for name, value := range o.GetAnnotations() {
				if flag, ours := strings.CutPrefix(name, plan.Domain+"/"); ours && flag != "namespace-selector" { // in another form
					settings = append(settings, "--"+flag+"="+value)
				}
			}
		}
	}
	return users, flags, settings
}
