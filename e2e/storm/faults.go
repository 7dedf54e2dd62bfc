package main

// What goes wrong between the controllers and the API server, with the processes, and with the API server.

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
)

// slack is for how long after its end a fault may still keep requests up: the longest delay of one.
const slack = 2 * time.Second

// Faults of requests, and the verbs that they are about.
var (
	requestFaults = []faultproxy.Kind{
		faultproxy.Delay, faultproxy.DelayAnswer, faultproxy.ResetBefore, faultproxy.ResetAfter, faultproxy.BreakBefore,
		faultproxy.BreakAfter, faultproxy.TooManyRequests, faultproxy.InternalError, faultproxy.Unavailable, faultproxy.Conflict,
	}
	writes, reads, watches = []string{"create", "update", "delete"}, []string{"get"}, []string{"watch", "list"}
	mirrored, leases       = []string{"configmaps", "namespaces", "events"}, []string{"leases"}
)

// wire is a fault of the way to the API server: it begins, and returns what ends it.
type wire func(*faultproxy.Proxy) (end func())

// instant is a fault that is over at once.
func instant(do func(*faultproxy.Proxy)) wire {
	return func(p *faultproxy.Proxy) func() { do(p); return func() {} }
}

// fault draws what goes wrong.
func (d drawer) fault() act {
	who, lasts := one(d, "0", "1", "both"), d.between(500*time.Millisecond, 4*time.Second)
	resource := one(d, "configmaps", "namespaces")
	switch d.IntN(40) {
	case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
		return d.requests(who, lasts, one(d, writes, writes, reads, watches, nil), mirrored)
	case 10, 11, 12, 13:
		return d.requests(who, lasts, nil, leases)
	case 14, 15:
		return onWire("end watches of "+resource, who, 0, instant(func(p *faultproxy.Proxy) { p.EndWatches(resource) }))
	case 16, 17:
		return onWire("cut watches of "+resource, who, 0, instant(func(p *faultproxy.Proxy) { p.CutWatches(resource) }))
	case 18, 19:
		return onWire("expire watches of "+resource, who, 0, instant(func(p *faultproxy.Proxy) { p.ExpireWatches(resource) }))
	case 20, 21:
		return onWire("break connections", who, 0, instant(func(p *faultproxy.Proxy) { p.BreakConnections(mirrored...) }))
	case 22, 23:
		return onWire("lose connections", who, 0, instant(func(p *faultproxy.Proxy) { p.LoseConnections(mirrored...) }))
	case 24, 25:
		return onWire("silence", who, lasts, func(p *faultproxy.Proxy) func() { p.Silence(); return p.Heal })
	case 26, 27, 28:
		return onWire("hold watches of "+resource, who, lasts, holdWatches(resource))
	case 29, 30:
		return onProcess("pause", who, 2*lasts, func(ctx context.Context, r *replica) { r.pause(ctx, 2*lasts) })
	case 31, 32, 33, 34, 35:
		return onProcess("kill", who, 0, func(_ context.Context, r *replica) { r.end((*replica).kill) })
	case 36, 37, 38:
		return onProcess("stop", who, 0, func(_ context.Context, r *replica) { r.end((*replica).stop) })
	}
	return act{text: "kill the API server", fault: true, do: killAPIServer}
}

// requests draws requests that fail.
func (d drawer) requests(who string, lasts time.Duration, verbs, resources []string) act {
	rule := faultproxy.Rule{
		Verbs: verbs, Resources: resources, Probability: one(d, 0.2, 0.5, 0.8),
		Fault: faultproxy.Fault{Kind: one(d, requestFaults...), For: one(d, 50*time.Millisecond, 300*time.Millisecond, slack)},
	}
	what := fmt.Sprintf("%s %.0f%% of %v %v", rule.Fault.Kind, 100*rule.Probability, verbs, resources)
	return onWire(what, who, lasts, func(p *faultproxy.Proxy) func() { return p.Inject(rule).Stop })
}

// holdWatches has replicas hear nothing new of a resource, and of all else as usual.
func holdWatches(resource string) wire {
	return func(p *faultproxy.Proxy) func() {
		hold := p.Inject(faultproxy.Rule{
			Verbs: watches, Resources: []string{resource}, Fault: faultproxy.Fault{Kind: faultproxy.Hold},
		})
		p.CutWatches(resource)
		return hold.Stop
	}
}

func onWire(what, who string, lasts time.Duration, begin wire) act {
	return onProcess(what, who, lasts, func(ctx context.Context, r *replica) {
		end := begin(r.proxy)
		sleep(ctx, lasts)
		end()
	})
}

// onProcess is a fault of replicas.
func onProcess(what, who string, lasts time.Duration, do func(context.Context, *replica)) act {
	text := fmt.Sprintf("fault on %s for %s: %s", who, lasts, what)
	return act{text: text, fault: true, do: func(ctx context.Context, s *storm) error {
		var all sync.WaitGroup
		for _, r := range s.replicas {
			if who == "both" || who == strconv.Itoa(r.id) {
				all.Go(func() {
					from := time.Now()
					do(ctx, r)
					r.disturb(from)
				})
			}
		}
		all.Wait()
		return nil
	}}
}

// disturb takes note of a fault that ends now.
func (r *replica) disturb(from time.Time) {
	until := time.Now().Add(slack)
	r.disturbances.Add(until, until.Sub(from))
}

// end ends the process and starts the next one.
func (r *replica) end(how func(*replica)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how(r)
	r.start()
}

// killAPIServer has the API server crash and come back.
func killAPIServer(ctx context.Context, s *storm) error {
	s.plane.Lock()
	defer s.plane.Unlock()
	from := time.Now()
	err := errors.Join(s.cluster.Signal(cluster.APIServer, syscall.SIGKILL), s.cluster.StopAPIServer())
	err = errors.Join(err, s.cluster.StartAPIServer(context.WithoutCancel(ctx)))
	for _, r := range s.replicas {
		r.disturb(from)
	}
	return err
}
