package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
)

// fault is something that goes wrong. It returns when it is over, at the latest when ctx ends.
type fault func(ctx context.Context, s *storm, st step) error

// faults are all there are, by their kinds.
var faults = map[string]fault{
	"end-watches":       onProxies(func(p *faultproxy.Proxy, st step) { p.EndWatches(st.args[resourceArg]...) }),
	"cut-watches":       onProxies(func(p *faultproxy.Proxy, st step) { p.CutWatches(st.args[resourceArg]...) }),
	"expire-watches":    onProxies(func(p *faultproxy.Proxy, st step) { p.ExpireWatches(st.args[resourceArg]...) }),
	"break-connections": onProxies(func(p *faultproxy.Proxy, _ step) { p.BreakConnections() }),
	"lose-connections":  onProxies(func(p *faultproxy.Proxy, _ step) { p.LoseConnections() }),
	"silence":           silence,
	"hold-namespaces":   holdNamespaces,

	"kill":   func(_ context.Context, s *storm, st step) error { return s.fleet.end(st.on, (*replica).kill) },
	"stop":   stop,
	"pause":  pause,
	"zombie": zombie,
	"flags":  changeFlags,

	"restart-apiserver": func(ctx context.Context, s *storm, _ step) error {
		return s.withoutAPIServer(ctx, s.cluster.StopAPIServer)
	},
	"kill-apiserver":  killAPIServer,
	"pause-apiserver": pauseAPIServer,
	"compact":         func(ctx context.Context, s *storm, _ step) error { return s.compact(ctx) },
}

func init() {
	for _, k := range requestFaults {
		faults[nameOf(k)] = failRequests(k)
	}
}

// requestFaults are what goes wrong with requests.
var requestFaults = []faultproxy.Kind{
	faultproxy.Delay, faultproxy.DelayAnswer, faultproxy.ResetBefore, faultproxy.ResetAfter, faultproxy.BreakBefore,
	faultproxy.BreakAfter, faultproxy.TooManyRequests, faultproxy.InternalError, faultproxy.Unavailable,
	faultproxy.Conflict, faultproxy.Gone, faultproxy.Expired,
}

// nameOf is the kind of a step: one word.
func nameOf(k faultproxy.Kind) string { return "requests-" + strings.ReplaceAll(string(k), " ", "-") }

// Arguments of faults.
const (
	forArg      = "for"      // how long it lasts
	delayArg    = "delay"    // of requests, or what Retry-After says
	shareArg    = "share"    // of the requests that fail
	verbArg     = "verb"     // of requests; none: all
	resourceArg = "resource" // of watches; none: all
	profileArg  = "profile"  // number of the flags
	limitArg    = "limit"    // of pruning, in percent
)

var (
	writes  = []string{"create", "update", "delete"}
	reads   = []string{"get"}
	watches = []string{"watch", "list"}
)

// wireTable are the faults on the way to the API server, and how often each is drawn.
var wireTable = []row{
	{30, drawer.requestFault},
	{4, func(d drawer) step { return d.watchFault("end-watches") }},
	{4, func(d drawer) step { return d.watchFault("cut-watches") }},
	{4, func(d drawer) step { return d.watchFault("expire-watches") }},
	{4, func(d drawer) step { return d.onReplica("break-connections") }},
	{3, func(d drawer) step { return d.onReplica("lose-connections") }},
	{4, func(d drawer) step { return newStep("compact", "-") }},
}

// faultTable are all faults.
var faultTable = append([]row{
	{5, func(d drawer) step { return d.lasting(d.onReplica("silence"), time.Second, 5*time.Second) }},
	{7, func(d drawer) step { return d.onReplica("kill") }},
	{4, func(d drawer) step { return d.onReplica("stop") }},
	{5, func(d drawer) step { return d.lasting(d.onReplica("pause"), time.Second, 6*time.Second) }},
	{4, func(d drawer) step { return d.flags(100) }},
	{2, func(d drawer) step { return newStep("restart-apiserver", "-") }},
	{1, func(d drawer) step { return newStep("kill-apiserver", "-") }},
	{2, func(d drawer) step { return d.lasting(newStep("pause-apiserver", "-"), time.Second, 4*time.Second) }},
}, wireTable...)

// onReplica draws which replicas a fault hits.
func (d drawer) onReplica(kind string) step { return newStep(kind, one(d, []string{"0", "1", "*"})) }

// lasting draws how long a fault lasts.
func (d drawer) lasting(s step, from, to time.Duration) step {
	return s.with(forArg, (from + time.Duration(d.IntN(int((to-from)/time.Millisecond)))*time.Millisecond).String())
}

func (d drawer) watchFault(kind string) step {
	s := d.onReplica(kind)
	if resource := one(d, []string{"configmaps", "namespaces", ""}); resource != "" {
		s = s.with(resourceArg, resource)
	}
	return s
}

func (d drawer) requestFault() step {
	k := one(d, requestFaults)
	s := d.lasting(d.onReplica(nameOf(k)), 500*time.Millisecond, 4*time.Second)
	verbs := one(d, [][]string{writes, writes, reads, watches, nil})
	if k == faultproxy.Gone || k == faultproxy.Expired {
		verbs = watches
	}
	for _, v := range verbs {
		s = s.with(verbArg, v)
	}
	return s.with(shareArg, one(d, []string{"0.2", "0.5", "0.8"})).
		with(delayArg, one(d, []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, time.Second, 2 * time.Second}).String())
}

// flags draws other flags.
func (d drawer) flags(limit int) step {
	profile := 0 // to which one returns: in the others less happens
	if d.IntN(3) > 0 {
		profile = d.IntN(len(profiles))
	}
	return newStep("flags", "-").with(profileArg, strconv.Itoa(profile)).with(limitArg, strconv.Itoa(limit))
}

// onProxies is a fault that is over at once.
func onProxies(do func(*faultproxy.Proxy, step)) fault {
	return func(_ context.Context, s *storm, st step) error {
		for _, r := range s.fleet.of(st.on) {
			do(r.proxy, st)
		}
		return nil
	}
}

// failRequests has a share of the requests of a verb go wrong for a while.
func failRequests(k faultproxy.Kind) fault {
	return func(ctx context.Context, s *storm, st step) error {
		share, err := strconv.ParseFloat(st.args.Get(shareArg), 64)
		if err != nil {
			return err
		}
		for _, r := range s.fleet.of(st.on) {
			defer r.proxy.Inject(faultproxy.Rule{
				Verbs: st.args[verbArg], Probability: share, Fault: faultproxy.Fault{Kind: k, For: st.duration(delayArg)},
			}).Stop()
		}
		return ended(ctx, st)
	}
}

// ended returns when the time of a fault is over, or ctx is, which is no error.
func ended(ctx context.Context, st step) error {
	_ = sleep(ctx, st.duration(forArg))
	return nil
}

// silence has nothing pass for a while. Silences that overlap end with the first.
func silence(ctx context.Context, s *storm, st step) error {
	for _, r := range s.fleet.of(st.on) {
		r.proxy.Silence()
		defer r.proxy.Heal()
	}
	return ended(ctx, st)
}

// end ends the processes of replicas, all at once, and starts the next ones.
func (f *fleet) end(on string, how func(*replica)) error {
	for _, r := range f.of(on) {
		r.mu.Lock()
		defer r.mu.Unlock()
		how(r)
	}
	for _, r := range f.of(on) {
		if err := r.start(); err != nil {
			return err
		}
	}
	return nil
}

func stop(ctx context.Context, s *storm, st step) error {
	return s.fleet.end(st.on, func(r *replica) { r.stop(context.WithoutCancel(ctx)) })
}

// pause stops processes where they stand; the other replica may take over meanwhile.
func pause(ctx context.Context, s *storm, st step) error {
	for _, r := range s.fleet.of(st.on)[:1] {
		r.pause(ctx, st.duration(forArg))
	}
	return nil
}

// holdNamespaces has replicas hear nothing new of namespaces for a while.
func holdNamespaces(ctx context.Context, s *storm, st step) error {
	for _, r := range s.fleet.of(st.on) {
		defer r.proxy.Inject(faultproxy.Rule{
			Verbs: watches, Resources: []string{"namespaces"}, Fault: faultproxy.Fault{Kind: faultproxy.Hold},
		}).Stop()
		r.proxy.CutWatches("namespaces")
	}
	return ended(ctx, st)
}

// zombieLasts is how long a leader that stood still does not hear that another has the lease.
const zombieLasts = 3 * time.Second

// zombie stops the leader where it stands until another has the lease, and keeps it from looking at the lease for a
// while when it goes on.
func zombie(ctx context.Context, s *storm, st step) error {
	r, err := s.leader(ctx)
	if err != nil || r == nil {
		return err
	}
	defer r.proxy.Inject(faultproxy.Rule{Resources: []string{"leases"}, Fault: faultproxy.Fault{Kind: faultproxy.Hold}}).Stop()
	r.pause(ctx, st.duration(forArg))
	_ = sleep(ctx, zombieLasts)
	return nil
}

// leader waits for the next renewal of the lease and returns whose it is; nil if there is none until ctx ends.
func (s *storm) leader(ctx context.Context) (*replica, error) {
	mark, err := s.cluster.Audit().Mark()
	if err != nil {
		return nil, err
	}
	var leader *replica
	_, err = s.cluster.Audit().WaitFor(ctx, mark, func(e cluster.Event) bool {
		i := slices.IndexFunc(s.fleet.replicas, func(r *replica) bool { return r.installed.User == e.User.Username })
		if i >= 0 && e.Object.Resource == "leases" && isWrite(e) {
			leader = s.fleet.replicas[i]
		}
		return leader != nil
	})
	if ctx.Err() != nil {
		return leader, nil
	}
	return leader, err
}

// changeFlags restarts all replicas with other flags.
func changeFlags(ctx context.Context, s *storm, st step) error {
	profile, err := strconv.Atoi(st.args.Get(profileArg))
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(st.args.Get(limitArg))
	if err != nil {
		return err
	}
	return s.restart(context.WithoutCancel(ctx), profile, limit)
}

// killAPIServer has the API server crash and come back.
func killAPIServer(ctx context.Context, s *storm, _ step) error {
	return s.withoutAPIServer(ctx, func() error {
		if err := s.cluster.Signal(cluster.APIServer, syscall.SIGKILL); err != nil {
			return err
		}
		return s.cluster.StopAPIServer()
	})
}

// pauseAPIServer has the API server hang.
func pauseAPIServer(ctx context.Context, s *storm, st step) error {
	s.plane.Lock()
	defer s.plane.Unlock()
	if err := s.cluster.Signal(cluster.APIServer, syscall.SIGSTOP); err != nil {
		return err
	}
	_ = sleep(ctx, st.duration(forArg))
	return s.cluster.Signal(cluster.APIServer, syscall.SIGCONT)
}
