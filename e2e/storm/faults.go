package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
)

// fault is something that goes wrong with replicas. It returns when it is over, at the latest when ctx ends.
type fault func(ctx context.Context, s *storm, hit []*replica, st step) error

// fail has a fault happen, and takes down when it was at work. What nobody is named for hits all replicas.
func (s *storm) fail(ctx context.Context, do fault, st step) error {
	hit, err := s.hitBy(ctx, st.on)
	if err != nil || len(hit) == 0 {
		return err
	}
	s.counts.fault(st.kind)
	defer s.fleet.incidents.begin(st, hit)()
	if err := do(ctx, s, hit, st); err != nil {
		return fmt.Errorf("%s: %w", st, err)
	}
	return nil
}

// onLeader is what a step is on that is about the replica that leads when it happens.
const onLeader = "leader"

// hitBy returns the replicas that a fault is about; none if it is the leader and there is none until ctx ends.
func (s *storm) hitBy(ctx context.Context, on string) ([]*replica, error) {
	if on != onLeader {
		return s.fleet.of(on), nil
	}
	r, err := s.leader(ctx)
	if r == nil {
		return nil, err
	}
	return []*replica{r}, nil
}

// incident is a fault of one replica, or of all that it depends on: a fault that hits two of them is two incidents.
type incident struct {
	step  step
	user  string // the account of the replica
	began time.Time
	ended time.Time // zero: it is at work
}

// delays are faults by which a request is late that goes on behind their end.
var delays = []string{
	nameOf(faultproxy.Delay), nameOf(faultproxy.DelayAnswer), leaseNameOf(faultproxy.Delay), leaseNameOf(faultproxy.DelayAnswer),
}

// over returns when the last request was let go that the incident held up on its way. It is zero while it is at work.
func (i incident) over() time.Time {
	if !i.ended.IsZero() && slices.Contains(delays, i.step.kind) {
		return i.ended.Add(i.step.duration(delayArg))
	}
	return i.ended
}

// outages are faults behind which nobody renews a lease.
var outages = []string{"silence", "pause", "zombie", "restart-apiserver", "kill-apiserver", "pause-apiserver", "outdate-watches"}

// touchesLease reports whether the incident can cost the replica the lease.
func (i incident) touchesLease() bool {
	return strings.HasPrefix(i.step.kind, leasePrefix) || slices.Contains(i.step.resources(nil), leases[0]) || slices.Contains(outages, i.step.kind)
}

// onProcesses are faults of processes, by which no answer of the API server is late.
var onProcesses = []string{"kill", "stop", "pause", "zombie", "flags", "roll-flags", "halt", "resume"}

// overlaps reports whether the incident was at work at any moment between the two.
func (i incident) overlaps(from, to time.Time) bool {
	return !i.began.After(to) && (i.ended.IsZero() || !i.over().Before(from))
}

// incidents are all that there were.
type incidents struct {
	mu   sync.Mutex
	list []*incident
}

// begin takes down that a fault of the replicas begins. Whoever calls it calls what it returns when it is over.
func (l *incidents) begin(st step, hit []*replica) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var begun []*incident
	for _, r := range hit {
		begun = append(begun, &incident{step: st, user: r.installed.User, began: time.Now()})
	}
	l.list = append(l.list, begun...)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, i := range begun {
			i.ended = time.Now()
		}
	}
}

// between returns those that were at work at any moment between the two.
func (l *incidents) between(from, to time.Time) []incident {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []incident
	for _, i := range l.list {
		if i.overlaps(from, to) {
			out = append(out, *i)
		}
	}
	return out
}

// faults are all there are, by their kinds.
var faults = map[string]fault{
	"end-watches":       onProxies(func(p *faultproxy.Proxy, st step) { p.EndWatches(st.resources(watched)...) }),
	"cut-watches":       onProxies(func(p *faultproxy.Proxy, st step) { p.CutWatches(st.resources(watched)...) }),
	"expire-watches":    onProxies(func(p *faultproxy.Proxy, st step) { p.ExpireWatches(st.resources(watched)...) }),
	"break-connections": onProxies(func(p *faultproxy.Proxy, st step) { p.BreakConnections(st.resources(mirrored)...) }),
	"lose-connections":  onProxies(func(p *faultproxy.Proxy, st step) { p.LoseConnections(st.resources(mirrored)...) }),
	"silence":           silence,
	"hold-namespaces":   holdWatches("namespaces"),
	"hold-configmaps":   holdWatches("configmaps"),
	"outdate-watches":   outdateWatches,

	"kill":       func(_ context.Context, _ *storm, hit []*replica, _ step) error { return end(hit, (*replica).kill) },
	"stop":       stop,
	"pause":      pause,
	"zombie":     zombie,
	"flags":      changeFlags,
	"roll-flags": rollFlags,
	"halt":       halt,
	"resume":     resume,

	"restart-apiserver": func(ctx context.Context, s *storm, _ []*replica, _ step) error {
		return s.withoutAPIServer(ctx, s.cluster.StopAPIServer)
	},
	"kill-apiserver":  killAPIServer,
	"pause-apiserver": pauseAPIServer,
	"compact":         func(ctx context.Context, s *storm, _ []*replica, _ step) error { return s.compact(ctx) },
}

func init() {
	for _, k := range requestFaults {
		faults[nameOf(k)] = failRequests(k, mirrored)
	}
	for _, k := range leaseFaults {
		faults[leaseNameOf(k)] = failRequests(k, leases)
	}
}

// requestFaults are what goes wrong with requests; the last two with watches and lists alone.
var requestFaults = []faultproxy.Kind{
	faultproxy.Delay, faultproxy.DelayAnswer, faultproxy.ResetBefore, faultproxy.ResetAfter, faultproxy.BreakBefore,
	faultproxy.BreakAfter, faultproxy.TooManyRequests, faultproxy.InternalError, faultproxy.Unavailable,
	faultproxy.Conflict, faultproxy.Gone, faultproxy.Expired,
}

// leaseFaults are what goes wrong with requests about the lease, which nobody watches.
var leaseFaults = requestFaults[:len(requestFaults)-2]

// Beginnings of the kinds of steps by which requests fail. Those about the lease have steps of their own: in a storm
// without these a leader stays the leader, unless somebody ends it.
const (
	requestsPrefix = "requests-"
	leasePrefix    = "lease-"
)

// nameOf is the kind of a step by which requests fail: one word.
func nameOf(k faultproxy.Kind) string {
	return requestsPrefix + strings.ReplaceAll(string(k), " ", "-")
}

// leaseNameOf is the same for requests about the lease.
func leaseNameOf(k faultproxy.Kind) string {
	return leasePrefix + strings.ReplaceAll(string(k), " ", "-")
}

// The resources behind that, and those that the controller watches.
var (
	mirrored = []string{"configmaps", "namespaces", "events"}
	leases   = []string{"leases"}
	watched  = []string{"configmaps", "namespaces"}
)

// resources returns those that a step names, or the usual ones.
func (s step) resources(usual []string) []string {
	if named := s.args[resourceArg]; len(named) > 0 {
		return named
	}
	return usual
}

// Arguments of faults.
const (
	forArg      = "for"      // how long it lasts
	delayArg    = "delay"    // of requests, or what Retry-After says
	shareArg    = "share"    // of the requests that fail
	verbArg     = "verb"     // of requests; none: all
	resourceArg = "resource" // of requests, watches and connections; none: all but leases
	firstArg    = "first"    // replica to get other flags
	profileArg  = "profile"  // number of the flags
	limitArg    = "limit"    // of pruning, in percent
	graceArg    = "grace"    // of deletions
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
	{4, func(d drawer) step { return d.lasting(d.onReplica("hold-configmaps"), time.Second, 5*time.Second) }},
	{2, func(d drawer) step { return d.lasting(d.onReplica("hold-namespaces"), time.Second, 5*time.Second) }},
	{4, func(d drawer) step { return newStep("compact", "-") }},
}

// faultTable are all faults.
var faultTable = append([]row{
	{5, func(d drawer) step { return d.lasting(d.onReplica("silence"), time.Second, 5*time.Second) }},
	{7, func(d drawer) step { return d.onReplica("kill") }},
	{4, func(d drawer) step { return d.onReplica("stop") }},
	{5, func(d drawer) step { return d.lasting(d.onLeader("pause"), time.Second, 7*time.Second) }},
	{8, drawer.leaseFault},
	{1, func(d drawer) step { return d.onReplica("break-connections").with(resourceArg, leases[0]) }},
	{2, func(d drawer) step { return d.onReplica("lose-connections").with(resourceArg, leases[0]) }},
	{4, func(d drawer) step { return d.flags("flags").with(limitArg, "100") }},
	{4, drawer.roll},
	{2, func(d drawer) step { return newStep("outdate-watches", "*") }},
	{2, func(d drawer) step { return newStep("restart-apiserver", "-") }},
	{1, func(d drawer) step { return newStep("kill-apiserver", "-") }},
	{2, func(d drawer) step { return d.lasting(newStep("pause-apiserver", "-"), time.Second, 4*time.Second) }},
}, wireTable...)

// onReplica draws which replicas a fault hits.
func (d drawer) onReplica(kind string) step { return newStep(kind, one(d, []string{"0", "1", "*"})) }

// onLeader draws which replica a fault hits: half of the time the one that leads.
func (d drawer) onLeader(kind string) step {
	return newStep(kind, one(d, []string{onLeader, onLeader, onLeader, "0", "1", "*"}))
}

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
	verbs := one(d, [][]string{writes, writes, reads, watches, nil})
	if k == faultproxy.Gone || k == faultproxy.Expired {
		verbs = watches
	}
	return d.failing(nameOf(k), verbs, "0.2", "0.5", "0.8")
}

func (d drawer) leaseFault() step {
	return d.failing(leaseNameOf(one(d, leaseFaults)), nil, "0.5", "0.8", "1")
}

// failing draws requests that fail, with verbs, and one of the shares of them.
func (d drawer) failing(kind string, verbs []string, shares ...string) step {
	s := d.lasting(d.onReplica(kind), 500*time.Millisecond, 4*time.Second)
	for _, v := range verbs {
		s = s.with(verbArg, v)
	}
	return s.with(shareArg, one(d, shares)).
		with(delayArg, one(d, []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, time.Second, 2 * time.Second}).String())
}

// flags draws other flags.
func (d drawer) flags(kind string) step {
	profile := 0 // to which one returns: in the others less happens
	if d.IntN(3) > 0 {
		profile = d.IntN(len(profiles))
	}
	return newStep(kind, "-").with(profileArg, strconv.Itoa(profile))
}

// roll draws other flags that the replicas get one after the other. The prune limit has no part in it.
func (d drawer) roll() step {
	return d.lasting(d.flags("roll-flags"), 500*time.Millisecond, 4*time.Second).with(firstArg, one(d, []string{onLeader, "0", "1"}))
}

// onProxies is a fault that is over at once.
func onProxies(do func(*faultproxy.Proxy, step)) fault {
	return func(_ context.Context, _ *storm, hit []*replica, st step) error {
		for _, r := range hit {
			do(r.proxy, st)
		}
		return nil
	}
}

// failRequests has a share of the requests of a verb go wrong for a while, those about the usual resources if the step
// names no others.
func failRequests(k faultproxy.Kind, usual []string) fault {
	return func(ctx context.Context, _ *storm, hit []*replica, st step) error {
		share, err := strconv.ParseFloat(st.args.Get(shareArg), 64)
		if err != nil {
			return err
		}
		for _, r := range hit {
			defer r.proxy.Inject(faultproxy.Rule{
				Verbs: st.args[verbArg], Resources: st.resources(usual), Probability: share,
				Fault: faultproxy.Fault{Kind: k, For: st.duration(delayArg)},
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
func silence(ctx context.Context, _ *storm, hit []*replica, st step) error {
	for _, r := range hit {
		r.proxy.Silence()
		defer r.proxy.Heal()
	}
	return ended(ctx, st)
}

// end ends the processes of replicas, all at once, and starts the next ones.
func end(hit []*replica, how func(*replica)) error {
	for _, r := range hit {
		r.mu.Lock()
		defer r.mu.Unlock()
		how(r)
	}
	for _, r := range hit {
		if err := r.start(); err != nil {
			return err
		}
	}
	return nil
}

func stop(ctx context.Context, _ *storm, hit []*replica, _ step) error {
	return end(hit, func(r *replica) { r.stop(context.WithoutCancel(ctx)) })
}

// pause stops processes where they stand; another replica may take over meanwhile.
func pause(ctx context.Context, _ *storm, hit []*replica, st step) error {
	var pausing sync.WaitGroup
	for _, r := range hit {
		pausing.Go(func() { r.pause(ctx, st.duration(forArg)) })
	}
	pausing.Wait()
	return nil
}

// holdBack has new watches of a replica wait until it is called off.
func (r *replica) holdBack(resources ...string) (off func()) {
	return r.proxy.Inject(faultproxy.Rule{Verbs: watches, Resources: resources, Fault: faultproxy.Fault{Kind: faultproxy.Hold}}).Stop
}

// holdWatches has replicas hear nothing new of a resource for a while, and of all else as usual.
func holdWatches(resource string) fault {
	return func(ctx context.Context, _ *storm, hit []*replica, st step) error {
		for _, r := range hit {
			defer r.holdBack(resource)()
			r.proxy.CutWatches(resource)
		}
		return ended(ctx, st)
	}
}

// outdateWatches has etcd and the API server forget the states from which the watches of replicas want to go on, so that
// they are told that it has expired (410).
func outdateWatches(ctx context.Context, s *storm, hit []*replica, _ step) error {
	for _, r := range hit {
		defer r.holdBack(watched...)()
		r.proxy.EndWatches(watched...) // a client goes on with the next where the last one came to its end
	}
	ctx = context.WithoutCancel(ctx)
	return s.withoutAPIServer(ctx, func() error {
		if err := s.catchUp(ctx); err != nil { // which writes
			return err
		}
		if err := s.compact(ctx); err != nil {
			return err
		}
		return s.cluster.StopAPIServer() // whose cache serves what etcd has forgotten
	})
}

// zombieLasts is how long a leader that stood still does not hear that another has the lease.
const zombieLasts = 3 * time.Second

// zombie stops the leader where it stands until another has the lease, and keeps it from reading the lease for a
// while when it goes on.
func zombie(ctx context.Context, _ *storm, hit []*replica, st step) error {
	r := hit[0]
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

// rollFlags restarts the replicas with other flags one after the other, as a rolling update does. The time that it lasts is
// that in which both are in force.
func rollFlags(ctx context.Context, s *storm, _ []*replica, st step) error {
	profile, err := strconv.Atoi(st.args.Get(profileArg))
	if err != nil {
		return err
	}
	first, err := s.hitBy(ctx, st.args.Get(firstArg))
	if err != nil || len(first) == 0 {
		return err
	}
	return s.change(ctx, profile, 100, s.fleet.present().Grace, func(whole context.Context) error {
		return s.fleet.roll(whole, first[0], func() { _ = ended(ctx, st) })
	})
}

// changeFlags restarts all replicas with other flags.
func changeFlags(ctx context.Context, s *storm, _ []*replica, st step) error {
	profile, limit, grace, err := s.flagsBy(st)
	if err != nil {
		return err
	}
	return s.restart(ctx, profile, limit, grace)
}

// flagsBy returns the number of the profile, the prune limit and the deletion grace: the present one if the step has none.
func (s *storm) flagsBy(st step) (profile, limit int, grace time.Duration, err error) {
	if profile, err = strconv.Atoi(st.args.Get(profileArg)); err != nil {
		return 0, 0, 0, err
	}
	if grace = s.fleet.present().Grace; st.args.Has(graceArg) {
		grace = st.duration(graceArg)
	}
	limit, err = strconv.Atoi(st.args.Get(limitArg))
	return profile, limit, grace, err
}

// halt stops all controllers. Only resume starts them again.
func halt(ctx context.Context, s *storm, _ []*replica, _ step) error {
	for _, r := range s.fleet.replicas {
		r.mu.Lock()
		r.stop(ctx)
		r.mu.Unlock()
	}
	return nil
}

// resume starts the controllers that were halted, with other flags, once it is known what they are expected to do.
func resume(ctx context.Context, s *storm, _ []*replica, st step) error {
	profile, limit, grace, err := s.flagsBy(st)
	if err != nil {
		return err
	}
	emptied := func() error { return errors.Join(emptying(s.observed())...) }
	if err := errors.Join(s.catchUp(ctx), s.seen.Eventually(ctx, s.patience, emptied)); err != nil {
		return err
	}
	return s.change(ctx, profile, limit, grace, func(whole context.Context) error {
		if err := s.predict(whole); err != nil {
			return err
		}
		return s.fleet.restart(whole, nil)
	})
}

// killAPIServer has the API server crash and come back.
func killAPIServer(ctx context.Context, s *storm, _ []*replica, _ step) error {
	return s.withoutAPIServer(ctx, func() error {
		if err := s.cluster.Signal(cluster.APIServer, syscall.SIGKILL); err != nil {
			return err
		}
		return s.cluster.StopAPIServer()
	})
}

// pauseAPIServer has the API server hang.
func pauseAPIServer(ctx context.Context, s *storm, _ []*replica, st step) error {
	s.plane.Lock()
	defer s.plane.Unlock()
	if err := s.cluster.Signal(cluster.APIServer, syscall.SIGSTOP); err != nil {
		return err
	}
	_ = sleep(ctx, st.duration(forArg))
	return s.cluster.Signal(cluster.APIServer, syscall.SIGCONT)
}
