package mirror

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

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
		"--namespace-prefix=team-", "--namespace-prefix", " dev-, qa-\t",
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
		if !field.Anonymous && reflect.DeepEqual(value(got), value(NewOptions())) {
			t.Errorf("got %s at its default, want a flag in this test that sets it", field.Name)
		}
	}
}

// TestFlagsAtTheirLimits has the smallest values. cmd/mirror-controller.TestRefusedArguments has those that are
// refused.
func TestFlagsAtTheirLimits(t *testing.T) {
	for _, args := range [][]string{
		{"--all-namespaces", "--exclude-namespace="},
		{"--namespace-prefix=t", "--resync-period=0", "--deletion-grace=0"},
		{"--namespace-prefix=t", "--resync-period=100ms", "--deletion-grace=24h"},
		{"--namespace-prefix=t", "--concurrent-sources=1", "--concurrent-writes=1"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			o := NewOptions()
			if err := errors.Join(flagSet(o).Parse(args), o.Validate()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPresentValuesAreDefaults of the flags, as for whoever embeds the controller.
func TestPresentValuesAreDefaults(t *testing.T) {
	o := NewOptions()
	o.AllNamespaces = true
	o.Prune = true
	o.ExcludeNamespaces = []string{"a", "b"}
	fs := flagSet(o)
	if err := fs.Parse(nil); err != nil {
		t.Fatal(err)
	}
	if !o.AllNamespaces || !o.Prune || len(o.ExcludeNamespaces) != 2 {
		t.Errorf("got %+v, want the options as they were", o)
	}
	excluded := fs.Lookup("exclude-namespace")
	if excluded.DefValue != "a,b" || excluded.Value.Type() != "strings" {
		t.Errorf("got the default %q of type %s, want a,b of strings", excluded.DefValue, excluded.Value.Type())
	}
	if zero := (&list{}).String(); zero != "" { // pflag asks that, too
		t.Errorf("got %q as a list of nothing", zero)
	}
	if usage := fs.FlagUsages(); !strings.Contains(usage, "(default a,b)") {
		t.Errorf("got the help %s", usage)
	}
}
