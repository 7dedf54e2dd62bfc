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
	// secondHome is the same for a second source of each name.
	secondHome = "home-2"
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

// bench is a cluster with the controller installed, on which a stage is measured.
type bench struct {
	ctx       context.Context
	cluster   *cluster.Cluster
	lean      bool
	installed *shipped.Installation
	watching  kubernetes.Interface // for the watches from outside, on a connection of its own
	plain     *plainProgram
	servers   []int  // processes: the API server and etcd
	name      string // of the present benchmark
}

// install installs the controller without starting it, and starts the plain program.
func (b *bench) install() {
	b.installed = get(shipped.Install(b.ctx, b.cluster, *manifests, *program))
	b.servers = []int{get(b.cluster.Pid(cluster.APIServer)), get(b.cluster.Pid(cluster.Etcd))}
	cfg := b.cluster.Admin()
	cfg.Dial = (&net.Dialer{}).DialContext // what has a dialer of its own shares no connection
	b.watching = get(kubernetes.NewForConfig(cfg))
	b.createNamespace(home)
	b.plain = b.startPlain()
}

var began = time.Now()

// progress tells whoever waits what is being done.
func (b *bench) progress(what string) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s: %s\n", time.Since(began).Seconds(), b.name, what)
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

// numbered returns n names that begin with the prefix.
func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s%05d", prefix, i))
	}
	return names
}

// sourceNames returns the names of n sources.
func sourceNames(n int) []string { return numbered("source-", n) }

// createNamespace makes sure that the namespace is there.
func (b *bench) createNamespace(name string) {
	check(cluster.CreateNamespaces(b.ctx, b.cluster.Client(), name))
}

// createNamespaces makes sure that n namespaces are there, and waits until kube-controller-manager has no more work
// with them: they have a ServiceAccount and, in a cluster that is not lean, a ConfigMap. It returns their names.
func (b *bench) createNamespaces(prefix string, n int) []string {
	names := numbered(prefix, n)
	parallel(names, b.createNamespace)
	// Both are made in the order in which the namespaces come, and 20 more last are enough.
	for _, name := range names[max(0, n-20):] {
		check(cluster.Until(b.ctx, patience, func() error {
			_, err := b.cluster.Client().CoreV1().ServiceAccounts(name).Get(b.ctx, "default", metav1.GetOptions{})
			if err == nil && !b.lean {
				_, err = b.maps(name).Get(b.ctx, rootCA, metav1.GetOptions{})
			}
			return err
		}))
	}
	return names
}

// data returns the data of a source, or of a copy, which begins with the version.
func data(version string) map[string]string {
	return map[string]string{dataKey: version + strings.Repeat("x", payload-len(version))}
}

// source returns a source of a version.
func source(namespace, name, version string) *corev1.ConfigMap {
	labels := map[string]string{plan.DefaultLabel: plan.SourceValue}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Data:       data(version),
	}
}

// maps returns a client of the ConfigMaps of a namespace.
func (b *bench) maps(namespace string) corev1client.ConfigMapInterface {
	return b.cluster.Client().CoreV1().ConfigMaps(namespace)
}

func (b *bench) create(cm *corev1.ConfigMap) *corev1.ConfigMap {
	return get(b.maps(cm.Namespace).Create(b.ctx, cm, metav1.CreateOptions{}))
}

func (b *bench) update(cm *corev1.ConfigMap) *corev1.ConfigMap {
	return get(b.maps(cm.Namespace).Update(b.ctx, cm, metav1.UpdateOptions{}))
}

func (b *bench) delete(cm *corev1.ConfigMap) {
	check(b.maps(cm.Namespace).Delete(b.ctx, cm.Name, metav1.DeleteOptions{}))
}

// clear deletes sources and copies. No controller may run.
func (b *bench) clear() {
	all := get(b.maps(metav1.NamespaceAll).List(b.ctx, metav1.ListOptions{LabelSelector: mirrorSelector}))
	parallel(all.Items, func(cm corev1.ConfigMap) { b.delete(&cm) })
}
