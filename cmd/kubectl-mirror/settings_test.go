package main

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// deploymentOf returns a Deployment in mirror-system. A service mesh has put a container before that of the controller.
func deploymentOf(name, args string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "mirror-system", Name: name,
		Labels: map[string]string{"app.kubernetes.io/part-of": "mirror-controller"}}}
	d.Spec.Template.Spec.Containers = []corev1.Container{
		{Name: "proxy", Args: []string{"--instance=proxy"}}, {Name: "mirror-controller", Args: strings.Fields(args)},
	}
	return d
}

// TestFind has the arguments of installed controllers, and flags on top of these.
func TestFind(t *testing.T) {
	blue := deploymentOf("blue", "--namespace-prefix=team-,dev- --instance=two --copy-label=a --metrics-bind-address=:9")
	red, hidden := deploymentOf("red", "--all-namespaces"), deploymentOf("hidden", "--all-namespaces")
	hidden.Labels = nil
	green := deploymentOf("green", "--namespace-prefix=green-")
	green.Namespace = "mirror-green"
	type installed = []runtime.Object
	var out golden
	for _, test := range []struct {
		installed installed
		flags     string
	}{
		{installed{blue, hidden}, ""},
		{installed{blue, green, red}, ""},
		{installed{blue, hidden}, "--controller=mirror-system/hidden"},
		{installed{blue, green}, "--controller=mirror-green"},
		{installed{blue}, "--controller=mirror-green"},
		{nil, "--namespace-prefix=x-"},
		{installed{blue}, "--instance=three --prune --copy-label=b --copy-label=c"},
		{installed{blue}, "--controller=mirror-system/blue --namespace-prefix=x-"},
		{installed{blue}, "--controller=mirror-system/blue --all-namespaces"},
		{installed{hidden}, ""},
		{installed{deploymentOf("blue", "--instance=-")}, ""},
	} {
		flags := newSettingsFlags()
		if err := flags.Parse(strings.Fields(test.flags)); err != nil {
			t.Fatal(err)
		}
		out.WriteString("===")
		for _, d := range test.installed {
			fmt.Fprintf(&out, " %s %s", d.(*appsv1.Deployment).Name, containerOf(d.(*appsv1.Deployment)).Args)
		}
		found, err := flags.find(t.Context(), fake.NewClientset(test.installed...))
		fmt.Fprintf(&out, ", flags %q\n", test.flags)
		if err != nil {
			fmt.Fprintln(&out, err)
		} else {
			fmt.Fprintf(&out, "%+v\n", found.Options.Options)
		}
	}
	out.compare(t, "settings")
}

// TestDiffersFrom compares flags with annotations that follow them, in whatever order, or do not.
func TestDiffersFrom(t *testing.T) {
	s, _ := newSettingsFlags().settingsOf(deploymentOf("blue", "--namespace-prefix=team-,dev-"))
	_ = s.flags.Set("namespace-selector", "team in (red,blue),tier!=gold,kept,!frozen") // it is valid
	const kept, both = "kept Exists\nfrozen DoesNotExist\n", "dev-,team-"
	for as, follow := range map[[2]string]bool{
		{both, kept + "tier NotIn gold\nteam In red,blue\n"}:          true,
		{both, kept + "tier NotIn blue\nteam In red,gold"}:            false,
		{both, kept + "team In red,blue"}:                             false,
		{both, kept + "tier NotIn gold\nteam In red\nteam In blue"}:   false,
		{both + ",other", kept + "tier NotIn gold\nteam In red,blue"}: false,
		{both + "\n", kept + "tier NotIn gold\nteam In red,blue"}:     false,
	} {
		got := s.differsFrom(map[string]string{plan.PrefixAnnotation: as[0], plan.SelectorAnnotation: as[1]})
		if (len(got) == 0) != follow {
			t.Errorf("%q: got %q, want that they follow %v", as, got, follow)
		}
	}
}
