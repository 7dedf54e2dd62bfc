package faults

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// candidate is one of the controllers that share the work of a world.
type candidate struct {
	*shipped.Process
	*suite.Account
}

// newCandidate creates the account of a candidate, with the shipped permissions.
func newCandidate(w *suite.World, name string) *candidate {
	w.Helper()
	return &candidate{Account: w.NewAccount(name, w.ShippedRules())}
}

// stand starts the candidate, and returns when its caches are full.
func stand(w *suite.World, c *candidate, kubeconfig string, args ...string) {
	w.Helper()
	args = append([]string{"--leader-elect", "--leader-elect-resource-namespace=" + w.Home,
		"--health-probe-bind-address=127.0.0.1:0"}, args...)
	c.Process = w.StartWith(shipped.RunOptions{Args: args, Kubeconfig: kubeconfig})
	w.Until(c.User+" is ready", func() error { return w.Probe(c.Process, "/readyz") })
}

// leads waits until the candidate has the lease.
func leads(w *suite.World, c *candidate) {
	w.Helper()
	w.WaitLog(c.Process, `"Mirroring"`)
}

// newPair starts two candidates: the first leads, through a proxy, and the second stands by with full caches. The
// first has a lease that a slow machine can renew in time, though another takes over only behind it. Nobody takes
// over from the second: its lease outlasts the test.
func newPair(w *suite.World, args ...string) (first, second *candidate, between *suite.Proxied) {
	w.Helper()
	first, second = newCandidate(w, "first"), newCandidate(w, "second")
	between = suite.NewProxiedAs(w.T, w, first.Kubeconfig)
	stand(w, first, between.Proxy.Kubeconfig(), append(leased(30*time.Second), args...)...)
	leads(w, first)
	stand(w, second, second.Kubeconfig, append(leased(time.Hour), args...)...)
	w.Cleanup(between.Proxy.Heal) // before the first is stopped
	return first, second, between
}

// leased are the arguments for a lease of this duration, which may be renewed until shortly before its end.
func leased(d time.Duration) []string {
	return []string{
		fmt.Sprint("--leader-elect-lease-duration=", d), fmt.Sprint("--leader-elect-renew-deadline=", d-5*time.Second),
	}
}

// haltAfter lets n writes of copies through to the API server, and keeps back the others: however late a test comes,
// there is something left to do.
func haltAfter(w *suite.Proxied, n int, verb string) *faultproxy.Injection {
	return w.Proxy.Inject(faultproxy.Rule{
		Verbs: []string{verb}, Resources: []string{"configmaps"}, Skip: n,
		Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
}

// fanOut creates the source settings, and returns when some of its copies are there, and most are not.
func fanOut(w *suite.World, targets []string) *corev1.ConfigMap {
	w.Helper()
	src := w.CreateSource(w.Home, "settings")
	w.Eventually("the middle of the fan-out", func() error {
		if n := len(w.Having(targets, "settings")); n < len(targets)/20 {
			return fmt.Errorf("%d copies", n)
		}
		return nil
	})
	return src
}

// record is what the audit log has of one of the candidates.
type record struct {
	writes []cluster.Event // to the source's copies
	lease  []cluster.Event // updates of the lease
}

// records returns what the audit log has of the candidates.
func records(w *suite.World, candidates ...*candidate) []record {
	w.Helper()
	out := make([]record, len(candidates))
	for _, e := range w.Requests() {
		for i, c := range candidates {
			if e.User.Username != c.User {
				continue
			}
			if e.Object.Resource == "leases" && e.Verb == "update" && e.Response.Code < 300 {
				out[i].lease = append(out[i].lease, e)
			}
			out[i].writes = append(out[i].writes, suite.WritesTo([]cluster.Event{e}, "settings")...)
		}
	}
	for i, r := range out {
		if len(r.writes) == 0 {
			w.Fatalf("no writes of %s in the audit log", candidates[i].User)
		}
	}
	return out
}

// inTurn fails the test if the first wrote to a copy after the second had. What the first sent before it lost its
// lease may arrive later on a slow machine, and is refused then.
func inTurn(w *suite.World, first, second record) {
	w.Helper()
	taken := map[string]time.Time{} // when the second had written to a copy, by namespace
	for _, e := range second.writes {
		if at, ok := taken[e.Object.Namespace]; e.Response.Code < 300 && (!ok || e.Done.Before(at)) {
			taken[e.Object.Namespace] = e.Done
		}
	}
	for _, e := range first.writes {
		if at, ok := taken[e.Object.Namespace]; e.Response.Code < 300 && ok && e.Received.After(at) {
			w.Errorf("two writers: %v came %v after a write of the second", e, e.Received.Sub(at))
		}
	}
}

// exits waits until the candidate exits because it has lost its lease.
func exits(w *suite.World, c *candidate) {
	w.Helper()
	w.Wait(c.User+" ends", c.Done())
	if code := c.ExitCode(); code != 1 || !strings.Contains(c.Log(), "leadership lost") {
		w.Errorf("%s ended with exit code %d, want 1 and a word about the lease", c.User, code)
	}
}
