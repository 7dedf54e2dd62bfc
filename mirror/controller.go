package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
	"github.com/mirror-controller/mirror-controller/mirror/internal/lanes"
	"github.com/mirror-controller/mirror-controller/mirror/internal/liveread"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outbox"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/internal/queue"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Controller keeps the copies of all sources in sync. [New] makes one, and [Controller.Run] starts it.
type Controller struct {
	opts    *Options
	rules   *plan.Rules
	cache   *cache.Cache
	status  *status
	metrics *controllerMetrics

	sources *queue.Sources
	copies  *queue.Copies

	handlers   *handlers
	fanout     *fanout
	reconciler *reconciler
	selfCheck  *selfCheck

	repeatPeriod time.Duration // 0: events are never repeated

	synced atomic.Bool
}

// EventRecorder records events on ConfigMaps, as the recorders of client-go's tools/record do. A call may wait for a
// moment: only other events wait for it.
type EventRecorder interface {
	AnnotatedEventf(regarding runtime.Object, annotations map[string]string, eventtype, reason, format string, args ...any)
}

// newOutbox returns an outbox whose events go to the recorder.
func newOutbox(recorder EventRecorder) *outbox.Outbox {
	return outbox.New(func(e outbox.Event) {
		recorder.AnnotatedEventf(objectOf(e.Regarding, e.UID), e.Annotations, e.Type, e.Reason, "%s", e.Note)
	})
}

// New returns a controller with these options, which must be valid, and with the permissions of client. The client must
// not throttle below the writes it should make. Events go to recorder, which may wait for a moment.
//
// New does no I/O. It fails only if an informer refuses its configuration.
func New(client kubernetes.Interface, recorder EventRecorder, opts *Options) (*Controller, error) {
	rules, m := plan.NewRules(&opts.Options), newControllerMetrics()
	watched, err := cache.New(client, rules, opts.Label, m.watchFailed)
	if err != nil {
		return nil, fmt.Errorf("set up informers: %w", err)
	}
	sources, copies := queue.NewSources(queueName+"-sources"), queue.NewCopies(queueName)
	status, self := newStatus(), newSelfCheck(client, rules, watched, opts.Namespace)
	d := &decider{rules: rules, cache: watched, status: status, grace: opts.DeletionGrace}
	l, out := lanes.New(opts.ConcurrentWrites, copies.Contended, outcome.IsAnswer), newOutbox(recorder)
	c := &Controller{
		opts: opts, rules: rules, cache: watched, status: status, metrics: m, sources: sources, copies: copies,
		handlers: &handlers{rules: rules, cache: watched, status: status, sources: sources, copies: copies, lanes: l},
		fanout: &fanout{decider: d, sources: sources, copies: copies,
			reporter: &reporter{rules: rules, cache: watched, status: status, grace: d.grace, outbox: out, metrics: m}},
		reconciler: &reconciler{
			decider: d, lanes: l, outbox: out, live: liveread.New(client, rules.Strip, requestTimeout, readBackoff),
			writer:  &writer{client: client, rules: rules, metrics: m},
			metrics: m, selfCheck: self, copies: copies, sources: sources, undeleted: rate.Sometimes{Interval: time.Minute},
		},
		selfCheck: self, repeatPeriod: repeatPeriod,
	}
	if err := c.handlers.register(); err != nil {
		return nil, fmt.Errorf("add event handlers: %w", err)
	}
	return c, nil
}

// RegisterMetrics registers the metrics of the controller, before it runs. It panics if the registry has some of these
// names already. Gauges of sources and copies are zero before the controller leads.
func (c *Controller) RegisterMetrics(registry Registry) {
	c.metrics.register(registry, c.opts.ConcurrentWrites)
	registry.MustRegister(c.selfCheck.confined)
	registerGauges(registry, c.activeSources, c.status.total)
}

// activeSources iterates over all sources, once the controller leads.
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

// Leadership says when a controller may write. Of several that share an instance, one at a time leads.
type Leadership struct {
	// Begun delivers, once, a context when the controller is to lead. The end of that context is the loss of the
	// leadership, and ends the writes in flight at once.
	Begun <-chan context.Context
	// Valid is asked right before each write is handed to the client, which may hold it for its throttle and send it
	// again when the API server asks for that. No write is handed over while it returns false.
	Valid func() bool
	// Resign, unless it is nil, is called when the last write has ended after a stop, so that another process need not
	// wait until Run has returned. It is not called after a loss.
	Resign func()
}

// Alone is the leadership of a controller that shares its instance with no other: it begins at once and is never lost.
// The end of ctx stops such a controller, and is no loss.
func Alone(ctx context.Context) Leadership {
	begun := make(chan context.Context, 1)
	begun <- context.WithoutCancel(ctx)
	return Leadership{Begun: begun, Valid: func() bool { return true }}
}

// ErrLeadershipLost is the error of [Controller.Run] after its leadership was lost.
var ErrLeadershipLost = errors.New("leadership lost")

// Run watches, and mirrors while it leads, until ctx ends. Then it begins no more writes, waits for those in flight,
// and returns nil. If the leadership is lost it returns ErrLeadershipLost as soon as the writes in flight, which are
// cancelled, have ended. Run can be called once.
func (c *Controller) Run(ctx context.Context, leadership Leadership) error {
	defer c.copies.ShutDown()
	defer c.sources.ShutDown()
	// The watches go on until the last write has ended.
	watchCtx, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		stopWatching()
		c.cache.WaitForStop()
	}()
	c.cache.Start(watchCtx)
	if !c.cache.WaitForSync(ctx) {
		return nil
	}
	c.synced.Store(true)
	c.reconciler.writer.valid = leadership.Valid
	select {
	case <-ctx.Done():
		return nil
	case term := <-leadership.Begun:
		err := c.lead(ctx, term)
		if err == nil && leadership.Resign != nil {
			leadership.Resign()
		}
		return err
	}
}

// Synced reports whether the caches hold everything that was there when the controller started.
func (c *Controller) Synced() bool { return c.synced.Load() }

// lead decides and writes until ctx or term ends and the last write in flight has ended.
func (c *Controller) lead(ctx, term context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(term, stop)()
	klog.FromContext(ctx).Info("Mirroring", "instance", c.opts.Instance,
		"namespacePrefixes", c.opts.NamespacePrefixes, "allNamespaces", c.opts.AllNamespaces)
	c.takeOver(ctx)
	if why := c.rules.WithoutTarget(c.cache.Namespaces()); why != "" {
		klog.FromContext(ctx).Info(why)
	}
	var workers sync.WaitGroup
	for range c.opts.ConcurrentSources {
		workers.Go(func() { c.fanout.work(ctx) })
	}
	for range c.reconciler.lanes.Workers() {
		workers.Go(func() { c.reconciler.work(ctx, term) })
	}
	workers.Go(func() { c.resync(ctx) })
	workers.Go(func() { c.repeatEvents(ctx) })
	workers.Go(func() { c.selfCheck.work(ctx) })
	workers.Go(func() { c.fanout.reporter.outbox.Work(ctx) })
	<-ctx.Done()
	c.handlers.active.Store(false)
	c.sources.ShutDown()
	c.copies.ShutDown()
	workers.Wait()
	if term.Err() != nil {
		return ErrLeadershipLost
	}
	c.fanout.reporter.outbox.Flush(ctx)
	klog.FromContext(ctx).Info("Stopped, no write in flight")
	return nil
}

// takeOver plans everything.
func (c *Controller) takeOver(ctx context.Context) {
	c.handlers.active.Store(true) // first: a source that goes meanwhile would be remembered for ever
	for k := range c.cache.Sources() {
		c.status.sourceChanged(k) // perhaps while no process led
	}
	c.planAll()
}

// planAll starts a fan-out for every name of a source or a copy.
func (c *Controller) planAll() {
	for _, name := range c.cache.Names() {
		c.sources.Add(name)
	}
}

// resync plans everything every ResyncPeriod.
func (c *Controller) resync(ctx context.Context) {
	for c.opts.ResyncPeriod > 0 && sleep(ctx, c.opts.ResyncPeriod) {
		c.planAll()
	}
}

// repeatPeriod is the time within which every event that still holds is repeated: the API server forgets an event after
// an hour, by default.
const repeatPeriod = 30 * time.Minute

// repeatEvents repeats the events of each name within every repeatPeriod. It looks six times in a period, takes the names
// that have not been repeated for four sixths of it, and spreads them over the sixth that follows.
func (c *Controller) repeatEvents(ctx context.Context) {
	step := c.repeatPeriod / 6
	for step > 0 && sleep(ctx, step) {
		names := c.status.sortedNames()
		for i, name := range names {
			n := c.status.lock(name)
			due := n.repeat(4*step, time.Now())
			n.unlock()
			if due {
				c.sources.AddReport(name, step*time.Duration(i)/time.Duration(len(names)))
			}
		}
	}
}
