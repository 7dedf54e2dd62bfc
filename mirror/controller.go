package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Names of the indexes on the ConfigMaps that carry the mirror label.
const (
	byName     = "name"   // every one of them, by its name
	bySource   = "source" // those that ask to be mirrored, by their name
	queueLabel = "mirror" // the name label of the queue's metrics
)

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

	parsedMu sync.Mutex
	parsed   map[cache.ObjectName]*source
}

// New returns a controller that mirrors by the options, which must be valid, with the rights of client. The
// client must not throttle below the writes it should make. Events on sources go to recorder.
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

// watchConfigMaps prepares the one watch that carries sources and copies, in one order, and no other
// ConfigMap of the cluster.
func (c *Controller) watchConfigMaps(client kubernetes.Interface) error {
	selector := fmt.Sprintf("%s in (%s,%s)", c.rules.label, SourceValue, CopyValue)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }),
		informers.WithTransform(func(obj any) (any, error) {
			if cm, ok := obj.(*corev1.ConfigMap); ok {
				c.rules.strip(cm)
			}
			return obj, nil
		}))
	c.factories = append(c.factories, factory)
	c.configMaps = factory.Core().V1().ConfigMaps().TypedInformer()
	if err := c.configMaps.SetWatchErrorHandlerWithContext(c.watchErrorHandler(configMapsResource)); err != nil {
		return err
	}
	err := c.configMaps.AddTypedIndexers(coreinformers.ConfigMapIndexers{
		byName: func(cm *corev1.ConfigMap) ([]string, error) { return []string{cm.Name}, nil },
		bySource: func(cm *corev1.ConfigMap) ([]string, error) {
			if !c.rules.asksToBeMirrored(cm) {
				return nil, nil
			}
			return []string{cm.Name}, nil
		},
	})
	if err != nil {
		return err
	}
	handler, err := c.configMaps.AddTypedEventHandler(coreinformers.ConfigMapHandlerFuncs{
		AddFunc:    c.configMapSeen,
		UpdateFunc: c.configMapUpdated,
		DeleteFunc: c.configMapDeleted,
	})
	c.handlers = append(c.handlers, handler)
	return err
}

func (c *Controller) watchNamespaces(client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTransform(func(obj any) (any, error) {
			if ns, ok := obj.(*corev1.Namespace); ok {
				ns.ManagedFields, ns.Annotations = nil, nil
				ns.Name = intern(ns.Name)
			}
			return obj, nil
		}))
	c.factories = append(c.factories, factory)
	c.namespaces = factory.Core().V1().Namespaces().TypedInformer()
	if err := c.namespaces.SetWatchErrorHandlerWithContext(c.watchErrorHandler(namespacesResource)); err != nil {
		return err
	}
	handler, err := c.namespaces.AddTypedEventHandler(coreinformers.NamespaceHandlerFuncs{
		AddFunc:    func(ns *corev1.Namespace) { c.namespaceSeen(ns.Name) },
		UpdateFunc: c.namespaceUpdated,
		DeleteFunc: func(ns coreinformers.DeletedNamespace) { c.namespaceGone(ns.GetName()) },
	})
	c.handlers = append(c.handlers, handler)
	return err
}

// Leadership says when a controller may write. Of several that share their work, one at a time leads.
type Leadership struct {
	// Begun delivers, once, a context when the controller is to lead. The end of that context is the loss of the
	// leadership, and ends the writes in flight at once.
	Begun <-chan context.Context
	// Valid is asked right before each write; none is sent while it does not hold.
	Valid func() bool
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
		return c.lead(ctx, term)
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
			c.writer.sweep(c.cacheVersion())
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

// The handlers only map an event to the name of its sources, and to the target of it that needs a look.

func (c *Controller) configMapUpdated(old, new *corev1.ConfigMap) {
	if old.UID == new.UID && old.ResourceVersion == new.ResourceVersion {
		return // a relist, and nothing new in it
	}
	c.configMapChanged(old)
	c.configMapSeen(new)
	if old.UID != new.UID {
		c.writer.deleted(old.UID) // its deletion has no event of its own
	}
	if !c.rules.isSource(new) {
		c.forgetSource(cache.MetaObjectToName(new))
	}
}

// configMapSeen is configMapChanged for the present state of one.
func (c *Controller) configMapSeen(cm *corev1.ConfigMap) {
	if c.active.Load() && c.rules.isSource(cm) {
		c.latencies.sourceChanged(cache.MetaObjectToName(cm))
	}
	c.configMapChanged(cm)
}

func (c *Controller) configMapChanged(cm *corev1.ConfigMap) {
	if c.rules.asksToBeMirrored(cm) {
		c.looks.forget(cache.MetaObjectToName(cm))
		c.markAll(cm.Name)
	}
	c.mark(cm.Name, cm.Namespace, mark{})
}

func (c *Controller) configMapDeleted(d coreinformers.DeletedConfigMap) {
	key, cm := d.GetObjectName(), d.OptionalObj
	source, copied := true, true // of an object that is not known any more, either
	if cm != nil {
		source = c.rules.asksToBeMirrored(cm)
		_, copied = c.rules.sourceOf(cm)
		copied = !c.writer.deleted(cm.UID) && copied
	}
	if source {
		c.forgetSource(key)
		if c.active.Load() {
			c.looks.vanished(key) // who takes over later begins with a look of his own
		}
		c.markAll(key.Name)
	}
	c.mark(key.Name, key.Namespace, mark{vanished: copied})
}

func (c *Controller) namespaceUpdated(old, new *corev1.Namespace) {
	switch {
	case old.UID != new.UID:
		c.namespaceGone(old.Name)
		c.namespaceSeen(new.Name)
	case terminating(old) != terminating(new) || !maps.Equal(old.Labels, new.Labels):
		c.namespaceChanged(new.Name)
	}
}

// namespaceSeen is namespaceChanged for a new one.
func (c *Controller) namespaceSeen(namespace string) {
	if c.active.Load() && c.rules.allowsTarget(namespace) {
		c.latencies.namespaceSeen(namespace, c.configMaps.GetTypedIndexer().ListIndexFuncValues(bySource))
	}
	c.namespaceChanged(namespace)
}

func (c *Controller) namespaceGone(namespace string) {
	c.retries.forgetNamespace(namespace)
	c.fights.forgetNamespace(namespace)
	c.latencies.forgetNamespace(namespace)
	c.namespaceChanged(namespace)
}

// namespaceChanged makes the namespace due for every source, and for every copy in it.
func (c *Controller) namespaceChanged(namespace string) {
	if !c.active.Load() || !c.rules.allowsTarget(namespace) {
		return
	}
	indexer := c.configMaps.GetTypedIndexer()
	for _, name := range indexer.ListIndexFuncValues(bySource) {
		c.mark(name, namespace, mark{})
	}
	copies, _ := indexer.ByTypedIndex(cache.NamespaceIndex, namespace)
	for _, cm := range copies {
		c.mark(cm.Name, namespace, mark{})
	}
}

func (c *Controller) mark(name, namespace string, m mark) {
	if c.active.Load() {
		c.backlog.mark(name, namespace, m)
		c.queue.Add(name)
	}
}

func (c *Controller) markAll(name string) {
	if c.active.Load() {
		c.backlog.markAll(name)
		c.queue.Add(name)
	}
}

// What the reconciler reads from the caches.

// view returns the sources of a name, by precedence, as the cache has them now.
func (c *Controller) view(name string) view {
	v := view{name: name, prunable: c.isPrunable}
	found, _ := c.configMaps.GetTypedIndexer().ByTypedIndex(bySource, name)
	for _, cm := range found {
		if s := c.readSource(cm); s.outside {
			v.outsiders = append(v.outsiders, s)
		} else {
			v.sources = append(v.sources, s)
		}
	}
	sortSources(v.sources)
	return v
}

// readSource reads a source, or returns what was read from that very object before.
func (c *Controller) readSource(cm *corev1.ConfigMap) *source {
	key := cache.MetaObjectToName(cm)
	c.parsedMu.Lock()
	s := c.parsed[key]
	c.parsedMu.Unlock()
	if s != nil && s.cm == cm {
		return s
	}
	s = c.rules.readSource(cm) // may hash a megabyte: not under the lock
	c.parsedMu.Lock()
	defer c.parsedMu.Unlock()
	c.parsed[key] = s
	return s
}

// sweepParsed forgets what was read of sources that have gone meanwhile.
func (c *Controller) sweepParsed() {
	c.parsedMu.Lock()
	defer c.parsedMu.Unlock()
	for key, s := range c.parsed {
		if c.cachedConfigMap(key) != s.cm {
			delete(c.parsed, key)
		}
	}
}

func (c *Controller) forgetSource(key cache.ObjectName) {
	c.parsedMu.Lock()
	defer c.parsedMu.Unlock()
	delete(c.parsed, key)
}

// target returns what the caches have about one target of a name.
func (c *Controller) target(name string, j job) target {
	key := cache.ObjectName{Namespace: j.namespace, Name: name}
	return target{
		namespace: j.namespace,
		object:    c.cachedNamespace(j.namespace),
		have:      c.cachedConfigMap(key),
		vanished:  j.vanished || c.retries.vanished(key),
	}
}

func (c *Controller) cachedNamespace(name string) *corev1.Namespace {
	obj, _, _ := c.namespaces.GetIndexer().GetByKey(name)
	ns, _ := obj.(*corev1.Namespace)
	return ns
}

func (c *Controller) cachedConfigMap(key cache.ObjectName) *corev1.ConfigMap {
	obj, _, _ := c.configMaps.GetIndexer().GetByKey(key.String())
	cm, _ := obj.(*corev1.ConfigMap)
	return cm
}

// cacheVersion returns the resourceVersion up to which the cache has seen all ConfigMaps; empty if client-go
// does not tell.
func (c *Controller) cacheVersion() string {
	return c.configMaps.GetIndexer().LastStoreSyncResourceVersion()
}

// open reports whether the cache shows the namespace and does not show it going away.
func (c *Controller) open(namespace string) bool {
	ns := c.cachedNamespace(namespace)
	return ns != nil && !terminating(ns)
}

// targetsOf returns the namespaces that a round for a name has to visit: those that the flags allow, and
// those where something of that name is.
func (c *Controller) targetsOf(name string) []string {
	set := map[string]bool{}
	indexer := c.configMaps.GetTypedIndexer()
	sources, _ := indexer.ByTypedIndex(bySource, name)
	if slices.ContainsFunc(sources, c.rules.isSource) {
		for _, namespace := range c.namespaces.GetIndexer().ListKeys() {
			if c.rules.allowsTarget(namespace) {
				set[namespace] = true
			}
		}
	}
	found, _ := indexer.ByTypedIndex(byName, name)
	for _, cm := range found {
		set[cm.Namespace] = true
	}
	return slices.Collect(maps.Keys(set))
}

func (c *Controller) isPrunable(cm *corev1.ConfigMap) bool { return c.prunable[cm.UID] }

// judgeStrangers decides, once, about the copies that the flags do not allow while their source is still
// there: those of an earlier start with other flags go, unless they are so many that a mistake is likely.
// Strangers that turn up later are somebody else's, and are left alone.
func (c *Controller) judgeStrangers(ctx context.Context) {
	strangers, copies := c.strangers()
	logger := klog.FromContext(ctx).WithValues("outside", len(strangers), "copies", copies, "pruneLimit", c.opts.PruneLimit)
	c.prunable = map[types.UID]bool{}
	switch {
	case c.opts.PruneLimit.exceeded(len(strangers), copies):
		logger.Error(nil, "Not deleting the copies that lie outside the flags, for they are too many: is a flag wrong? "+
			"If they are to go, start once with --prune-limit=100%")
		c.blocked.Store(true)
		c.tellBlocked(strangers, copies)
		return
	case len(strangers) > 0:
		logger.Info("Deleting the copies that lie outside the flags")
	}
	for _, cm := range strangers {
		c.prunable[cm.UID] = true
	}
}

// strangers returns the copies that would go because the flags do not allow them although their source asks to be
// mirrored, and how many copies of ours there are.
func (c *Controller) strangers() (strangers []*corev1.ConfigMap, copies int) {
	for _, obj := range c.configMaps.GetIndexer().List() {
		cm := obj.(*corev1.ConfigMap)
		owner, ours := c.rules.sourceOf(cm)
		if !ours {
			continue
		}
		copies++
		if c.rules.allowsSource(owner.Namespace) && c.rules.allowsTarget(cm.Namespace) {
			continue
		}
		v := c.view(cm.Name)
		v.prunable = func(*corev1.ConfigMap) bool { return true }
		if c.rules.decide(v, c.target(cm.Name, job{namespace: cm.Namespace})).byFlags() {
			strangers = append(strangers, cm)
		}
	}
	return strangers, copies
}

// tellBlocked tells the sources of the strangers that these stay.
func (c *Controller) tellBlocked(strangers []*corev1.ConfigMap, copies int) {
	told := map[cache.ObjectName]bool{}
	for _, cm := range strangers {
		owner, _ := c.rules.sourceOf(cm)
		source := c.cachedConfigMap(owner)
		if source == nil || told[owner] {
			continue
		}
		told[owner] = true
		c.recorder.Eventf(source, nil, corev1.EventTypeWarning, ReasonPruneBlocked, actionPrune, "%s",
			sayPruneBlocked(len(strangers), copies))
	}
}

// watchErrorHandler returns a handler that says once a minute why a watch cannot be had: for each resource what
// the API server answers, and once for all if it does not answer. The informer tries again by itself, with a
// backoff that grows to 30 seconds.
func (c *Controller) watchErrorHandler(resource string) cache.WatchErrorHandlerWithContext {
	refused := &rate.Sometimes{Interval: time.Minute}
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		logger := klog.FromContext(ctx)
		switch {
		case ctx.Err() != nil: // we are stopping
			return
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err), isEndOfWatch(err):
			logger.V(4).Info("Watch ended, beginning anew", "resource", resource, "reason", err)
			return
		}
		c.measures.watchErrors.WithLabelValues(resource).Inc()
		if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			c.unreachable.Do(func() {
				logger.Error(err, "Cannot reach the API server, trying again until it works")
			})
			return
		}
		refused.Do(func() {
			logger.Error(err, "Cannot watch, trying again until it works", "resource", resource)
		})
	}
}

// isEndOfWatch reports whether a watch ended as watches do: the API server closes each after some minutes.
func isEndOfWatch(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
