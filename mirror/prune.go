package mirror

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// pruner applies the prune limit when the controller takes over: copies that the flags do not allow, while their source is
// there, are deleted, unless they are so many that a wrong flag is likely. Such copies that turn up later stay.
type pruner struct {
	rules    *plan.Rules
	caches   *caches
	limit    plan.Percent
	recorder EventRecorder
}

// judge sets the copies that may be pruned. It reports whether the limit blocks the deletion of all.
func (p *pruner) judge(ctx context.Context) (blocked bool) {
	verdict := p.rules.JudgePruning(p.caches, p.limit)
	p.caches.prunable = map[types.UID]bool{}
	if len(verdict.OutOfScope) == 0 {
		return false
	}
	logger := klog.FromContext(ctx).WithValues("outOfScope", len(verdict.OutOfScope), "copies", verdict.Copies, "pruneLimit", p.limit)
	if verdict.Blocked {
		logger.Error(nil, "More copies are out of scope of the flags than the prune limit allows to delete: none of them is deleted. "+
			"Check the flags for a mistake. To delete these copies, start with --prune-limit=100% until they are gone",
			"type", corev1.EventTypeWarning, "reason", ReasonPruneBlocked)
		for _, cm := range verdict.OutOfScope {
			if ns := p.caches.namespace(cm.Namespace); p.rules.Spares(verdict, ns) {
				p.caches.spared.Store(ns.Name, ns.UID)
			}
		}
		p.reportBlocked(verdict)
		return true
	}
	logger.Info("Deleting the copies that are out of scope of the flags")
	for _, cm := range verdict.OutOfScope {
		p.caches.prunable[cm.UID] = true
	}
	return false
}

// reportBlocked writes an event on each source of the copies.
func (p *pruner) reportBlocked(verdict plan.Pruning) {
	reported := map[key]bool{}
	for _, cm := range verdict.OutOfScope {
		owner, _ := p.rules.SourceOf(cm)
		source := p.caches.configMap(owner)
		if source == nil || reported[owner] {
			continue
		}
		reported[owner] = true
		p.recorder.AnnotatedEventf(source, nil, corev1.EventTypeWarning, ReasonPruneBlocked, "%s",
			pruneBlockedText(len(verdict.OutOfScope), verdict.Copies))
	}
}
