package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const propagation, fill = "mirror_propagation_seconds", "mirror_namespace_fill_seconds"

// span is what the sum of latencies of one kind lies in. No machine is too slow for it, because it follows from what came before
// what: none of them has begun before what causes it was sent to the API server, nor ended after the metric counted it.
// And each had begun when a write that it causes was on its way, and had not ended before another one was.
type span struct {
	// What the histogram held when it was last looked at.
	count int
	sum   time.Duration
	// Of what has been sent since: when, and the least that it can take together.
	sent  []time.Time
	least time.Duration
}

// send notes that a change is about to be sent that causes a latency.
func (s *span) send() { s.sent = append(s.sent, time.Now()) }

// atMost returns the most that what has been sent can have taken, if it is counted by now.
func (s *span) atMost() (sum time.Duration) {
	for _, at := range s.sent {
		sum += time.Since(at)
	}
	return sum
}

// expectCounted waits until a histogram has counted all that was sent, and compares what has come to its count and to its sum
// with the span, for which it then is the new beginning.
func (w *world) expectCounted(p *shipped.Process, name string, s *span) {
	w.Helper()
	var got map[string]float64
	w.until("all are counted", func() (err error) {
		got, err = w.scrape(p)
		if want := s.count + len(s.sent); err == nil && int(got[name+"_count"]) < want {
			err = fmt.Errorf("%s_count is %v, want %d", name, got[name+"_count"], want)
		}
		return err
	})
	atMost, sum := s.atMost(), time.Duration(got[name+"_sum"]*float64(time.Second))
	n, took := int(got[name+"_count"])-s.count, sum-s.sum
	report := w.Logf
	if n != len(s.sent) || took < s.least || took > atMost {
		report = w.Errorf
	}
	report("%s: %d took %s together; what was seen from outside says that %d did, from %s to %s",
		name, n, took, len(s.sent), s.least, atMost)
	*s = span{count: s.count + n, sum: sum}
}

// expectUncounted compares the count of a histogram with that of the span, which none may have been added to.
func (w *world) expectUncounted(p *shipped.Process, name string, s *span) {
	w.Helper()
	got, err := w.scrape(p)
	if err != nil {
		w.Fatal(err)
	}
	if n := int(got[name+"_count"]); n != s.count {
		w.Errorf("%s counts %d while the last copy is still missing, want %d", name, n, s.count)
	}
}

// apart returns the sum of the times between the first and the last request of each group.
func apart(requests []cluster.Event, group func(cluster.Event) string) (sum time.Duration) {
	times := map[string][]time.Time{}
	for _, e := range requests {
		times[group(e)] = append(times[group(e)], e.Received)
	}
	for at := range maps.Values(times) {
		sum += slices.MaxFunc(at, time.Time.Compare).Sub(slices.MinFunc(at, time.Time.Compare))
	}
	return sum
}

// TestLatencies compares the two latencies that the controller measures with what is seen of them from outside: of
// several sources that are changed at the same time, over some hundred namespaces, and of namespaces that come meanwhile.
func TestLatencies(t *testing.T) {
	t.Parallel()
	const sources, many = 5, 60
	var lasts []string
	for n := range sources {
		lasts = append(lasts, fmt.Sprint("last-", n))
	}
	w := newProxied(t, newWorld(t, lasts...))
	p := w.run(nil, "--metrics-bind-address=127.0.0.1:0")
	w.waitMetrics("it leads", p, map[string]float64{propagation + "_count": 0, fill + "_count": 0})
	var changes, fills span
	// come creates namespaces, each when the one before is filled. The controller cuts calls that are slow if there are many, and
	// a copy is not counted if its call was cut and took effect all the same.
	come := func(prefix string, all []*corev1.ConfigMap) (names []string) {
		for i := range many {
			one := w.createNamespaces(fmt.Sprint(prefix, i, "-"), 1, len(all), &fills)
			w.waitAllInSync(all, one)
			names = append(names, one...)
		}
		return names
	}

	// A source that wants one copy. The proxy holds it back, so nothing of it is over before that. The other namespaces do not
	// concern it, and there is no latency where there is nothing to write.
	hold := w.holdCreates(w.ns("last-"))
	changes.send()
	one := w.createSource(w.home, "one", withAnnotation(plan.PrefixAnnotation, w.ns("last-0")))
	w.await("the copy is on its way", func() bool { return hold.Held() == 1 })
	since := time.Now()
	targets := w.createNamespaces("early-", many*3/4, 0, &fills)
	changes.least += time.Since(since)
	hold.Stop()
	w.expectCounted(p, propagation, &changes)
	w.expectUncounted(p, fill, &fills)

	// The same for a copy that is tried again and again.
	conflicts := w.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"update"}, Resources: []string{"configmaps"},
		When:  func(q faultproxy.Request) bool { return q.Namespace == w.ns("last-0") },
		Fault: faultproxy.Fault{Kind: faultproxy.Conflict},
	})
	w.changeAll([]*corev1.ConfigMap{one}, "2", &changes)
	w.await("the copy is tried again", func() bool { return conflicts.Fired() > 1 })
	since = time.Now()
	targets = append(targets, w.createNamespaces("next-", many/4, 0, &fills)...)
	w.expectUncounted(p, propagation, &changes)
	changes.least += time.Since(since)
	conflicts.Stop()
	w.expectCounted(p, propagation, &changes)

	// Each source has a last copy, in a namespace that no other source wants: a namespace that is slow has one call at a time.
	// It is held back while many namespaces come and are filled.
	hold = w.holdCreates(w.ns("last-"))
	var all []*corev1.ConfigMap
	for n := range sources {
		var prefixes []string
		for _, prefix := range []string{"early-", "next-", "meanwhile-", "more-", fmt.Sprint("last-", n), fmt.Sprint("late-", n)} {
			prefixes = append(prefixes, w.ns(prefix))
		}
		changes.send()
		all = append(all, w.createSource(w.home, fmt.Sprint("settings-", n),
			withAnnotation(plan.PrefixAnnotation, strings.Join(prefixes, ","))))
	}
	w.await("the last copies are on their way", func() bool { return hold.Held() == sources })
	since = time.Now()
	w.waitAllInSync(all, targets) // a fan-out that sees a new namespace first takes its copy for one of its own
	mark := w.auditMark()
	targets = append(targets, come("meanwhile-", all)...)
	fills.least += sinceFirst(writesTo(w.requestsSince(mark), ""), w.ns("meanwhile-"))
	w.expectCounted(p, fill, &fills)

	// In some new namespaces the copy is held back, and then all sources are changed once more. That is no change of its own
	// for the metric: it is over when the first one is.
	holdLate := w.holdCreates(w.ns("late-"))
	w.createNamespaces("late-", sources, 1, &fills)
	w.await("the copies in new namespaces are on their way", func() bool { return holdLate.Held() == sources })
	sinceLate := time.Now()
	w.changeAll(all, "2", &span{})
	w.waitAllInSync(all, targets)
	w.expectUncounted(p, propagation, &changes)
	w.expectUncounted(p, fill, &fills)
	changes.least += sources * time.Since(since)
	fills.least += sources * time.Since(sinceLate)
	hold.Stop()
	holdLate.Stop()
	w.expectCounted(p, propagation, &changes)
	w.expectCounted(p, fill, &fills)

	// Nothing is held back any more: from here on the API server's audit log tells when writes were on their way.
	mark = w.auditMark()
	targets = append(targets, come("more-", all)...)
	fills.least += sinceFirst(writesTo(w.requestsSince(mark), ""), w.ns("more-"))
	w.expectCounted(p, fill, &fills)
	w.expectUncounted(p, propagation, &changes)
	mark = w.auditMark()
	w.changeAll(all, "3", &changes)
	w.waitAllInSync(all, targets)
	changes.least += apart(writesTo(w.requestsSince(mark), ""), func(e cluster.Event) string { return e.Object.Name })
	w.expectCounted(p, propagation, &changes)
	w.expectUncounted(p, fill, &fills)
}

// createNamespaces creates target namespaces, each of which is new to the controller and gets so many copies, and returns
// their names.
func (w *proxied) createNamespaces(prefix string, n, copies int, fills *span) (names []string) {
	w.Helper()
	for i := range n {
		for range copies {
			fills.send()
		}
		names = append(names, w.createNamespace(w.ns(fmt.Sprint(prefix, i)), nil).Name)
	}
	return names
}

// changeAll changes the sources.
func (w *proxied) changeAll(sources []*corev1.ConfigMap, version string, changes *span) {
	w.Helper()
	for n := range sources {
		changes.send()
		sources[n] = w.edit(w.home, sources[n].Name, withData(map[string]string{"version": version}))
	}
}

// waitAllInSync waits until all sources have their copies in all of the namespaces.
func (w *proxied) waitAllInSync(sources []*corev1.ConfigMap, namespaces []string) {
	w.Helper()
	for _, source := range sources {
		w.waitInSync(source, namespaces...)
	}
}

// sinceFirst returns the sum of the times between the first write to a namespace and each write there that took effect, for
// the namespaces whose names begin so.
func sinceFirst(writes []cluster.Event, prefix string) (sum time.Duration) {
	first := map[string]time.Time{}
	for _, e := range writes {
		if at, ok := first[e.Object.Namespace]; !ok || e.Received.Before(at) {
			first[e.Object.Namespace] = e.Received
		}
	}
	for _, e := range writes {
		if strings.HasPrefix(e.Object.Namespace, prefix) && e.Response.Code < 300 {
			sum += e.Received.Sub(first[e.Object.Namespace])
		}
	}
	return sum
}

// holdCreates has the proxy keep back what the controller creates in the namespaces whose names begin so. It must not take
// minutes: the controller gives a request up after 35 seconds.
func (w *proxied) holdCreates(namespaces string) *faultproxy.Injection {
	return w.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"create"}, Resources: []string{"configmaps"},
		When:  func(q faultproxy.Request) bool { return strings.HasPrefix(q.Namespace, namespaces) },
		Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
}
