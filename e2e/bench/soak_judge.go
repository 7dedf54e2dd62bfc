package main

import (
	"fmt"
	"slices"
	"time"
)

// judge fills the rows that compare the last third of the samples with the middle third. The first third is left out: caches,
// pools and the collector's own memory fill up then.
func (s *soak) judge() {
	middle, last := thirds(s.rests)
	if len(middle) == 0 {
		s.live.say("only %d times of rest", len(s.rests))
		return
	}
	live := func(x sample) float64 { return x.live }
	s.live.add(largest(last, live), largest(middle, live))
	resident := func(x sample) float64 { return x.resident }
	s.resident.add(largest(last, resident), largest(middle, resident))
	compareAtRest(s.goroutines, middle, last, func(x sample) float64 { return x.goroutines })
	compareAtRest(s.connections, middle, last, func(x sample) float64 { return x.connections })
}

// thirds returns the middle and the last third of the samples: equally many, and none if there are fewer than two in each.
func thirds(samples []sample) (middle, last []sample) {
	n := len(samples) / 3
	if n < 2 {
		return nil, nil
	}
	return samples[len(samples)-2*n : len(samples)-n], samples[len(samples)-n:]
}

// largest returns the largest of a figure.
func largest(samples []sample, figure func(sample) float64) float64 {
	return slices.Max(each(samples, figure))
}

// compareAtRest fills a row with what there is at rest as a rule, which has to be the same: a number that goes up and stays up is a
// leak, and one sample that caught a moment is none.
func compareAtRest(r *row, middle, last []sample, figure func(sample) float64) {
	before, after := each(middle, figure), each(last, figure)
	r.add(usual(after), usual(before))
	r.say("from %.0f to %.0f in the middle third, from %.0f to %.0f in the last", slices.Min(before), slices.Max(before), slices.Min(after), slices.Max(after))
}

// usual returns the value that comes most often, of several the smallest.
func usual(values []float64) float64 {
	times := map[float64]int{}
	for _, v := range values {
		times[v]++
	}
	best := values[0]
	for v, n := range times {
		if n > times[best] || n == times[best] && v < best {
			best = v
		}
	}
	return best
}

// each returns a figure of all samples.
func each(samples []sample, figure func(sample) float64) []float64 {
	var out []float64
	for _, s := range samples {
		out = append(out, figure(s))
	}
	return out
}

// sections are the picture of what the controller had in the course of time.
func (s *soak) sections() []section {
	if len(s.rests) == 0 {
		return nil
	}
	curve := func(name string, samples []sample, figure func(sample) float64) line {
		l := line{name: name}
		for _, at := range samples {
			l.points = append(l.points, point{at.at.Seconds(), figure(at)})
		}
		return l
	}
	both := func(title string, y unit, figure func(sample) float64) panel {
		return panel{title: title, y: y, lines: []line{curve("at rest", s.rests, figure), curve("busy", s.busy, figure)}}
	}
	panels := []panel{
		{title: "live heap behind a collection", y: asBytes, lines: []line{curve("at rest", s.rests, func(x sample) float64 { return x.live })}},
		both("resident memory", asBytes, func(x sample) float64 { return x.resident }),
		both("goroutines", asCount, func(x sample) float64 { return x.goroutines }),
		both("connections", asCount, func(x sample) float64 { return x.connections }),
		both("keys that wait in the queues", asCount, func(x sample) float64 { return x.waiting }),
	}
	for i := range panels {
		panels[i].x, panels[i].xName = asMinutes, "minutes"
	}
	return []section{{file: "soak-time.svg", picture: drawPanels("The controller in the course of time", panels)}}
}

// asMinutes prints seconds as minutes.
func asMinutes(v float64) string { return fmt.Sprintf("%.0f", v/time.Minute.Seconds()) }
