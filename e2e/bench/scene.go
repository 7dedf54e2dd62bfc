package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// home is the namespace of all sources. It is no target.
	home = "home"
	// rootCA is the ConfigMap that kube-controller-manager puts into every namespace.
	rootCA = "kube-root-ca.crt"
	// dataKey is the key of all data.
	dataKey = "key"
	// helpers is how many requests are made at the same time, by the plain program as well.
	helpers = 32
	// payload is the bytes of data of a source.
	payload = 1024
	// smallTargets is the number of namespaces of small scenes.
	smallTargets = 100
	// samples is the number of new namespaces, and of repaired copies.
	samples = 50
	// patience is how long anything may take before it counts as not happening.
	patience = 5 * time.Minute
)

// bench is the scene: a cluster with the controller installed, target namespaces, and sources and copies in them.
type bench struct {
	ctx       context.Context
	cluster   *cluster.Cluster
	lean      bool
	installed *shipped.Installation
	admin     kubernetes.Interface // sets the scene
	watching  kubernetes.Interface // for the watches from outside, on a connection of its own
	plain     *plainProgram
	servers   []int // processes: the API server and etcd
	began     time.Time
	name      string // of the present benchmark
}

// scene is a number of sources, and in how many target namespaces they have copies. Scenes with equally many targets
// share them.
type scene struct{ sources, targets int }

func (s scene) prefix() string  { return fmt.Sprintf("bench-%d-", s.targets) }
func (s scene) names() []string { return numbered(s.prefix(), s.targets) }

// numbered are n names that begin with the prefix.
func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s%05d", prefix, i))
	}
	return names
}

// sourceNames are those of n sources.
func sourceNames(n int) []string { return numbered("source-", n) }

// start starts a cluster, installs the controller without starting it, and starts the plain program.
func (b *bench) start(lean bool) {
	b.lean = lean
	b.cluster = get(cluster.Start(b.ctx, cluster.Options{Lean: lean, Inlined: true}))
	b.installed = get(shipped.Install(b.ctx, b.cluster, *manifests, *program))
	b.servers = []int{get(b.cluster.Pid(cluster.APIServer)), get(b.cluster.Pid(cluster.Etcd))}
	b.admin = b.cluster.Client()
	cfg := b.cluster.Admin()
	cfg.Dial = (&net.Dialer{}).DialContext // what has a dialer of its own shares no connection
	b.watching = get(kubernetes.NewForConfig(cfg))
	b.createNamespaces([]string{home})
	b.plain = b.startPlain()
}

// progress tells whoever waits what is being done.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// sleep fails early when the run is to end.
func (b *bench) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-b.ctx.Done():
		check(b.ctx.Err())
	}
}

// parallel calls f for each item, for some at a time, until one fails.
func parallel[T any](items []T, f func(T)) {
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	workqueue.ParallelizeUntil(ctx, helpers, len(items), func(i int) {
		if err := attempt(func() { f(items[i]) }); err != nil {
			fail(err)
		}
	})
	check(context.Cause(ctx))
}

// createNamespaces makes sure that the namespaces are there, and waits until kube-controller-manager has no more work
// with them: they have a ServiceAccount and, in a cluster that is not lean, a ConfigMap.
func (b *bench) createNamespaces(names []string) {
	parallel(names, b.createNamespace)
	// Both are made in the order in which the namespaces come, and 20 more last are enough.
	for _, name := range names[max(0, len(names)-20):] {
		check(cluster.Until(b.ctx, patience, func() error {
			_, err := b.admin.CoreV1().ServiceAccounts(name).Get(b.ctx, "default", metav1.GetOptions{})
			if err == nil && !b.lean {
				_, err = b.maps(name).Get(b.ctx, rootCA, metav1.GetOptions{})
			}
			return err
		}))
	}
}

// createNamespace makes sure that the namespace is there.
func (b *bench) createNamespace(name string) {
	check(cluster.CreateNamespaces(b.ctx, b.admin, name))
}

// maps are the ConfigMaps of a namespace.
func (b *bench) maps(namespace string) corev1client.ConfigMapInterface {
	return b.admin.CoreV1().ConfigMaps(namespace)
}

// data is the data of a source, or of a copy, which begins with the version.
func data(version string) map[string]string {
	return map[string]string{dataKey: version + strings.Repeat("x", payload-len(version))}
}

// newSource is a source of a version.
func newSource(name, version string) *corev1.ConfigMap {
	labels := map[string]string{plan.DefaultLabel: plan.SourceValue}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name, Labels: labels},
		Data:       data(version),
	}
}

func (b *bench) createSource(name, version string) {
	get(b.maps(home).Create(b.ctx, newSource(name, version), metav1.CreateOptions{}))
}

func (b *bench) updateSource(name, version string) {
	get(b.maps(home).Update(b.ctx, newSource(name, version), metav1.UpdateOptions{}))
}

// unlabelSource leaves a ConfigMap that is no source any more.
func (b *bench) unlabelSource(name string) {
	cm := newSource(name, "")
	cm.Labels = nil
	get(b.maps(home).Update(b.ctx, cm, metav1.UpdateOptions{}))
}

// lay deletes sources and copies, and makes the targets and the sources of another scene. No controller may run.
func (b *bench) lay(s scene) {
	all := get(b.maps(metav1.NamespaceAll).List(b.ctx, metav1.ListOptions{LabelSelector: mirrorSelector}))
	parallel(all.Items, func(cm corev1.ConfigMap) {
		check(b.maps(cm.Namespace).Delete(b.ctx, cm.Name, metav1.DeleteOptions{}))
	})
	b.createNamespaces(s.names())
	parallel(sourceNames(s.sources), func(name string) { b.createSource(name, "1") })
}
