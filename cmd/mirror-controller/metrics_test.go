package main

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/testutil"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// byChance are metrics that are there only if a request was tried again, if a renewal of the lease met another one, if
// a transport was thrown away, or after the self-check; and those of the runtime, which differ from version to version.
var byChance = regexp.MustCompile(
	`^(mirror_confined|rest_client_request_retries_|leader_election_slowpath_|rest_client_transport_cache_gc_|go_)`)

// TestMetricsOfTheProcess holds the names, labels and types of all metrics of a process that leads, also of those that
// come from libraries: alerts and dashboards hang on them.
func TestMetricsOfTheProcess(t *testing.T) {
	p := start(t, newAPIServer(t).URL, "--leader-elect", "--leader-elect-resource-namespace=system", "--kube-api-qps=100")
	url := p.awaitURL("metrics")
	p.awaitLine(`"Mirroring"`)
	content := get(t, url+"/metrics", http.StatusOK)
	if !regexp.MustCompile(`(?m)^mirror_build_info\{goversion="go1[^"]*",version="[^"]+"\} 1$`).MatchString(content) {
		t.Errorf("no build in\n%s", content)
	}
	expectGolden(t, "metrics.txt", metricForms(t, content))
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
			kind := strings.ToLower(family.Type.String())
			lines = append(lines, fmt.Sprintf("%s{%s} %s\n", name, strings.Join(labels, ","), kind))
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}

// TestProfiling: profiles are served only if the flag asks for them.
func TestProfiling(t *testing.T) {
	controller, err := mirror.New(kubernetes.NewForConfigOrDie(&rest.Config{}), nil, mirror.NewOptions())
	noError(t, err)
	for profiling, want := range map[bool]int{true: http.StatusOK, false: http.StatusNotFound} {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/trace?seconds=0.01"} {
			if code, _ := ask(t, metricsHandler(controller, profiling), path); code != want {
				t.Errorf("%v: got %d from %s, want %d", profiling, code, path, want)
			}
		}
	}
}
