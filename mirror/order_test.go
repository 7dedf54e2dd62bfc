package mirror

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// testQueue returns a queue of copies that ends with the test.
func testQueue(t testing.TB) copyQueue {
	q := newCopyQueue()
	t.Cleanup(q.ShutDown)
	return q
}

// numbered returns prefix-000, prefix-001 and so on.
func numbered(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return all
}

// add reads words such as "+a1 !b2". a1 is the key of source a in namespace 1. + is the key of a fan-out, and ! that of an
// event.
func (q copyQueue) add(words string) {
	for _, word := range strings.Fields(words) {
		k := key{Name: word[1:2], Namespace: word[2:]}
		if word[0] == '!' {
			q.addEvent(k)
		} else {
			q.Add(k)
		}
	}
}

// take takes the next n keys into work. The word of a key that an event named ends with "!".
func (q copyQueue) take(n int) (keys []key, words string) {
	var all []string
	for range n {
		k, event, _ := q.next()
		word := k.Name + k.Namespace
		if event {
			word += "!"
		}
		keys, all = append(keys, k), append(all, word)
	}
	return keys, strings.Join(all, " ")
}

func TestOrder(t *testing.T) {
	for name, tc := range map[string]struct{ add, want string }{
		"fan-outs take turns":               {"+a1 +a2 +a3 +b1 +b2 +c1", "a1 b1 c1 a2 b2 a3"},
		"events come first, in their order": {"+a1 !b2 !b1", "b2! b1! a1"},
		"a fan-out has every fifth turn":    {"+a1 +a2 +b1 !x1 !x2 !x3 !x4 !x5 !x6 !x7 !x8 !x9", "x1! x2! x3! x4! a1 x5! x6! x7! x8! b1 x9! a2"},
		"events use all turns alone":        {"!x1 !x2 !x3 !x4 !x5 !x6", "x1! x2! x3! x4! x5! x6!"},
		"an event moves a waiting key":      {"+a1 +a2 +a3 !a2", "a2! a1 a3"},
		"also the only key of its lane":     {"+a1 +b1 !a1", "a1! b1"},
		"a key waits once":                  {"+a1 +a1 !a1 !a1 +a1", "a1!"},
		"a fan-out does not move it back":   {"!a1 +b1 +a1", "a1! b1"},
	} {
		t.Run(name, func(t *testing.T) {
			q := testQueue(t)
			q.add(tc.add)
			want := len(strings.Fields(tc.want))
			if got := q.Len(); got != want {
				t.Fatalf("got %d keys, want %d", got, want)
			}
			if _, got := q.take(want); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			wantNoKeys(t, q)
		})
	}
}

// wantNoKeys checks that the order remembers nothing but keys in work, after the next turn of a fan-out.
func wantNoKeys(t *testing.T, q copyQueue) {
	t.Helper()
	o := q.order
	if o.Len() > 0 {
		t.Fatalf("got %d keys, want none", o.Len())
	}
	o.popTurn() // clears what keys left in their lanes when they moved to the events
	if n := q.Len() + len(o.events) + len(o.waiting) + len(o.perName) + len(o.turns) + len(o.named); n > 0 {
		t.Errorf("got %d things left, want none: %+v", n, o)
	}
}

// TestMovedKeysLeaveNothing: a lane whose keys moved to the events keeps its turns, and does not grow.
func TestMovedKeysLeaveNothing(t *testing.T) {
	q := testQueue(t)
	for i := range 100 {
		q.add(fmt.Sprintf("+a%d +b%d +b%d", i, i, 100+i))
	}
	for i := range 100 {
		q.add(fmt.Sprintf("!a%d", i))
	}
	keys, _ := q.take(125) // of which 25 are turns of b
	for _, k := range keys {
		q.finish(k)
	}
	q.add("+anew")
	if _, got := q.take(2); !strings.Contains(got, "anew") {
		t.Errorf("got %q, want that a and b take turns", got)
	}
	for range 1000 {
		q.add("+a0 !a0 +a1 !a1 +a2 !a2 +a3 !a3")
		for _, name := range []string{"b", "c", "d"} {
			q.add("+" + name + "0 +" + name + "1")
		}
		keys, _ := q.take(eventsPerTurn + 1)
		for _, k := range keys {
			q.finish(k)
		}
		if n := len(q.order.perName["a"]); n > 100 {
			t.Fatalf("got %d keys in the lane of 4, want a bound", n)
		}
	}
}

// TestOrderOfKeysInWork: events about a key in work bring it back, once.
func TestOrderOfKeysInWork(t *testing.T) {
	for name, tc := range map[string]struct{ add, want string }{
		"nothing":        {"", ""},
		"a fan-out":      {"+a1 +a1", "a1"},
		"an event":       {"!a1 !a1", "a1!"},
		"both":           {"+a1 !a1 +a1", "a1!"},
		"of another key": {"!a2", "a2!"},
	} {
		t.Run(name, func(t *testing.T) {
			q := testQueue(t)
			q.add("!a1")
			first, _ := q.take(1)
			q.add(tc.add)
			want := len(strings.Fields(tc.want))
			if q.finish(first[0]); q.reportable("a") != (want == 0) {
				t.Errorf("got the name reportable %v, want %v", want != 0, want == 0)
			}
			if got := q.Len(); got != want {
				t.Fatalf("got %d keys, want %d", got, want)
			}
			if _, got := q.take(want); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestReportable: the sources of a name are reported when no key is waiting or in work, or when some have been for long.
func TestReportable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		check := func(when string, want bool) {
			t.Helper()
			if got := q.reportable("a"); got != want {
				t.Errorf("%s: got reportable %v, want %v", when, got, want)
			}
		}
		check("at first", true)
		if q.contended() {
			t.Error("got keys that wait, want none")
		}
		q.add("+a1")
		if !q.contended() {
			t.Error("got no keys that wait, want one")
		}
		q.add("!a2 !b1")
		check("with two keys that wait", false)
		keys, _ := q.take(3)
		check("with two keys in work", false)
		time.Sleep(reportAfter)
		check("with two keys in work for long", true)
		q.reported("a")
		check("after a report", false)
		time.Sleep(reportAfter)
		check("long after a report", true)
		q.reported("a")
		for _, k := range keys {
			if k.Name == "a" {
				check("with keys in work", false)
				q.finish(k)
			}
		}
		check("with a key of another name in work", true)
		q.add("+a1")
		if q.ShutDown(); q.contended() {
			t.Error("got keys that wait to be worked on after a stop")
		}
		if len(q.order.open) != 2 {
			t.Errorf("got the names %v with open keys, want both", q.order.open)
		}
	})
}

// orderModel is what a queue of copies is to do, in a few lines: the keys that wait, in order of arrival, and those in work.
type orderModel struct {
	events, fans []key
	inWork       map[key]bool
	again        map[key]bool // in work, and to come back; the value: an event named it
	streak       int
}

func (m *orderModel) add(k key, event bool) {
	switch fan := slices.Index(m.fans, k); {
	case m.inWork[k]:
		m.again[k] = m.again[k] || event
	case slices.Contains(m.events, k), fan >= 0 && !event:
	case event:
		if fan >= 0 {
			m.fans = slices.Delete(m.fans, fan, fan+1)
		}
		m.events = append(m.events, k)
	default:
		m.fans = append(m.fans, k)
	}
}

// take checks that k may be the next one. It does not know which fan-out has its turn.
func (m *orderModel) take(k key, event bool) error {
	switch turn := len(m.fans) > 0 && m.streak >= eventsPerTurn || len(m.events) == 0; {
	case event && (turn || m.events[0] != k):
		return fmt.Errorf("got event %v, with events %v, fan-outs %v, streak %d", k, m.events, m.fans, m.streak)
	case !event && (!turn || !slices.Contains(m.fans, k)):
		return fmt.Errorf("got %v of a fan-out, with events %v, fan-outs %v, streak %d", k, m.events, m.fans, m.streak)
	case event:
		m.events = m.events[1:]
		if m.streak++; m.streak > eventsPerTurn {
			m.streak = 1
		}
	default:
		m.fans = slices.DeleteFunc(m.fans, func(other key) bool { return other == k })
		m.streak = 0
	}
	m.inWork[k] = true
	return nil
}

func (m *orderModel) finish(k key) {
	delete(m.inWork, k)
	if event, comes := m.again[k]; comes {
		delete(m.again, k)
		m.add(k, event)
	}
}

// TestRandomOrder compares the queue with the model. Nothing is lost, and a key is never twice in the queue or in work.
func TestRandomOrder(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		q, m := testQueue(t), &orderModel{inWork: map[key]bool{}, again: map[key]bool{}}
		takes := func() {
			k, event, _ := q.next()
			if m.inWork[k] {
				t.Fatalf("seed %d: got %v, which is in work", seed, k)
			}
			if err := m.take(k, event); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		finishes := func() {
			for k := range m.inWork {
				q.finish(k)
				m.finish(k)
				of := func(other key) bool { return other.Name == k.Name }
				want := !slices.ContainsFunc(slices.Concat(m.events, m.fans), of)
				for other := range m.inWork {
					want = want && !of(other)
				}
				if q.reportable(k.Name) != want {
					t.Fatalf("seed %d: got no other key of %s: %v, want %v", seed, k.Name, !want, want)
				}
				return
			}
		}
		for range 2000 {
			switch k := (key{Name: string('a' + rune(random.IntN(3))), Namespace: fmt.Sprint(random.IntN(8))}); random.IntN(5) {
			case 0, 1:
				q.Add(k)
				m.add(k, false)
			case 2:
				q.addEvent(k)
				m.add(k, true)
			case 3:
				if q.Len() > 0 {
					takes()
				}
			case 4:
				finishes()
			}
			if q.Len() != len(m.events)+len(m.fans) {
				t.Fatalf("seed %d: got %d keys, want %d", seed, q.Len(), len(m.events)+len(m.fans))
			}
		}
		for q.Len()+len(m.inWork) > 0 {
			if q.Len() > 0 {
				takes()
			}
			finishes()
		}
		wantNoKeys(t, q)
		if len(q.order.open) > 0 {
			t.Errorf("seed %d: got %v counted as open, want none", seed, q.order.open)
		}
	}
}

// TestOrderUnderConcurrency adds keys from many goroutines while workers take them: each key is taken after it was added
// last, and never by two workers at once.
func TestOrderUnderConcurrency(t *testing.T) {
	type target struct {
		mu           sync.Mutex
		added, taken int
		inWork       int // without a lock: -race sees two workers
	}
	synctest.Test(t, func(t *testing.T) {
		q := newCopyQueue()
		targets := map[key]*target{}
		for i := range 40 {
			targets[key{Name: string('a' + rune(i%2)), Namespace: fmt.Sprint(i)}] = &target{}
		}
		for range 8 {
			go func() {
				for {
					k, _, shutdown := q.next()
					if shutdown {
						return
					}
					at := targets[k]
					at.inWork++
					at.mu.Lock()
					at.taken = at.added
					at.mu.Unlock()
					time.Sleep(time.Millisecond)
					if at.inWork--; at.inWork != 0 {
						t.Errorf("got %v in work twice", k)
					}
					q.finish(k)
				}
			}()
		}
		for i := range uint64(4) {
			random := rand.New(rand.NewPCG(i, 1))
			go func() {
				for range 500 {
					k := key{Namespace: fmt.Sprint(random.IntN(40))}
					k.Name = string('a' + k.Namespace[len(k.Namespace)-1]%2)
					at := targets[k]
					at.mu.Lock()
					at.added++
					at.mu.Unlock()
					switch random.IntN(3) {
					case 0:
						q.Add(k)
					case 1:
						q.addEvent(k)
					case 2:
						q.AddAfter(k, time.Millisecond)
					}
					if random.IntN(10) == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			}()
		}
		time.Sleep(time.Minute)
		q.ShutDown()
		synctest.Wait()
		for k, at := range targets {
			if at.taken != at.added {
				t.Errorf("%v: got it taken after %d additions, want %d", k, at.taken, at.added)
			}
		}
		if wantNoKeys(t, q); len(q.order.open) > 0 {
			t.Errorf("got %v counted as open, want none", q.order.open)
		}
	})
}
