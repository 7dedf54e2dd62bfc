package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// leaseName is the default name of the lease, and the only one that the shipped roles allow.
const leaseName = "mirror-controller"

// candidate is one of the controllers that share the work of a world.
type candidate struct {
	*shipped.Process
	*account
}

// newCandidate creates the account of a candidate: with the shipped permissions, those on the lease in the world's home.
func (w *world) newCandidate(name string) *candidate {
	w.Helper()
	everywhere, atHome := w.shippedRules()
	a := w.newAccount(name, everywhere)
	w.grant(a, w.home, atHome)
	return &candidate{account: a}
}

// stand starts the candidate, and returns when its caches are full.
func (w *world) stand(c *candidate, kubeconfig string, args ...string) {
	w.Helper()
	args = append([]string{"--leader-elect", "--leader-elect-resource-namespace=" + w.home, "--health-probe-bind-address=127.0.0.1:0"}, args...)
	c.Process = w.startWith(shipped.RunOptions{Args: args, Kubeconfig: kubeconfig})
	w.until(c.user+" is ready", func() error { return w.probe(c.Process, "/readyz") })
}

// leading is in the log of a controller that writes.
const leading = "\"Mirroring\""

// leads waits until the candidate has the lease.
func (w *world) leads(c *candidate) {
	w.Helper()
	w.until(c.user+" leads", func() error {
		if !strings.Contains(c.Log(), leading) {
			return errors.New("its log does not say so")
		}
		return nil
	})
}

// waitRenewal waits until the candidate has renewed its lease after the mark.
func (w *world) waitRenewal(c *candidate, mark cluster.Mark) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	go func() {
		defer cancel() // after its end there is no renewal
		select {
		case <-c.Done():
		case <-ctx.Done():
		}
	}()
	_, err := w.cluster.Audit().WaitFor(ctx, mark, func(e cluster.Event) bool {
		return e.User.Username == c.user && e.Object.Resource == "leases" && e.Verb == "update" && e.Response.Code < 300
	})
	if err != nil {
		w.Fatalf("the next renewal by %s: %v", c.user, err)
	}
}

// probe asks a controller about its health, as a kubelet would: an error holds its answer.
func (w *world) probe(p *shipped.Process, path string) error {
	code, text, err := w.ask(p, path)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s: %d: %s", path, code, text)
	}
	return err
}

// ask returns what a controller answers about its health.
func (w *world) ask(p *shipped.Process, path string) (code int, text string, err error) {
	return w.askFor("health", p, path)
}

// askFor returns the answer of a controller at the address that it logged for this endpoint.
func (w *world) askFor(what string, p *shipped.Process, path string) (code int, text string, err error) {
	address, err := addressOf(what, p)
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	request.Close = true // as a kubelet does
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// addressOf returns the address that a controller logged for this endpoint.
func addressOf(what string, p *shipped.Process) (string, error) {
	address := regexp.MustCompile(`"Serving ` + what + `" address="([^"]+)"`).FindStringSubmatch(p.Log())
	if address == nil {
		return "", fmt.Errorf("it has not logged that it serves %s", what)
	}
	return address[1], nil
}

// pair starts two candidates: the first leads, the second stands by with full caches.
func (w *world) pair(firstArgs, secondArgs []string) (first, second *candidate) {
	w.Helper()
	first = w.newCandidate("first")
	return first, w.pairWith(first, first.kubeconfig, firstArgs, secondArgs)
}

// proxiedPair is pair with a proxy between the first and the API server.
func (w *world) proxiedPair(firstArgs, secondArgs []string) (first, second *candidate, between *proxied) {
	w.Helper()
	first = w.newCandidate("first")
	between = newProxiedAs(w.T, w, first.kubeconfig)
	second = w.pairWith(first, between.proxy.Kubeconfig(), firstArgs, secondArgs)
	w.Cleanup(between.proxy.Heal) // before the first is stopped
	return first, second, between
}

func (w *world) pairWith(first *candidate, kubeconfig string, firstArgs, secondArgs []string) (second *candidate) {
	w.Helper()
	w.stand(first, kubeconfig, firstArgs...)
	w.leads(first)
	second = w.newCandidate("second")
	w.stand(second, second.kubeconfig, secondArgs...)
	return second
}

// haltAfter lets n writes of copies through to the API server, and keeps back the others: however late a test comes, there
// is something left to do.
func (w *proxied) haltAfter(n int, verb string) *faultproxy.Injection {
	return w.proxy.Inject(faultproxy.Rule{
		Verbs: []string{verb}, Resources: []string{"configmaps"}, Skip: n,
		Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
}

// fanOut creates the source settings, and returns when some of its copies are there, and most are not.
func (w *world) fanOut(targets []string) *corev1.ConfigMap {
	w.Helper()
	src := w.createSource(w.home, "settings")
	w.eventually("the middle of the fan-out", func() error {
		if n := w.count(targets, "settings"); n < len(targets)/20 {
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
	all    []cluster.Event
}

// records returns what the audit log has of the candidates.
func (w *world) records(candidates ...*candidate) []record {
	w.Helper()
	out := make([]record, len(candidates))
	for _, e := range w.requests() {
		for i, c := range candidates {
			if e.User.Username != c.user {
				continue
			}
			out[i].all = append(out[i].all, e)
			if e.Object.Resource == "leases" && e.Verb == "update" && e.Response.Code < 300 {
				out[i].lease = append(out[i].lease, e)
			}
			out[i].writes = append(out[i].writes, writesTo([]cluster.Event{e}, "settings")...)
		}
	}
	for i, r := range out {
		if len(r.writes) == 0 {
			w.Fatalf("no writes of %s in the audit log", candidates[i].user)
		}
	}
	return out
}

// inTurn fails the test if the first wrote to a copy after the second had. What the first sent before it lost its lease may
// arrive later on a slow machine, and is refused then.
func (w *world) inTurn(first, second record) {
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
func (w *world) exits(c *candidate) {
	w.Helper()
	w.wait(c.user+" ends", c.Done())
	if code := c.ExitCode(); code != 1 || !strings.Contains(c.Log(), "leadership lost") {
		w.Errorf("%s ended with exit code %d, want 1 and a word about the lease", c.user, code)
	}
}

// The two tests that promise times do not run beside others. Their figures are printed in any case.
