package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/metrics/testutil"
)

// byChance are metrics that are there only if a request was tried again, if a renewal of the lease met another one, if a
// transport was thrown away, or after the self-check; and those of the runtime, which differ from version to version.
var byChance = regexp.MustCompile(`^(mirror_confined|rest_client_request_retries_|leader_election_slowpath_|rest_client_transport_cache_gc_|go_)`)

// TestMetricsOfTheProcess holds the names, labels and types of all metrics of a process that leads, also of those that come
// from libraries: alerts and dashboards hang on them.
func TestMetricsOfTheProcess(t *testing.T) {
	const golden = "testdata/metrics.txt"
	server := newAPIServer(t)
	server.answer()
	p := start(t, server.URL, "--leader-elect", "--leader-elect-resource-namespace=system", "--kube-api-qps=100")
	_, address, _ := strings.Cut(p.awaitLine("Serving metrics"), "address=")
	p.awaitLine(`"Mirroring"`)
	answer, err := http.Get("http://" + strings.Trim(address, `"`) + "/metrics")
	noError(t, err)
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	noError(t, err)
	if !regexp.MustCompile(`(?m)^mirror_build_info\{goversion="go1[^"]*",version="[^"]+"\} 1$`).Match(content) {
		t.Errorf("no build in\n%s", content)
	}

	got := metricForms(t, string(content))
	if *update {
		noError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	noError(t, err)
	if got != string(want) {
		t.Errorf("the metrics are not those of %s (go test ./cmd/... -update writes it):\n%s", golden, got)
	}
}

// metricForms returns what metrics there are, without their values and those of their labels.
func metricForms(t *testing.T, scraped string) string {
	t.Helper()
	families, err := testutil.TextToMetricFamilies(strings.NewReader(scraped))
	noError(t, err)
	var lines []string
	for name, family := range families {
		if byChance.MatchString(name) {
			continue
		}
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName())
			}
			slices.Sort(labels)
			lines = append(lines, fmt.Sprintf("%s{%s} %s\n", name, strings.Join(labels, ","), strings.ToLower(family.Type.String())))
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}

// TestProfiling: profiles are served only if --profiling asks for them.
func TestProfiling(t *testing.T) {
	server := newAPIServer(t)
	server.answer()
	for profiling, want := range map[string]int{"--profiling=true": http.StatusOK, "--profiling=false": http.StatusNotFound} {
		p := start(t, server.URL, profiling)
		_, address, _ := strings.Cut(p.awaitLine("Serving metrics"), "address=")
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1"} {
			answer, err := http.Get("http://" + strings.Trim(address, `"`) + path)
			noError(t, err)
			noError(t, answer.Body.Close())
			if answer.StatusCode != want {
				t.Errorf("%s: got %d from %s, want %d", profiling, answer.StatusCode, path, want)
			}
		}
	}
}
