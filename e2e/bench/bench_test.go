package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

func TestVerdict(t *testing.T) {
	ones := []float64{1, 1, 1, 1, 1, 1, 1}
	for name, c := range map[string]struct {
		row  row
		want string
	}{
		"below the bar":            {row{bar: 1.15, ours: []float64{1, 9, 1.1}, limit: ones}, met},
		"above the bar":            {row{bar: 1.15, ours: []float64{1.2, 1.3, 1.2}, limit: ones}, missed},
		"above it, or by chance":   {row{bar: 1.15, ours: []float64{1.2, 1.2, 1}, limit: ones}, met},
		"above it in each pair":    {row{bar: 1.15, ours: []float64{4, 2}, limit: []float64{3, 1}}, missed},
		"one of seven below":       {row{bar: 1.15, ours: []float64{9, 9, 9, 9, 9, 9, 1}, limit: ones}, missed},
		"two of seven below":       {row{bar: 1.15, ours: []float64{9, 9, 9, 9, 9, 1, 1}, limit: ones}, met},
		"above it, but with slack": {row{bar: 1.3, slack: 0.3, ours: []float64{1.5}, limit: []float64{1}}, met},
		"equal":                    {row{exact: true, ours: []float64{5, 5}, limit: []float64{5, 5}}, met},
		"equal in the median only": {row{exact: true, ours: []float64{5, 5, 6}, limit: []float64{5, 5, 5}}, missed},
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

func TestMedian(t *testing.T) {
	if odd, even := median([]float64{4, 1, 3}), median([]float64{4, 1, 3, 2}); odd != 3 || even != 2.5 {
		t.Errorf("got %v and %v, want 3 and 2.5", odd, even)
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

// TestFigures shows that no two rows have one name, or -run could not tell them apart, and that -run chooses by it.
func TestFigures(t *testing.T) {
	o, err := parse([]string{"-full", "-large", "7", "-run", "^repair"})
	if err != nil {
		t.Fatal(err)
	}
	if o.large != 7 || o.synced != 100 {
		t.Errorf("got large %d, synced %d: want what was given, 7, and what -full stands for, 100", o.large, o.synced)
	}
	m := &million{sizes: o.sizes}
	seen, asked := map[string]bool{}, 0
	for _, g := range slices.Concat(slices.Concat(stages(o.sizes)...), m.groups()) {
		asked += len(o.asked(g.rows))
		for _, r := range g.rows {
			if seen[r.figure] || r.unit == nil {
				t.Errorf("row %q: twice, or without a unit", r.figure)
			}
			seen[r.figure] = true
		}
	}
	if asked != 2 {
		t.Errorf("-run '^repair' asks for %d rows, want 2", asked)
	}
}

// TestCounts shows which requests count as work.
func TestCounts(t *testing.T) {
	for request, want := range map[string]bool{
		"update configmaps": true, "get namespaces": true, "list configmaps": true, "watch namespaces sendInitialEvents=true": true,
		"watch configmaps resourceVersion=5": false, "update leases": false, "create events": false,
		"create configmaps dryRun=All": false,
	} {
		var e cluster.Event
		words := append(strings.Fields(request), "")
		e.Verb, e.Object.Resource, e.RequestURI = words[0], words[1], "/api?"+words[2]
		if counts(e) != want {
			t.Errorf("%s: counts is %v", request, !want)
		}
		e.UserAgent = plainAgent
		if counts(e) {
			t.Errorf("%s of the plain program counts", request)
		}
	}
}

// TestThirds shows that more in the last third than in the middle third counts as growth, and a moment's goroutine
// does not.
func TestThirds(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		of      func([]float64) float64
		bar     float64
		want    string
	}{
		{[]float64{40, 60, 90, 100, 99, 98, 104, 103, 104}, slices.Max[[]float64], churnBar, met},
		{[]float64{200, 200, 200, 100, 100, 100, 106, 106, 106}, slices.Max[[]float64], churnBar, missed},
		{[]float64{9, 9, 9, 9, 9, 9, 9, 10, 9}, median, 1, met},
		{[]float64{9, 9, 9, 9, 9, 9, 10, 10, 10}, median, 1, missed},
	} {
		r := row{bar: c.bar}
		r.compareThirds(c.samples, c.of)
		if r.verdict() != c.want {
			t.Errorf("%v: %s, want %s", c.samples, r.verdict(), c.want)
		}
	}
}

// TestAttempt shows that a failure comes back as an error, from other goroutines as well, and that nothing else does.
func TestAttempt(t *testing.T) {
	problem := errors.New("a problem")
	err := attempt(func() { parallel([]int{1, 2, 3}, func(int) { check(problem) }) })
	if !errors.Is(err, problem) {
		t.Errorf("got %v", err)
	}
	defer func() { _ = recover() }()
	_ = attempt(func() { panic("a bug") })
	t.Error("a panic that is no failure was taken for an error")
}
