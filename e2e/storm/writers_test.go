package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/stalls"
)

// stormWith returns one with incidents: "who what from to", in milliseconds.
func stormWith(t *testing.T, lines ...string) *storm {
	s := &storm{fleet: &fleet{}, stalls: &stalls.Log{}, counts: newCounts()}
	for _, line := range lines {
		var who, what string
		var from, to int
		if _, err := fmt.Sscan(line, &who, &what, &from, &to); err != nil {
			t.Fatal(err)
		}
		if what == "stall" {
			s.stalls.Add(at(to), at(to).Sub(at(from)))
			continue
		}
		kind, resource, _ := strings.Cut(what, "/")
		st := newStep(kind, "*")
		if resource != "" {
			st = st.with(resourceArg, resource)
		}
		s.fleet.incidents.list = append(s.fleet.incidents.list, &incident{step: st, user: who, began: at(from), ended: at(to)})
	}
	return s
}

// requests reads an audit log. A request is "who what at to until", in milliseconds.
func requests(t *testing.T, lines []string) (renewed, writes []cluster.Event) {
	for _, line := range lines {
		var who, what string
		var from, to int
		if _, err := fmt.Sscan(line, &who, &what, &from, &to); err != nil {
			t.Fatal(err)
		}
		e := cluster.Event{Verb: what, Received: at(from), Done: at(to)}
		e.User.Username = who
		if what == "renew" {
			renewed = append(renewed, e)
		} else {
			writes = append(writes, e)
		}
	}
	return renewed, writes
}

// TestWriters has audit logs judged.
func TestWriters(t *testing.T) {
	dead := []life{{user: "a", started: at(0), ended: at(20)}, {user: "a", started: at(21)}}
	gave := []life{{user: "a", started: at(0), ended: at(20), gaveBack: true}, {user: "a", started: at(21)}, {user: "b", started: at(0)}}
	late := []life{{user: "a", started: at(0), ended: at(40), gaveBack: true}, gave[1]} // whose end was seen late
	kept := slices.Clone(gave)
	kept[0].gaveBack = false
	many := func(n int, line string) []string { return slices.Repeat([]string{line}, n) }
	overtaken := []string{"a renew 9000 9001", "b renew 12100 12101", "a create 12150 12151"}
	for name, c := range map[string]struct {
		log             []string
		lives           []life
		happened        []string
		want            string
		strict, excused int
	}{
		"one writer":          {log: []string{"a renew 1 2", "a create 3 4"}},
		"before the lease":    {log: []string{"a create 3 4", "a renew 5 6"}, want: "never had the lease"},
		"one after the other": {log: []string{"a renew 1 2", "a create 3 4", "b renew 5 6", "b create 7 8"}, strict: 1},
		"one that came late":  {log: []string{"a renew 1 2", "b renew 5 6", "a create 7 8"}, want: "two writers", strict: 1},
		"one that lasted":     {log: []string{"a renew 1 2", "a create 3 7", "b renew 5 6"}, want: "two writers", strict: 1},
		"had it, has it again": {
			log: []string{"a renew 1 2", "b renew 5 6", "a renew 9 10", "a create 11 12"}, strict: 2,
		},

		"late, paused":             {log: overtaken, happened: []string{"a pause 9100 12140"}, excused: 1},
		"late, delayed":            {log: overtaken, happened: []string{"a requests-delay 8500 8900"}, excused: 1},
		"late, by a mute server":   {log: overtaken, happened: []string{"b pause-apiserver 9100 12140", "a pause-apiserver 9100 12140"}, excused: 1},
		"late, the other paused":   {log: overtaken, happened: []string{"b pause 9100 12140"}, want: "two writers", strict: 1},
		"late, paused long before": {log: overtaken, happened: []string{"a pause 1000 6000"}, want: "two writers", strict: 1},
		"late, paused afterwards":  {log: overtaken, happened: []string{"a pause 12160 13000"}, want: "two writers", strict: 1},
		"late, killed":             {log: overtaken, happened: []string{"a kill 9100 9200"}, want: "two writers", strict: 1},
		"late, without watches":    {log: overtaken, happened: []string{"a cut-watches 9100 9200"}, want: "two writers", strict: 1},
		"late, on a busy machine":  {log: overtaken, happened: []string{"a stall 9100 9700"}, excused: 1},
		"late, hardly busy":        {log: overtaken, happened: []string{"a stall 9100 9480"}, want: "two writers", strict: 1},
		"late, busy long before":   {log: overtaken, happened: []string{"a stall 5000 6900"}, want: "two writers", strict: 1},
		"more than may be in flight, paused": {
			log:      append(many(concurrentWrites, overtaken[2]), overtaken...),
			happened: []string{"a pause 9100 12140"}, want: "at most 8 may", excused: 1,
		},
		"as many as may be in flight, delayed": {
			log:      append(many(concurrentWrites+slowCalls-1, overtaken[2]), overtaken...),
			happened: []string{"a requests-delay 8500 8900"}, excused: 1,
		},
		"more than may be in flight, delayed": {
			log:      append(many(concurrentWrites+slowCalls, overtaken[2]), overtaken...),
			happened: []string{"a pause 9100 12140", "a requests-delay 8500 8900"}, want: "at most 24 may", excused: 1,
		},

		"the next process":       {log: append([]string{"a renew 1 2", "a renew 30 31"}, many(2*concurrentWrites, "a create 32 33")...), lives: dead},
		"the next, without":      {log: append([]string{"a renew 1 2"}, many(concurrentWrites+1, "a create 30 31")...), lives: dead, want: "does not have the lease"},
		"the last of the killed": {log: append([]string{"a renew 1 2"}, many(concurrentWrites, "a create 30 31")...), lives: dead},

		"given back":                 {log: []string{"a renew 1 2", "a create 3 4", "a renew 5 6", "b renew 30 31"}, lives: gave, strict: 1},
		"given back before the end":  {log: []string{"a renew 1 2", "a create 3 7", "a renew 5 6"}, lives: gave, want: "gave the lease back"},
		"given back, then written":   {log: []string{"a renew 1 2", "a renew 5 6", "a create 7 8"}, lives: gave, want: "gave the lease back"},
		"written behind the process": {log: []string{"a renew 1 2", "a renew 5 6", "a create 27 28"}, lives: gave, want: "gave the lease back"},
		"given back, and cut off":    {log: []string{"a renew 1 2", "a renew 5 6", "a create 7 8"}, lives: gave, happened: []string{"a break-connections 3 3"}},
		"given back, then again had": {log: []string{"a renew 1 2", "a renew 5 6", "a renew 30 31", "a create 32 33"}, lives: gave},
		"the next has it already":    {log: []string{"a renew 1 2", "a renew 5 6", "a renew 30 31", "a create 32 33"}, lives: late},
		"given back, and seen late":  {log: []string{"a renew 1 2", "a create 3 7", "a renew 5 6", "a renew 30 31"}, lives: late, want: "gave the lease back at 1970-01-01 00:00:00.005"},
		"not given back":             {log: []string{"a renew 1 2", "a create 3 4"}, lives: kept},
		"taken, not given back":      {log: []string{"a renew 1 2", "a create 3 4", "b renew 10 11"}, lives: gave, strict: 1},
	} {
		s := stormWith(t, c.happened...)
		renewed, writes := requests(t, c.log)
		w := &writers{renewed: renewed}
		slices.SortFunc(w.renewed, byReceipt)
		got := strings.Join(slices.Concat(w.compare(writes, c.lives, s.lateRequests), w.released(writes, c.lives, s.lateRequests)), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: problems %q, want %q", name, got, c.want)
		}
		w.count(s.lateRequests)
		w.forget()
		w.count(s.lateRequests) // in the round that follows, where there is nothing new
		if w.strict != c.strict || w.excused != c.excused {
			t.Errorf("%s: %d terms judged strictly, %d excused, want %d and %d", name, w.strict, w.excused, c.strict, c.excused)
		}
	}
}

// TestLostForNothing has processes of a, at 30 seconds, and of b end before: a's has lost its lease.
func TestLostForNothing(t *testing.T) {
	lives := []life{
		{user: "b", ended: at(9_000), lost: true}, // in the round before
		{user: "a", ended: at(30_000), lost: true}, {user: "b", ended: at(12_000)}, {user: "b"},
	}
	for happened, nothing := range map[string]bool{
		"a pause 21000 29000":                   false,
		"a silence 21000 22000":                 false,
		"a lease-delay 29000 30100":             false,
		"a kill-apiserver 29000 30100":          false,
		"a lose-connections/leases 28000 28000": false,
		"a stall 28000 28300":                   false,
		"b pause 21000 29000":                   true,
		"a pause 11000 19000":                   true,
		"a pause 30100 31000":                   true,
		"a requests-delay 29000 30100":          true,
		"a lose-connections 28000 28000":        true,
		"a cut-watches 28000 28000":             true,
		"a stop 28000 28000":                    true,
		"a stall 11000 19900":                   true,
	} {
		j := &judgement{storm: stormWith(t, happened)}
		j.round = &course{border: border{began: at(10_000)}}
		j.lostForNothing(lives)
		if got := len(j.problems) > 0; got != nothing {
			t.Errorf("%s: problems %q, want some: %t", happened, j.problems, nothing)
		}
	}
}
