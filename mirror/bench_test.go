package mirror

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// tenKiB returns a source of 10 KiB in ten keys, with metadata as tools leave it.
func tenKiB(name string) *corev1.ConfigMap {
	cm := plantest.Source("platform", name, plantest.Label("app", "web"),
		plantest.Annotation("note", "n"), plantest.Managed)
	cm.Data = map[string]string{}
	for i := range 10 {
		cm.Data[fmt.Sprintf("key-%d", i)] = strings.Repeat("x", 1024)
	}
	return cm
}

// loaded returns a controller that leads, with 100 sources, 10,000 namespaces, and all copies of the first source, in
// sync, in its caches.
func loaded(b *testing.B) *Controller {
	b.Helper()
	c := stillController(b, noEdit)
	for _, name := range numbered("settings", 100) {
		c.show(b, tenKiB(name))
	}
	for _, namespace := range numbered("team", 10_000) {
		c.showNamespace(b, plantest.Namespace(namespace))
		c.show(b, plantest.Copy(c.rules, tenKiB("settings-000"), namespace))
	}
	c.handlers.active.Store(true)
	return c
}

// BenchmarkStrip is what the cache does with each copy that comes in.
func BenchmarkStrip(b *testing.B) {
	r := teamRules()
	have := plantest.Copy(r, tenKiB("settings"), "team-a", plantest.Managed)
	b.ReportAllocs()
	for b.Loop() {
		cm := *have // Strip replaces maps and changes none
		r.Strip(&cm)
	}
}

// BenchmarkDecide is what a fan-out costs for each copy that is in sync.
func BenchmarkDecide(b *testing.B) {
	r := teamRules()
	have := plantest.Copy(r, tenKiB("settings"), "team-a")
	r.Strip(have)
	v := plan.NewView([]*plan.Source{r.ParseSource(tenKiB("settings"))})
	t := plan.Target{Key: settings("team-a"), Namespace: plantest.Namespace("team-a"), Have: have}
	b.ReportAllocs()
	for b.Loop() {
		if c := r.Decide(v, t); c.State != plan.StateSynced {
			b.Fatalf("got %v, want it in sync", c.State)
		}
	}
}

// BenchmarkFanOut is a fan-out to 10,000 targets that are in sync, as of a resync.
func BenchmarkFanOut(b *testing.B) {
	c := loaded(b)
	b.ReportAllocs()
	for b.Loop() {
		n := c.status.lock("settings-000")
		n.fanout = time.Time{}
		n.unlock()
		c.sources.Add("settings-000")
		c.fanout.run(b.Context(), "settings-000")
		if n := c.copies.Len(); n != 0 {
			b.Fatalf("got %d keys, want none", n)
		}
	}
	if n := c.status.total(plan.StateSynced); n != 10_000 {
		b.Fatalf("got %d copies in sync, want 10,000", n)
	}
}

// BenchmarkView is what comes before each decision: the sources of the name are read, and nothing has changed.
func BenchmarkView(b *testing.B) {
	for _, sources := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("%d sources of the name", sources), func(b *testing.B) {
			c := stillController(b, noEdit)
			for _, namespace := range numbered("platform", sources) {
				c.show(b, plantest.Source(namespace, "settings"))
			}
			c.cache.View("settings")
			b.ReportAllocs()
			for b.Loop() {
				c.cache.View("settings")
			}
		})
	}
}
