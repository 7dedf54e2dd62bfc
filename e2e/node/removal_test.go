package node

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// TestRemoval removes the controller with 2,000 copies by the documented commands: they succeed, and leave nothing but the
// sources, without their label.
func TestRemoval(t *testing.T) {
	w := newWorld(t)
	w.remove()
	before := w.everything()
	w.install()
	for i := range 20 {
		w.source(fmt.Sprintf("settings-%d", i), map[string]string{"key": "one"})
	}
	for i := range 20 {
		w.waitInSync(fmt.Sprintf("settings-%d", i), map[string]string{"key": "one"}, targets()...)
	}
	began := time.Now()
	w.remove()
	w.figure("removal with 2,000 copies", time.Since(began), 20*time.Second)
	after := w.everything()
	for i := range 20 {
		delete(after, fmt.Sprintf("configmaps platform/settings-%d", i))
	}
	if !maps.Equal(before, after) {
		maps.DeleteFunc(after, func(k string, _ bool) bool { return before[k] })
		t.Errorf("it leaves %v", slices.Sorted(maps.Keys(after)))
	}
}

// madeByTheCluster are objects that come and go without us: of the node, and some moments after each namespace.
var madeByTheCluster = regexp.MustCompile(`^leases kube-node-lease/|^configmaps .*/kube-root-ca.crt$|^serviceaccounts .*/default$`)

// everything are the names of all objects in the cluster but Events, Endpoints, and madeByTheCluster.
func (w *world) everything() map[string]bool {
	w.Helper()
	client, err := metadata.NewForConfig(w.node.admin)
	if err != nil {
		w.Fatal(err)
	}
	lists, err := w.admin.Discovery().ServerPreferredResources()
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]bool{}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			w.Fatal(err)
		}
		for _, r := range list.APIResources {
			if slices.Contains([]string{"events", "endpoints", "componentstatuses"}, r.Name) {
				continue
			}
			objects, err := client.Resource(group.WithResource(r.Name)).List(w.ctx, metav1.ListOptions{})
			if err != nil {
				w.Fatalf("%s: %v", r.Name, err)
			}
			for _, o := range objects.Items {
				if name := fmt.Sprintf("%s %s/%s", r.Name, o.Namespace, o.Name); !madeByTheCluster.MatchString(name) {
					out[name] = true
				}
			}
		}
	}
	return out
}
