package main

import (
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// bindingOf returns a ClusterRoleBinding of an account in mirror-system. The annotations are flags and values in turn.
func bindingOf(name, account string, annotations ...string) rbacv1.ClusterRoleBinding {
	b := rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.GroupKind, Name: "everybody"},
			{Kind: rbacv1.ServiceAccountKind, Namespace: "mirror-system", Name: account},
		},
	}
	for i := 0; i < len(annotations); i += 2 {
		b.Annotations[plan.Domain+"/"+annotations[i]] = annotations[i+1]
	}
	return b
}

func deploymentOf(name, account string, args ...string) appsv1.Deployment {
	d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "mirror-system", Name: name}}
	d.Spec.Template.Spec.ServiceAccountName = account
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "proxy", Args: []string{"--instance=proxy"}}, {Name: "mirror-controller", Args: args}}
	return d
}

func TestSettings(t *testing.T) {
	defaults := plan.NewOptions()
	with := func(change func(*plan.Options)) plan.Options {
		o := defaults
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
				"mirror-label", "copy-me", "instance", "two", "copy-label", "a,b*", "copy-annotation", "c")},
			want: with(func(o *plan.Options) {
				o.NamespacePrefixes, o.ExcludeNamespaces, o.SourceNamespaces = []string{"team-", "dev-"}, []string{}, []string{"platform"}
				o.NamespaceSelector, o.Label, o.Instance = "team in (red,blue),env notin (prod),!frozen,ready", "copy-me", "two"
				o.CopyLabels, o.CopyAnnotations = []string{"a", "b*"}, []string{"c"}
			}),
			origin: "annotations of ClusterRoleBinding binding (controller mirror-system/account)",
		},
		"annotations before arguments, but for what annotations do not have": {
			bindings:    []rbacv1.ClusterRoleBinding{bindingOf("binding", "account", "all-namespaces", "true")},
			deployments: []appsv1.Deployment{deploymentOf("deployment", "account", "--namespace-prefix=team-", "--instance=two", "--prune-limit=7%", "--source-namespace=platform")},
			want: with(func(o *plan.Options) {
				o.AllNamespaces, o.PruneLimit, o.SourceNamespaces = true, 7, []string{"platform"}
			}),
			origin: "annotations of ClusterRoleBinding binding (controller mirror-system/deployment), --source-namespace of its Deployment",
		},
		"annotations without the Deployment": {
			bindings: []rbacv1.ClusterRoleBinding{bindingOf("binding", "account", "all-namespaces", "true")},
			want: with(func(o *plan.Options) {
				o.AllNamespaces = true
			}),
			origin: "annotations of ClusterRoleBinding binding (controller mirror-system/account), without --source-namespace, for its Deployment was not found",
		},
		"arguments": {
			bindings: []rbacv1.ClusterRoleBinding{bindingOf("binding", "account")},
			deployments: []appsv1.Deployment{deploymentOf("deployment", "account",
				"--leader-elect", "--namespace-prefix=team-", "-v", "2", "--exclude-namespace=team-x", "--concurrent-writes=3")},
			want: with(func(o *plan.Options) {
				o.NamespacePrefixes, o.ExcludeNamespaces = []string{"team-"}, []string{"team-x"}
			}),
			origin: "arguments of Deployment mirror-system/deployment",
		},
		"no settings": {
			bindings: []rbacv1.ClusterRoleBinding{bindingOf("binding", "account")},
			err:      "ClusterRoleBinding binding has no settings among its annotations",
		},
		"a malformed selector": {
			bindings: []rbacv1.ClusterRoleBinding{bindingOf("binding", "account", "namespace-selector", "team=red")},
			err:      `annotations of ClusterRoleBinding binding (controller mirror-system/account): namespace-selector: "team=red": must be a key, `,
		},
		"a malformed argument": {
			deployments: []appsv1.Deployment{deploymentOf("deployment", "account", "--prune-limit=half")},
			err:         "arguments of Deployment mirror-system/deployment: invalid argument",
		},
		"none": {err: "found no controller"},
		"two": {
			bindings: []rbacv1.ClusterRoleBinding{bindingOf("one", "one"), bindingOf("two", "two")},
			err:      "found 2 controllers: choose one with --controller: mirror-system/one, mirror-system/two",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &settings{}
			in, err := choose(pair(test.bindings, test.deployments), "")
			if err == nil {
				s, err = in.settings()
			}
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(s.Options.Options, test.want) || s.origin != test.origin {
				t.Errorf("got %+v of %q, want %+v of %q", s.Options.Options, s.origin, test.want, test.origin)
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
		"mirror-system/binding":    "",
	} {
		in, err := choose(all, key)
		if got := ""; want == "" {
			if err == nil || !strings.Contains(err.Error(), "must be one of: mirror-system/deployment, mirror-system/other") {
				t.Errorf("%s: got error %v", key, err)
			}
		} else if err == nil {
			if got = in.key.String(); got != want {
				t.Errorf("%s: got %s, want %s", key, got, want)
			}
		} else {
			t.Errorf("%s: %v", key, err)
		}
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
		"others": {[]string{"--instance=three", "--prune-limit=9%", "--copy-label=b"},
			plan.Options{NamespacePrefixes: []string{"team-"}, Instance: "three", PruneLimit: 9, CopyLabels: []string{"b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			root, flags := newRoot(), newSettingsFlags()
			root.ResetFlags()
			root.PersistentFlags().AddFlagSet(flags.flags)
			if err := root.ParseFlags(test.args); err != nil {
				t.Fatal(err)
			}
			s, err := (&installation{binding: new(bindingOf("b", "a", "namespace-prefix", "team-", "instance", "two", "copy-label", "a"))}).settings()
			if err != nil {
				t.Fatal(err)
			}
			override(s.Options, flags.flags)
			want := test.want
			want.ExcludeNamespaces, want.Label = []string{"kube-*"}, plan.DefaultLabel
			if want.PruneLimit == 0 {
				want.PruneLimit = 50
			}
			if got := s.Options.Options; !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}
