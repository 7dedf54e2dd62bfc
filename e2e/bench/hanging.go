package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
		prefix, healthy := fmt.Sprintf("hang-%d-", n), scene{targets: smallTargets}
		names := numbered(prefix, n)
		b.createNamespaces(names)
		for range max(1, *few*100/n) {
			b.lay(healthy)
			w := b.watch(mirrorSelector)
			b.with([]string{healthy.prefix(), prefix}, func(*controller) {
				defer w.stop()
				release := b.hangWrites(prefix, names[0], p)
				defer release() // the process ends with no call in flight
				change := func(configuration, source, version string, do func(name, version string)) {
					b.sleep(pause)
					took := w.timed(smallTargets, in(healthy.prefix(), holds(source, version)),
						func() { do(source, version) })
					b.print(configuration, metrics{"sec/op": took.Seconds()})
				}
				change("first/bar="+bar, "new", "1", b.createSource)
				change("edit/bar=1s", "new", "2", b.updateSource)
				change("another/bar=1s", "other", "1", b.createSource)
			})
		}
	}}
}

// hangWrites puts an admission webhook that never answers before the ConfigMaps of the namespaces whose names begin
// with the prefix, and returns when it is in force in one of them. After the release no write waits any more: a late
// call is answered at once.
func (b *bench) hangWrites(prefix, namespace string, p policy) (release func()) {
	var asked atomic.Bool
	released := make(chan struct{})
	stop := get(b.cluster.StartWebhook(b.ctx, prefix+"webhook.example.com",
		fmt.Sprintf("request.namespace.startsWith(%q)", prefix), p,
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			asked.Store(true)
			<-released
		})))
	for !asked.Load() {
		b.probe(namespace)
	}
	return func() {
		close(released)
		check(stop())
	}
}

// probe tries to write to a namespace, and gives up at once if that hangs.
func (b *bench) probe(namespace string) {
	ctx, cancel := context.WithTimeout(b.ctx, 100*time.Millisecond)
	defer cancel()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	_, err := b.maps(namespace).Create(ctx, cm, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if ctx.Err() == nil {
		check(err)
	}
	b.sleep(50 * time.Millisecond)
}
