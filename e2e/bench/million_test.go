package main

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMillionFlags(t *testing.T) {
	o, s, err := parseMillion([]string{"-namespaces", "1000", "-sources", "20", "-run", "^resync"})
	if err != nil {
		t.Fatal(err)
	}
	if s.copies() != 20_000 || !slices.Equal(s.rungs(), []int{10, 100, 1000}) {
		t.Errorf("got %d copies in steps of %v namespaces", s.copies(), s.rungs())
	}
	if want := []string{"GOMEMLIMIT=460MiB"}; !slices.Equal(o.env, want) || o.caution == "" {
		t.Errorf("got %q, caution %q: want %q as shipped, and a word about the bars", o.env, o.caution, want)
	}
	if _, _, err := parseMillion([]string{"-idle", "5m", "-resync", "5m"}); err == nil {
		t.Error("a resync within the time in which an idle process is watched was allowed")
	}
	if o, s, err = parseMillion(nil); err != nil || s.copies() != 1_000_000 || o.caution != "" {
		t.Errorf("without flags: %d copies, caution %q, %v", s.copies(), o.caution, err)
	}
	if want := []int{10, 100, 1000, 10_000}; !slices.Equal(s.rungs(), want) {
		t.Errorf("without flags: steps of %v namespaces, want %v", s.rungs(), want)
	}
	// 4 MiB for each 1,000 copies beyond 100,000, and nine tenths of it: deploy/docs/operate.md.
	if want := []string{"GOMEMLIMIT=3700MiB"}; !slices.Equal(o.env, want) {
		t.Errorf("for a million copies: got %q, want %q", o.env, want)
	}
}

// Each row has a name of its own, and a bar wherever one was asked for.
func TestMillionRows(t *testing.T) {
	o, s, err := parseMillion(nil)
	if err != nil {
		t.Fatal(err)
	}
	seen, bars := map[string]bool{}, 0
	for _, g := range (&million{millionSizes: s}).groups(o.bounds) {
		for _, r := range g.rows() {
			if seen[r.figure] || r.unit == nil {
				t.Errorf("row %q: twice, or without a unit", r.figure)
			}
			seen[r.figure] = true
			if r.bar > 0 {
				bars++
			}
		}
	}
	if bars != 10 { // eight of the issue, the resident memory of both processes, and all memory
		t.Errorf("got %d rows with a bar, want 10", bars)
	}
}

// What is in memory together is judged, and the most of it noted.
func TestBounds(t *testing.T) {
	b := newBounds(0, 1)
	for _, resident := range []float64{0.5, 0.75, 0.25} {
		if err := b.judge(map[string]float64{"etcd": resident * (1 << 29), "bench": resident * (1 << 29)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.most.ours; len(got) != 1 || got[0] != 0.75*(1<<30) || b.most.verdict() != met {
		t.Errorf("got %v, %s: want the most, 0.75 GiB", got, b.most.verdict())
	}
	err := b.judge(map[string]float64{"etcd": 1 << 30, "bench": 1 << 20})
	if err == nil || !strings.Contains(err.Error(), "etcd 1024.0 MiB") || b.most.verdict() != missed {
		t.Errorf("beyond the bound: got %v, %s", err, b.most.verdict())
	}
}

// The run ends in time to clear up, and says why.
func TestDeadline(t *testing.T) {
	ctx, cancel := bounds{within: 40 * time.Minute}.deadline(t.Context())
	defer cancel()
	at, ok := ctx.Deadline()
	if left := time.Until(at); !ok || left > 37*time.Minute || left < 36*time.Minute {
		t.Errorf("it ends in %s, want 37m", left)
	}
	if ctx, cancel := (bounds{}).deadline(t.Context()); ctx.Done() != t.Context().Done() {
		t.Error("without a bound it has an end")
		cancel()
	}
}

func TestGrowthTable(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(growthTable([]rung{{copies: 1000, made: 900, filled: time.Second}})), "\n")
	if len(lines) != 3 || strings.Count(lines[0], "|") != strings.Count(lines[1], "|") || strings.Count(lines[0], "|") != strings.Count(lines[2], "|") {
		t.Errorf("the columns differ:\n%s", strings.Join(lines, "\n"))
	}
}

// A million copies at the right end are as far from the left as the axis is long, and the largest value is at the top.
func TestPanels(t *testing.T) {
	picture := drawPanels("here & now", []panel{
		{title: "a <b>", xName: "copies", x: asCount, y: asGiB, lines: []line{{"one", []point{{0, 0}, {1_000_000, 1 << 30}}}}},
		{title: "nothing", x: asCount, y: asGiB, lines: []line{{name: "none"}}},
	})
	for _, want := range []string{`points="90.0,188.0 710.0,58.0"`, "1,000,000 copies", "1.00 GiB", "here &amp; now"} {
		if !strings.Contains(picture, want) {
			t.Errorf("%q is not in the picture:\n%s", want, picture)
		}
	}
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestLiveHeapOfProfile(t *testing.T) {
	found := heapLine.FindStringSubmatch("# Sys = 99\n# HeapAlloc = 12345\n# HeapSys = 7\n")
	if len(found) != 2 || found[1] != "12345" {
		t.Errorf("got %q, want 12345", found)
	}
}
