package storm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
)

// How long a fault may last, and how long it may delay a request.
const (
	longestFault = 6 * time.Second
	longestDelay = 2 * time.Second
)

// fault is what goes wrong with a replica, or between it and the API server: it begins, and returns what ends it.
// Where that is nil, it is over at once.
type fault struct {
	text  string
	begin func(*replica) (end func())
}

// fault draws a fault of a replica, or of both, or of the API server.
func (d drawer) fault() act {
	if d.IntN(40) == 0 {
		return act{text: "kill the API server", fault: true, do: killAPIServer}
	}
	who, lasts := drawOne(d, []int{0}, []int{1}, []int{0, 1}), d.between(500*time.Millisecond, longestFault)
	f := pick(d, faults)
	text := fmt.Sprintf("%s, of replicas %d, for %s if it lasts", f.text, who, lasts)
	return act{text: text, fault: true, do: func(ctx context.Context, s *storm) error {
		var all sync.WaitGroup
		for _, i := range who {
			all.Go(func() {
				if end := f.begin(s.replicas[i]); end != nil {
					sleep(ctx, lasts)
					end()
				}
			})
		}
		all.Wait()
		return nil
	}}
}

// sleep waits as people and tools do that have nothing to wait for.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

var (
	watches  = []string{"watch", "list"}
	mirrored = []string{"configmaps", "namespaces", "events"}
)

var faults = []chance[fault]{
	{10, func(d drawer) fault {
		writes := []string{"create", "update", "patch", "delete"}
		return d.requests(drawOne(d, writes, writes, []string{"get"}, watches, nil), mirrored...)
	}},
	{4, func(d drawer) fault { return d.requests(nil, "leases") }},
	{6, func(d drawer) fault {
		cut := drawOne(d, (*faultproxy.Proxy).EndWatches, (*faultproxy.Proxy).ExpireWatches)
		return ofWatches(d, "end or expire", func(r *replica, resource string) func() { cut(r.proxy, resource); return nil })
	}},
	{3, func(d drawer) fault { return ofWatches(d, "hold", holdWatches) }},
	{4, func(d drawer) fault {
		lose := drawOne(d, (*faultproxy.Proxy).BreakConnections, (*faultproxy.Proxy).LoseConnections)
		return fault{"break or lose connections", func(r *replica) func() { lose(r.proxy); return nil }}
	}},
	{2, func(drawer) fault {
		return fault{"silence", func(r *replica) func() { r.proxy.Silence(); return r.proxy.Heal }}
	}},
	{2, func(drawer) fault { return fault{"pause", (*replica).pause} }},
	{5, func(drawer) fault { return fault{"kill", func(r *replica) func() { r.restart(kill); return nil }} }},
	{3, func(drawer) fault { return fault{"stop", func(r *replica) func() { r.restart(stop); return nil }} }},
}

// requests draws requests that fail.
func (d drawer) requests(verbs []string, resources ...string) fault {
	kind := drawOne(d, faultproxy.Delay, faultproxy.DelayAnswer, faultproxy.ResetBefore, faultproxy.ResetAfter,
		faultproxy.TooManyRequests, faultproxy.InternalError, faultproxy.Unavailable, faultproxy.Conflict)
	rule := faultproxy.Rule{
		Verbs: verbs, Resources: resources, Probability: drawOne(d, 0.2, 0.5, 0.8),
		Fault: faultproxy.Fault{Kind: kind, For: drawOne(d, 50*time.Millisecond, 300*time.Millisecond, longestDelay)},
	}
	text := fmt.Sprintf("%s %.0f%% of %v %v", kind, 100*rule.Probability, verbs, resources)
	return fault{text, func(r *replica) func() { return r.proxy.Inject(rule).Stop }}
}

// ofWatches draws of which resource the watches fail.
func ofWatches(d drawer, text string, begin func(r *replica, resource string) (end func())) fault {
	resource := drawOne(d, "configmaps", "namespaces")
	return fault{text + " watches of " + resource, func(r *replica) func() { return begin(r, resource) }}
}

// holdWatches has a replica hear nothing new of a resource, and of all else as usual.
func holdWatches(r *replica, resource string) (end func()) {
	hold := faultproxy.Fault{Kind: faultproxy.Hold}
	rule := faultproxy.Rule{Verbs: watches, Resources: []string{resource}, Fault: hold}
	held := r.proxy.Inject(rule)
	r.proxy.EndWatches(resource)
	return held.Stop
}

// killAPIServer has the API server crash and come back.
func killAPIServer(ctx context.Context, s *storm) error {
	s.apiServer.Lock()
	defer s.apiServer.Unlock()
	err := errors.Join(s.cluster.Signal(cluster.APIServer, syscall.SIGKILL), s.cluster.StopAPIServer())
	return errors.Join(err, s.cluster.StartAPIServer(context.WithoutCancel(ctx)))
}
