package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
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
				change := func(configuration, source, version string, do func(name, version string, size int)) {
					b.sleep(pause)
					took := w.timed(smallTargets, in(healthy.prefix(), holds(source, version)),
						func() { do(source, version, payload) })
					b.print(configuration, seconds(took, "sec/op"))
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
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Store(true)
		<-released
	}))
	hook := admissionregistrationv1.ValidatingWebhook{
		Name: prefix + "webhook.example.com",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL:      &server.URL,
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}},
		MatchConditions: []admissionregistrationv1.MatchCondition{{
			Name: "where", Expression: fmt.Sprintf("request.namespace.startsWith(%q)", prefix)}},
		FailurePolicy:           &p,
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(int32(29)),
		AdmissionReviewVersions: []string{"v1"},
	}
	hooks := b.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	get(hooks.Create(b.ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: hook.Name},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{hook},
	}, metav1.CreateOptions{}))
	for !asked.Load() {
		b.probe(namespace)
	}
	return func() {
		close(released)
		check(hooks.Delete(b.ctx, hook.Name, metav1.DeleteOptions{}))
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

const (
	// obstructed begins the names of the namespaces with a foreign object, which is in the way of the source blocked.
	obstructed, blocked, obstructions = "foreign-", "blocked", 100
	// slowRead is what a read of one of them takes. It is the bar as well: nobody else may wait for one such read.
	slowRead = 5 * time.Second
	// otherSources have the healthy targets only, as many as slowTargets.
	otherSources, slowTargets = 40, 20
)

// slowReads is 40 new sources beside one with foreign objects in its way, each of which takes five seconds to
// read: from just before their creation, when the first of these reads has begun, until all healthy targets are in
// sync, those of the one source as well. The bar is for the slowest round.
func slowReads(b *bench) {
	namespaces := numbered(obstructed, obstructions)
	b.createNamespaces(namespaces)
	parallel(namespaces, func(namespace string) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: blocked}}
		_, err := b.maps(namespace).Create(b.ctx, cm, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			check(err)
		}
	})
	proxy := get(faultproxy.Start(b.installed.Kubeconfig, b.cluster.Dir()))
	defer func() { check(proxy.Close()) }()
	healthy := scene{targets: slowTargets}
	for range *few {
		b.lay(healthy)
		w := b.watch(mirrorSelector)
		c := b.launch([]string{healthy.prefix(), obstructed}, shipped.RunOptions{Kubeconfig: proxy.Kubeconfig()})
		c.during(func() {
			defer w.stop()
			c.waitMirrors()
			slow := proxy.Inject(faultproxy.Rule{Verbs: []string{"get"}, Resources: []string{"configmaps"},
				When:  func(q faultproxy.Request) bool { return q.Name == blocked && q.Namespace != home },
				Fault: faultproxy.Fault{Kind: faultproxy.Delay, For: slowRead}})
			defer slow.Stop()
			all := w.expect((otherSources+1)*slowTargets, in(healthy.prefix(), holds("", "1")))
			b.createSource(blocked, "1", payload)
			for slow.Fired() == 0 {
				b.sleep(time.Millisecond)
			}
			start := time.Now()
			parallel(sourceNames(otherSources), func(name string) {
				source := newSource(name, "1", payload)
				source.Annotations = map[string]string{plan.PrefixAnnotation: healthy.prefix()}
				get(b.maps(home).Create(b.ctx, source, metav1.CreateOptions{}))
			})
			b.print(fmt.Sprintf("bar=%s", slowRead), seconds(all.wait().Sub(start), "sec/op"))
		})
	}
}
