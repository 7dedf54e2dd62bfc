package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"gonum.org/v1/gonum/stat/distuv"
)

// row is one line of the table: a figure, what was measured of it on both sides, and how far apart the two may be.
// Ours and the limit's samples of one index belong to the same round.
type row struct {
	figure      string
	unit        unit
	ours, limit []float64
	// bar is how many times the limit ours may be at most; 0: the row is for information, and may have no limit. A bar is
	// missed only if chance does not explain it: if the lower end of the interval of the ratios is above it.
	bar float64
	// slack is what ours may be above that.
	slack float64
	// exact rows are met only if ours is the limit in each round.
	exact bool
	// note is what there is to say besides.
	note string
}

// unit is how a sample is printed.
type unit func(float64) string

func asTime(v float64) string {
	switch {
	case v < 0.1:
		return fmt.Sprintf("%.2f ms", v*1e3)
	case v < 10:
		return fmt.Sprintf("%.0f ms", v*1e3)
	}
	return fmt.Sprintf("%.1f s", v)
}

func asCPU(v float64) string { return fmt.Sprintf("%.0f µs", v*1e6) }

func asBytes(v float64) string {
	switch {
	case v < 1<<20:
		return fmt.Sprintf("%.2f KiB", v/(1<<10))
	case v < 1<<30:
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", v/(1<<30))
}

func asShare(v float64) string { return fmt.Sprintf("%.2f%%", v*100) }

func asCount(v float64) string { return thousands(int(v)) }

// thousands prints a number as people do: 20,000.
func thousands(n int) string { return message.NewPrinter(language.English).Sprint(n) }

// add notes one sample of each side.
func (r *row) add(ours, limit float64) {
	r.ours, r.limit = append(r.ours, ours), append(r.limit, limit)
}

// addTimes notes one sample of each side.
func (r *row) addTimes(ours, limit time.Duration) { r.add(ours.Seconds(), limit.Seconds()) }

// tell notes a sample of ours that has no limit.
func (r *row) tell(v float64) { r.ours = append(r.ours, v) }

// ratios are those of ours to the limit of the same round, in ascending order.
func (r *row) ratios() []float64 {
	ratios := make([]float64, min(len(r.ours), len(r.limit)))
	for i := range ratios {
		ratios[i] = 1 // also of 0 requests where none is wanted
		if r.ours[i] != r.limit[i] {
			ratios[i] = r.ours[i] / r.limit[i]
		}
	}
	slices.Sort(ratios)
	return ratios
}

// interval is where the true median of the ratios lies with a confidence of about 90%. The row needs a pair.
func (r *row) interval() (low, high float64) {
	ratios := r.ratios()
	k := intervalRank(len(ratios))
	return ratios[k], ratios[len(ratios)-1-k]
}

// intervalRank returns how many of n sorted samples lie below the 90% interval of their median. As many lie above it. A
// sample is below the true median with probability 1/2, so the number of those below is distributed binomially. The rank is
// the one whose confidence is closest to 90%: 7 samples have an interval from the second to the sixth, with 87.5%. Fewer
// than 5 samples have no such interval: theirs is from the smallest to the largest.
func intervalRank(n int) (rank int) {
	below := distuv.Binomial{N: float64(n), P: 0.5}
	off := func(k int) float64 { return math.Abs(2*below.CDF(float64(k)) - 0.1) }
	for 2*(rank+1) < n && off(rank+1) <= off(rank) {
		rank++
	}
	return rank
}

// allowed is the ratio at which the bar lies.
func (r *row) allowed() float64 { return r.bar + r.slack/median(r.limit) }

// Verdicts.
const (
	met         = "met"
	missed      = "MISSED"
	information = "-"
	unmeasured  = "not measured"
)

// verdict says whether the bar is met.
func (r *row) verdict() string {
	switch {
	case len(r.ours) == 0 || len(r.limit) == 0 && (r.exact || r.bar > 0):
		return unmeasured
	case r.exact && slices.Equal(r.ours, r.limit):
		return met
	case r.exact:
		return missed
	case r.bar == 0:
		return information
	}
	if low, _ := r.interval(); low > r.allowed() {
		return missed
	}
	return met
}

// median returns the middle of the values, NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
