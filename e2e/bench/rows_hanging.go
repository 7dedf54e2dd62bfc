package main

import (
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// fewHanging is the number of hanging targets in the smaller of the two rows. Beside them, smallTargets are healthy.
const fewHanging = 100

// newHanging is a source while many of its targets, which the controller has not written to before, hang: from just before
// a change to the last copy in the healthy targets. The changes are the first contact, then an edit, then another source.
// Each round begins with a new process, which knows nothing of any target. The slowest counts, because the first one is
// the hardest: an idle API server lends most of the places of our account to others, and returns them within some ten
// seconds. The writes that hang end as the policy says.
func newHanging(s sizes, hanging int, policy admissionregistrationv1.FailurePolicyType, within time.Duration) group {
	if hanging == 0 {
		return group{}
	}
	beside := fmt.Sprintf(", %d targets beside %s that hang, then %s", smallTargets, thousands(hanging), ends[policy])
	first := &row{figure: "first contact" + beside, unit: asTime, bar: 1}
	edit := &row{figure: "edit after it" + beside, unit: asTime, bar: 1}
	other := &row{figure: "another source" + beside, unit: asTime, bar: 1}
	return group{[]*row{first, edit, other}, func(b *bench) {
		prefix := fmt.Sprintf("hang-%d-", hanging)
		names := numbered(prefix, hanging)
		b.createNamespaces(names)
		var took [3][]float64
		for range max(1, s.few*fewHanging/hanging) {
			for i, t := range b.besideHanging(names, prefix, policy) {
				took[i] = append(took[i], t.Seconds())
			}
		}
		first.slowestOf(took[0], within)
		edit.slowestOf(took[1], time.Second)
		other.slowestOf(took[2], time.Second)
	}}
}

// ends say how a write ends after it has hung.
var ends = map[admissionregistrationv1.FailurePolicyType]string{
	admissionregistrationv1.Ignore: "succeed", admissionregistrationv1.Fail: "are refused",
}

// besideHanging is one round.
func (b *bench) besideHanging(names []string, prefix string, policy admissionregistrationv1.FailurePolicyType) (took [3]time.Duration) {
	healthy := scene{targets: smallTargets}
	b.lay(healthy)
	w := b.watch(mirrorSelector)
	defer w.stop()
	b.with([]string{healthy.prefix(), prefix}, func(*controller) {
		release := b.hangWrites(prefix, names[0], policy)
		defer release() // the process ends with no call in flight
		for i, change := range []struct {
			name, version string
			do            func(name, version string, size int)
		}{{"new", "1", b.createSource}, {"new", "2", b.updateSource}, {"other", "1", b.createSource}} {
			b.sleep(pause)
			took[i] = w.timed(smallTargets, in(healthy.prefix(), holds(change.name, change.version)),
				func() { change.do(change.name, change.version, payload) })
		}
	})
	return took
}

// slowest fills a row with the slowest of some rounds, against a time.
func (r *row) slowest(rounds int, within time.Duration, f func() time.Duration) {
	var took []float64
	for range rounds {
		took = append(took, f().Seconds())
	}
	r.slowestOf(took, within)
}

// slowestOf is slowest of rounds that were measured, in seconds.
func (r *row) slowestOf(took []float64, within time.Duration) {
	r.add(slices.Max(took), within.Seconds())
	r.note = fmt.Sprintf("the slowest of %d rounds; median %s", len(took), asTime(median(took)))
}

const (
	// foreignObjects are in the way of one source.
	foreignObjects = 100
	// slowRead is what a read of one of them takes. It is the bar as well: nobody else may wait for one such read.
	slowRead = 5 * time.Second
	// otherSources have the healthy targets only, as many as slowTargets.
	otherSources, slowTargets = 40, 20
)

// newSlowReads is 40 new sources beside one with foreign objects in its way, each of which takes five seconds to
// read: from just before their creation, when the first of these reads has begun, until all healthy targets are in
// sync, those of the one source as well.
func newSlowReads(s sizes) group {
	figure := fmt.Sprintf("%d sources to %d targets beside %d foreign objects that take %s to read",
		otherSources, slowTargets, foreignObjects, slowRead)
	r := &row{figure: figure, unit: asTime, bar: 1}
	return group{[]*row{r}, func(b *bench) {
		b.createNamespaces(numbered("foreign-", foreignObjects))
		r.slowest(s.few, slowRead, b.besideSlowReads)
	}}
}

// besideSlowReads is one round.
func (b *bench) besideSlowReads() (took time.Duration) {
	const blocked, obstructed = "blocked", "foreign-"
	healthy := scene{targets: slowTargets}
	b.lay(healthy)
	parallel(numbered(obstructed, foreignObjects), func(namespace string) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: blocked}}
		_, err := b.maps(namespace).Create(b.ctx, cm, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) { // it stays there from round to round
			check(err)
		}
	})
	proxy := get(faultproxy.Start(faultproxy.Options{Kubeconfig: b.installed.Kubeconfig, Dir: b.cluster.Dir()}))
	defer proxy.Close()
	w := b.watch(mirrorSelector)
	defer w.stop()
	c := b.launchWith(shipped.RunOptions{Kubeconfig: proxy.Kubeconfig()}, []string{healthy.prefix(), obstructed})
	c.during(func() {
		c.waitMirrors()
		slow := proxy.Inject(faultproxy.Rule{Verbs: []string{"get"}, Resources: []string{"configmaps"},
			When:  func(q faultproxy.Request) bool { return q.Name == blocked && q.Namespace != home },
			Fault: faultproxy.Fault{Kind: faultproxy.Delay, For: slowRead}})
		defer slow.Stop()
		all := w.expect((otherSources+1)*slowTargets, in(healthy.prefix(), holds("", "1")))
		b.createSource(blocked, "1", payload)
		check(proxy.Await(b.ctx, func() bool { return slow.Fired() > 0 }))
		start := time.Now()
		parallel(sourceNames(otherSources), func(name string) {
			source := newSource(name, "1", payload)
			source.Annotations = map[string]string{plan.PrefixAnnotation: healthy.prefix()}
			get(b.maps(home).Create(b.ctx, source, metav1.CreateOptions{}))
		})
		took = all.wait().Sub(start)
	})
	return took
}
