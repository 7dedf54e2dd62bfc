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
	file := goldenRows("settings", "===")
	rows := []struct {
		name      string
		installed installed
		flags     string
	}{
		{"one controller", installed{blue, hidden}, ""},
		{"three controllers", installed{blue, green, red}, ""},
		{"a controller by its namespace", installed{blue, green}, "--controller=mirror-green"},
		{"a controller by its name", installed{blue, red}, "--controller=mirror-system/red"},
		{"no controller in the namespace", installed{blue}, "--controller=mirror-green"},
		{"no controller of the name", installed{blue}, "--controller=mirror-system/green"},
		{"no name", installed{blue}, "--controller=mirror-system/"},
		{"a wrong flag", installed{blue}, "--instance=-"},
		{"no controller, but flags", nil, "--namespace-prefix=x-"},
		{"one controller, and flags", installed{blue}, "--instance=three --prune --copy-label=b --copy-label=c"},
		{"another prefix", installed{blue}, "--controller=mirror-system --namespace-prefix=x-"},
		{"all namespaces", installed{blue}, "--controller=mirror-system --all-namespaces"},
		{"no controller with the label", installed{hidden}, ""},
		{"malformed arguments", installed{deploymentOf("blue", "--instance=-")}, ""},
	}
	for _, test := range rows {
		t.Run(test.name, func(t *testing.T) {
			flags := newSettingsFlags()
			if err := flags.Parse(strings.Fields(test.flags)); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
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
			file.Row(t, out.String())
		})
	}
	file.End(t, len(rows))
}

// TestDiffersFrom compares flags with annotations that follow them, in whatever order, or do not.
func TestDiffersFrom(t *testing.T) {
	s, _ := newSettingsFlags().settingsOf(deploymentOf("blue", "--namespace-prefix=team-,dev-"))
	_ = s.flags.Set("namespace-selector", "team in (red,blue),tier!=gold,kept,!frozen") // it is valid
	const kept, both = "kept Exists\nfrozen DoesNotExist\n", "dev-,team-"
	for name, tc := range map[string]struct {
		prefix, selector string
		follow           bool
	}{
		"another order": {both, kept + "tier NotIn gold\nteam In red,blue\n", true},
		"other values":  {both, kept + "tier NotIn blue\nteam In red,gold", false},
		"one term less": {both, kept + "team In red,blue", false},
		"a term in two": {both, kept + "tier NotIn gold\nteam In red\nteam In blue", false},
		"a prefix more": {both + ",other", kept + "tier NotIn gold\nteam In red,blue", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.differsFrom(map[string]string{plan.PrefixAnnotation: tc.prefix, plan.SelectorAnnotation: tc.selector})
			if (len(got) == 0) != tc.follow {
				t.Errorf("got %q, want that they follow %v", got, tc.follow)
			}
		})
	}
}
