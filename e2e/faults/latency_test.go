package faults

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
	"github.com/mirror-controller/mirror-controller/e2e/suite"
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
func expectCounted(w *suite.World, p *shipped.Process, name string, s *span) {
	w.Helper()
	var got map[string]float64
	w.Until("all are counted", func() (err error) {
		got, err = w.Scrape(p)
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
func expectUncounted(w *suite.World, p *shipped.Process, name string, s *span) {
	w.Helper()
	got, err := w.Scrape(p)
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
	w := suite.NewProxied(t, suite.New(t, lasts...))
	p := w.StartProxied(nil, "--metrics-bind-address=127.0.0.1:0")
	w.WaitMetrics("it leads", p, map[string]float64{propagation + "_count": 0, fill + "_count": 0})
	var changes, fills span
	// come creates namespaces, each when the one before is filled. The controller cuts calls that are slow if there are many, and
	// a copy is not counted if its call was cut and took effect all the same.
	come := func(prefix string, all []*corev1.ConfigMap) (names []string) {
		for i := range many {
			one := createNamespaces(w, fmt.Sprint(prefix, i, "-"), 1, len(all), &fills)
			waitAllInSync(w, all, one)
			names = append(names, one...)
		}
		return names
	}

	// A source that wants one copy. The proxy holds it back, so nothing of it is over before that. The other namespaces do not
	// concern it, and there is no latency where there is nothing to write.
	hold := holdCreates(w, w.NS("last-"))
	changes.send()
	one := w.CreateSource(w.Home, "one", suite.WithAnnotation(plan.PrefixAnnotation, w.NS("last-0")))
	w.Await("the copy is on its way", func() bool { return hold.Held() == 1 })
	since := time.Now()
	targets := createNamespaces(w, "early-", many*3/4, 0, &fills)
	changes.least += time.Since(since)
	hold.Stop()
	expectCounted(w.World, p, propagation, &changes)
	expectUncounted(w.World, p, fill, &fills)

	// The same for a copy that is tried again and again.
	conflicts := w.Proxy.Inject(faultproxy.Rule{
		Verbs: []string{"update"}, Resources: []string{"configmaps"},
		When:  func(q faultproxy.Request) bool { return q.Namespace == w.NS("last-0") },
		Fault: faultproxy.Fault{Kind: faultproxy.Conflict},
	})
	changeAll(w, []*corev1.ConfigMap{one}, "2", &changes)
	w.Await("the copy is tried again", func() bool { return conflicts.Fired() > 1 })
	since = time.Now()
	targets = append(targets, createNamespaces(w, "next-", many/4, 0, &fills)...)
	expectUncounted(w.World, p, propagation, &changes)
	changes.least += time.Since(since)
	conflicts.Stop()
	expectCounted(w.World, p, propagation, &changes)

	// Each source has a last copy, in a namespace that no other source wants: a namespace that is slow has one call at a time.
	// It is held back while many namespaces come and are filled.
	hold = holdCreates(w, w.NS("last-"))
	var all []*corev1.ConfigMap
	for n := range sources {
		var prefixes []string
		for _, prefix := range []string{"early-", "next-", "meanwhile-", "more-", fmt.Sprint("last-", n), fmt.Sprint("late-", n)} {
			prefixes = append(prefixes, w.NS(prefix))
		}
		changes.send()
		all = append(all, w.CreateSource(w.Home, fmt.Sprint("settings-", n),
			suite.WithAnnotation(plan.PrefixAnnotation, strings.Join(prefixes, ","))))
	}
	w.Await("the last copies are on their way", func() bool { return hold.Held() == sources })
	since = time.Now()
	waitAllInSync(w, all, targets) // a fan-out that sees a new namespace first takes its copy for one of its own
	mark := w.AuditMark()
	targets = append(targets, come("meanwhile-", all)...)
	fills.least += sinceFirst(suite.WritesTo(w.RequestsSince(mark), ""), w.NS("meanwhile-"))
	expectCounted(w.World, p, fill, &fills)

	// In some new namespaces the copy is held back, and then all sources are changed once more. That is no change of its own
	// for the metric: it is over when the first one is.
	holdLate := holdCreates(w, w.NS("late-"))
	createNamespaces(w, "late-", sources, 1, &fills)
	w.Await("the copies in new namespaces are on their way", func() bool { return holdLate.Held() == sources })
	sinceLate := time.Now()
	changeAll(w, all, "2", &span{})
	waitAllInSync(w, all, targets)
	expectUncounted(w.World, p, propagation, &changes)
	expectUncounted(w.World, p, fill, &fills)
	changes.least += sources * time.Since(since)
	fills.least += sources * time.Since(sinceLate)
	hold.Stop()
	holdLate.Stop()
	expectCounted(w.World, p, propagation, &changes)
	expectCounted(w.World, p, fill, &fills)

	// Nothing is held back any more: from here on the API server's audit log tells when writes were on their way.
	mark = w.AuditMark()
	targets = append(targets, come("more-", all)...)
	fills.least += sinceFirst(suite.WritesTo(w.RequestsSince(mark), ""), w.NS("more-"))
	expectCounted(w.World, p, fill, &fills)
	expectUncounted(w.World, p, propagation, &changes)
	mark = w.AuditMark()
	changeAll(w, all, "3", &changes)
	waitAllInSync(w, all, targets)
	changes.least += apart(suite.WritesTo(w.RequestsSince(mark), ""), func(e cluster.Event) string { return e.Object.Name })
	expectCounted(w.World, p, propagation, &changes)
	expectUncounted(w.World, p, fill, &fills)
}

// createNamespaces creates target namespaces, each of which is new to the controller and gets so many copies, and returns
// their names.
func createNamespaces(w *suite.Proxied, prefix string, n, copies int, fills *span) (names []string) {
	w.Helper()
	for i := range n {
		for range copies {
			fills.send()
		}
		names = append(names, w.CreateNamespace(w.NS(fmt.Sprint(prefix, i)), nil).Name)
	}
	return names
}

// changeAll changes the sources.
func changeAll(w *suite.Proxied, sources []*corev1.ConfigMap, version string, changes *span) {
	w.Helper()
	for n := range sources {
		changes.send()
		sources[n] = w.Edit(w.Home, sources[n].Name, suite.WithData(map[string]string{"version": version}))
	}
}

// waitAllInSync waits until all sources have their copies in all of the namespaces.
func waitAllInSync(w *suite.Proxied, sources []*corev1.ConfigMap, namespaces []string) {
	w.Helper()
	for _, source := range sources {
		w.WaitInSync(source, namespaces...)
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
func holdCreates(w *suite.Proxied, namespaces string) *faultproxy.Injection {
	return w.Proxy.Inject(faultproxy.Rule{
		Verbs: []string{"create"}, Resources: []string{"configmaps"},
		When:  func(q faultproxy.Request) bool { return strings.HasPrefix(q.Namespace, namespaces) },
		Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
}
