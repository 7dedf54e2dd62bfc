package mirror

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// stillController returns a controller that does not run, with these ConfigMaps and their namespaces in its caches. It
// mirrors into team-*.
func stillController(t testing.TB, edit func(*Options), configMaps ...*corev1.ConfigMap) *Controller {
	t.Helper()
	o := teamOptions()
	edit(o)
	c, err := New(fake.NewClientset(), &diary{}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.sources.ShutDown)
	t.Cleanup(c.copies.ShutDown)
	for _, cm := range configMaps {
		c.show(t, cm)
		c.showNamespace(t, plantest.Namespace(cm.Namespace))
	}
	return c
}

func noEdit(*Options) {}

// numbered returns prefix-000, prefix-001 and so on.
func numbered(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return all
}

// show puts a ConfigMap into the cache, as the watch does.
func (c *Controller) show(t testing.TB, cm *corev1.ConfigMap) {
	t.Helper()
	if err := c.cache.Put(cm); err != nil {
		t.Fatal(err)
	}
}

func (c *Controller) showNamespace(t testing.TB, ns *corev1.Namespace) {
	t.Helper()
	if err := c.cache.Put(ns); err != nil {
		t.Fatal(err)
	}
}
