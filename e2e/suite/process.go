package suite

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
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
	w.Await("the log says "+text, func() bool { return strings.Contains(p.Log(), text) })
}

// Graced are the arguments for a deletion grace, and for metrics that show it. One of an hour never ends in a test.
func Graced(grace time.Duration) []string {
	return []string{"--deletion-grace=" + grace.String(), "--metrics-bind-address=127.0.0.1:0"}
}

// Leased are the arguments for a lease of this duration, which may be renewed
// until shortly before its end. A machine that is busy for seconds must not
// cost a controller its lease, unless that is tested: a leased hour outlasts a
// test.
func Leased(d time.Duration) []string {
	return []string{
		fmt.Sprint("--leader-elect-lease-duration=", d),
		fmt.Sprint("--leader-elect-renew-deadline=", d-5*time.Second),
	}
}

// WithProxy puts a proxy, which can misbehave, between the API server and the
// controllers of StartProxied.
func (w *World) WithProxy() *World { return w.WithProxyAs(w.Installed.Kubeconfig) }

// WithProxyAs is WithProxy for controllers with a kubeconfig of their own.
func (w *World) WithProxyAs(kubeconfig string) *World {
	w.Helper()
	p, err := faultproxy.Start(kubeconfig, w.TempDir())
	w.noError(err)
	w.Cleanup(func() {
		if err := p.Close(); err != nil {
			w.Errorf("closing the proxy: %v", err)
		}
	})
	w.Proxy = p
	return w
}

// StartProxied runs a controller that has to pass through the proxy.
func (w *World) StartProxied(env []string, args ...string) *shipped.Process {
	w.Helper()
	p := w.StartWith(shipped.RunOptions{Args: args, Env: env, Kubeconfig: w.Proxy.Kubeconfig()})
	w.Cleanup(w.Proxy.Heal) // before the controller is stopped
	return p
}
