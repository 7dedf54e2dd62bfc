package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// waiting is the number of sources whose namespaces are not there yet, and of namespaces beside them.
	waiting = 1000
	// namesakes is the number of sources of one name, each in a target.
	namesakes = 1500
)

// newNamespace is from just before the creation of a namespace to the copy there; the limit is to the ConfigMap that
// kube-controller-manager puts into the same namespace, seen by the same watch.
func newNamespace(b *bench) {
	const prefix = "single-"
	b.clear()
	b.create(source(home, "source", "1"))
	w := b.watch(everything)
	defer w.Stop()
	b.with(prefix, func(*controller) {
		for _, name := range numbered(prefix, samples) {
			b.sleep(breath)
			start := time.Now()
			shown := w.shown(func() { b.createNamespace(name) }, 1, copies(name, "source", "1"),
				func(_ watch.EventType, cm *corev1.ConfigMap) bool { return cm.Namespace == name && cm.Name == rootCA })
			b.compare("bar=1.20", shown[0].Sub(start), shown[1].Sub(start))
		}
	})
}

// withoutTargets is a new namespace beside sources that wait for others: the CPU time of the controller. Each name has
// a source in each of the homes.
func withoutTargets(homes ...string) func(*bench) {
	return func(b *bench) {
		b.clear()
		prefix := fmt.Sprintf("beside-%d-", len(homes))
		b.createNamespaces(prefix, waiting)
		for _, namespace := range homes {
			b.createNamespace(namespace)
			parallel(numbered("waits-", waiting), func(name string) {
				cm := source(namespace, name, "1")
				cm.Annotations = map[string]string{plan.PrefixAnnotation: prefix + name}
				b.create(cm)
			})
		}
		b.with(prefix, func(c *controller) { b.print("bar=20ms", metrics{"cpu-sec/op": c.newNamespaceCPU(prefix + "new-")}) })
	}
}

// newNamespaceCPU returns the CPU time of the controller for one of many new namespaces, in seconds, without that of
// an idle one.
func (c *controller) newNamespaceCPU(prefix string) float64 {
	c.quiet()
	idle := cpuDuring(func() { c.b.sleep(samples * breath) }, c.Pid())
	used := cpuDuring(func() {
		for _, name := range numbered(prefix, samples) {
			c.b.createNamespace(name)
			c.b.sleep(breath)
		}
		c.quiet()
	}, c.Pid())
	return max(0, used-idle).Seconds() / samples
}

// manyNamesakes are sources of one name, each of which ranks behind those that are older: memory.
func manyNamesakes(b *bench) {
	const prefix = "namesake-"
	b.clear()
	parallel(b.createNamespaces(prefix, namesakes), func(namespace string) { b.create(source(namespace, "shared", "1")) })
	b.with(prefix, func(c *controller) { b.print("bar=100MiB", metrics{"resident-B": c.settled()}) })
}

// policy is that of a webhook: how a write ends after it has hung.
type policy = admissionregistrationv1.FailurePolicyType

const (
	succeeds = admissionregistrationv1.Ignore
	refused  = admissionregistrationv1.Fail
)

// besideHanging is a source while many of its targets, which the controller has not written to before, hang: from just
// before a change to the last copy in the healthy targets. The changes are the first contact, then an edit, then
// another source. Each round begins with a new process, which knows nothing of any target. The bar is for the slowest
// round: an idle API server lends most of the places of our account to others, and returns them within some ten
// seconds.
func besideHanging(n int, p policy, bar string) benchmark {
	return benchmark{fmt.Sprintf("Hanging/n=%d/policy=%s", n, p), func(b *bench) {
		prefix := fmt.Sprintf("hang-%d-", n)
		healthy, hanging := prefix+"healthy-", prefix+"hanging-"
		b.createNamespaces(healthy, smallTargets)
		b.createNamespaces(hanging, n)
		for range max(1, *few*100/n) {
			b.clear()
			w := b.watch(mirrorSelector)
			b.with(prefix, func(*controller) {
				defer w.Stop()
				defer b.hangWrites(hanging, p)() // the process ends with no call in flight
				change := func(configuration, name, version string, do func(*corev1.ConfigMap) *corev1.ConfigMap) {
					b.sleep(pause)
					took := w.timed(smallTargets, copies(healthy, name, version),
						func() { do(source(home, name, version)) })
					b.print(configuration, metrics{"sec/op": took.Seconds()})
				}
				change("first/bar="+bar, "new", "1", b.create)
				change("edit/bar=1s", "new", "2", b.update)
				change("another/bar=1s", "other", "1", b.create)
			})
		}
	}}
}

// hangWrites puts an admission webhook that never answers before the ConfigMaps of the namespaces with a prefix, and
// returns when it is in force. After the release no write waits any more: a late call is answered at once.
func (b *bench) hangWrites(prefix string, p policy) (release func()) {
	var asked atomic.Bool
	released := make(chan struct{})
	stop := get(b.cluster.StartWebhook(b.ctx, prefix+"webhook.example.com",
		fmt.Sprintf("request.namespace.startsWith(%q)", prefix), p,
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			asked.Store(true)
			<-released
		})))
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	check(cluster.Until(b.ctx, patience, func() error {
		ctx, cancel := context.WithTimeout(b.ctx, 100*time.Millisecond) // a probe that hangs is given up
		defer cancel()
		_, err := b.maps(numbered(prefix, 1)[0]).Create(ctx, probe,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if asked.Load() {
			return nil
		}
		return errors.Join(errors.New("the webhook is not asked"), err)
	}))
	return func() {
		close(released)
		check(stop())
	}
}

// besidePolicies is a write of a ConfigMap by an admin, one of a hundred in a row,
// while the policies of the usual installation are in force. The limit is the same
// write without them.
func besidePolicies(b *bench) {
	usual := get(shipped.Render(filepath.Join(filepath.Dir(*manifests), "default")))
	// A policy without a binding judges nothing.
	bindings := b.cluster.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	lift := func() {
		ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=mirror-controller"}
		check(bindings.DeleteCollection(b.ctx, metav1.DeleteOptions{}, ours))
		b.awaitPolicies(false)
	}
	defer lift()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "theirs"}}
	b.create(cm)
	write := func() time.Duration {
		const writes = 100
		b.sleep(pause)
		start := time.Now()
		for n := range writes {
			cm.Data = data(strconv.Itoa(n) + "-") // else nothing would be stored
			b.update(cm)
		}
		return time.Since(start) / writes
	}
	for round := range *rounds {
		times := alternately(round,
			func() time.Duration {
				check(usual.Apply(b.ctx, b.cluster.Admin()))
				b.awaitPolicies(true)
				return write()
			},
			func() time.Duration {
				lift()
				return write()
			})
		b.compare("bar=1.25", times[0], times[1])
	}
}

// awaitPolicies waits until the policies judge what the controller writes, or no
// longer do: the API server knows that a moment later.
func (b *bench) awaitPolicies(inForce bool) {
	cfg := b.cluster.Admin()
	cfg.Impersonate.UserName = b.installed.User
	probe := get(kubernetes.NewForConfig(cfg)).CoreV1().ConfigMaps(home)
	check(cluster.Until(b.ctx, patience, func() error {
		_, err := probe.Create(b.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) == inForce {
			return nil
		}
		return fmt.Errorf("the policies are in force: %v: %w", !inForce, err)
	}))
}
