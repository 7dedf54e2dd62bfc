package mirror

// What histories need of the inside of a controller. All else judges it from outside.

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// reported returns what a Mirrored says of the source: whether it is about the present version, and how many targets
// are in sync, held and blocked.
func (e remark) reported(s *corev1.ConfigMap, flags *Options) (present bool, synced, held, blocked int) {
	number := func(key string) int {
		n, _ := strconv.Atoi(e.annotations[key])
		return n
	}
	for _, state := range []plan.State{plan.StateForeign, plan.StateSuperseded, plan.StateRejected, plan.StateFight} {
		blocked += number(plan.EventAnnotation(state))
	}
	present = e.annotations[plan.EventVersion] == s.ResourceVersion &&
		e.annotations[plan.InstanceAnnotation] == flags.Instance
	return present, number(plan.Domain + "/synced"), number(plan.Domain + "/held"), blocked
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
	c, err := New(h.server.Process(), l, o)
	if err != nil {
		h.t.Fatal(err)
	}
	c.RegisterMetrics(metrics.NewKubeRegistry()) // or they count nothing
	l.Controller = c
	ctx, cancel := context.WithCancel(klog.NewContext(h.t.Context(), logr.New(logSink{h, os.Getenv("HISTORIES") == "1"})))
	leads, lose := context.WithCancel(context.WithoutCancel(ctx))
	l.cancel, l.lose = cancel, lose
	go func() { l.ended <- c.Run(ctx, Leadership{Begun: l.begun}) }()
	late := before != nil && h.IntN(2) == 0
	if before != nil {
		time.Sleep(h.pause(4)) // the new one is a standby
	}
	if before != nil && !late {
		before.stop()
		time.Sleep(h.pause(4))
	}
	h.terms = append(h.terms, historyTerm{time.Now(), o})
	l.begun <- leads
	if late {
		time.Sleep(min(h.pause(8), lateLoss))
		before.lose()
		before.stop()
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

// Send records an event.
func (l *leader) Send(_ context.Context, e Event) error {
	l.h.sent(l.flags, remark{time.Now(), e.Regarding, e.UID, e.Reason, e.Note, e.Annotations})
	return nil
}

// targetState is what a controller knows of a target.
type targetState struct {
	state plan.State
	owner key // the source that state counts for
}

func (k targetState) String() string { return fmt.Sprintf("%v of %v", k.state, k.owner) }

// targetStates returns what the controller knows of each target.
func (c *Controller) targetStates() map[key]targetState {
	all := map[key]targetState{}
	c.targets.each(func(n *nameTargets) {
		for namespace, r := range n.known {
			all[key{Namespace: namespace, Name: n.name}] = targetState{r.state, r.owner}
		}
	})
	return all
}

// counts returns how many targets are in each state: of each source, and of all under the empty key.
func (c *Controller) counts() map[key]map[string]int {
	all := map[key]map[string]int{}
	for state := plan.StateSynced; state < plan.States; state++ {
		addTo(all, key{}, state.String(), c.targets.total(state))
	}
	c.targets.each(func(n *nameTargets) {
		for source, src := range n.sources {
			for state := plan.StateSynced; state < plan.States; state++ {
				addTo(all, source, state.String(), src.counts[state])
			}
		}
	})
	return all
}

// each calls f with the targets of each name, locked.
func (s *targets) each(f func(*nameTargets)) {
	s.mu.Lock()
	names := slices.Collect(maps.Values(s.names))
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
	left := map[string]int{"keys": c.copies.Len(), "names": c.sources.Len(),
		"reports": c.reports.Len(), "slow": c.slow.Len()}
	_, left["calls in flight"] = c.slow.Known()
	left["live reads"] = c.reconciler.live.Known()
	c.targets.each(func(n *nameTargets) {
		left["pending targets"] += n.pending
		for _, r := range n.known {
			// An object that the watch does not show is retried.
			if r.retry.outcome != outcome.Foreign && r.state != plan.StateForeign && r.state != plan.StateRejected &&
				r.retry != (retry{}) || r.write != (ownWrite{}) || r.unclaimed != (unclaimed{}) || r.busy {
				left[fmt.Sprintf("retries (%+v)", *r)]++
			}
		}
	})
	return left
}

// remembered returns what a controller knows of a cluster in which nothing is left.
func (c *Controller) remembered() map[string]int {
	left := c.leftOver()
	left["names with targets"] = len(c.targets.names)
	return left
}
