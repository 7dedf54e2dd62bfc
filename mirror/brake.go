package mirror

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// isPrunable reports whether a copy may go for no other reason than the flags.
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
		if c.rules.decide(v, c.target(cm.Name, job{namespace: cm.Namespace})).byFlags {
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
