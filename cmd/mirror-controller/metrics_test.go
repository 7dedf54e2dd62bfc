package main

import (
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// TestMetricsOfTheProcess holds the names and types of all metrics, also of those that come from libraries: alerts and
// dashboards hang on them.
func TestMetricsOfTheProcess(t *testing.T) {
	const golden = "testdata/metrics.txt"
	opts := mirror.NewOptions()
	opts.NamespacePrefixes = []string{"team-"}
	controller, err := mirror.New(fake.NewClientset(), events.NewFakeRecorder(0), opts)
	noError(t, err)
	answer := httptest.NewRecorder()
	metricsHandler(controller).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("answer %d: %s", answer.Code, answer.Body)
	}
	if body := answer.Body.String(); !regexp.MustCompile(`(?m)^mirror_build_info\{goversion="go1[^"]*",version="[^"]+"\} 1$`).MatchString(body) ||
		!strings.Contains(body, `workqueue_depth{name="mirror"} 0`) {
		t.Errorf("no build, or no queue, in\n%s", body)
	}
	// What requests and elections bring with them depends on which tests have run before, and what the runtime has on
	// its version.
	others := regexp.MustCompile(`^# TYPE (go|rest_client|leader_election)_`)
	var got []string
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "# TYPE ") && !others.MatchString(line) {
			got = append(got, line)
		}
	}
	slices.Sort(got)
	if *update {
		noError(t, os.WriteFile(golden, []byte(strings.Join(got, "")), 0o644))
	}
	want, err := os.ReadFile(golden)
	noError(t, err)
	if strings.Join(got, "") != string(want) {
		t.Errorf("the metrics are not those of %s (go test ./cmd/... -update writes it):\n%s", golden, strings.Join(got, ""))
	}
}
