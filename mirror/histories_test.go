package mirror

// Random histories in virtual time, on an API server that refuses what a real one refuses. They are the main tool
// against races: run with an overlay of package delay, time may pass between any two statements of the controller. The
// storm under e2e does the same with real parts; this does thousands while it does one.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/apitest/delay"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The world of a history. The first two source namespaces are no targets, and the last name is reserved.
var (
	historyNames      = []string{"settings", "config", "kube-root-ca.crt"}
	historySources    = []string{"platform", "base", "team-a", "team-b"}
	historyTargets    = []string{"team-a", "team-b", "team-c"}
	historyNamespaces = []string{"platform", "base", "team-a", "team-b", "team-c"}
)

// history is what happens to the sources of two names and their copies in three namespaces.
type history struct {
	*rand.Rand // of what happens now
	people
	seed        uint64
	only        []int         // numbers of the acts that are played; nil: all
	number      atomic.Uint64 // of the act that happens now
	options     *Options
	leader      *leader
	terms       []historyTerm
	faults      atomic.Pointer[faults]
	began       time.Time
	weights     []int         // of the acts before and at each
	names       []string      // of sources
	targets     []string      // where something happens
	sources     []string      // namespaces of sources
	latest      time.Duration // the longest time that a request and its answer took
	latestWatch time.Duration // the longest time by which a watch was late
	latestDelay time.Duration // the longest time that passed between two statements
	watchEnded  time.Time     // the last time that one was ended
	restores    []time.Time   // from a backup: resourceVersions come again

	removals sync.WaitGroup
	mu       sync.Mutex
	removing map[string]bool // namespaces
	requests map[apitest.Call][]time.Time
	findings []finding
	judged   time.Time // when what is judged happened; zero: now
	log      []done

	events, lines []remark

	rare rareState
}

// done is what an act did.
type done struct {
	number     int
	name, said string
}

// finding is something that a history must not show.
type finding struct{ kind, detail string }

const (
	outOfSync     = "a target is not as the sources ask"
	wrongStatus   = "the status differs from that of the judge"
	leftOver      = "something is left over"
	notQuiet      = "a quiet hour has requests"
	wrongWrite    = "a write was wrong"
	wrongDeletion = "a wanted copy was deleted"
	hotLoop       = "requests come without a pause"
)

func (h *history) found(kind, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := time.Now()
	if !h.judged.IsZero() {
		at = h.judged
	}
	h.findings = append(h.findings, finding{kind, fmt.Sprintf("%v: ", at.Sub(h.began)) + fmt.Sprintf(format, args...)})
}

// play plays the history of a seed, with some of its acts or, if only is nil, with
// all.
func play(t *testing.T, seed uint64, only []int) *history {
	h := &history{seed: seed, only: only, removing: map[string]bool{}}
	synctest.Test(t, func(t *testing.T) {
		h.people, h.began = people{apitest.NewServer(), t}, time.Now()
		h.draw(0)
		h.mix()
		last := 13 + h.IntN(30)
		h.begin()
		for number := 4; number <= last; number++ {
			h.draw(number)
			h.actAtRandom()
		}
		h.draw(last + 1)
		h.end()
		h.leave()
		h.leader.stop()
		h.audit()
	})
	return h
}

// draw begins an act. Each draws from a generator of its own, so that none
// changes where another is left out.
func (h *history) draw(number int) {
	h.number.Store(uint64(number))
	h.Rand = rand.New(rand.NewPCG(h.seed, uint64(number)))
}

// begin starts a controller with flags drawn by chance, and plays the first acts.
func (h *history) begin() {
	h.options = NewOptions()
	h.options.ResyncPeriod = 0
	if playsRare {
		h.options.ResyncPeriod = pick(h, 0, 10*time.Minute)
	}
	h.options.ConcurrentWrites, h.options.ConcurrentSources = 1+h.IntN(4), 1+h.IntN(2)
	h.options.CopyLabels = []string{"app", "app.kubernetes.io/*"}
	h.options.CopyAnnotations = pick(h, nil, []string{"note"}, []string{"no*"})
	h.options.DeletionGrace = pick(h, 0, time.Second, time.Second, 9*time.Second, 20*time.Second, 5*time.Minute)
	h.drawFlags(h.options)
	for _, name := range historyNamespaces {
		h.Namespaces.Put(historyNamespace(name))
	}
	h.faults.Store(&faults{})
	h.hook()
	delay.Set(func(string) { reached.Add(1) })
	h.draw(1)
	h.do("delay", (*history).delay)
	h.draw(2)
	if h.IntN(2) == 0 {
		h.do("be late", (*history).beLate)
	}
	h.leader = h.lead(h.options, nil)
	h.draw(3)
	h.do("write source", atSource((*history).writeSource))
}

// reached is how often a delay point was reached: never, if the code is not instrumented.
var reached atomic.Int64

// delay has time pass now and then at a delay point. That depends on the seed, the
// act, the point, and how often the point was reached during the act, and not on
// what other goroutines do.
func (h *history) delay() string {
	rarity := []uint64{0, 0, 400, 100, 30}[h.IntN(5)]
	longest := []time.Duration{time.Millisecond, 40 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}[h.IntN(4)]
	if rarity == 0 {
		return "nothing"
	}
	h.latestDelay = longest
	type pointInAct struct {
		number uint64
		point  string
	}
	var mu sync.Mutex
	times := map[pointInAct]uint64{}
	delay.Set(func(point string) {
		reached.Add(1)
		now := pointInAct{h.number.Load(), point}
		mu.Lock()
		times[now]++
		sum := uint64(crc32.ChecksumIEEE([]byte(point)))
		r := rand.New(rand.NewPCG(h.seed^now.number<<48, times[now]<<32|sum))
		mu.Unlock()
		if r.Uint64N(rarity) == 0 && !h.faults.Load().over {
			time.Sleep(time.Duration(1 + r.Int64N(int64(longest))))
		}
	})
	return fmt.Sprintf("of up to %v at one of %d statements", longest, rarity)
}

// historyTerm is the time from when a leader took over, and its flags.
type historyTerm struct {
	began time.Time
	flags *Options
}

// pause returns one of the first of some times.
func (h *history) pause(of int) time.Duration {
	milliseconds := []time.Duration{0, 1, 20, 70, 110, 300, 1200, 8000, 31_000, 70_000}
	d := milliseconds[h.IntN(of)] * time.Millisecond
	return d + time.Duration(h.Int64N(int64(d)/4+1))
}

// actAtRandom does one random thing, and waits for some time. Where the act is
// left out it waits all the same, so that the others keep their distance.
func (h *history) actAtRandom() {
	n := h.IntN(h.weights[len(h.weights)-1])
	a := acts[slices.IndexFunc(h.weights, func(sum int) bool { return n < sum })]
	wait, isLong := h.pause(pick(h, 4, 7, 10)), h.IntN(6) == 0
	h.do(a.name, a.do)
	time.Sleep(wait)
	if isLong {
		time.Sleep(5 * time.Minute)
		h.compare(false)
	}
}

// do does an act, unless it is left out.
func (h *history) do(name string, do func(*history) string) {
	number, at := int(h.number.Load()), time.Since(h.began)
	if h.only != nil && !slices.Contains(h.only, number) {
		return
	}
	d := done{number, name, fmt.Sprintf("%v: %s %s", at, name, do(h))}
	h.log = append(h.log, d)
	if printsLog {
		fmt.Println("act", d.number, d.said)
	}
}

// mix draws how likely each act is. A history with few kinds of acts gets further with them than one with all.
func (h *history) mix() {
	sum := 0
	for _, a := range acts {
		sum += a.weight * pick(h, 0, 1, 1, 4)
		h.weights = append(h.weights, sum)
	}
	if sum == 0 {
		h.weights[len(h.weights)-1] = 1
	}
	h.names, h.targets = historyNames[:pick(h, 1, 1, 1, 2, 2, 2, 3)], historyTargets[:1+h.IntN(3)]
	h.sources = historySources[:1+h.IntN(4)]
}

// end ends all faults, and compares what is there some hours later.
func (h *history) end() {
	h.removals.Wait()
	h.faults.Store(&faults{over: true})
	time.Sleep(30 * time.Minute)
	h.compare(true)
	before, version := h.Calls(), len(h.ConfigMaps.Changes())
	quiet := repeatsWithin + 5*time.Minute
	if awake := h.awake(quiet); awake > 9+3*len(historyNamespaces) && !slices.ContainsFunc(historyTargets, h.blockedAt) {
		h.found(notQuiet, "work in %d minutes of %v", awake, quiet) // it looks for events to repeat
	}
	for c, n := range h.Calls() {
		if n -= before[c]; n > 0 && !h.blockedAt(c.Namespace) {
			h.found(notQuiet, "%d × %v", n, c)
		}
	}
	if n := len(h.ConfigMaps.Changes()) - version; n > 0 {
		h.found(notQuiet, "%d changes", n)
	}
	h.compare(true)
	left := h.leader.leftOver()
	time.Sleep(time.Second) // the retry of a blocked target may have been on its way
	for what, n := range h.leader.leftOver() {
		if n = min(n, left[what]); n > 0 && len(h.findings) == 0 {
			h.found(leftOver, "%d %s", n, what)
		}
	}
	h.leader.planAll() // as a resync does: what holds is sent again
	time.Sleep(time.Minute)
	h.compareEvents() // by another process
}

// awake lets the time pass, and returns in how many of its minutes the controller did something: it reconciled or, if
// its code has delay points, ran at all.
func (h *history) awake(during time.Duration) (minutes int) {
	for range during / time.Minute {
		points, reconciles := reached.Load(), h.leader.reconciles()
		time.Sleep(time.Minute)
		if reached.Load() > points || h.leader.reconciles() > reconciles {
			minutes++
		}
	}
	return minutes
}

// leave deletes everything. A process that remembered what is gone would grow over the weeks.
func (h *history) leave() {
	for _, cm := range h.ConfigMaps.All() {
		h.change(apitest.KeyOf(cm), withoutFinalizers)
		h.delete(apitest.KeyOf(cm))
	}
	for _, name := range historyTargets {
		h.Terminate(name)
		h.Finalize(name)
	}
	time.Sleep(40 * time.Minute)
	synctest.Wait()
	left := h.leader.leftOver()
	left["names with targets"] = len(h.leader.records.byName)
	for what, n := range left {
		if n > 0 {
			h.found(leftOver, "%d %s after everything was deleted", n, what)
		}
	}
}

// leader is a controller that runs, and leads or will.
type leader struct {
	*Controller
	h      *history
	flags  *Options
	begun  chan context.Context
	cancel context.CancelFunc // asks it to stop
	lose   context.CancelFunc // takes the leadership away
	ended  chan error
}

// lead starts a controller. It takes over from the one that led before, which may be nil: after the end of that, or
// sooner, if that does not notice at once that it has lost its lease.
func (h *history) lead(o *Options, before *leader) *leader {
	l := &leader{h: h, flags: o, begun: make(chan context.Context, 1), ended: make(chan error, 1)}
	c, err := New(h.Process(), l, o)
	if err != nil {
		h.t.Fatal(err)
	}
	c.RegisterMetrics(metrics.NewKubeRegistry()) // or they count nothing
	l.Controller = c
	ctx, cancel := context.WithCancel(klog.NewContext(h.t.Context(), logr.New(logSink{h, printsLog})))
	leads, lose := context.WithCancel(context.WithoutCancel(ctx))
	l.cancel, l.lose = cancel, lose
	go func() { l.ended <- c.Run(ctx, Leadership{Begun: l.begun}) }()
	late := before != nil && h.IntN(2) == 0
	if before != nil {
		time.Sleep(h.pause(4)) // the new one is a standby
		if !late {
			before.stop()
			time.Sleep(h.pause(4))
		}
	}
	h.terms = append(h.terms, historyTerm{time.Now(), o})
	h.countRequests(!late)
	l.begun <- leads
	if late {
		time.Sleep(min(h.pause(8), lateLoss))
		before.lose()
		before.stop()
		h.countRequests(true)
	}
	return l
}

// reconciles returns how often the controller has reconciled a copy.
func (l *leader) reconciles() (n float64) {
	for _, result := range reconcileResults {
		count, err := testutil.GetCounterMetricValue(l.metrics.reconciles.WithLabelValues(queueName, result))
		if err != nil {
			l.h.t.Error(err)
		}
		n += count
	}
	return n
}

// stop stops a controller, and waits for its end.
func (l *leader) stop() {
	l.cancel()
	<-l.ended
	l.lose()
}

// Send judges an event when it is sent, and records it when it has arrived.
func (l *leader) Send(ctx context.Context, e Event) error {
	if e.Reason == plan.ReasonMirrored {
		l.h.judgeMirrored(l.flags, l.remarkOf(e))
	}
	if err := l.h.sendEvent(ctx); err != nil {
		return err
	}
	l.h.sent(l.remarkOf(e))
	return nil
}

// remarkOf returns an event as a remark of now.
func (l *leader) remarkOf(e Event) remark {
	return remark{time.Now(), l, e.Regarding, e.UID, e.Reason, e.Note, e.Annotations}
}

// targetStates returns how each target stands, as the controller knows it.
func (c *Controller) targetStates() map[key]standing {
	all := map[key]standing{}
	c.records.each(func(n *nameRecords) {
		for namespace, r := range n.byNamespace {
			all[key{Namespace: namespace, Name: n.name}] = r.standing
		}
	})
	return all
}

// counts returns how many targets are in each state: of each source, and of all under the empty key.
func (c *Controller) counts() map[key]map[string]int {
	all := map[key]map[string]int{}
	for state := plan.StateSynced; state < plan.States; state++ {
		addTo(all, key{}, state.String(), c.records.total(state))
	}
	c.records.each(func(n *nameRecords) {
		for source, src := range n.sources {
			for state := plan.StateSynced; state < plan.States; state++ {
				addTo(all, source, state.String(), src.counts[state])
			}
		}
	})
	return all
}

// each calls f with the targets of each name, locked.
func (s *records) each(f func(*nameRecords)) {
	s.mu.Lock()
	names := slices.Collect(maps.Values(s.byName))
	s.mu.Unlock()
	for _, n := range names {
		n.mu.Lock()
		f(n)
		n.mu.Unlock()
	}
}

// leftOver returns what a controller at rest has left of its work.
func (c *Controller) leftOver() map[string]int {
	synctest.Wait()
	left := map[string]int{"keys": c.queues.copies.Len(), "names": c.queues.sources.Len(),
		"reports": c.queues.reports.Len(), "slow": c.queues.slow.Len(),
		"calls in flight": entries(c.queues.slow, "inFlight"),
		"live reads":      entries(c.reconciler.live, "known")}
	c.records.each(func(n *nameRecords) {
		left["pending targets"] += n.pending
		for _, r := range n.byNamespace {
			// An object that the watch does not show is retried.
			isRetried := r.retry.outcome == outcome.Foreign || r.state == plan.StateForeign || r.state == plan.StateRejected
			hasRetry := r.retry != (retry{altered: r.retry.altered})
			// The last write goes with the next decision, and where admission altered the copy there is none.
			hasWrite := r.lastWrite != (ownWrite{})
			if (hasRetry || hasWrite) && !isRetried || r.unclaimed != (unclaimed{}) || r.busy {
				left[fmt.Sprintf("retries (%+v)", *r)]++
			}
		}
	})
	return left
}

// entries returns the number of entries of a map that is a private field: a leak shows nowhere else.
func entries(of any, field string) int { return reflect.ValueOf(of).Elem().FieldByName(field).Len() }

// TestHistories plays $HISTORIES histories, or 50, from $HISTORIES_SEED on. A seed that fails fails again. With `make
// histories` time passes also between the statements of the controller, HISTORIES_ACTS=all adds rare acts, and
// HISTORIES_ONLY=2,5,9 leaves out all acts but these.
// Cases C08, C15, C24, C29, C31, C40, C43, C52, C62, C65, C74, C75, C76 and C84.
func TestHistories(t *testing.T) {
	count, err := strconv.ParseUint(cmp.Or(os.Getenv("HISTORIES"), "50"), 10, 64)
	first, seedErr := strconv.ParseUint(cmp.Or(os.Getenv("HISTORIES_SEED"), "1"), 10, 64)
	only, onlyErr := parseOnly(os.Getenv("HISTORIES_ONLY"))
	if err := errors.Join(err, seedErr, onlyErr); err != nil {
		t.Fatal(err)
	}
	before, shrinks := reached.Load(), os.Getenv("HISTORIES") != "" && only == nil
	for seed := first; seed < first+count; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			h := play(t, seed, only)
			if len(h.findings) == 0 {
				return
			}
			t.Errorf("%v\n%s plays a history with delays again", h, h.command())
			if shrinks { // one failure of a process, for it takes long
				t.Error(h.shrink(t))
				shrinks = false
			}
		})
	}
	if reached.Load() > before {
		return
	}
	if os.Getenv("HISTORIES") != "" {
		t.Error("no delay point was reached: run the histories by make histories")
	}
	t.Log("no delay point was reached: nobody has seen whether a controller at rest does more than reconcile")
}

// command returns the command that plays a history again, with the log of the controller.
func (h *history) command() string {
	s := fmt.Sprint("make histories HISTORIES=1 HISTORIES_SEED=", h.seed)
	if playsRare {
		s += " HISTORIES_ACTS=all"
	}
	if h.only != nil {
		s += " HISTORIES_ONLY=" + formatOnly(h.only)
	}
	return s
}

// String returns what happened and what was found, without the findings of a kind
// after the first five.
func (h *history) String() string {
	var b strings.Builder
	all := map[string]int{}
	for _, f := range h.findings {
		if all[f.kind]++; all[f.kind] <= 5 {
			fmt.Fprintf(&b, "%s: %s\n", f.kind, f.detail)
		}
	}
	fmt.Fprintf(&b, "    The controller begins with %s. Acts:\n", inWords(h.terms[0].flags))
	for _, d := range h.log {
		fmt.Fprintf(&b, "    %3d  %s\n", d.number, d.said)
	}
	return b.String()
}
