package installation

import (
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

func TestSettings(t *testing.T) {
	with := func(change func(*plan.Options)) plan.Options {
		o := plan.NewOptions()
		change(&o)
		return o
	}
	for name, test := range map[string]struct {
		bindings    []rbacv1.ClusterRoleBinding
		deployments []appsv1.Deployment
		want        plan.Options
		origin, err string
	}{
		"annotations": {
			bindings: []rbacv1.ClusterRoleBinding{bindingOf("binding", "account", "namespace-prefix", "team-,dev-", "exclude-namespace", "",
				"namespace-selector", "team In red,blue\nenv NotIn prod\nfrozen DoesNotExist\nready Exists\n", "source-namespace", "platform",
				"mirror-label", "copy-me", "instance", "two", "copy-label", "a,b*", "copy-annotation", "c", "prune", "true")},
			want: with(func(o *plan.Options) {
				o.NamespacePrefixes, o.ExcludeNamespaces, o.SourceNamespaces = []string{"team-", "dev-"}, []string{}, []string{"platform"}
				o.NamespaceSelector, o.Label, o.Instance = "env notin (prod),!frozen,ready,team in (blue,red)", "copy-me", "two"
				o.CopyLabels, o.CopyAnnotations, o.Prune = []string{"a", "b*"}, []string{"c"}, true
			}),
			origin: "annotations of ClusterRoleBinding binding (controller mirror-system/account)",
		},
		"annotations without the Deployment": {
			bindings: []rbacv1.ClusterRoleBinding{bindingOf("binding", "account", "all-namespaces", "true")},
			want:     with(func(o *plan.Options) { o.AllNamespaces = true }),
			origin:   "annotations of ClusterRoleBinding binding (controller mirror-system/account), without --source-namespace, because its Deployment was not found",
		},
		"arguments before annotations": {
			bindings: []rbacv1.ClusterRoleBinding{bindingOf("binding", "account", "all-namespaces", "true")},
			deployments: []appsv1.Deployment{deploymentOf("deployment", "account",
				"--leader-elect", "--namespace-prefix=team-", "-v", "2", "--exclude-namespace=team-x", "--concurrent-writes=3", "--prune")},
			want: with(func(o *plan.Options) {
				o.NamespacePrefixes, o.ExcludeNamespaces, o.Prune = []string{"team-"}, []string{"team-x"}, true
			}),
			origin: "arguments of Deployment mirror-system/deployment",
		},
		"no settings": {
			bindings: []rbacv1.ClusterRoleBinding{bindingOf("binding", "account")},
			err:      "ClusterRoleBinding binding has no settings among its annotations",
		},
		"a malformed selector": {
			bindings: []rbacv1.ClusterRoleBinding{bindingOf("binding", "account", "namespace-selector", "team=red", "prune", "1")},
			err:      `annotations of ClusterRoleBinding binding (controller mirror-system/account): malformed: namespace-selector, prune`,
		},
		"a malformed argument": {
			deployments: []appsv1.Deployment{deploymentOf("deployment", "account", "--prune=half")},
			err:         "arguments of Deployment mirror-system/deployment: invalid argument",
		},
		"none": {err: "found no controller"},
		"two": {
			bindings: []rbacv1.ClusterRoleBinding{bindingOf("one", "one"), bindingOf("two", "two")},
			err:      "found 2 controllers: choose one with --controller: mirror-system/one, mirror-system/two",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s *Settings
			in, err := choose(pair(test.bindings, test.deployments), "")
			if err == nil {
				s, err = in.Settings()
			}
			if test.err != "" || err != nil {
				if err == nil || test.err == "" || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got error %v, want %q", err, test.err)
				}
				return
			}
			if !reflect.DeepEqual(s.Options.Options, test.want) || s.Origin != test.origin {
				t.Errorf("got %+v of %q, want %+v of %q", s.Options.Options, s.Origin, test.want, test.origin)
			}
		})
	}
}

func TestChooseByKey(t *testing.T) {
	all := pair([]rbacv1.ClusterRoleBinding{bindingOf("binding", "account"), bindingOf("other", "other")},
		[]appsv1.Deployment{deploymentOf("deployment", "account")})
	for key, want := range map[string]string{
		"mirror-system/deployment": "mirror-system/deployment",
		"mirror-system/account":    "mirror-system/deployment",
		"mirror-system/other":      "mirror-system/other",
		"mirror-system/binding":    "must be one of: mirror-system/deployment, mirror-system/other",
	} {
		got := ""
		if in, err := choose(all, key); err != nil {
			_, got, _ = strings.Cut(err.Error(), "no such controller, ")
		} else {
			got = in.Key.String()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
}

// TestDeploymentOfAnotherName: nameOverride of the chart changes the label of the Deployment, but not whose account it has.
func TestDeploymentOfAnotherName(t *testing.T) {
	b, d, other := bindingOf("b", "account"), deploymentOf("mine", "account"), deploymentOf("other", "default")
	b.Labels = map[string]string{Label: "x"}
	all, _, err := List(t.Context(), fake.NewClientset(&b, &other, &d), "")
	if err != nil || len(all) != 1 || all[0].Deployment == nil || all[0].Key.Name != "mine" {
		t.Errorf("got %v and %v, want the controller mine", all, err)
	}
}

// TestGivenFlags has flags on top of settings that were found.
func TestGivenFlags(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want plan.Options
	}{
		"nothing":        {nil, plan.Options{NamespacePrefixes: []string{"team-"}, Instance: "two", CopyLabels: []string{"a"}}},
		"another prefix": {[]string{"--namespace-prefix=dev-,x-"}, plan.Options{NamespacePrefixes: []string{"dev-", "x-"}, Instance: "two", CopyLabels: []string{"a"}}},
		"all namespaces": {[]string{"--all-namespaces"}, plan.Options{AllNamespaces: true, Instance: "two", CopyLabels: []string{"a"}}},
		"others": {[]string{"--instance=three", "--prune", "--copy-label=b"},
			plan.Options{NamespacePrefixes: []string{"team-"}, Instance: "three", Prune: true, CopyLabels: []string{"b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			flags := NewFlags()
			if err := flags.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			s, err := (&Installation{Binding: new(bindingOf("b", "a", "namespace-prefix", "team-", "instance", "two", "copy-label", "a"))}).Settings()
			if err != nil {
				t.Fatal(err)
			}
			flags.override(s.Options)
			want := test.want
			want.ExcludeNamespaces, want.Label = []string{"kube-*"}, plan.DefaultLabel
			if got := s.Options.Options; !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}
