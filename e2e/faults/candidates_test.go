package faults

import (
	"slices"
	"strings"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// candidate is a controller that stands for election, and answers probes.
type candidate struct {
	*shipped.Process
	*suite.Account
}

// start runs a candidate as the account, by a kubeconfig that may lead through a proxy.
func start(w *suite.World, a *suite.Account, kubeconfig string, lease time.Duration,
	args ...string) *candidate {
	w.Helper()
	args = slices.Concat([]string{"--leader-elect", "--leader-elect-resource-namespace=" + w.Home,
		"--health-probe-bind-address=127.0.0.1:0"}, suite.Leased(lease), args)
	return &candidate{w.StartWith(shipped.RunOptions{Args: args, Kubeconfig: kubeconfig}), a}
}

// Leases. One that is to be lost in a test is long enough for a slow machine to
// renew it in time, and short enough to wait for its end. The other one
// outlasts the test.
const (
	shortLease = 30 * time.Second
	longLease  = time.Hour
)

// newPair starts two candidates: the first leads, through the proxy, with a short
// lease, and the second stands by with full caches. Nobody takes over from the
// second.
func newPair(w *suite.World, args ...string) (first, second *candidate) {
	w.Helper()
	rules := w.ShippedRules()
	one, other := w.NewAccount("first", rules), w.NewAccount("second", rules)
	w.WithProxyAs(one.Kubeconfig)
	first = start(w, one, w.Proxy.Kubeconfig(), shortLease, args...)
	w.WaitLog(first.Process, `"Mirroring"`)
	second = start(w, other, other.Kubeconfig, longLease, args...)
	w.Until("the caches are full", func() error { return w.Probe(second.Process, "/readyz") })
	w.Cleanup(w.Proxy.Heal) // before the first is stopped
	return first, second
}

// haltAfter lets n writes of copies through to the API server, and keeps back the others: however late a test comes,
// there is something left to do.
func haltAfter(w *suite.World, n int, verb string) *faultproxy.Injection {
	return w.Proxy.Inject(
		faultproxy.Rule{Verbs: []string{verb}, Resources: []string{"configmaps"}, Skip: n, Kind: faultproxy.Hold})
}

// writesOf returns the writes of a candidate to copies of the source settings, by the audit log.
func writesOf(w *suite.World, c *candidate) []cluster.Event {
	w.Helper()
	writes := slices.DeleteFunc(suite.WritesTo(w.Requests(), "settings"), func(e cluster.Event) bool {
		return e.User.Username != c.User
	})
	if len(writes) == 0 {
		w.Fatalf("no writes of %s in the audit log", c.User)
	}
	return writes
}

// writesBefore returns the writes of the first, and fails the test if the first wrote to a copy after the second had.
// What the first sent before it lost its lease may arrive later on a slow machine, and is refused then.
func writesBefore(w *suite.World, first, second *candidate) []cluster.Event {
	w.Helper()
	writes, later := writesOf(w, first), writesOf(w, second)
	for _, e := range writes {
		for _, taken := range later {
			if e.Response.Code < 300 && taken.Response.Code < 300 &&
				e.Object.Namespace == taken.Object.Namespace && e.Received.After(taken.Done) {
				w.Errorf("two writers: %v came %v after a write of the second", e, e.Received.Sub(taken.Done))
			}
		}
	}
	return writes
}

// exits waits until the candidate exits because it has lost its lease.
func exits(w *suite.World, c *candidate) {
	w.Helper()
	w.Wait(c.User+" ends", c.Done())
	if code := c.ExitCode(); code != 1 || !strings.Contains(c.Log(), "leadership lost") {
		w.Errorf("%s ended with exit code %d, want 1 and a word about the lease", c.User, code)
	}
}
