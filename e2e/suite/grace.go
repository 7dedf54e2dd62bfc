package suite

import (
	"time"
)

// Copies that no source claims: cases C52, C53 and C55. A grace of an hour never ends in a test. All times are lower bounds.

// Graced are the arguments for a deletion grace, and for metrics that show it.
func Graced(grace time.Duration) []string {
	return []string{"--deletion-grace=" + grace.String(), "--metrics-bind-address=127.0.0.1:0"}
}

// Expiring are the metrics of so many copies that no source claims.
func Expiring(n float64) map[string]float64 {
	return map[string]float64{`mirror_copies{state="expiring"}`: n}
}

// OptOut sets the mirror label of target namespaces, or takes it away.
func (w *World) OptOut(value string, names ...string) {
	w.Helper()
	for _, name := range names {
		w.LabelNamespace(w.NS(name), w.Label, value)
	}
}
