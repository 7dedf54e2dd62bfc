package mirror

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// handlers take in the events of the watches.
//
// An event about a source queues a fan-out of its name. An event that concerns
// one target, be it of a ConfigMap or of a namespace, decides about that target
// at once, and queues it if something is to be done. So no report counts the
// target without the event.
type handlers struct {
	*decider

	// active is set while the controller leads. Before that no event is handled: a
	// takeover plans everything.
	active atomic.Bool
}

// register has the cache call the handlers.
func (h *handlers) register() error {
	return h.cache.Handle(coreinformers.ConfigMapHandlerFuncs{
		AddFunc:    h.configMapAdded,
		UpdateFunc: h.configMapUpdated,
		DeleteFunc: h.configMapDeleted,
	}, coreinformers.NamespaceHandlerFuncs{
		AddFunc:    func(ns *corev1.Namespace) { h.namespaceChanged(ns.Name, ns) },
		UpdateFunc: h.namespaceUpdated,
		DeleteFunc: h.namespaceDeleted,
	})
}

func (h *handlers) configMapAdded(cm *corev1.ConfigMap) {
	if !h.active.Load() {
		return
	}
	if h.rules.AsksToBeMirrored(cm) {
		h.sourceChanged(cm)
	}
	h.targetChanged(plan.KeyOf(cm))
}

func (h *handlers) configMapUpdated(old, new *corev1.ConfigMap) {
	if !h.active.Load() {
		return
	}
	isSource := h.rules.AsksToBeMirrored(new)
	// After a restore of etcd another object may have the same resourceVersion.
	if old.UID == new.UID && old.ResourceVersion == new.ResourceVersion {
		if isSource { // a relist: an object that came and went since the last one has no event
			h.queues.sources.Add(new.Name)
		}
		return
	}
	switch {
	case isSource:
		h.sourceChanged(new)
	case h.rules.AsksToBeMirrored(old):
		h.queues.sources.Add(old.Name)
	}
	h.targetChanged(plan.KeyOf(new))
}

func (h *handlers) configMapDeleted(d coreinformers.DeletedConfigMap) {
	if !h.active.Load() {
		return
	}
	name := d.GetObjectName()
	if cm := d.OptionalObj; cm == nil || h.rules.AsksToBeMirrored(cm) {
		h.queues.sources.Add(name.Name)
	}
	h.targetChanged(key{Namespace: name.Namespace, Name: name.Name})
}

// sourceChanged handles a new state of a source, which ends the grace of each
// copy that the source claims. A source that holds a target, or is frozen, claims
// its copy there, too.
func (h *handlers) sourceChanged(cm *corev1.ConfigMap) {
	defer h.queues.sources.Add(cm.Name)
	if !h.rules.IsSource(cm) {
		return
	}
	n := h.records.lock(cm.Name)
	defer n.unlock()
	status := n.status(plan.KeyOf(cm))
	if status.changeAt.IsZero() {
		status.changeAt = time.Now()
	}
	// The cache may show a later state already, in which the claim is gone.
	view := sync.OnceValue(func() *plan.View {
		return plan.NewView([]*plan.Source{h.rules.ParseSource(cm)})
	})
	for namespace := range n.byNamespace {
		h.endGrace(n, h.cache.Target(key{Namespace: namespace, Name: n.name}), view)
	}
}

// endGrace ends the grace of a copy that a source of the view claims, even if the
// claim is gone before the next decision.
func (h *handlers) endGrace(n *nameRecords, target plan.Target, view func() *plan.View) {
	namespace := target.Key.Namespace
	known := n.byNamespace[namespace]
	if known == nil || known.unclaimed.uid == "" {
		return
	}
	if h.rules.Decide(view(), target).Op != plan.OpDelete {
		r := *known
		r.unclaimed = unclaimed{}
		n.set(namespace, r)
	}
}

// targetChanged handles an event about the ConfigMap at a target.
func (h *handlers) targetChanged(k key) {
	n := h.records.lock(k.Name)
	defer n.unlock()
	h.visitNow(n, k)
}

// visitNow decides about a target, and queues it before those of fan-outs if
// something is to be done. The event of our own write leaves nothing to do.
func (h *handlers) visitNow(n *nameRecords, k key) {
	if x := h.visit(n, k); x.act {
		h.queues.copies.AddFirst(k)
	}
}

func (h *handlers) namespaceUpdated(old, new *corev1.Namespace) {
	switch {
	case old.UID != new.UID:
		h.queues.slow.Forget(old.UID)
		h.namespaceChanged(new.Name, new)
	case plan.Terminating(old) != plan.Terminating(new), !maps.Equal(old.Labels, new.Labels):
		h.namespaceChanged(new.Name, new)
	}
}

func (h *handlers) namespaceDeleted(d coreinformers.DeletedNamespace) {
	if ns := d.OptionalObj; ns != nil {
		h.queues.slow.Forget(ns.UID)
	}
	h.namespaceChanged(d.GetName(), nil)
}

// namespaceChanged handles an event about a namespace: for each name that may get
// a copy there, and for each that has an object there. ns is nil if the namespace
// is gone.
func (h *handlers) namespaceChanged(namespace string, ns *corev1.Namespace) {
	if !h.active.Load() {
		return
	}
	names := map[string]bool{}
	if h.rules.AllowsTarget(namespace) {
		for _, name := range h.cache.SourceNames() {
			names[name] = true
		}
	}
	for _, cm := range h.cache.ConfigMapsIn(namespace) {
		names[cm.Name] = true
	}
	for name := range names {
		h.namespaceChangedAt(key{Namespace: namespace, Name: name}, ns)
	}
}

// namespaceChangedAt handles an event about a namespace for one target there.
func (h *handlers) namespaceChangedAt(k key, ns *corev1.Namespace) {
	n := h.records.lock(k.Name)
	defer n.unlock()
	target := h.cache.Target(k)
	view := h.cache.View(k.Name) // after the target
	if ns != nil {
		// The cache may show a later state already, in which the claim is gone.
		target.Namespace = ns
	}
	h.endGrace(n, target, func() *plan.View { return view })
	h.visitNow(n, k)
	if ns != nil {
		h.addExcluded(n, ns, view)
	}
}

// addExcluded is about sources that have no targets. To the rules that are reported
// of each it adds the one that keeps the source from this namespace. It looks at no
// other namespace.
func (h *handlers) addExcluded(n *nameRecords, ns *corev1.Namespace, view *plan.View) {
	for _, s := range view.Sources {
		status := n.sources[s.Key]
		if status == nil || status.excluded == nil {
			continue
		}
		more := h.rules.AlsoExcluded(status.excluded, s, ns)
		if !slices.Equal(more, status.excluded) {
			status.excluded = more
			n.reportSoon()
		}
	}
}
