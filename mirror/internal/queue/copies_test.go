package queue

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

type key = types.NamespacedName

type copies struct{ *Copies }

// testQueue returns a queue of copies that ends with the test.
func testQueue(t testing.TB) copies {
	q := copies{NewCopies("test")}
	t.Cleanup(q.ShutDown)
	return q
}

// add reads words such as "+a1 !b2". a1 is the key of source a in namespace 1. + is the key of a fan-out, and ! that of
// an event.
func (q copies) add(words string) {
	for _, word := range strings.Fields(words) {
		k := key{Name: word[1:2], Namespace: word[2:]}
		if word[0] == '!' {
			q.AddFirst(k)
		} else {
			q.Add(k)
		}
	}
}

// gets takes the next n keys into work.
func (q copies) gets(n int) (keys []key, words string) {
	var all []string
	for range n {
		k, _ := q.Get()
		keys, all = append(keys, k), append(all, k.Name+k.Namespace)
	}
	return keys, strings.Join(all, " ")
}

func TestFanoutsTakeTurnsBehindEvents(t *testing.T) {
	for name, tc := range map[string]struct{ add, want string }{
		"C46 fan-outs take turns":               {"+a1 +a2 +a3 +b1 +b2 +c1", "a1 b1 c1 a2 b2 a3"},
		"C32 events come first, in their order": {"+a1 !b2 !b1", "b2 b1 a1"},
		"a fan-out has every fifth turn": {"+a1 +a2 +b1 !x1 !x2 !x3 !x4 !x5 !x6 !x7 !x8 !x9",
			"x1 x2 x3 x4 a1 x5 x6 x7 x8 b1 x9 a2"},
		"events use all turns alone":       {"!x1 !x2 !x3 !x4 !x5 !x6", "x1 x2 x3 x4 x5 x6"},
		"an event moves a waiting key":     {"+a1 +a2 +a3 !a2", "a2 a1 a3"},
		"also the only key of its flow":    {"+a1 +b1 !a1", "a1 b1"},
		"a flow ends its turns in order":   {"+a1 +a2 +b1 +a3 +b2", "a1 b1 a2 b2 a3"},
		"a key waits once":                 {"+a1 +a1 !a1 !a1 +a1", "a1"},
		"a fan-out does not move it back":  {"!a1 +b1 +a1", "a1 b1"},
		"a fan-out does not move it ahead": {"+b1 +a1 +a1", "b1 a1"},
	} {
		t.Run(name, func(t *testing.T) {
			q := testQueue(t)
			q.add(tc.add)
			want := len(strings.Fields(tc.want))
			if got := q.Len(); got != want {
				t.Fatalf("got %d keys, want %d", got, want)
			}
			if _, got := q.gets(want); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			wantNoKeys(t, q)
		})
	}
}

// TestEventDuringTheWorkBringsTheKeyBack: the key waits again, goes ahead, and leaves nothing.
func TestEventDuringTheWorkBringsTheKeyBack(t *testing.T) {
	q := testQueue(t)
	q.add("+a1")
	inWork, _ := q.gets(1)
	q.add("+b1 +b2 !a1 !a1")
	if n := q.Len(); n != 2 {
		t.Errorf("got %d keys while one of three is in work, want 2", n)
	}
	q.Done(inWork[0])
	if _, got := q.gets(3); got != "a1 b1 b2" {
		t.Errorf("got %q, want the key of the event first", got)
	}
	wantNoKeys(t, q)
}

// wantNoKeys checks that the order remembers no key, after the next turn of a fan-out.
func wantNoKeys(t *testing.T, q copies) {
	t.Helper()
	o := q.order
	if o.Len() > 0 {
		t.Fatalf("got %d keys, want none", o.Len())
	}
	o.addedFirst.Range(func(k, _ any) bool {
		t.Errorf("got %v remembered, want no key", k)
		return true
	})
	o.popTurn() // clears what keys left in their flows when they moved to the events
	if n := q.Len() + len(o.first) + len(o.waiting) + len(o.flows) + len(o.turns); n > 0 {
		t.Errorf("got %d things left, want none: %+v", n, o)
	}
}

// TestMovedKeysLeaveNothing: a flow whose keys move to the events all the time does not grow.
func TestMovedKeysLeaveNothing(t *testing.T) {
	q := testQueue(t)
	for range 1000 {
		q.add("+a0 !a0 +a1 !a1 +a2 !a2 +a3 !a3 +b0 +b1 +c0 +c1 +d0 +d1")
		keys, _ := q.gets(firstInARow + 1)
		for _, k := range keys {
			q.Done(k)
		}
		for flow, keys := range q.order.flows {
			if n := len(keys); n > 100 {
				t.Fatalf("got %d keys in the flow %s of 4, want a bound", n, flow)
			}
		}
	}
}

// named keeps the names by which queues ask for their metrics. A nil metric counts
// nothing.
type named struct {
	workqueue.MetricsProvider
	depths, retries []string
}

type noMetric struct{}

func (noMetric) Inc()            {}
func (noMetric) Dec()            {}
func (noMetric) Set(float64)     {}
func (noMetric) Observe(float64) {}

func (n *named) NewDepthMetric(name string) workqueue.GaugeMetric {
	n.depths = append(n.depths, name)
	return noMetric{}
}

func (n *named) NewRetriesMetric(name string) workqueue.CounterMetric {
	n.retries = append(n.retries, name)
	return noMetric{}
}

func (*named) NewAddsMetric(string) workqueue.CounterMetric           { return noMetric{} }
func (*named) NewLatencyMetric(string) workqueue.HistogramMetric      { return noMetric{} }
func (*named) NewWorkDurationMetric(string) workqueue.HistogramMetric { return noMetric{} }
func (*named) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return noMetric{}
}
func (*named) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return noMetric{}
}

// TestMetricsHaveTheName of the queue, in dashboards and alerts.
func TestMetricsHaveTheName(t *testing.T) {
	all := &named{}
	workqueue.SetProvider(all) // the first call counts
	q := NewCopies("mirror")
	defer q.ShutDown()
	if want := []string{"mirror"}; !slices.Equal(all.depths, want) || !slices.Equal(all.retries, want) {
		t.Errorf("got depths of %q and retries of %q, want both of %q", all.depths, all.retries, want)
	}
}
