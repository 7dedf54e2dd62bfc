package suite

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// Scrape returns the metrics of a controller, by name with labels.
func (w *World) Scrape(p *shipped.Process) (map[string]float64, error) {
	code, body, err := w.askFor("metrics", p, "/metrics")
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("%d: %s", code, body)
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
