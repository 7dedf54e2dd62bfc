package contract

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestSignals stops a controller in the middle of a write: it is alive, and not
// ready any more, while it waits for the answer. The second signal kills it. A
// controller that has just cut the write, to send it again, waits for nothing
// and ends at the first signal: then another one is stopped.
func TestSignals(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	hook, n := w.StartWebhook(w.NS("a"), nil), 0
	w.Until("a controller is stopped in the middle of a write", func() error {
		p := w.Start("--health-probe-bind-address=127.0.0.1:0")
		w.Until("it is ready", func() error { return w.Probe(p, "/readyz") })
		reached, proceed := hook.Hold(admissionv1.Create)
		defer proceed()
		n++
		w.CreateSource(w.Home, fmt.Sprint("settings-", n))
		w.Wait("a write is in flight", reached)
		w.Signal(p, syscall.SIGINT)
		w.WaitLog(p, "a second signal ends the process")
		w.Until("it is not ready", func() error {
			err := w.Probe(p, "/readyz")
			if hasEnded(p) || err != nil && strings.Contains(err.Error(), "500 ") {
				return nil
			}
			return fmt.Errorf("/readyz: %w, want code 500", err)
		})
		dead := w.Probe(p, "/livez")
		_ = p.Signal(syscall.SIGTERM) // fails if it has ended
		w.Wait("the end", p.Done())
		switch code := p.ExitCode(); {
		case code == 0:
			return errors.New("it has ended at the first signal")
		case code != -1 || dead != nil:
			t.Errorf("it ended with code %d, want death by a signal; before: %v", code, dead)
		}
		return nil
	})
}

// hasEnded reports whether the controller has ended.
func hasEnded(p *shipped.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// selection finds a metric with the labels by which an expression of PromQL chooses, and calls of functions besides.
var (
	selection = regexp.MustCompile(`\b([a-z]+_\w+)(\(|\{[^}]*\})?`)
	matcher   = regexp.MustCompile(`(\w+)[!=]~?"([^"]*)"`)
)

// usual are the metrics of libraries and of the build that deploy/docs/reference.md promises. An empty value is any.
const usual = `workqueue_adds_total{name="mirror"} workqueue_adds_total{name="mirror-sources"}
	workqueue_retries_total{name=""}
	workqueue_queue_duration_seconds_bucket{name=""} workqueue_work_duration_seconds_bucket{name=""}
	workqueue_unfinished_work_seconds{name=""} workqueue_longest_running_processor_seconds{name=""}
	rest_client_requests_total{code="",host="",method=""} rest_client_request_duration_seconds_bucket{host="",verb=""}
	controller_runtime_reconcile_total{controller="mirror",result="success"} mirror_build_info{goversion="",version=""}
	controller_runtime_reconcile_errors_total{controller="mirror"}
	controller_runtime_max_concurrent_reconciles{controller=""}
	controller_runtime_reconcile_time_seconds_bucket{controller="mirror"} leader_election_master_status{name=""}`

// TestMonitoringAsksForWhatIsServed: a leader serves the usual metrics, and each for which the alerts and the dashboard
// ask, with the labels and the values by which they choose.
func TestMonitoringAsksForWhatIsServed(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	p := w.StartWith(shipped.RunOptions{
		Args: append([]string{"--leader-elect", "--leader-elect-resource-namespace=" + w.Home,
			"--metrics-bind-address=127.0.0.1:0"}, suite.Leased(time.Hour)...),
		Kubeconfig: w.NewAccount("leader", w.ShippedRules()).Kubeconfig,
	})
	w.WaitInSync(w.CreateSource(w.Home, "settings"), w.NS("a"))
	served, err := w.Scrape(p)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(maps.Keys(served))
	expectSelected(t, lines, usual)
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		content, err := os.ReadFile(filepath.Join(suite.Deployed("components"), "monitoring", file))
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		var document any
		if err := yaml.Unmarshal(content, &document); err != nil {
			t.Fatal(err)
		}
		for _, expression := range expressions(document) {
			asked += expectSelected(t, lines, expression)
		}
		if asked < 10 {
			t.Errorf("%s asks for %d metrics, want 10 at least", file, asked)
		}
	}
}

// expressions returns all texts with the key expr in a document.
func expressions(document any) (all []string) {
	switch d := document.(type) {
	case []any:
		for _, item := range d {
			all = append(all, expressions(item)...)
		}
	case map[string]any:
		if text, ok := d["expr"].(string); ok {
			all = append(all, text)
		}
		for _, value := range d {
			all = append(all, expressions(value)...)
		}
	}
	return all
}

// expectSelected fails the test unless the lines have what is selected, and returns how much that is.
func expectSelected(t *testing.T, lines []string, expression string) (selected int) {
	t.Helper()
	for _, s := range selection.FindAllStringSubmatch(expression, -1) {
		if s[2] == "(" {
			continue
		}
		selected++
		expectServed(t, lines, s[1], "", "")
		for _, pair := range matcher.FindAllStringSubmatch(s[2], -1) {
			expectServed(t, lines, s[1], pair[1], pair[2])
		}
	}
	return selected
}

// expectServed fails the test unless the lines have a metric of the name, with each of the values of the label, which a
// bar separates. Prometheus adds job and pod.
func expectServed(t *testing.T, lines []string, name, label, values string) {
	t.Helper()
	for value := range strings.SplitSeq(values, "|") {
		if value != "" {
			value += `"`
		}
		fits := func(line string) bool {
			metric, labels, _ := strings.Cut(line, "{")
			added := label == "" || label == "job" || label == "pod"
			return metric == name && (added || strings.Contains(labels, label+`="`+value))
		}
		if !slices.ContainsFunc(lines, fits) {
			t.Errorf("no metric is served that is %s with %s=%q", name, label, value)
		}
	}
}
