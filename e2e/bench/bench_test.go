package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		row  row
		want string
	}{
		"below the bar":            {row{bar: 1.15, ours: []float64{1, 9, 1.1}, limit: []float64{1, 1, 1}}, met},
		"above the bar":            {row{bar: 1.15, ours: []float64{1.2, 1.3, 1.2}, limit: []float64{1, 1, 1}}, missed},
		"above it, or by chance":   {row{bar: 1.15, ours: []float64{1.2, 1.2, 1}, limit: []float64{1, 1, 1}}, met},
		"above it in each pair":    {row{bar: 1.15, ours: []float64{4, 2}, limit: []float64{3, 1}}, missed},
		"one of seven below":       {row{bar: 1.15, ours: []float64{9, 9, 9, 9, 9, 9, 1}, limit: []float64{1, 1, 1, 1, 1, 1, 1}}, missed},
		"two of seven below":       {row{bar: 1.15, ours: []float64{9, 9, 9, 9, 9, 1, 1}, limit: []float64{1, 1, 1, 1, 1, 1, 1}}, met},
		"above it, but with slack": {row{bar: 1.3, slack: 0.3, ours: []float64{1.5}, limit: []float64{1}}, met},
		"equal":                    {row{exact: true, ours: []float64{5, 5}, limit: []float64{5, 5}}, met},
		"equal in the median only": {row{exact: true, ours: []float64{5, 5, 6}, limit: []float64{5, 5, 5}}, missed},
		"equal in number only":     {row{exact: true, off: true, ours: []float64{5}, limit: []float64{5}}, missed},
		"no request at all":        {row{exact: true, ours: []float64{0}, limit: []float64{0}}, met},
		"without a bar":            {row{ours: []float64{5}}, information},
		"without a sample":         {row{bar: 1}, unmeasured},
		"without a limit":          {row{bar: 1, ours: []float64{1}}, unmeasured},
	} {
		if got := c.row.verdict(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestSummary(t *testing.T) {
	rows := []*row{
		{bar: 1, ours: []float64{1}, limit: []float64{1}}, {bar: 1, ours: []float64{1}, limit: []float64{2}},
		{bar: 1, ours: []float64{2}, limit: []float64{1}}, {ours: []float64{1}}, {bar: 1},
	}
	if got, want := summary(rows), "5 rows: 2 met, 1 MISSED, 1 not measured, 1 without a bar"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMedian(t *testing.T) {
	if got := median([]float64{4, 1, 3}); got != 3 {
		t.Errorf("of an odd number of values: got %v, want 3", got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("of an even number of values: got %v, want 2.5", got)
	}
}

// TestIntervalRank compares with a table of the binomial distribution.
func TestIntervalRank(t *testing.T) {
	for n, want := range map[int]int{1: 0, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0, 7: 1, 8: 1, 9: 1, 21: 6, 50: 19} {
		if got := intervalRank(n); got != want {
			t.Errorf("of %d samples: got %d, want %d", n, got, want)
		}
	}
}

// Whatever number of namespaces a row wants, its prefixes select just those.
func TestPoolPrefixesSelectTheFirstNamespaces(t *testing.T) {
	o, err := parse([]string{"-full"})
	if err != nil {
		t.Fatal(err)
	}
	p := newPool(o.ends)
	all := p.names(o.large)
	for _, n := range append([]int{0}, p.ends...) {
		for i, name := range all {
			selected := false
			for _, prefix := range p.prefixes(n) {
				selected = selected || strings.HasPrefix(name, prefix)
			}
			if want := i < n; selected != want {
				t.Fatalf("first %d namespaces: %s is the %dth, selected: %v", n, name, i+1, selected)
			}
		}
	}
}

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-full", "-large", "7", "-run", "^repair"})
	if err != nil {
		t.Fatal(err)
	}
	if o.large != 7 || o.sources != 100 {
		t.Errorf("got large %d, sources %d: want what was given, 7, and what -full stands for, 100", o.large, o.sources)
	}
	asked := 0
	for _, g := range slices.Concat(stages(o.sizes)...) {
		asked += len(o.asked(g.rows()))
	}
	if asked != 2 {
		t.Errorf("-run '^repair' asks for %d rows, want 2", asked)
	}
}

// No two rows have one name, or -run could not tell them apart.
func TestFiguresDiffer(t *testing.T) {
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range slices.Concat(stages(o.sizes)...) {
		for _, r := range g.rows() {
			if seen[r.figure] || r.unit == nil {
				t.Errorf("row %q: twice, or without a unit", r.figure)
			}
			seen[r.figure] = true
		}
	}
}

func TestPlotIsXML(t *testing.T) {
	d := xml.NewDecoder(strings.NewReader(plot("today & here", []*row{
		{figure: "a <b>", unit: asTime, bar: 1, ours: []float64{1}, limit: []float64{2}},
		{figure: "none", unit: asCount, exact: true, ours: []float64{0}, limit: []float64{0}},
		{figure: "too much", unit: asCount, exact: true, ours: []float64{1}, limit: []float64{0}},
	})))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestProcess(t *testing.T) {
	for cpu := time.Duration(0); cpu == 0; {
		var err error
		if cpu, err = cpuOf(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if resident, peak, err := memoryOf(os.Getpid()); err != nil || resident == 0 || peak < resident {
		t.Errorf("memoryOf: resident %v, peak %v, %v", resident, peak, err)
	}
}

func TestLiveHeapOfTrace(t *testing.T) {
	const trace = `I1121 06:00:00.000000 1 run.go:70] "Starting"
gc 12 @1.234s 3%: 0.012+3.4+0.003 ms clock, 0.024+0.3/3.4/0+0.006 ms cpu, 27->29->28 MB, 29 MB goal, 0 MB stacks, 0 MB globals, 2 P
`
	found := gcLine.FindStringSubmatch(trace)
	if len(found) != 2 || found[1] != "28" {
		t.Errorf("got %q, want 28", found)
	}
}

// What is asked for besides fails a row as what is asked for too often does.
func TestRequestsThatAreWanted(t *testing.T) {
	for name, c := range map[string]struct {
		want want
		log  []string // verb, resource, and query where it matters
		met  bool
	}{
		"writes":                          {want{writes: 2}, []string{"create configmaps", "update configmaps"}, true},
		"one too many":                    {want{writes: 1}, []string{"create configmaps", "update configmaps"}, false},
		"one too few":                     {want{writes: 1}, nil, false},
		"a live read":                     {want{reads: 1}, []string{"get configmaps"}, true},
		"a live read too many":            {want{}, []string{"get namespaces"}, false},
		"watches":                         {want{}, []string{"watch configmaps resourceVersion=5"}, true},
		"a watch that begins as a list":   {want{}, []string{"watch configmaps sendInitialEvents=true"}, false},
		"lists at the start":              {want{lists: 2}, []string{"watch namespaces sendInitialEvents=true", "list configmaps"}, true},
		"the lease":                       {want{}, []string{"get leases", "update leases", "create leases"}, true},
		"an event":                        {want{events: 1}, []string{"create events"}, true},
		"an event too many":               {want{events: 1}, []string{"create events", "patch events"}, false},
		"something else":                  {want{}, []string{"create selfsubjectaccessreviews"}, false},
		"a renewal, and nothing else":     {want{alone: true}, []string{"update leases"}, true},
		"an event, and nothing is wanted": {want{alone: true}, []string{"update leases", "create events"}, false},
	} {
		got := newTally()
		for _, line := range c.log {
			var e cluster.Event
			words := append(strings.Fields(line), "")
			e.Verb, e.Object.Resource, e.RequestURI, e.Response.Code = words[0], words[1], "/api?"+words[2], 200
			got.add(e)
		}
		if c.want.met(got) != c.met {
			t.Errorf("%s: met is %v", name, !c.met)
		}
	}
}

// fakeLog is an audit log; a mark is how many events were read.
type fakeLog struct{ events []cluster.Event }

func (l *fakeLog) Since(m cluster.Mark) ([]cluster.Event, cluster.Mark, error) {
	return slices.Clone(l.events[m:]), cluster.Mark(len(l.events)), nil
}

func (l *fakeLog) Mark() (cluster.Mark, error) { return cluster.Mark(len(l.events)), nil }

// A request that comes when none is expected fails a row in which all numbers are right; watches and the lease do not.
func TestStrays(t *testing.T) {
	for request, want := range map[string]string{"update configmaps": missed, "get namespaces": missed, "watch configmaps": met, "update leases": met} {
		log := &fakeLog{}
		a := auditor{log: log, user: "us", strays: newTally()}
		ask := func(request string) {
			e := cluster.Event{}
			e.User.Username = "us"
			e.Verb, e.Object.Resource, _ = strings.Cut(request, " ")
			log.events = append(log.events, e)
		}
		noError := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		r := row{exact: true, ours: []float64{5}, limit: []float64{5}}
		ask("list configmaps") // before
		noError(a.forget())
		_, err := a.next() // what is expected
		noError(err)
		ask(request)
		noError(a.pass())
		noError(a.judgeStrays(&r))
		if r.verdict() != want {
			t.Errorf("%s: got %q, want %q", request, r.verdict(), want)
		}
	}
}

// TestHistory shows which content counts as old, and which targets were written in between.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory("first", "last")
		show := func(namespace, content string) bool {
			time.Sleep(time.Second)
			return h.see(watch.Modified, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Data: map[string]string{dataKey: content}})
		}
		for _, e := range []struct {
			namespace, content string
			last               bool
		}{{home, "1", false}, {"a", "1", false}, {home, "2", false}, {home, "last", false}, {"b", "last", true}, {"a", "last", true}} {
			if got := show(e.namespace, e.content); got != e.last {
				t.Errorf("%s in %s is the last content: %v", e.content, e.namespace, got)
			}
		}
		// b held the first content for 4 seconds after it was not the newest any more, a the second one for 3.
		if want := 4 * time.Second; h.oldest != want || h.writes != 3 || len(h.between) != 1 || !h.between["a"] {
			t.Errorf("oldest %s, %d writes, between %v: want %s, 3, a only", h.oldest, h.writes, h.between, want)
		}
	})
}

// TestWebhook shows that a call ends after the time to hang, or when it is released.
func TestWebhook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &webhook{asked: make(chan struct{})}
		took := func(release bool) time.Duration {
			h.hold()
			start := time.Now()
			if release {
				time.AfterFunc(time.Second, h.release)
			}
			h.ServeHTTP(nil, nil)
			return time.Since(start)
		}
		if got := took(false); got != hang {
			t.Errorf("a call that is held back took %s, want %s", got, hang)
		}
		if got := took(true); got != time.Second {
			t.Errorf("a call that is released after a second took %s", got)
		}
	})
}

// A watch that ended goes on where it was, and shows nothing twice.
func TestWatchGoesOn(t *testing.T) {
	ended := watch.NewFakeWithChanSize(1, false)
	ended.Modify(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}})
	ended.Stop()
	over := errors.New("over")
	var from string
	err := (&watcher{}).follow(t.Context(), ended, metav1.ListOptions{ResourceVersion: "5"},
		func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			from = o.ResourceVersion
			return nil, over
		})
	if !errors.Is(err, over) || from != "7" {
		t.Errorf("it went on from %q with error %v, want from 7", from, err)
	}
}

// TestAlternately shows that each side has each place as often as the others.
func TestAlternately(t *testing.T) {
	for n := 2; n <= 3; n++ {
		var got []int
		for round := range n {
			var sides []func() error
			for side := range n {
				sides = append(sides, func() error { got = append(got, side); return nil })
			}
			if err := alternately(round, sides...); err != nil {
				t.Fatal(err)
			}
		}
		for place := range n {
			var there []int
			for round := range n {
				there = append(there, got[round*n+place])
			}
			slices.Sort(there)
			if want := []int{0, 1, 2}[:n]; !slices.Equal(there, want) {
				t.Errorf("of %d sides these had place %d: %v", n, place, there)
			}
		}
	}
}
