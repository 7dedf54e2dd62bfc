package suite

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// Probe asks a controller about its health, as a kubelet would: an error holds its answer.
func (w *World) Probe(p *shipped.Process, path string) error {
	_, err := p.Get(w.Context(), "health", path)
	return err
}

// Scrape returns the metrics of a controller, by name with labels.
func (w *World) Scrape(p *shipped.Process) (map[string]float64, error) {
	body, err := p.Get(w.Context(), "metrics", "/metrics")
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for line := range strings.Lines(body) {
		if i := strings.LastIndexByte(line, ' '); line[0] != '#' && i > 0 {
			if out[line[:i]], err = strconv.ParseFloat(strings.TrimSpace(line[i:]), 64); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// WaitMetrics waits until the metrics of a controller are these.
func (w *World) WaitMetrics(what string, p *shipped.Process, want map[string]float64) {
	w.Helper()
	w.Until(what, func() error {
		got, err := w.Scrape(p)
		if err != nil {
			return err
		}
		for name, value := range want {
			if have, ok := got[name]; !ok || have != value {
				return fmt.Errorf("got %s %v, want %v", name, have, value)
			}
		}
		return nil
	})
}

// WaitLog waits until the controller has logged the text.
func (w *World) WaitLog(p *shipped.Process, text string) {
	w.Helper()
	w.Until("the log says so", func() error {
		if !strings.Contains(p.Log(), text) {
			return errors.New("it does not say " + text)
		}
		return nil
	})
}

// Graced are the arguments for a deletion grace, and for metrics that show it. One of an hour never ends in a test.
func Graced(grace time.Duration) []string {
	return []string{"--deletion-grace=" + grace.String(), "--metrics-bind-address=127.0.0.1:0"}
}
