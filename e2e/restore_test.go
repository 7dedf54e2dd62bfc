package e2e

import (
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/outside"
)

// TestC58Restore restores etcd from a backup while the controller runs, as Kubernetes' docs say: with the API server stopped.
// Everything comes to be as the restored sources say, and nothing foreign is written to.
func TestC58Restore(t *testing.T) {
	t.Parallel()
	t.Run("revisions go on", func(t *testing.T) {
		t.Parallel()
		w := newRewound(t)
		p := w.run(nil, "--resync-period=0")
		w.backUpAndChange()
		w.restore(true, func() {})
		w.check()
		select {
		case <-p.Done():
			t.Error("the controller has ended")
		default:
		}
	})
	// The API server tells no watch that its revision is not there yet: what has a Lease ends without an API server, and is
	// started again.
	t.Run("revisions go back", func(t *testing.T) {
		t.Parallel()
		w := newRewound(t)
		c := w.newCandidate("first")
		w.proxied = newProxiedAs(t, w.world, c.kubeconfig)
		w.stand(c, w.proxy.Kubeconfig())
		w.Cleanup(w.proxy.Heal) // before the controller is stopped
		w.backUpAndChange()
		w.restore(false, func() { w.exits(c) })
		w.stand(c, w.proxy.Kubeconfig())
		w.check()
	})
}

// rewound is a world whose etcd is restored.
type rewound struct {
	*proxied
	a, b, unseen, late string                       // targets; late comes behind the backup
	backup             string                       // its folder
	sources            map[string]*corev1.ConfigMap // those of the backup, by name
	foreign            *corev1.ConfigMap            // in the way in b
	blind              *faultproxy.Injection        // keeps back the watch on ConfigMaps
}

func newRewound(t *testing.T) *rewound {
	s, err := newSite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &rewound{proxied: newProxied(t, newWorldAt(t, s, "a", "b", "unseen")), backup: filepath.Join(s.cluster.Dir(), "backup")}
	w.a, w.b, w.unseen, w.late = w.ns("a"), w.ns("b"), w.ns("unseen"), w.ns("late")
	w.foreign = w.create(w.b, "foreign")
	return w
}

// holdWrites keeps back the writes to ConfigMaps in the namespaces.
func (w *rewound) holdWrites(namespaces ...string) *faultproxy.Injection {
	return w.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"create", "update", "delete"}, Resources: []string{"configmaps"},
		When:  func(q faultproxy.Request) bool { return slices.Contains(namespaces, q.Namespace) },
		Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
}

// backUpAndChange takes a backup while the controller has something to do in each target, lets it do that, and changes much more.
// In the end the controller has written copies that its watch does not show.
func (w *rewound) backUpAndChange() {
	w.Helper()
	changed := withData(map[string]string{"key": "changed"})
	hidden := w.holdWrites(w.unseen)
	w.sources = map[string]*corev1.ConfigMap{}
	for _, name := range []string{"foreign", "quiet", "edited", "deleted", "behind", "left"} {
		w.sources[name] = w.createSource(w.home, name)
		w.waitInSync(w.sources[name], w.a)
	}
	w.waitInSync(w.sources["left"], w.b)
	hold := w.holdWrites(w.a, w.b)
	w.sources["behind"] = w.edit(w.home, "behind", changed)
	w.sources["missing"] = w.createSource(w.home, "missing")
	w.edit(w.home, "left", withoutLabel(w.label))
	delete(w.sources, "left")
	if err := w.cluster.Backup(w.backup); err != nil {
		w.Fatal(err)
	}
	hold.Stop()

	w.createNamespace(w.late, nil)
	foreign := w.edit(w.b, "foreign", changed)
	w.edit(w.a, "quiet", changed)
	w.delete(w.b, "quiet")
	w.delete(w.home, "deleted")
	now := []*corev1.ConfigMap{w.createSource(w.home, "created"), w.edit(w.home, "edited", changed)}
	for _, name := range []string{"quiet", "behind", "missing"} {
		now = append(now, w.sources[name])
	}
	for _, src := range now {
		w.waitInSync(src, w.a, w.b, w.late)
	}
	for _, name := range []string{"deleted", "left"} {
		w.waitGone(name, w.a, w.b)
	}
	w.untouched(foreign)

	w.blind = w.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"watch", "list"}, Resources: []string{"configmaps"}, Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
	w.proxy.CutWatches("configmaps")
	w.await("the watch is down", func() bool { return w.blind.Held() == 1 })
	hidden.Stop()
	for _, name := range []string{"quiet", "missing"} { // of the others it has an older state on its way
		w.waitInSync(w.sources[name], w.unseen)
	}
}

// restore puts the backup in the place of what there is, and runs what is to be done while there is no API server.
func (w *rewound) restore(goOn bool, away func()) {
	w.Helper()
	if err := w.cluster.Restore(w.ctx, w.backup, goOn, away); err != nil {
		w.Fatal(err)
	}
	var err error
	if w.seen, err = outside.Observe(w.background(), w.admin); err != nil { // the old one is as blind as a controller
		w.Fatal(err)
	}
	w.blind.Stop()
}

func (w *rewound) check() {
	w.Helper()
	w.createNamespace(w.late, nil)
	for _, src := range w.sources {
		targets := []string{w.a, w.b, w.unseen, w.late}
		if src.Name == w.foreign.Name {
			targets = slices.DeleteFunc(targets, func(namespace string) bool { return namespace == w.foreign.Namespace })
		}
		w.waitInSync(src, targets...)
	}
	for _, name := range []string{"created", "left"} {
		w.waitGone(name, w.a, w.b, w.unseen, w.late)
	}
	w.settle(w.a, w.b, w.unseen, w.late)
	w.untouched(w.foreign)
}
