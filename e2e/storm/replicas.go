package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// profiles are the flags between which restarts change. All have the instance, and the default exclusion if no other.
var profiles = []model.Flags{
	{Prefixes: []string{"team-", "dev-"}, CopyLabels: copiedLabels, CopyAnnotations: copiedAnnotations},
	{Prefixes: []string{"team-"}, CopyLabels: copiedLabels},
	{Prefixes: []string{"team-a", "dev-"}},
	{Prefixes: []string{"team-", "dev-"}, Excluded: []string{"team-b", "dev-*"}, CopyAnnotations: copiedAnnotations},
	{Prefixes: []string{"team-", "dev-"}, SourceNamespaces: []string{"home", "team-a"}, CopyLabels: copiedLabels},
	{Prefixes: []string{"team"}, CopyLabels: copiedLabels, CopyAnnotations: copiedAnnotations},
	{Prefixes: []string{"dev-x", "dev-y"}},
	{AllNamespaces: true, Excluded: []string{"kube-*", "mirror-*", "default"}},
	{Prefixes: []string{"team-a", "dev-x"}},
	{Prefixes: []string{"team-", "dev-"}, Selector: "tier in (gold,silver)", CopyLabels: copiedLabels},
	{Prefixes: []string{"team-", "dev-"}, Selector: "tier!=bronze", CopyAnnotations: copiedAnnotations},
	{AllNamespaces: true, Excluded: []string{"kube-*", "mirror-*", "default"}, Selector: "tier"},
}

// halving is the profile that allows half of the targets of the first.
const halving = 8

// selecting are the profiles that choose namespaces by their labels.
var selecting = []int{9, 10, 11}

// resyncing is the profile that has a short resync period: also a resync writes and reads nothing without need. The others
// have the default: with them a copy that only a resync restores is not restored in time.
const resyncing = 5

// What the flags list as copied, some of it in vain.
var (
	copiedLabels      = []string{"team", "app.kubernetes.io/*", "helm.sh/*"}
	copiedAnnotations = []string{"example.com/*", "argocd.argoproj.io/*", "kustomize.toolkit.fluxcd.io/*"}
)

// flagsOf returns the flags of a profile.
func flagsOf(profile, pruneLimit int) model.Flags {
	f := profiles[profile%len(profiles)]
	f.Instance, f.PruneLimit = instance.Instance, pruneLimit
	if f.Excluded == nil {
		f.Excluded = []string{"kube-*"}
	}
	return f
}

// argsOf returns the arguments that set the flags.
func argsOf(f model.Flags) []string {
	args := []string{"--instance=" + f.Instance, fmt.Sprintf("--prune-limit=%d%%", f.PruneLimit)}
	lists := []struct {
		flag   string
		values []string
	}{
		{"namespace-prefix", f.Prefixes}, {"exclude-namespace", f.Excluded}, {"source-namespace", f.SourceNamespaces},
		{"copy-label", f.CopyLabels}, {"copy-annotation", f.CopyAnnotations},
	}
	for _, list := range lists {
		for _, value := range list.values {
			args = append(args, "--"+list.flag+"="+value)
		}
	}
	if f.AllNamespaces {
		args = append(args, "--all-namespaces")
	}
	if f.Selector != "" {
		args = append(args, "--namespace-selector="+f.Selector)
	}
	return args
}

// electing are the arguments of replicas that elect a leader, with times short enough for pauses to outlast them, and long
// enough for a busy machine.
var electing = []string{
	"--leader-elect", "--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s",
	"--leader-elect-retry-period=500ms", fmt.Sprintf("--concurrent-writes=%d", concurrentWrites),
}

// concurrentWrites are so few that a fan-out uses all of them.
const concurrentWrites = 8

// size is how many replicas there are.
const size = 2

// fleet are the replicas of the controller.
type fleet struct {
	installed *shipped.Installation
	replicas  []*replica
	fixed     []string      // arguments besides those of the flags
	incidents incidents     // faults, and when they were at work
	patience  time.Duration // with which they are asked to stop

	mu        sync.Mutex
	flags     model.Flags    // the latest; while they are rolled out, others are in force, too
	resyncs   bool           // with a short resync period
	inForce   []model.Flags  // all that were since the round began
	lives     []*life        // processes, in all
	takeOvers []time.Time    // when one of them took over
	endings   map[string]int // how processes ended
	problems  []string
	broken    context.CancelCauseFunc // called when a controller is broken, and there is nothing to wait for
}

// newFleet starts no controller yet.
func newFleet(ctx context.Context, c *cluster.Cluster, installed *shipped.Installation, verbosity string, seed uint64) (*fleet, error) {
	f := &fleet{installed: installed, endings: map[string]int{}, patience: stopPatience}
	f.fixed = append([]string{"-v=" + verbosity}, electing...)
	accounts, err := ownAccounts(ctx, c, installed, size)
	if err != nil {
		return nil, err
	}
	for i, account := range accounts {
		r, err := newReplica(f, account, c.Dir(), i, seed)
		if err != nil {
			return nil, err
		}
		f.replicas = append(f.replicas, r)
	}
	return f, nil
}

// of returns the replicas that a step is about: one by its number, or all.
func (f *fleet) of(on string) []*replica {
	if i, err := strconv.Atoi(on); err == nil {
		i %= len(f.replicas)
		return f.replicas[i : i+1]
	}
	return f.replicas
}

// args are the arguments of the Deployment, without its prefix and its choice about the election, and ours. The mutex is
// held.
func (r *replica) args() []string {
	shippedArgs := slices.DeleteFunc(slices.Clone(r.installed.Args), func(arg string) bool {
		return strings.HasPrefix(arg, "--namespace-prefix=")
	})
	args := append(slices.Concat(shippedArgs, r.fleet.fixed, argsOf(r.flags)), "--deletion-grace="+r.flags.Grace.String())
	if r.resyncs {
		args = append(args, "--resync-period=15s")
	}
	return args
}

// setFlags sets the flags with which replicas are to be restarted.
func (f *fleet) setFlags(flags model.Flags, resyncs bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flags, f.resyncs, f.inForce = flags, resyncs, append(f.inForce, flags)
}

// restart stops all replicas and starts them with the flags of the fleet. The last, if there is one, is stopped when the
// others have ended.
func (f *fleet) restart(ctx context.Context, last *replica) error {
	for _, r := range f.replicas {
		r.mu.Lock()
		defer r.mu.Unlock()
	}
	for _, r := range f.replicas {
		if r != last {
			r.stop(ctx)
		}
	}
	if last != nil {
		last.stop(ctx)
	}
	for _, r := range f.replicas {
		if err := r.renew(); err != nil {
			return err
		}
	}
	return nil
}

// roll restarts one replica after the other with the flags of the fleet, and pauses between them.
func (f *fleet) roll(ctx context.Context, first *replica, pause func()) error {
	others := slices.DeleteFunc(slices.Clone(f.replicas), func(r *replica) bool { return r == first })
	if err := first.restart(ctx); err != nil {
		return err
	}
	for _, r := range others {
		pause()
		if err := r.restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restart stops the process and starts one with the flags of the fleet.
func (r *replica) restart(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop(ctx)
	return r.renew()
}

// renew starts a process with the flags of the fleet. The mutex is held.
func (r *replica) renew() error {
	r.fleet.mu.Lock()
	r.flags, r.resyncs = r.fleet.flags, r.fleet.resyncs
	r.fleet.mu.Unlock()
	return r.start()
}

// close ends all controllers and their proxies.
func (f *fleet) close() {
	for _, r := range f.replicas {
		r.mu.Lock()
		r.kill()
		r.mu.Unlock()
		_ = r.proxy.Close() // the connections that it complains of are those that it ended
	}
}

// heal ends all faults of the ways to the API server.
func (f *fleet) heal() {
	for _, r := range f.replicas {
		r.proxy.Heal()
	}
}

// begin begins a round: flags of before are out of force. broken is called when a controller turns out to be broken.
func (f *fleet) begin(broken context.CancelCauseFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = broken
	f.inForce = []model.Flags{f.flags}
}

// allows reports whether any of the flags that were in force since the round began allow copies there.
func (f *fleet) allows(namespace string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.inForce, func(flags model.Flags) bool { return flags.AllowsTarget(namespace) })
}

// grace returns the shortest deletion grace that was in force since the round began.
func (f *fleet) grace() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.MinFunc(f.inForce, func(a, b model.Flags) int { return cmp.Compare(a.Grace, b.Grace) }).Grace
}

// allInForce returns all flags that were in force since the round began.
func (f *fleet) allInForce() []model.Flags {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.inForce)
}

func (f *fleet) problem(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
	if f.broken != nil {
		f.broken(errors.New("a controller is broken"))
	}
}

// takeProblems returns what went wrong with the processes themselves, once.
func (f *fleet) takeProblems() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.problems
	f.problems = nil
	return out
}

// oldest returns when the oldest of the running processes was started.
func (f *fleet) oldest() time.Time {
	var oldest time.Time
	for _, r := range f.replicas {
		r.mu.Lock()
		if oldest.IsZero() || r.since.Before(oldest) {
			oldest = r.since
		}
		r.mu.Unlock()
	}
	return oldest
}

// tookOver returns when processes took over, in all.
func (f *fleet) tookOver() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.takeOvers)
}

// mirrors is what a controller prints when it takes over.
const mirrors = `"Mirroring"`

// takeOverWatcher takes down when a controller took over, in what it prints.
type takeOverWatcher struct {
	fleet *fleet
	end   []byte // of what was written so far, shorter than what is looked for
}

func (w *takeOverWatcher) Write(p []byte) (int, error) {
	text := slices.Concat(w.end, p)
	w.end = text[max(0, len(text)-len(mirrors)+1):]
	if bytes.Contains(text, []byte(mirrors)) { // a process does so once
		w.fleet.mu.Lock()
		defer w.fleet.mu.Unlock()
		w.fleet.takeOvers = append(w.fleet.takeOvers, time.Now())
	}
	return len(p), nil
}

// replica is one process of the controller after the other, behind a proxy of its own.
type replica struct {
	fleet     *fleet
	installed *shipped.Installation // with an account of its own
	id        int
	proxy     *faultproxy.Proxy

	mu      sync.Mutex  // held by who signals, stops or starts the process
	flags   model.Flags // of the process, and of those that follow it when it ends by itself
	resyncs bool
	process *shipped.Process
	since   time.Time
	asked   *shipped.Process // to end
	logs    []string         // of ended processes, the last ones
}

func newReplica(f *fleet, installed *shipped.Installation, dir string, id int, seed uint64) (*replica, error) {
	dir = filepath.Join(dir, fmt.Sprintf("replica-%d", id))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	p, err := faultproxy.Start(faultproxy.Options{
		Kubeconfig: installed.Kubeconfig, Dir: dir, Rand: rand.New(rand.NewPCG(seed, uint64(id))),
	})
	return &replica{fleet: f, installed: installed, id: id, proxy: p}, err
}

// environment has the controller find out within seconds that nothing comes on a connection, instead of within a
// minute, and has it panic if it changes an object of its cache.
var environment = []string{
	"HTTP2_READ_IDLE_TIMEOUT_SECONDS=1", "HTTP2_PING_TIMEOUT_SECONDS=1", "KUBE_CACHE_MUTATION_DETECTOR=true",
}

// start starts the process, and starts it again when it ends unasked, as a kubelet does. The mutex is held.
func (r *replica) start() error {
	started := time.Now()
	p, err := r.installed.Start(shipped.RunOptions{
		Replace: true, Args: r.args(), Env: environment, Kubeconfig: r.proxy.Kubeconfig(), Log: &takeOverWatcher{fleet: r.fleet},
	})
	if err != nil {
		return err
	}
	r.process, r.since = p, time.Now()
	life := r.fleet.live(r, started)
	go r.watch(p, life)
	return nil
}

// live takes down that a process was started, at that time or a moment later.
func (f *fleet) live(r *replica, started time.Time) *life {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &life{user: r.installed.User, started: started}
	f.lives = append(f.lives, l)
	return l
}

// life is when a process was there. The API server's clock is the same.
type life struct {
	user    string
	started time.Time
	ended   time.Time // zero: it is running
	lost    bool      // it ended because it had lost the lease
	// gaveBack is set if it stopped and has given the lease back, if it had it.
	gaveBack bool
}

// has reports whether the process was there.
func (l life) has(at time.Time) bool {
	return !at.Before(l.started) && (l.ended.IsZero() || !at.After(l.ended))
}

// allLives returns all processes that were ever started, in that order.
func (f *fleet) allLives() []life {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]life, 0, len(f.lives))
	for _, l := range f.lives {
		out = append(out, *l)
	}
	return out
}

// isOurs reports whether the user is one of the controllers.
func (f *fleet) isOurs(user string) bool {
	return slices.ContainsFunc(f.replicas, func(r *replica) bool { return r.installed.User == user })
}

// broken is what a controller prints that has a fault of its own.
var broken = regexp.MustCompile(`(?m)^(panic|fatal error):|Observed a panic`)

// lostLease is what a controller prints that ends because it has lost the lease.
const lostLease = "leadership lost"

// leaseKept is what a controller prints that stops and cannot give the lease back.
const leaseKept = "Cannot release the Lease"

// hasLost reports whether a process that has ended did so because it had lost the lease, by its own word.
func (r *replica) hasLost(p *shipped.Process) bool {
	return p.ExitCode() == 1 && strings.Contains(tail(p.Log(), 5), lostLease)
}

// watch waits for the end of the process, which has to be one that was asked for, or a lost lease.
func (r *replica) watch(p *shipped.Process, l *life) {
	<-p.Done()
	lost, gaveBack := r.hasLost(p), p.ExitCode() == 0 && !strings.Contains(p.Log(), leaseKept)
	r.fleet.mu.Lock()
	l.ended, l.lost, l.gaveBack = time.Now(), lost, gaveBack
	if lost {
		r.fleet.endings[lostLease]++
	}
	r.fleet.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, p.Log())
	r.logs = r.logs[max(0, len(r.logs)-3):]
	if found := broken.FindString(p.Log()); found != "" {
		r.fleet.problem("replica %d printed %q:\n%s", r.id, found, tail(p.Log(), 40))
	}
	if r.asked == p || r.process != p {
		return
	}
	if !lost {
		r.fleet.problem("replica %d ended by itself with exit code %d:\n%s", r.id, p.ExitCode(), tail(p.Log(), 20))
		return
	}
	if err := r.start(); err != nil {
		r.fleet.problem("replica %d: %v", r.id, err)
	}
}

// stopPatience is how long a controller may take to stop before it is killed. The Deployment gives it 45 s, because a write
// may take 35; here none does. Writes in flight end within seconds, unless no answer comes: stopAnswered is how long answers
// have to have come for that.
const (
	stopPatience = 30 * time.Second
	stopAnswered = 10 * time.Second
)

// didNotStop is the end of a process that was killed because it did not stop.
const didNotStop = "did not stop"

// stop asks the process to stop. The mutex is held.
func (r *replica) stop(ctx context.Context) {
	if r.process == nil {
		return
	}
	r.asked = r.process
	patient, cancel := context.WithTimeout(ctx, r.fleet.patience)
	defer cancel()
	err := r.process.Stop(patient)
	select {
	case <-r.process.Done():
		lost := r.hasLost(r.process)
		young := r.process.ExitCode() == -1 // the signal came before it could listen
		if err != nil && !lost && !young {
			r.fleet.problem("replica %d stopped with exit code %d: %v\n%s", r.id, r.process.ExitCode(), err, tail(r.process.Log(), 20))
		}
	default:
		r.process.Kill()
		r.fleet.ended(didNotStop)
		if now := time.Now(); !r.unanswered(now.Add(-stopAnswered), now) {
			r.fleet.problem("replica %d did not stop within %s:\n%s", r.id, r.fleet.patience, tail(r.process.Log(), 20))
		}
	}
}

// unanswered reports whether there was a fault between the two by which the replica may wait for answers.
func (r *replica) unanswered(from, to time.Time) bool {
	return slices.ContainsFunc(r.fleet.incidents.between(from, to), func(i incident) bool {
		return i.user == r.installed.User && !slices.Contains(onProcesses, i.step.kind)
	})
}

// ended counts the end of a process.
func (f *fleet) ended(how string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endings[how]++
}

// kill kills the process. The mutex is held.
func (r *replica) kill() {
	if r.process != nil {
		r.asked = r.process
		r.process.Kill()
	}
}

// quit ends the process so that it prints what each of its goroutines is doing.
func (r *replica) quit() {
	r.mu.Lock()
	p := r.process
	r.asked = p
	r.mu.Unlock()
	if p == nil || p.Signal(syscall.SIGQUIT) != nil {
		return // it has just ended
	}
	select {
	case <-p.Done():
	case <-time.After(stopAnswered):
	}
}

// pause stops the process where it stands until ctx or the time ends.
func (r *replica) pause(ctx context.Context, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.process.Signal(syscall.SIGSTOP) // fails if it has just ended
	_ = sleep(ctx, d)
	_ = r.process.Signal(syscall.SIGCONT)
}

// log returns the last lines of the present process and of those before.
func (r *replica) log(lines int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := strings.Join(r.logs, "--- the next process ---\n")
	if r.process != nil {
		if present := r.process.Log(); !slices.Contains(r.logs, present) { // it has not ended, or nobody has noticed
			all += "--- the present process ---\n" + present
		}
	}
	return tail(all, lines)
}

func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// present returns the flags in force.
func (f *fleet) present() model.Flags {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flags
}

// changed reports whether the flags have changed since the round began.
func (f *fleet) changed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.inForce) > 1
}
