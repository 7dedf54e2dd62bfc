package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// row is one line of the table: a figure, what was measured of it on both sides, and how far apart the two may be.
// Ours and the limit's samples of one index belong to the same round where there are rounds.
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
	// off is set if ours differs from the limit in more than its number.
	off bool
	// note is what there is to say besides.
	note string
	// besides counts, over all rounds, what was asked for that the row does not measure.
	besides map[string]int
}

// unit is how a sample is printed.
type unit func(float64) string

// asTime prints samples of time.
func asTime(v float64) string {
	if v < 0.1 {
		return fmt.Sprintf("%.2f ms", v*1e3)
	}
	return fmt.Sprintf("%.0f ms", v*1e3)
}

// asCPU prints samples of CPU time.
func asCPU(v float64) string { return fmt.Sprintf("%.0f µs", v*1e6) }

// asBytes prints samples of memory.
func asBytes(v float64) string {
	if v < 1<<20 {
		return fmt.Sprintf("%.2f KiB", v/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", v/(1<<20))
}

// asSize prints a number of bytes in the name of a figure.
func asSize(n int) string {
	if n%(1<<10) == 0 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// asShare prints shares of one.
func asShare(v float64) string { return fmt.Sprintf("%.2f%%", v*100) }

// asCount prints numbers of things.
func asCount(v float64) string { return thousands(int(v)) }

// thousands prints a number as people do: 20,000.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// add notes one sample of each side.
func (r *row) add(ours, limit float64) {
	r.ours, r.limit = append(r.ours, ours), append(r.limit, limit)
}

// addTimes notes one sample of each side.
func (r *row) addTimes(ours, limit time.Duration) { r.add(ours.Seconds(), limit.Seconds()) }

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

// ratio is the median of the ratios.
func (r *row) ratio() float64 { return median(r.ratios()) }

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
func intervalRank(n int) int {
	exactly := math.Pow(0.5, float64(n)) // the probability that k samples are below the median
	outside := 2 * exactly               // the probability that the median is outside the interval of rank k
	for k := 0; ; k++ {
		exactly *= float64(n-k) / float64(k+1)
		next := outside + 2*exactly
		if 2*(k+1) >= n || math.Abs(next-0.1) > math.Abs(outside-0.1) {
			return k
		}
		outside = next
	}
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
	case r.exact && (r.off || !slices.Equal(r.ours, r.limit)):
		return missed
	case r.exact:
		return met
	case r.bar == 0:
		return information
	}
	if low, _ := r.interval(); low > r.allowed() {
		return missed
	}
	return met
}

// say adds to what there is to say about the row, once.
func (r *row) say(format string, args ...any) {
	said := fmt.Sprintf(format, args...)
	switch {
	case strings.Contains(r.note, said):
	case r.note == "":
		r.note = said
	default:
		r.note += "; " + said
	}
}

// count adds to what was asked for besides.
func (r *row) count(what map[string]int) {
	if r.besides == nil {
		r.besides = map[string]int{}
	}
	for w, n := range what {
		r.besides[w] += n
	}
}

// remarks is the note, and what was asked for besides.
func (r *row) remarks() string {
	all := []string{r.note}
	for _, what := range slices.Sorted(maps.Keys(r.besides)) {
		all = append(all, fmt.Sprintf("%s: %s", what, thousands(r.besides[what])))
	}
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), "; ")
}

// median returns the middle of the values, NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
