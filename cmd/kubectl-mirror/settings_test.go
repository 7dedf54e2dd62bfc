package main

import (
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// deploymentOf returns a Deployment in mirror-system. A service mesh has put a container before that of the controller.
func deploymentOf(name string, args ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "mirror-system", Name: name,
		Labels: map[string]string{"app.kubernetes.io/name": "mirror-controller"}}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "proxy", Args: []string{"--instance=proxy"}}, {Name: "mirror-controller", Args: args}}
	return d
}

// TestFind has the arguments of installed controllers, and flags on top of these.
func TestFind(t *testing.T) {
	blue := deploymentOf("blue", "--namespace-prefix=team-,dev-", "--instance=two", "--copy-label=a", "--metrics-bind-address=:9", "--leader-elect")
	hidden := deploymentOf("hidden", "--all-namespaces")
	hidden.Labels = nil
	base := plan.Options{NamespacePrefixes: []string{"team-", "dev-"}, Instance: "two", CopyLabels: []string{"a"}}
	with := func(change func(*plan.Options)) plan.Options {
		o := base
		change(&o)
		return o
	}
	for name, test := range map[string]struct {
		installed   []*appsv1.Deployment
		args        []string
		want        []plan.Options
		origin, err string // of the first
	}{
		"arguments": {[]*appsv1.Deployment{blue, hidden}, nil, []plan.Options{base}, "arguments of Deployment mirror-system/blue", ""},
		"two":       {[]*appsv1.Deployment{blue, deploymentOf("red", "--all-namespaces")}, nil, []plan.Options{base, {AllNamespaces: true, Instance: "default"}}, "arguments of Deployment mirror-system/blue", ""},
		"chosen":    {[]*appsv1.Deployment{blue, hidden}, []string{"--controller=mirror-system/hidden"}, []plan.Options{{AllNamespaces: true, Instance: "default"}}, "arguments of Deployment mirror-system/hidden", ""},
		"flags":     {nil, []string{"--namespace-prefix=x-"}, []plan.Options{{NamespacePrefixes: []string{"x-"}, Instance: "default"}}, "flags", ""},
		"others": {[]*appsv1.Deployment{blue}, []string{"--instance=three", "--prune", "--copy-label=b"},
			[]plan.Options{with(func(o *plan.Options) { o.Instance, o.Prune, o.CopyLabels = "three", true, []string{"b"} })},
			"arguments of Deployment mirror-system/blue, changed by --instance, --copy-label, --prune", ""},
		"another prefix": {[]*appsv1.Deployment{blue}, []string{"--controller=mirror-system/blue", "--namespace-prefix=x-"},
			[]plan.Options{with(func(o *plan.Options) { o.NamespacePrefixes = []string{"x-"} })}, "arguments of Deployment mirror-system/blue, changed by --namespace-prefix", ""},
		"all namespaces": {[]*appsv1.Deployment{blue}, []string{"--controller=mirror-system/blue", "--all-namespaces"},
			[]plan.Options{with(func(o *plan.Options) { o.NamespacePrefixes, o.AllNamespaces = nil, true })}, "arguments of Deployment mirror-system/blue, changed by --all-namespaces", ""},
		"none":    {[]*appsv1.Deployment{hidden}, nil, nil, "", "no Deployment has the label app.kubernetes.io/name=mirror-controller: give its flags, at least --namespace-prefix"},
		"invalid": {[]*appsv1.Deployment{deploymentOf("blue", "--instance=-")}, nil, nil, "", "arguments of Deployment mirror-system/blue: --namespace-prefix: required"},
	} {
		flags, client := newSettingsFlags(), fake.NewClientset()
		if err := flags.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		for _, d := range test.installed {
			if err := client.Tracker().Add(d); err != nil {
				t.Fatal(err)
			}
		}
		found, err := flags.find(t.Context(), client)
		if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) || len(found) != len(test.want) {
			t.Errorf("%s: got %d settings and error %v, want %d and %q", name, len(found), err, len(test.want), test.err)
			continue
		}
		for i, s := range found {
			want := test.want[i]
			want.ExcludeNamespaces, want.Label = []string{"kube-*"}, plan.DefaultLabel
			if got := s.Options.Options; !reflect.DeepEqual(got, want) || i == 0 && s.origin != test.origin {
				t.Errorf("%s: got %+v by %q, want %+v by %q", name, got, s.origin, want, test.origin)
			}
		}
	}
}
