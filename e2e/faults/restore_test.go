package faults

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/outside"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestC58Restore restores etcd from a backup while the controller runs, as Kubernetes' docs say: with the API server
// stopped. Everything comes to be as the restored sources say, and nothing foreign is written to. Case C34.
func TestC58Restore(t *testing.T) {
	t.Parallel()
	t.Run("revisions go on", func(t *testing.T) {
		t.Parallel()
		w := newRewound(t)
		p := w.StartProxied(nil, "--resync-period=0")
		w.backUpAndChange()
		w.restore(true, func() {})
		w.check()
		w.Stop(p) // it has not ended by itself
	})
	// The API server tells no watch that its revision is not there yet: what has a Lease ends without an API server, and
	// is started again.
	t.Run("revisions go back", func(t *testing.T) {
		t.Parallel()
		w := newRewound(t)
		account := w.NewAccount("first", w.ShippedRules())
		w.WithProxyAs(account.Kubeconfig)
		c := start(w.World, account, w.Proxy.Kubeconfig(), shortLease)
		w.Cleanup(w.Proxy.Heal) // before the controller is stopped
		w.backUpAndChange()
		w.restore(false, func() { exits(w.World, c) })
		restart := manual.Commands(t, "deploy/docs/operate.md", "rollout restart")
		if out, err := w.Cluster.Shell(w.Context(), restart).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		start(w.World, account, w.Proxy.Kubeconfig(), longLease)
		w.check()
	})
}

// rewound is what the tests of a world know whose etcd is restored.
type rewound struct {
	*suite.World
	a, b, late string                       // targets; late comes behind the backup
	sources    map[string]*corev1.ConfigMap // those of the backup, by name
	foreign    *corev1.ConfigMap            // in the way in b
}

func newRewound(t *testing.T) *rewound {
	w := &rewound{World: suite.NewAlone(t, "a", "b").WithProxy()}
	w.a, w.b, w.late = w.NS("a"), w.NS("b"), w.NS("late")
	w.foreign = w.Create(w.b, "foreign")
	return w
}

func (w *rewound) backup() string { return filepath.Join(w.Cluster.Dir(), "backup") }

// backUpAndChange takes a backup while the controller has something to do in each target, lets it do that, and
// changes much more.
func (w *rewound) backUpAndChange() {
	w.Helper()
	changed := suite.WithData(map[string]string{"key": "changed"})
	w.sources = map[string]*corev1.ConfigMap{}
	for _, name := range []string{"foreign", "quiet", "edited", "deleted", "behind", "left"} {
		w.sources[name] = w.CreateSource(w.Home, name)
		w.WaitInSync(w.sources[name], w.a)
	}
	w.WaitInSync(w.sources["left"], w.b)
	hold := w.Proxy.Inject(faultproxy.Rule{
		Verbs: []string{"create", "update", "delete"}, Resources: []string{"configmaps"}, Kind: faultproxy.Hold,
	})
	w.sources["behind"] = w.Edit(w.Home, "behind", changed)
	w.sources["missing"] = w.CreateSource(w.Home, "missing")
	w.Edit(w.Home, "left", suite.WithoutLabel(w.Label))
	delete(w.sources, "left")
	if err := w.Cluster.Backup(w.backup()); err != nil {
		w.Fatal(err)
	}
	hold.Stop()

	w.CreateNamespace(w.late, nil)
	foreign := w.Edit(w.b, "foreign", changed)
	w.Edit(w.a, "quiet", changed)
	w.Delete(w.b, "quiet")
	w.Delete(w.Home, "deleted")
	for _, src := range []*corev1.ConfigMap{
		w.CreateSource(w.Home, "created"), w.Edit(w.Home, "edited", changed),
		w.sources["quiet"], w.sources["behind"], w.sources["missing"],
	} {
		w.WaitInSync(src, w.a, w.b, w.late)
	}
	for _, name := range []string{"deleted", "left"} {
		w.WaitGone(name, w.a, w.b)
	}
	w.Untouched(foreign)
}

// restore puts the backup in the place of what there is, and runs what is to be done while there is no API server.
func (w *rewound) restore(goOn bool, away func()) {
	w.Helper()
	if err := w.Cluster.Restore(w.Context(), w.backup(), goOn, away); err != nil {
		w.Fatal(err)
	}
	var err error
	if w.Seen, err = outside.Observe(w.Background(), w.Admin); err != nil { // the old one is as blind as a controller
		w.Fatal(err)
	}
}

func (w *rewound) check() {
	w.Helper()
	w.CreateNamespace(w.late, nil)
	for _, src := range w.sources {
		w.WaitInSync(src, w.a, w.late)
		if src.Name != w.foreign.Name {
			w.WaitInSync(src, w.b)
		}
	}
	for _, name := range []string{"created", "left"} {
		w.WaitGone(name, w.a, w.b, w.late)
	}
	w.Settle(w.a, w.b, w.late)
	w.Untouched(w.foreign)
}
