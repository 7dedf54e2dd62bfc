package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// queueLabel is the name label of the queue's metrics.
const queueLabel = "mirror"

// Controller keeps the copies of all sources in line. Construct it with [New]; it does nothing before
// [Controller.Run].
type Controller struct {
	opts     *Options
	rules    *rules
	recorder events.EventRecorder
	writer   *writer
	looks    *looks

	factories  []informers.SharedInformerFactory
	configMaps coreinformers.ConfigMapIndexInformer
	namespaces coreinformers.NamespaceIndexInformer
	handlers   []cache.ResourceEventHandlerRegistration

	queue   workqueue.TypedInterface[string]
	backlog *backlog
	retries *retries
	fights  *fights
	ledger  *ledger

	measures  *measures
	latencies *latencies

	slots  chan struct{}  // one for each write in flight
	slow   chan struct{}  // one for each of them at a target that refuses, which may take its time to do so
	writes sync.WaitGroup // the writes in flight

	// active is set while the controller decides and writes. Before that the handlers have nothing to do:
	// taking over starts a round for every name.
	active   atomic.Bool
	synced   atomic.Bool
	prunable map[types.UID]bool // copies outside the flags that were judged when the process took over
	blocked  atomic.Bool        // they were too many

	unreachable rate.Sometimes // limits how often it is said that the API server does not answer
	undeleted   rate.Sometimes // limits how often it is said that copies cannot be deleted

	reporting sync.Mutex // held while it is said what is new

	parsedMu sync.Mutex
	parsed   map[cache.ObjectName]*source
}

// New returns a controller that mirrors by the options, which must be valid, with the rights of client. The
// client must not throttle below the writes it should make. Events on sources go to recorder, in the order in which things
// came to be so; it must not block.
//
// New does no I/O. It fails only if an informer refuses its configuration.
func New(client kubernetes.Interface, recorder events.EventRecorder, opts *Options) (*Controller, error) {
	r, m := newRules(opts), newMeasures()
	c := &Controller{
		opts:     opts,
		rules:    r,
		recorder: recorder,
		writer:   newWriter(client, r, m),
		looks:    newLooks(client, requestTimeout),
		queue:    workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: queueLabel}),
		backlog:  newBacklog(),
		retries:  newRetries(),
		fights:   newFights(),
		ledger:   newLedger(r.label),
		slots:    make(chan struct{}, opts.ConcurrentWrites),
		slow:     make(chan struct{}, max(1, opts.ConcurrentWrites/4)),
		parsed:   map[cache.ObjectName]*source{},

		measures:  m,
		latencies: newLatencies(),

		unreachable: rate.Sometimes{Interval: time.Minute},
		undeleted:   rate.Sometimes{Interval: time.Minute},
	}
	if err := c.watchConfigMaps(client); err != nil {
		return nil, fmt.Errorf("watch ConfigMaps: %w", err)
	}
	if err := c.watchNamespaces(client); err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	return c, nil
}

// Leadership says when a controller may write. Of several that share their work, one at a time leads.
type Leadership struct {
	// Begun delivers, once, a context when the controller is to lead. The end of that context is the loss of the
	// leadership, and ends the writes in flight at once.
	Begun <-chan context.Context
	// Valid is asked right before each write is handed to the client, which may hold it for its throttle and send it again
	// when the API server asks for that. None is handed over while it does not hold.
	Valid func() bool
	// Resign, unless it is nil, is called when the last write has ended after a stop, so that another need not wait
	// until Run has returned. After a loss it is not called.
	Resign func()
}

// Alone is the leadership of a controller that shares its work with no other: it begins at once and is not lost,
// also not by the end of ctx, which is how such a controller is stopped.
func Alone(ctx context.Context) Leadership {
	begun := make(chan context.Context, 1)
	begun <- context.WithoutCancel(ctx)
	return Leadership{Begun: begun, Valid: func() bool { return true }}
}

// ErrLeadershipLost is the error of [Controller.Run] after its leadership was lost.
var ErrLeadershipLost = errors.New("leadership lost")

// Run watches, and mirrors as long as it leads, until ctx ends. Then it begins no more writes, waits for those in
// flight, and returns nil. If the leadership is lost it returns ErrLeadershipLost as soon as the writes in flight,
// which are cancelled, have ended. Run can be called once.
func (c *Controller) Run(ctx context.Context, leadership Leadership) error {
	defer c.retries.queue.ShutDown()
	defer c.queue.ShutDown()
	// The watches go on until the last write has ended.
	watchCtx, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		stopWatching()
		c.waitForInformers()
	}()
	for _, f := range c.factories {
		f.StartWithContext(watchCtx)
	}
	var checkers []cache.DoneChecker
	for _, h := range c.handlers {
		checkers = append(checkers, h.HasSyncedChecker())
	}
	if !cache.WaitFor(ctx, "", checkers...) {
		return nil
	}
	c.synced.Store(true)
	c.writer.valid = leadership.Valid
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

// informerPatience bounds the wait for informers to end. In the backoff after a 429, client-go does not listen
// for the end of its context for up to 30 seconds, and there is nothing to lose by not waiting for that.
const informerPatience = time.Second

func (c *Controller) waitForInformers() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, f := range c.factories {
			f.Shutdown()
		}
	}()
	select {
	case <-ended:
	case <-time.After(informerPatience):
	}
}

// Synced reports whether the caches have taken in all that was there when the controller started.
func (c *Controller) Synced() bool { return c.synced.Load() }

// lead decides and writes until ctx or term ends and the last write in flight with it.
func (c *Controller) lead(ctx, term context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(term, stop)()
	klog.FromContext(ctx).Info("Mirroring", "instance", c.opts.Instance,
		"namespacePrefixes", c.opts.NamespacePrefixes, "allNamespaces", c.opts.AllNamespaces)
	c.takeOver(ctx)
	var workers sync.WaitGroup
	for range c.opts.ConcurrentSources {
		workers.Go(func() { c.work(ctx, term) })
	}
	workers.Go(c.wakeRetries)
	workers.Go(func() { c.tick(ctx) })
	<-ctx.Done()
	c.active.Store(false)
	c.queue.ShutDown()
	c.retries.queue.ShutDown()
	workers.Wait()
	c.writes.Wait()
	if term.Err() != nil {
		return ErrLeadershipLost
	}
	klog.FromContext(ctx).Info("Stopped, no write in flight")
	return nil
}

// takeOver judges the copies outside the flags and starts a round for every name.
func (c *Controller) takeOver(ctx context.Context) {
	c.judgeStrangers(ctx)
	c.active.Store(true)
	for _, obj := range c.configMaps.GetIndexer().List() {
		if cm := obj.(*corev1.ConfigMap); c.rules.isSource(cm) {
			c.latencies.sourceChanged(cache.MetaObjectToName(cm)) // perhaps it has, while nobody led
		}
	}
	c.lookAtAll()
}

// lookAtAll starts a round for every name of a source or a copy.
func (c *Controller) lookAtAll() {
	for _, name := range c.configMaps.GetIndexer().ListIndexFuncValues(byName) {
		c.markAll(name)
	}
}

// sweepPeriod is the time between two sweeps of what is no longer needed.
const sweepPeriod = 30 * time.Second

// tick starts the periodic rounds and throws away what is no longer needed.
func (c *Controller) tick(ctx context.Context) {
	sweep := time.NewTicker(sweepPeriod)
	defer sweep.Stop()
	var resync <-chan time.Time
	if c.opts.ResyncPeriod > 0 {
		ticker := time.NewTicker(c.opts.ResyncPeriod)
		defer ticker.Stop()
		resync = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			c.looks.sweep()
			c.sweepParsed()
			for _, target := range c.writer.sweep(c.cacheVersion()) {
				if c.cachedConfigMap(target) == nil {
					// It may have gone before a relist, which then tells of nothing, or have lost its label.
					c.mark(target.Name, target.Namespace, mark{vanished: true, deleted: true})
				}
			}
			c.fights.sweep()
		case <-resync:
			c.lookAtAll()
		}
	}
}

func (c *Controller) work(ctx, term context.Context) {
	for c.workOnNext(ctx, term) {
	}
}

func (c *Controller) workOnNext(ctx, term context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if ctx.Err() == nil {
		done := c.measures.working()
		done(c.reconcile(ctx, term, name))
	}
	return true
}

// wakeRetries makes targets due again whose time has come.
func (c *Controller) wakeRetries() {
	for {
		target, m, more := c.retries.next()
		if !more {
			return
		}
		c.mark(target.Name, target.Namespace, m)
	}
}

// acquire waits for a slot for the writes at a target, and returns what gives it back: nil if ctx ends before,
// or if the slots that targets which refuse, or hang, may have are all taken (crowded), so that one bad target, or many,
// never hold up the others.
func (c *Controller) acquire(ctx context.Context, at cache.ObjectName) (release func(), crowded bool) {
	release = func() { <-c.slots }
	if c.retries.holdsUp(at) {
		select {
		case c.slow <- struct{}{}:
			release = func() { <-c.slots; <-c.slow }
		default:
			return nil, ctx.Err() == nil
		}
	}
	if ctx.Err() == nil {
		select {
		case c.slots <- struct{}{}:
			return release, false
		case <-ctx.Done():
		}
	}
	return nil, false // and what was taken does not matter any more
}
