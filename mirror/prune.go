package mirror

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// pruner applies the prune limit when the controller takes over: copies that the flags do not allow, while their source is
// there, are deleted, unless they are so many that a wrong flag is likely. Such copies that turn up later stay.
type pruner struct {
	rules    *plan.Rules
	caches   *caches
	limit    plan.Percent
	recorder events.EventRecorder
}

// judge sets the copies that may be pruned. It reports whether the limit blocks the deletion of all.
func (p *pruner) judge(ctx context.Context) (blocked bool) {
	outOfScope := p.outOfScope()
	p.caches.prunable = map[types.UID]bool{}
	if len(outOfScope) == 0 {
		return false
	}
	copies := len(outOfScope) + p.wanted()
	logger := klog.FromContext(ctx).WithValues("outOfScope", len(outOfScope), "copies", copies, "pruneLimit", p.limit)
	if p.limit.Exceeded(len(outOfScope), copies) {
		logger.Error(nil, "More copies are out of scope of the flags than the prune limit allows to delete: none of them is deleted. "+
			"Check the flags for a mistake. To delete these copies, start with --prune-limit=100% until they are gone",
			"type", corev1.EventTypeWarning, "reason", ReasonPruneBlocked)
		for _, cm := range outOfScope {
			if ns := p.caches.namespace(cm.Namespace); ns != nil && !p.rules.Selects(ns) {
				p.caches.spared.Store(ns.Name, ns.UID)
			}
		}
		p.reportBlocked(outOfScope, copies)
		return true
	}
	logger.Info("Deleting the copies that are out of scope of the flags")
	for _, cm := range outOfScope {
		p.caches.prunable[cm.UID] = true
	}
	return false
}

// outOfScope returns the copies that only the flags rule out: their source is there and asks to be mirrored.
func (p *pruner) outOfScope() (found []*corev1.ConfigMap) {
	for _, obj := range p.caches.configMaps.GetIndexer().List() {
		cm := obj.(*corev1.ConfigMap)
		t := p.caches.target(plan.KeyOf(cm))
		t.Prunable = true
		if p.rules.Decide(p.caches.view(cm.Name), t).Prune {
			found = append(found, cm)
		}
	}
	return found
}

// wanted returns how many copies the sources want. It counts no objects: anybody can forge those.
func (p *pruner) wanted() (n int) {
	for _, name := range p.caches.sourceNames() {
		v := p.caches.view(name)
		for _, obj := range p.caches.namespaces.GetIndexer().List() {
			if p.rules.Winner(v, obj.(*corev1.Namespace)) != nil {
				n++
			}
		}
	}
	return n
}

// reportBlocked writes an event on each source of the copies.
func (p *pruner) reportBlocked(outOfScope []*corev1.ConfigMap, copies int) {
	reported := map[key]bool{}
	for _, cm := range outOfScope {
		owner, _ := p.rules.SourceOf(cm)
		source := p.caches.configMap(owner)
		if source == nil || reported[owner] {
			continue
		}
		reported[owner] = true
		p.recorder.Eventf(source, nil, corev1.EventTypeWarning, ReasonPruneBlocked, actionPrune, "%s",
			pruneBlockedText(len(outOfScope), copies))
	}
}
