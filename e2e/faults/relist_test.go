package faults

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// What the cache takes in: case C42.

// TestC42Relist has the controller read everything anew, several times and in both ways. All is in sync, so
// nothing is written; and what is not in sync afterwards is still found.
func TestC42Relist(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{"watching": nil, "listing": listing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := suite.NewProxied(t, suite.New(t, "a", "b", "c"))
			targets := []string{w.NS("a"), w.NS("b"), w.NS("c")}
			w.StartProxied(env, "--copy-label=team", "--copy-annotation=example.com/*")
			binary := func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"b": {0, 0xff}, "empty": {}} }
			sources := []*corev1.ConfigMap{
				w.CreateSource(w.Home, "plain"),
				w.CreateSource(w.Home, "empty", suite.WithData(nil)),
				w.CreateSource(w.Home, "binary", binary),
				w.CreateSource(w.Home, "frozen", suite.SetImmutable),
				w.CreateSource(w.Home, "marked", suite.WithLabel("team", "x"), suite.WithAnnotation("example.com/y", "z"),
					suite.WithAnnotation("other", "z")),
			}
			for _, src := range sources {
				w.WaitInSync(src, targets...)
			}
			// Marks that a copy can carry, put there by a user.
			w.Edit(targets[0], "plain", suite.WithAnnotation("payload", "x"),
				suite.WithAnnotation("mirror-controller.github.io/payload", "x"))
			w.Settle(targets...)
			mark := w.AuditMark()
			for i, expire := range []func(){
				func() { w.Proxy.ExpireWatches() },
				func() { // and from the beginning: the last resourceVersion is not to be had
					for _, resource := range watched {
						w.Proxy.Inject(faultproxy.Rule{
							Verbs: []string{"watch", "list"}, Resources: []string{resource}, Count: 2, Fault: faultproxy.Fault{Kind: faultproxy.Gone},
						})
					}
					w.Proxy.EndWatches()
				},
			} {
				relists := w.Proxy.Inject(faultproxy.Rule{
					Resources: watched, When: faultproxy.Request.IsRelist, Fault: faultproxy.Fault{Kind: faultproxy.Pass},
				})
				expire()
				w.Await("a relist", func() bool { return relists.Fired() >= 2 && w.Proxy.Watches() == 2 })
				relists.Stop()
				late := w.NS(fmt.Sprintf("late-%d", i))
				w.CreateNamespace(late, nil)
				targets = append(targets, late)
				w.Settle(targets...)
				// Handlers pass over what a relist shows to be as it was. This has every copy compared.
				for n, src := range sources {
					sources[n] = w.Edit(w.Home, src.Name, suite.WithAnnotation("touched", fmt.Sprint(i)))
				}
				w.Settle(targets...)
				w.Settle(targets...)
			}
			for _, e := range w.RequestsSince(mark) {
				if slices.Contains(targets[:3], e.Object.Namespace) && slices.ContainsFunc(sources, named(e.Object.Name)) {
					t.Errorf("a request without need: %v", e)
				}
			}
			for _, src := range sources {
				w.WaitInSync(src, targets...)
			}
			w.Edit(targets[0], "plain", suite.WithData(map[string]string{"key": "wrong"}), suite.WithAnnotation("payload", "y"))
			w.Edit(targets[1], "binary", func(cm *corev1.ConfigMap) { cm.BinaryData["b"] = []byte{1} })
			w.Edit(targets[2], "empty", func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"payload": nil} })
			for _, src := range sources {
				w.WaitInSync(src, targets...)
			}
		})
	}
}

func named(name string) func(*corev1.ConfigMap) bool {
	return func(cm *corev1.ConfigMap) bool { return cm.Name == name }
}
