package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// home is the namespace of all sources. It is no target.
	home = "home"
	// helpers is how many requests set or clear the scene at the same time.
	helpers = 32
	// patience is how long nothing may happen before what is waited for counts as not happening.
	patience = 5 * time.Minute
)

// bench is the scene: a cluster with the controller installed, target namespaces, and sources and copies in them.
type bench struct {
	options
	cluster    *cluster.Cluster
	installed  *shipped.Installation
	admin      kubernetes.Interface // sets the scene
	watching   kubernetes.Interface // for the watches from outside, on a connection of its own
	plain      *plainProgram
	servers    []int // processes: the API server and etcd
	audit      auditor
	loadBefore string
	began      time.Time

	pool   pool
	laid   scene
	filled bool // the copies of the scene are there
	// touched are the namespaces of the scene: those in which there may be sources, copies, or what is made like them.
	touched map[string]bool
}

// scene is a number of sources, in how many target namespaces they have copies, and the bytes of data of each.
type scene struct{ sources, targets, payload int }

func (s scene) copies() int { return s.sources * s.targets }

func newBench(o options) *bench { return &bench{options: o, loadBefore: load(), began: time.Now()} }

// start starts a cluster in which there is nothing but the installed controller, which does not run.
func (b *bench) start(ctx context.Context) (err error) {
	b.pool, b.laid, b.filled, b.touched = newPool(b.ends, b.prefix), scene{}, false, map[string]bool{}
	c, err := cluster.Start(ctx, cluster.Options{Lean: b.lean})
	if err != nil {
		return err // what was measured on the one before is reported
	}
	b.cluster = c
	if err := b.open(ctx); err != nil {
		return errors.Join(err, b.cluster.Stop())
	}
	return nil
}

// open installs the controller, without starting it, and starts the plain program.
func (b *bench) open(ctx context.Context) (err error) {
	if b.installed, err = shipped.Install(ctx, b.cluster, b.manifests, b.controller); err != nil {
		return err
	}
	if b.servers, err = b.serverPids(); err != nil {
		return err
	}
	b.audit = auditor{log: b.cluster.Audit(), user: b.installed.User, strays: newTally()}
	cfg := b.cluster.Admin()
	if b.admin, err = kubernetes.NewForConfig(cfg); err != nil {
		return err
	}
	cfg.Dial = (&net.Dialer{}).DialContext // what has a dialer of its own shares no connection
	if b.watching, err = kubernetes.NewForConfig(cfg); err != nil {
		return err
	}
	if err := b.createNamespaces(ctx, []string{home}); err != nil {
		return err
	}
	b.plain, err = b.startPlain(ctx)
	return err
}

// progress tells whoever waits what is being done.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// parallel calls f for each item, a number of them at a time, and joins the errors.
func parallel[T any](n int, items []T, f func(T) error) error {
	work := make(chan T)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for item := range work {
				errs[i] = errors.Join(errs[i], f(item))
			}
		})
	}
	for _, item := range items {
		work <- item
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}

// pool is the target namespaces that the rows share. Each row wants the first so many of them, as the only targets
// of its controller: the names of the namespaces up to each number that is wanted have a prefix of their own.
type pool struct {
	ends  []int    // the numbers that are wanted, ascending
	extra []string // prefixes of namespaces that are targets besides
	made  int
}

// poolPrefix begins the names of all namespaces of the pool.
const poolPrefix = "bench-"

// newPool is for rows that want so many namespaces.
func newPool(wanted []int, extra ...string) pool {
	ends := slices.Sorted(slices.Values(wanted))
	return pool{ends: slices.Compact(ends), extra: slices.DeleteFunc(extra, func(s string) bool { return s == "" })}
}

// prefix is that of the names of the namespaces of a class.
func (pool) prefix(class int) string { return fmt.Sprintf(poolPrefix+"%c-", 'a'+class) }

// name is that of a namespace of the pool.
func (p pool) name(i int) string {
	class, found := slices.BinarySearch(p.ends, i)
	if found {
		class++ // ends[class] namespaces come before it
	}
	return fmt.Sprintf("%s%05d", p.prefix(class), i)
}

// names are those of the first n namespaces.
func (p pool) names(n int) []string {
	var names []string
	for i := range n {
		names = append(names, p.name(i))
	}
	return names
}

// prefixes are the prefixes that the first n namespaces have, and no other of the pool; of none, one that no namespace has.
func (p pool) prefixes(n int) []string {
	if n == 0 {
		return []string{"none-"}
	}
	class, _ := slices.BinarySearch(p.ends, n)
	var prefixes []string
	for c := range class + 1 {
		prefixes = append(prefixes, p.prefix(c))
	}
	return append(prefixes, p.extra...)
}

// targetNames makes sure that the first n namespaces of the pool are there, and returns their names.
func (b *bench) targetNames(ctx context.Context, n int) ([]string, error) {
	names := b.pool.names(n)
	for _, name := range names {
		b.touched[name] = true
	}
	if n <= b.pool.made {
		return names, nil
	}
	missing := names[b.pool.made:]
	b.pool.made = n
	return names, b.createNamespaces(ctx, missing)
}

// createNamespaces creates the namespaces and waits until kube-controller-manager has no more work with them.
func (b *bench) createNamespaces(ctx context.Context, names []string) error {
	for _, name := range names {
		b.touched[name] = true
	}
	err := parallel(helpers, names, func(name string) error { return b.createNamespace(ctx, name) })
	if err != nil {
		return err
	}
	// The account and the certificate are made in the order in which the namespaces come, and 20 more last are enough.
	return parallel(1, names[max(0, len(names)-20):], func(name string) error { return b.waitUntilFurnished(ctx, name) })
}

func (b *bench) createNamespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := b.admin.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	return err
}

// waitUntilFurnished waits until a namespace has the ServiceAccount and the ConfigMap that every namespace gets, in a lean cluster
// the ServiceAccount only.
func (b *bench) waitUntilFurnished(ctx context.Context, name string) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		_, err := b.admin.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		if err == nil && !b.lean {
			_, err = b.admin.CoreV1().ConfigMaps(name).Get(ctx, rootCA, metav1.GetOptions{})
		}
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// payload is data of a size that begins with the version.
func payload(version string, size int) map[string]string {
	return map[string]string{dataKey: version + strings.Repeat("x", max(0, size-len(version)))}
}

const dataKey = "key"

// newSource is a source, or, without the label, what is left of one.
func newSource(name, version string, size int, labelled bool) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name}, Data: payload(version, size)}
	if labelled {
		cm.Labels = map[string]string{plan.DefaultLabel: plan.SourceValue}
	}
	return cm
}

// createSource creates a source.
func (b *bench) createSource(ctx context.Context, name, version string, size int) error {
	_, err := b.admin.CoreV1().ConfigMaps(home).Create(ctx, newSource(name, version, size, true), metav1.CreateOptions{})
	return err
}

// sourceNames are those of n sources.
func sourceNames(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("source-%04d", i))
	}
	return names
}

// lay clears the scene and makes the sources of another one. No controller may run.
func (b *bench) lay(ctx context.Context, s scene) error {
	b.laid, b.filled = scene{}, false
	if err := b.clear(ctx, plan.DefaultLabel); err != nil {
		return err
	}
	b.touched = map[string]bool{home: true}
	if _, err := b.targetNames(ctx, s.targets); err != nil {
		return err
	}
	err := parallel(helpers, sourceNames(s.sources), func(name string) error { return b.createSource(ctx, name, "1", s.payload) })
	if err == nil {
		b.laid = s
	}
	return err
}

// fill makes the sources of a scene and has a controller make their copies, unless that is how things are. No
// controller runs before and after.
func (b *bench) fill(ctx context.Context, s scene) error {
	if b.laid == s && b.filled {
		return nil
	}
	b.progress("filling %d namespaces with copies of %d sources of %d bytes", s.targets, s.sources, s.payload)
	if err := b.lay(ctx, s); err != nil {
		return err
	}
	if s.copies() == 0 {
		b.filled = true
		return nil
	}
	c, err := b.makeCopies(ctx, s)
	if err != nil {
		return err
	}
	return c.stop(ctx)
}

// makeCopies starts a controller on a scene that is laid, and returns it when it has made all copies.
func (b *bench) makeCopies(ctx context.Context, s scene) (*controller, error) {
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return nil, err
	}
	defer w.stop()
	x := w.expect(s.sources*s.targets, holds("", "1"))
	c, err := b.launch(b.pool.prefixes(s.targets))
	if err != nil {
		return nil, err
	}
	if _, err := x.wait(ctx); err != nil {
		return nil, c.stopAfter(ctx, err)
	}
	b.filled = true
	return c, nil
}

// clearCopies deletes the copies and leaves the sources. No controller may run.
func (b *bench) clearCopies(ctx context.Context) error {
	b.filled = false
	return b.clear(ctx, plan.DefaultLabel+"="+plan.CopyValue)
}

// clear deletes all ConfigMaps that the selector selects, in the namespaces of the scene.
func (b *bench) clear(ctx context.Context, selector string) error {
	return parallel(helpers, slices.Collect(maps.Keys(b.touched)), func(name string) error {
		return b.admin.CoreV1().ConfigMaps(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selector})
	})
}
