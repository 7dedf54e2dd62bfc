package main

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
)

// FuzzFlags reads any arguments, with a zero byte between two of them. A refusal has lines that each name a flag or an
// argument. Accepted options are valid, and mean the same when they are written down flag by flag and read again. Its seeds
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
		invalid, err := parse(flags, args)
		if err != nil {
			return
		}
		// No file that the arguments happen to name is read.
		opts.kubeconfig, opts.context = "", ""
		_, err = opts.complete(invalid)
		if err == nil {
			t.Fatal("got it accepted although no cluster was named")
		}
		if err.Error() != errNoCluster.Error() {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !namesOne.MatchString(line) || line == errNoCluster.Error() {
					t.Errorf("got the line %q for %q", line, args)
				}
			}
			return
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
		if invalid, err := parse(flagsAgain, again); invalid != nil || err != nil {
			t.Errorf("got %v %v from %q, which is what was understood of %q", invalid, err, again, args)
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if got, want := flagsAgain.Lookup(f.Name).Value.String(), f.Value.String(); got != want && f.Name != "kubeconfig" && f.Name != "context" {
				t.Errorf("got --%s=%s from %q, want %s as from %q", f.Name, got, again, want, args)
			}
		})
	})
}

// namesOne matches a line that begins with a flag or an argument.
var namesOne = regexp.MustCompile(`^(--?[a-z-]+[=:]|"[^[:cntrl:]]*": unexpected argument)[^[:cntrl:]]*$`)

// checkAccepted fails for what no accepted configuration may be.
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
