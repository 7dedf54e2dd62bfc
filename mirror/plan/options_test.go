package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNewOptions(t *testing.T) {
	want := Options{ExcludeNamespaces: []string{"kube-*"}, Label: "mirror", Instance: "default"}
	if got := NewOptions(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if a, b := NewOptions(), NewOptions(); &a.ExcludeNamespaces[0] == &b.ExcludeNamespaces[0] {
		t.Error("got defaults that share a slice: a change of one changes the other")
	}
}

// TestValidateRefuses has one row for each text.
func TestValidateRefuses(t *testing.T) {
	const (
		noSuchStart = "must be the beginning of a namespace name: lower-case letters, digits and '-', " +
			"with a letter or digit first"
		tooLong = "must have at most 63 characters, as the name of a namespace does"
		notOurs = "must be a key of your own: those of other tools and of the controller, here "
	)
	long := strings.Repeat("a", 64)
	prefix := func(p string) func(*Options) { return func(o *Options) { o.NamespacePrefixes = []string{p} } }
	copyLabel := func(k string) func(*Options) { return func(o *Options) { o.CopyLabels = []string{k} } }
	for want, edit := range map[string]func(*Options){
		"--namespace-prefix: required and never empty: give a prefix of the names of the target namespaces, " +
			"or set --all-namespaces": func(o *Options) { o.NamespacePrefixes = nil },
		"--all-namespaces=true: cannot be combined with --namespace-prefix: give one of the two": func(o *Options) {
			o.AllNamespaces = true
		},

		`--namespace-prefix="": must not be empty; to mirror into all namespaces, set --all-namespaces`: prefix(""),
		`--namespace-prefix="team\n": ` + noSuchStart:                                                   prefix("team\n"),
		`--namespace-prefix="` + long + `": ` + tooLong:                                                 prefix(long),
		`--namespace-selector="team=a=b": must be a label selector, such as "team,env in (dev,test)": ` +
			`found '=', expected: ',' or 'end of string'`: func(o *Options) { o.NamespaceSelector = "team=a=b" },
		`--exclude-namespace="*": must be the name of a namespace, or a prefix followed by '*'`: func(o *Options) {
			o.ExcludeNamespaces = []string{"*"}
		},
		`--source-namespace="platform*": must be the name of a namespace`: func(o *Options) {
			o.SourceNamespaces = []string{"platform*"}
		},
		`--mirror-label="app.kubernetes.io/managed-by": must be a label key of its own, ` +
			`such as "mirror" or "example.com/mirror"`: func(o *Options) {
			o.Label = "app.kubernetes.io/managed-by"
		},
		`--instance="": must be 1 to 63 letters, digits, '-', '_' or '.', ` +
			`beginning and ending with a letter or digit`: func(o *Options) {
			o.Instance = ""
		},
		`--copy-label="a*b*": must be a key, such as "example.com/team", or a prefix followed by '*'`: copyLabel("a*b*"),
		// C59
		`--copy-label="argocd.argoproj.io/instance": ` + notOurs +
			"argocd.argoproj.io/*, are never copied": copyLabel("argocd.argoproj.io/instance"),
		`--copy-label="mirror": ` + notOurs +
			"mirror, are never copied": copyLabel("mirror"),
		`--copy-label="olm.owner": ` + notOurs +
			"olm.*, are never copied": copyLabel("olm.owner"),
		`--copy-annotation="reconcile.fluxcd.io/requestedAt": ` + notOurs +
			"*.fluxcd.io/*, are never copied": func(o *Options) {
			o.CopyAnnotations = []string{"reconcile.fluxcd.io/requestedAt"}
		},
	} {
		if err := testOptions(edit).Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	everywhere := Options{AllNamespaces: true, ExcludeNamespaces: []string{"a", "a-*"}, Label: "m", Instance: "i"}
	if err := everywhere.Validate(); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	patterns := []string{"*", "app", "example.com/te*", "example.*", strings.Repeat("a", 70) + "*", "argocd.argoproj.io/*"}
	listed := testOptions(func(o *Options) { o.CopyLabels, o.CopyAnnotations = patterns, patterns })
	if err := listed.Validate(); err != nil {
		t.Errorf("got %v, want patterns accepted, also those that match keys which never travel", err)
	}
}

func TestValidateReportsAllProblemsAtOnce(t *testing.T) {
	o := &Options{
		NamespacePrefixes: []string{"", "team-", "Team"},
		AllNamespaces:     true,
		ExcludeNamespaces: []string{"*", "X", "a-"},
		SourceNamespaces:  []string{"a/b", "c."},
		Label:             "?",
		Instance:          "!",
		CopyLabels:        []string{"=", "app"},
		CopyAnnotations:   []string{"+", "a/b/*", "app-"},
	}
	err := o.Validate()
	if err == nil {
		t.Fatal("got no error")
	}
	var flags []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		flag, _, _ := strings.Cut(line, ":")
		flags = append(flags, flag)
	}
	slices.Sort(flags)
	want := []string{
		"--all-namespaces=true", `--copy-annotation="+"`, `--copy-annotation="a/b/*"`,
		`--copy-annotation="app-"`, `--copy-label="="`,
		`--exclude-namespace="*"`, `--exclude-namespace="X"`, `--exclude-namespace="a-"`,
		`--instance="!"`, `--mirror-label="?"`,
		`--namespace-prefix=""`, `--namespace-prefix="Team"`,
		`--source-namespace="a/b"`, `--source-namespace="c."`,
	}
	if !slices.Equal(flags, want) {
		t.Errorf("got problems with\n%q, want\n%q", flags, want)
	}
}

// TestValidNamespace compares it with the function of apimachinery that it replaces.
func TestValidNamespace(t *testing.T) {
	long := strings.Repeat("a", 63)
	names := []string{"", "a", "z9", "0-a", "-a", "a-", "a.b", "A", "a_b", "a/b", "a:b", "a`b", "a{b", long, long + "a"}
	for _, name := range names {
		if got, want := validNamespace(name), len(validation.IsDNS1123Label(name)) == 0; got != want {
			t.Errorf("%q: got valid %v, want %v", name, got, want)
		}
	}
}
