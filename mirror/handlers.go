package mirror

import (
	"cmp"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// handlers map each event to keys: the name of the sources that it concerns, and the targets that it shows.
type handlers struct {
	*base

	// active is set while the controller leads. Before that no event needs a key: a takeover plans everything.
	active atomic.Bool
}

// register has the cache call the handlers.
func (h *handlers) register() error {
	return h.cache.Handle(coreinformers.ConfigMapHandlerFuncs{
		AddFunc:    h.configMapAdded,
		UpdateFunc: h.configMapUpdated,
		DeleteFunc: h.configMapDeleted,
	}, coreinformers.NamespaceHandlerFuncs{
		AddFunc:    func(ns *corev1.Namespace) { h.namespaceChanged(ns.Name, ns, true) },
		UpdateFunc: h.namespaceUpdated,
		DeleteFunc: func(d coreinformers.DeletedNamespace) {
			if d.OptionalObj != nil {
				h.slow.Forget(d.OptionalObj.UID)
			}
			h.namespaceChanged(d.GetName(), nil, false)
		},
	})
}

func (h *handlers) configMapAdded(cm *corev1.ConfigMap) {
	if !h.active.Load() {
		return
	}
	if h.rules.AsksToBeMirrored(cm) {
		h.sourceChanged(cm)
	}
	h.targetChanged(plan.KeyOf(cm), cm, false)
}

func (h *handlers) configMapUpdated(old, new *corev1.ConfigMap) {
	if !h.active.Load() {
		return
	}
	source := h.rules.AsksToBeMirrored(new)
	if old.UID == new.UID && old.ResourceVersion == new.ResourceVersion {
		if source { // a relist: of an object that came and went since the last one there is no event
			h.sources.Add(new.Name)
		}
		return
	}
	switch {
	case source:
		h.sourceChanged(new)
	case h.rules.AsksToBeMirrored(old):
		h.sources.Add(old.Name)
	}
	if old.UID != new.UID { // a deletion without an event of its own
		h.observe(plan.KeyOf(old), old, true)
	}
	h.targetChanged(plan.KeyOf(new), new, false)
}

func (h *handlers) configMapDeleted(d coreinformers.DeletedConfigMap) {
	if !h.active.Load() {
		return
	}
	name, cm := d.GetObjectName(), d.OptionalObj
	k := key{Namespace: name.Namespace, Name: name.Name}
	if cm == nil || h.rules.AsksToBeMirrored(cm) {
		h.sources.Add(k.Name)
	}
	h.targetChanged(k, cm, true)
}

// sourceChanged handles a new state of a source, which ends the grace of each copy that the source claims.
func (h *handlers) sourceChanged(cm *corev1.ConfigMap) {
	defer h.sources.Add(cm.Name)
	if !h.rules.IsSource(cm) {
		return
	}
	n := h.targets.lock(cm.Name)
	defer n.unlock()
	if src := n.ofSource(plan.KeyOf(cm)); src.changeAt.IsZero() {
		src.changeAt = time.Now()
	}
	view := sync.OnceValue(func() *plan.View { return plan.NewView([]*plan.Source{h.rules.ParseSource(cm)}) })
	for namespace := range n.known {
		h.endGrace(n, namespace, nil, view)
	}
}

// endGrace ends the grace of a copy that a source of the view claims, also if the claim is gone before the next
// decision. ns is the namespace of the copy; nil: as the cache has it.
func (h *handlers) endGrace(n *nameTargets, namespace string, ns *corev1.Namespace, view func() *plan.View) {
	known := n.known[namespace]
	if known == nil || known.unclaimed.uid == "" {
		return
	}
	at := h.cache.Target(key{Namespace: namespace, Name: n.name})
	at.Namespace = cmp.Or(ns, at.Namespace)
	if t := *known; h.rules.Decide(view(), at).Op != plan.OpDelete {
		t.unclaimed = unclaimed{}
		n.set(namespace, t)
	}
}

// targetChanged handles an event about the ConfigMap at a target: cm, or its deletion.
func (h *handlers) targetChanged(k key, cm *corev1.ConfigMap, deleted bool) {
	if h.observe(k, cm, deleted) {
		h.copies.AddFirst(k)
	}
}

func (h *handlers) observe(k key, cm *corev1.ConfigMap, deleted bool) (reconcile bool) {
	n := h.targets.lock(k.Name)
	defer n.unlock()
	return n.observe(k.Namespace, cm, deleted)
}

func (h *handlers) namespaceUpdated(old, new *corev1.Namespace) {
	switch {
	case old.UID != new.UID:
		h.slow.Forget(old.UID)
		h.namespaceChanged(new.Name, new, true)
	case plan.Terminating(old) != plan.Terminating(new) || !maps.Equal(old.Labels, new.Labels):
		h.namespaceChanged(new.Name, new, false)
	}
}

// namespaceChanged queues each target in the namespace that needs more than a decision, and each copy there. ns is nil
// if it is gone.
func (h *handlers) namespaceChanged(namespace string, ns *corev1.Namespace, appeared bool) {
	if !h.active.Load() {
		return
	}
	if h.rules.AllowsTarget(namespace) {
		for _, name := range h.cache.SourceNames() {
			if k := (key{Namespace: namespace, Name: name}); h.namespaceSeen(k, ns, appeared) {
				h.copies.AddFirst(k)
			}
		}
	}
	for _, cm := range h.cache.ConfigMapsIn(namespace) {
		h.copies.AddFirst(plan.KeyOf(cm))
	}
}

// namespaceSeen records what an event about a namespace means for a target there: no report counts without it. It
// reports whether there is more to do.
func (h *handlers) namespaceSeen(k key, ns *corev1.Namespace, appeared bool) bool {
	n := h.targets.lock(k.Name)
	defer n.unlock()
	if appeared {
		n.appear(k.Namespace, ns.UID)
	}
	view := func() *plan.View { return h.cache.View(k.Name) }
	h.endGrace(n, k.Namespace, ns, view)
	x := h.decide(n, k, view, time.Now())
	if len(x.view.Sources) > 1 {
		n.reportSoon() // a superseded source may select another number of namespaces
	}
	return x.act || x.wait > 0
}
