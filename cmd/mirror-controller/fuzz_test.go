package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
)

// FuzzFlags reads any arguments, with a zero byte between two of them. What is refused is refused in one line for each
// mistake; what is accepted is valid, and means the same when it is written down flag by flag and read again. Its seeds
// under testdata/fuzz run with every go test.
func FuzzFlags(f *testing.F) {
	f.Setenv("KUBERNETES_SERVICE_HOST", "")
	f.Setenv(clientcmd.RecommendedConfigPathEnvVar, "")
	f.Fuzz(func(t *testing.T, joined string) {
		var args []string
		if joined != "" {
			args = strings.Split(joined, "\x00")
		}
		opts := newOptions()
		flags := combine(opts.bind())
		before := slices.Clone(args)
		unparsed := parse(flags, args)
		if !slices.Equal(args, before) {
			t.Errorf("got the arguments changed to %q, want %q", args, before)
		}
		// No file that the arguments happen to name is read.
		opts.kubeconfig, opts.context = "", ""
		_, wrong := opts.complete(unparsed)
		for _, m := range wrong {
			if m.line == "" || strings.ContainsFunc(m.line, func(c rune) bool { return unicode.IsControl(c) && c != '\t' }) {
				t.Errorf("got %q for %q, want one line", m.line, args)
			}
			if m.flag != "" && flags.Lookup(strings.TrimLeft(m.flag, "-")) == nil && !strings.HasPrefix(m.flag, "$") {
				t.Errorf("got a mistake in %q, which is no flag: %q", m.flag, m.line)
			}
		}
		if len(wrong) == 0 {
			t.Fatal("got it accepted although no cluster was named")
		}
		if wrong[0].line != errNoCluster.Error() {
			return
		}
		if len(wrong) != 1 {
			t.Errorf("got %v: that no cluster was named is of no interest before the other mistakes are mended", wrong)
		}
		checkAccepted(t, opts)
		var again []string
		flags.Visit(func(f *pflag.Flag) {
			if list, ok := f.Value.(pflag.SliceValue); ok {
				again = append(again, "--"+f.Name+"="+strings.Join(list.GetSlice(), ","))
			} else {
				again = append(again, "--"+f.Name+"="+f.Value.String())
			}
		})
		second := newOptions()
		flagsAgain := combine(second.bind())
		if wrong := parse(flagsAgain, again); len(wrong) > 0 {
			t.Errorf("got %v from %q, which is what was understood of %q", wrong, again, args)
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if got, want := flagsAgain.Lookup(f.Name).Value.String(), f.Value.String(); got != want && f.Name != "kubeconfig" && f.Name != "context" {
				t.Errorf("got --%s=%s from %q, want %s as from %q", f.Name, got, again, want, args)
			}
		})
	})
}

// checkAccepted looks at what no accepted configuration may be.
func checkAccepted(t *testing.T, o *options) {
	t.Helper()
	prefixes := len(o.NamespacePrefixes)
	for what, wrong := range map[string]bool{
		"neither prefixes nor all namespaces, or both": o.AllNamespaces == (prefixes > 0),
		"an empty prefix":               slices.Contains(o.NamespacePrefixes, ""),
		"an empty exclusion":            slices.Contains(o.ExcludeNamespaces, "") || slices.Contains(o.ExcludeNamespaces, "*"),
		"an empty source":               slices.Contains(o.SourceNamespaces, ""),
		"no label":                      o.Label == "" || o.Instance == "",
		"nobody who works":              o.ConcurrentSources < 1 || o.ConcurrentWrites < 1,
		"a negative period":             o.ResyncPeriod < 0,
		"a limit that is none":          o.PruneLimit < 0 || o.PruneLimit > 100,
		"a throttle that is no number":  !(o.qps >= 0 && o.qps <= math.MaxFloat32) || o.burst < 0 || o.burst > 0 && o.qps == 0,
		"a lease that cannot be kept":   o.election.retryPeriod <= 0 || o.election.retryPeriod >= o.election.renewDeadline || o.election.renewDeadline >= o.election.leaseDuration,
		"a renewal that may not hang":   o.election.renewPeriod()+leaseTimeout(&o.election) > o.election.renewDeadline-o.election.renewDeadline/4,
		"a lease without a namespace":   o.election.enabled && o.election.namespace == "",
		"an unknown format of the logs": o.logging.Format != "text" && o.logging.Format != "json",
	} {
		if wrong {
			t.Errorf("got %s accepted: %+v", what, o)
		}
	}
	if err := o.Validate(); err != nil {
		t.Errorf("got accepted what is not valid: %v", err)
	}
}
