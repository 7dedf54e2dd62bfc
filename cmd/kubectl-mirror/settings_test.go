package main

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
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
	type installed = []*appsv1.Deployment
	var out golden
	for _, test := range []struct {
		installed installed
		flags     string
	}{
		{installed{blue, hidden}, ""},
		{installed{blue, red}, ""},
		{installed{blue, hidden}, "--controller=mirror-system/hidden"},
		{nil, "--namespace-prefix=x-"},
		{installed{blue}, "--instance=three --prune --copy-label=b --copy-label=c"},
		{installed{blue}, "--controller=mirror-system/blue --namespace-prefix=x-"},
		{installed{blue}, "--controller=mirror-system/blue --all-namespaces"},
		{installed{hidden}, ""},
		{installed{deploymentOf("blue", "--instance=-")}, ""},
	} {
		flags, client := newSettingsFlags(), fake.NewClientset()
		if err := flags.Parse(strings.Fields(test.flags)); err != nil {
			t.Fatal(err)
		}
		out.WriteString("===")
		for _, d := range test.installed {
			fmt.Fprintf(&out, " %s %s", d.Name, containerOf(d).Args)
			if err := client.Tracker().Add(d); err != nil {
				t.Fatal(err)
			}
		}
		found, err := flags.find(t.Context(), client)
		fmt.Fprintf(&out, ", flags %q\n", test.flags)
		if err != nil {
			fmt.Fprintln(&out, err)
		} else {
			fmt.Fprintf(&out, "%+v\n", found.Options.Options)
		}
	}
	out.compare(t, "settings")
}

// TestDiffersFrom has annotations that follow the flags, in whatever order, and some that do not.
func TestDiffersFrom(t *testing.T) {
	d := deploymentOf("blue", "--namespace-prefix=team-,dev-")
	container := &d.Spec.Template.Spec.Containers[1]
	container.Args = append(container.Args, "--namespace-selector=team in (red,blue),tier!=gold,kept,!frozen")
	s, err := newSettingsFlags().settingsOf(d)
	if err != nil {
		t.Fatal(err)
	}
	const lines = "kept Exists\ntier NotIn gold\nteam In "
	for selector, want := range map[string]int{lines + "red,blue\nfrozen DoesNotExist": 0, lines + "red": 1, "": 1} {
		annotations := map[string]string{"mirror-controller.github.io/namespace-prefix": "dev-,team-",
			"mirror-controller.github.io/namespace-selector":              selector,
			"mirror-controller.github.io/leader-elect-resource-namespace": "mirror-system"}
		if got := s.differsFrom(annotations); len(got) != want {
			t.Errorf("%q: got %q, want %d differences", selector, got, want)
		}
	}
}
