package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
	"github.com/mirror-controller/mirror-controller/mirror/internal/liveread"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/internal/queue"
	"github.com/mirror-controller/mirror-controller/mirror/internal/slow"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Controller keeps the copies of all sources in sync. [New] makes one, and
// [Controller.Run] starts it.
type Controller struct {
	*decider
	opts       *Options
	metrics    *controllerMetrics
	handlers   *handlers
	reconciler *reconciler
	reporter   *reporter
	synced     atomic.Bool
}

// New returns a controller with these options, which must be valid, and with
// the permissions of client. The client must not throttle: the controller
// bounds its writes itself.
//
// New does no I/O. It fails only if an informer refuses its configuration.
func New(client kubernetes.Interface, events EventSender, opts *Options) (*Controller, error) {
	rules := plan.NewRules(&opts.Options)
	m := newControllerMetrics()
	watched, err := cache.New(client, rules, opts.Label)
	if err != nil {
		return nil, fmt.Errorf("set up informers: %w", err)
	}
	q := &queues{
		sources: newNameQueue("sources"),
		copies:  queue.NewCopies(queueName),
		slow:    slow.NewQueue(queueName+"-slow", outcome.IsAnswered),
		reports: newNameQueue("reports"),
		events:  newNameQueue("events"),
	}
	d := &decider{
		rules:   rules,
		cache:   watched,
		records: &records{reports: q.reports, byName: map[string]*nameRecords{}},
		queues:  q,
		grace:   opts.DeletionGrace,
	}
	c := &Controller{
		decider:  d,
		opts:     opts,
		metrics:  m,
		handlers: &handlers{decider: d},
		reporter: &reporter{
			decider: d,
			metrics: m,
			events:  events,
			due:     &dueSources{namespaces: q.events, byNamespace: map[string][]key{}},
		},
		reconciler: &reconciler{
			decider:   d,
			metrics:   m,
			live:      liveread.New(client, rules.Strip, requestTimeout),
			writer:    &writer{client: client, rules: rules, metrics: m},
			restored:  make(restored, restoredBurst),
			undeleted: rate.Sometimes{Interval: time.Minute},
		},
	}
	if err := c.handlers.register(); err != nil {
		return nil, fmt.Errorf("add event handlers: %w", err)
	}
	return c, nil
}

// newNameQueue returns a queue whose keys are names.
func newNameQueue(name string) workqueue.TypedDelayingInterface[string] {
	return workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[string]{Name: queueName + "-" + name})
}

// RegisterMetrics registers the metrics of the controller, before it runs. It
// panics if the registry has one of them. Gauges of sources and copies are zero
// before the controller leads, and from its stop on.
func (c *Controller) RegisterMetrics(registry metrics.KubeRegistry) {
	c.metrics.register(registry, c.opts.ConcurrentWrites)
	c.registerGauges(registry)
}

// activeSources iterates over all sources, while the controller leads.
func (c *Controller) activeSources(yield func(*plan.Source) bool) {
	if !c.handlers.active.Load() {
		return
	}
	for _, name := range c.cache.SourceNames() {
		for _, s := range c.cache.View(name).Sources {
			if !yield(s) {
				return
			}
		}
	}
}

// activeTargets returns how many targets are in a state, while the controller
// leads: at a stop the next leader begins to count them.
func (c *Controller) activeTargets(state plan.State) int {
	if !c.handlers.active.Load() {
		return 0
	}
	return c.records.total(state)
}

// Leadership says when a controller may write. Of several that share an
// instance, one at a time leads.
type Leadership struct {
	// Begun delivers, once, a context when the controller is to lead. The end
	// of that context is the loss of the leadership, and ends the writes in
	// flight at once.
	Begun <-chan context.Context
	// Resign, unless it is nil, is called when the last write has ended after a
	// stop, so that another process need not wait until Run has returned. It is
	// not called after a loss.
	Resign func()
}

// Alone is the leadership of a controller that shares its instance with no
// other: it begins at once, and is never lost.
func Alone(ctx context.Context) Leadership {
	begun := make(chan context.Context, 1)
	begun <- context.WithoutCancel(ctx)
	return Leadership{Begun: begun}
}

// ErrLeadershipLost is the error of [Controller.Run] after its leadership was
// lost.
var ErrLeadershipLost = errors.New("leadership lost")

// Run watches, and mirrors while it leads, until ctx ends. Then it begins no
// more writes, waits for those in flight, and up to three seconds for events on
// their way, and returns nil. If the leadership is lost it cancels the writes
// in flight, and returns ErrLeadershipLost when they have ended. Run can be
// called once.
func (c *Controller) Run(ctx context.Context, leadership Leadership) error {
	defer c.stopReporting()
	defer c.stopWriting()
	// The watches go on until the last write has ended.
	watchCtx, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	c.cache.Start(watchCtx)
	if !c.cache.WaitForSync(ctx) {
		return nil
	}
	c.synced.Store(true)
	select {
	case <-ctx.Done():
		return nil
	case term := <-leadership.Begun:
		return c.lead(ctx, term, leadership.Resign)
	}
}

// stopWriting shuts down the queues whose keys end in writes.
func (c *Controller) stopWriting() {
	c.queues.sources.ShutDown()
	c.queues.copies.ShutDown()
	c.queues.slow.ShutDown()
}

// stopReporting shuts down the queues whose keys end in lines and events.
func (c *Controller) stopReporting() {
	c.queues.reports.ShutDown()
	c.queues.events.ShutDown()
}

// Synced reports whether the caches hold everything that was there when the
// controller started.
func (c *Controller) Synced() bool { return c.synced.Load() }

// Interrupted returns for how long a watch of the controller has been
// interrupted, of its two watches the longest time; 0: both are established.
// While one is interrupted the controller decides by what it saw before.
func (c *Controller) Interrupted() (longest time.Duration) {
	for _, resource := range cache.Resources {
		longest = max(longest, c.cache.Interrupted(resource))
	}
	return longest
}

// lead decides and writes until ctx or term ends and the last write in flight
// has ended. After a stop it resigns, and waits for the messages on their way.
func (c *Controller) lead(ctx, term context.Context, resign func()) error {
	// ctx ends at a stop, and with the term: nothing is begun after that. writes
	// ends with the term alone: a stop cancels no write.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	writes, cancelWrites := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelWrites()
	forgetTerm := context.AfterFunc(term, func() {
		stop()
		cancelWrites()
	})
	defer forgetTerm()
	logger := klog.FromContext(ctx)
	logger.Info("Mirroring", "instance", c.opts.Instance,
		"namespacePrefixes", c.opts.NamespacePrefixes, "allNamespaces", c.opts.AllNamespaces)
	c.takeOver()
	if why := c.rules.WithoutTarget(c.cache.Namespaces()); why != "" {
		logger.Info(why)
	}
	writers := c.startWriters(ctx, writes)
	reporters := &sync.WaitGroup{}
	start(ctx, reporters, reportWorkers, c.queues.reports, func(name string) {
		c.reporter.report(writes, name)
	})
	start(ctx, reporters, eventWorkers, c.queues.events, func(namespace string) {
		c.reporter.sendNext(writes, namespace)
	})

	<-ctx.Done()
	c.handlers.active.Store(false)
	c.stopWriting()
	writers.Wait()
	if term.Err() != nil {
		c.stopReporting()
		reporters.Wait()
		return ErrLeadershipLost
	}
	logger.Info("Stopped, no write in flight")
	if resign != nil {
		resign()
	}
	// A message that is not on its way may be old: no event was handled since
	// the stop.
	c.stopReporting()
	defer time.AfterFunc(eventsEnd, cancelWrites).Stop()
	reporters.Wait()
	return nil
}

// startWriters starts all that decides and writes, until ctx ends. Writes that
// have begun go on until writes ends.
func (c *Controller) startWriters(ctx, writes context.Context) *sync.WaitGroup {
	workers := &sync.WaitGroup{}
	start(ctx, workers, c.opts.ConcurrentSources, c.queues.sources, c.fanOut)
	start(ctx, workers, c.opts.ConcurrentWrites, c.queues.copies, func(k key) {
		c.reconciler.reconcile(ctx, writes, k, slow.Ordinary)
	})
	for _, pace := range []slow.Pace{slow.Growing, slow.Whole} {
		start(ctx, workers, slow.Workers, c.queues.slow, func(namespace types.UID) {
			c.reconciler.turn(ctx, writes, namespace, pace)
		})
	}
	workers.Go(func() { c.resync(ctx) })
	workers.Go(func() { c.reconciler.restored.work(ctx, c.reporter.events) })
	return workers
}

// start starts n workers. They call f for each key of a queue until it is shut
// down and empty. After the end of ctx they only empty it.
func start[T comparable](
	ctx context.Context, workers *sync.WaitGroup, n int, q workqueue.TypedInterface[T], f func(T)) {
	for range n {
		workers.Go(func() {
			for k, shutdown := q.Get(); !shutdown; k, shutdown = q.Get() {
				if ctx.Err() == nil {
					f(k)
				}
				q.Done(k)
			}
		})
	}
}

// takeOver plans everything: sources may have changed while no process led.
func (c *Controller) takeOver() {
	// This comes first. Otherwise a source that goes meanwhile would be remembered
	// for ever.
	c.handlers.active.Store(true)
	for s := range c.activeSources {
		c.handlers.sourceChanged(s.ConfigMap)
	}
	c.planAll()
}

// planAll starts a fan-out for every name of a source or a copy.
func (c *Controller) planAll() {
	for _, name := range c.cache.Names() {
		c.queues.sources.Add(name)
	}
}

// resync plans everything every ResyncPeriod.
func (c *Controller) resync(ctx context.Context) {
	for c.opts.ResyncPeriod > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(c.opts.ResyncPeriod):
			c.planAll()
		}
	}
}
