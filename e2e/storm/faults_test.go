package storm

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
)

// How long a fault may last.
const longestFault = 6 * time.Second

// fault is what goes wrong with a replica, or between it and the API server: it begins, and returns what ends it.
type fault struct {
	text  string
	begin func(*replica) (end func())
}

// faults are of requests, watches, connections and processes, each as likely as the others.
var faults = [][]fault{
	requestFaults(),
	{
		atOnce("end watches", func(r *replica) { r.proxy.EndWatches() }),
		{"expire watches", func(r *replica) func() { return meanwhile(r, faultproxy.Gone, "configmaps", "namespaces") }},
		{"hold watches of configmaps", func(r *replica) func() { return meanwhile(r, faultproxy.Hold, "configmaps") }},
		{"hold watches of namespaces", func(r *replica) func() { return meanwhile(r, faultproxy.Hold, "namespaces") }},
	},
	{
		atOnce("break connections", func(r *replica) { r.proxy.BreakConnections() }),
		atOnce("lose connections", func(r *replica) { r.proxy.LoseConnections() }),
		{"silence", func(r *replica) func() { r.proxy.Silence(); return r.proxy.Heal }},
	},
	{
		{"pause", pause},
		atOnce("kill", func(r *replica) { r.process.Load().Kill() }),
		atOnce("stop", func(r *replica) { r.stop(r.process.Load()) }),
	},
}

// atOnce is a fault that is over at once.
func atOnce(text string, do func(*replica)) fault {
	return fault{text, func(r *replica) (end func()) {
		do(r)
		return func() {}
	}}
}

// requestFaults are those of half of the requests for a resource, as of the Lease.
func requestFaults() (all []fault) {
	for _, resource := range []string{"configmaps", "namespaces", "events", "leases"} {
		for _, kind := range faultproxy.Usual {
			rule := faultproxy.Rule{
				Resources: []string{resource}, Probability: 0.5, Kind: kind, For: 300 * time.Millisecond,
			}
			all = append(all, fault{fmt.Sprintf("%s of %s", kind, resource), func(r *replica) (end func()) {
				return r.proxy.Inject(rule).Stop
			}})
		}
	}
	return all
}

// meanwhile ends the watches of resources, and has this happen to each new one.
func meanwhile(r *replica, kind faultproxy.Kind, resources ...string) (end func()) {
	injected := r.proxy.Inject(faultproxy.Rule{Verbs: []string{"watch", "list"}, Resources: resources, Kind: kind})
	r.proxy.EndWatches(resources...)
	return injected.Stop
}

// fault draws a fault of a replica, or of both, or of the API server.
func (d drawer) fault() act {
	if d.IntN(40) == 0 {
		return act{text: "kill the API server", alone: true, do: killAPIServer}
	}
	who, lasts := drawOne(d, []int{0}, []int{1}, []int{0, 1}), d.between(500*time.Millisecond, longestFault)
	f := drawOne(d, drawOne(d, faults...)...)
	text := fmt.Sprintf("%s, of replicas %d, for %s if it lasts", f.text, who, lasts)
	return act{text: text, fault: true, do: func(ctx context.Context, s *storm) error {
		for _, i := range who {
			defer f.begin(s.replicas[i])()
		}
		sleep(ctx, lasts)
		return nil
	}}
}

// killAPIServer has the API server crash and come back.
func killAPIServer(ctx context.Context, s *storm) error {
	err := errors.Join(s.cluster.Signal(cluster.APIServer, syscall.SIGKILL), s.cluster.StopAPIServer())
	return errors.Join(err, s.cluster.StartAPIServer(ctx))
}
