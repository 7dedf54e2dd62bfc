package mirror

import (
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The options that decide are tested in package plan.

// flagSet returns a set with the flags of o that neither prints nor exits.
func flagSet(o *Options) *pflag.FlagSet {
	fs := pflag.NewFlagSet("mirror-controller", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	o.AddFlags(fs)
	return fs
}

func TestAddFlagsSetsEveryOption(t *testing.T) {
	got := NewOptions()
	err := flagSet(got).Parse([]string{
		"--namespace-prefix=team-", "--namespace-prefix", "dev-,qa-",
		"--all-namespaces",
		"--namespace-selector=team,env in (dev,test)",
		"--exclude-namespace=team-x", "--exclude-namespace=kube-*",
		"--source-namespace=platform", "--source-namespace=base",
		"--mirror-label=example.com/mirror",
		"--instance=second",
		"--copy-label=app", "--copy-label=example.com/*",
		"--copy-annotation=note",
		"--prune",
		"--deletion-grace=5m",
		"--resync-period=90s",
		"--concurrent-sources=3",
		"--concurrent-writes=5",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &Options{
		Options: plan.Options{
			NamespacePrefixes: []string{"team-", "dev-", "qa-"},
			AllNamespaces:     true,
			NamespaceSelector: "team,env in (dev,test)",
			ExcludeNamespaces: []string{"team-x", "kube-*"},
			SourceNamespaces:  []string{"platform", "base"},
			Label:             "example.com/mirror",
			Instance:          "second",
			CopyLabels:        []string{"app", "example.com/*"},
			CopyAnnotations:   []string{"note"},
			Prune:             true,
		},
		DeletionGrace:     5 * time.Minute,
		ResyncPeriod:      90 * time.Second,
		ConcurrentSources: 3,
		ConcurrentWrites:  5,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// A field without a flag would keep its default.
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		value := func(o *Options) any { return reflect.ValueOf(*o).FieldByIndex(field.Index).Interface() }
		if !field.Anonymous && field.Name != "Namespace" && reflect.DeepEqual(value(got), value(NewOptions())) {
			t.Errorf("got %s at its default, want a flag in this test that sets it", field.Name)
		}
	}
}

// TestWrongFlagsAreRefused has a row for each text. Package plan has the others.
func TestWrongFlagsAreRefused(t *testing.T) {
	const prefix, resync = "--namespace-prefix=team-", ": must be 0 (never), or 100ms or more, such as 10m"
	type list = []string
	for name, tc := range map[string]struct {
		args, want list // the beginnings of the lines of the error
	}{
		"nothing":                    {nil, list{"--namespace-prefix: required"}},
		"an empty prefix":            {list{"--namespace-prefix="}, list{"--namespace-prefix: required"}},
		"a comma too many":           {list{"--namespace-prefix=team-,"}, list{`--namespace-prefix="": must not be empty`}},
		"no exclusion":               {list{"--all-namespaces", "--exclude-namespace="}, nil},
		"all, and a prefix":          {list{"--all-namespaces", prefix}, list{"--all-namespaces=true: cannot be combined"}},
		"never a resync":             {list{prefix, "--resync-period=0"}, nil},
		"the shortest resync period": {list{prefix, "--resync-period=100ms"}, nil},
		"a resync as a hot loop":     {list{prefix, "--resync-period=99ms"}, list{"--resync-period=99ms" + resync}},
		"one at a time":              {list{prefix, "--concurrent-sources=1", "--concurrent-writes=1"}, nil},
		"all problems at once": {list{"--instance=!", "--resync-period=-1s", "--concurrent-sources=0",
			"--concurrent-writes=-3"},
			list{"--namespace-prefix: required", `--instance="!": `, "--resync-period=-1s" + resync,
				"--concurrent-sources=0: must be 1 or more", "--concurrent-writes=-3: must be 1 or more"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			if err := flagSet(o).Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			var got []string
			if err := o.Validate(); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(tc.want) {
				t.Fatalf("got %q, want %q", got, tc.want)
			}
			for i, line := range got {
				if !strings.HasPrefix(line, tc.want[i]) {
					t.Errorf("got %q, want it to begin with %q", line, tc.want[i])
				}
			}
		})
	}
}
