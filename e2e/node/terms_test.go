package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// The writes of replicas, from the API server's audit log.

// mark is the end of the audit log as it is now.
func (w *world) mark() cluster.Mark {
	w.Helper()
	mark, err := w.audit.Mark()
	if err != nil {
		w.Fatal(err)
	}
	return mark
}

// since are the requests of the controller after the mark.
func (w *world) since(mark cluster.Mark) []cluster.Event {
	w.Helper()
	events, _, err := w.audit.Since(mark)
	if err != nil {
		w.Fatal(err)
	}
	return slices.DeleteFunc(events, func(e cluster.Event) bool {
		return e.User.Username != "system:serviceaccount:mirror-system:mirror-controller"
	})
}

// replica is the Pod that a request came from.
func replica(e cluster.Event) string {
	return strings.Join(e.User.Extra["authentication.kubernetes.io/pod-name"], ",")
}

// writes reports whether a request writes ConfigMaps. Those of the self-check change nothing.
func writes(e cluster.Event) bool {
	return e.Object.Resource == "configmaps" && slices.Contains([]string{"create", "update", "patch", "delete"}, e.Verb) &&
		!strings.Contains(e.RequestURI, "dryRun=All")
}

// takes reports whether a request made or renewed a term, or ended it.
func takes(e cluster.Event) bool {
	return e.Object.Resource == "leases" && slices.Contains([]string{"create", "update"}, e.Verb) && e.Response.Code < 300
}

// countWrites counts the writes to ConfigMaps.
func countWrites(events []cluster.Event) int {
	n := 0
	for _, e := range events {
		if writes(e) {
			n++
		}
	}
	return n
}

// leaseDuration is the time after which another replica may take the Lease.
const leaseDuration = 15 * time.Second

// termError returns an error if a replica wrote outside its term, or while another did. The replica that wrote the Lease last
// has the term, for the lease duration.
func termError(events []cluster.Event) error {
	terms := slices.DeleteFunc(slices.Clone(events), func(e cluster.Event) bool { return !takes(e) })
	slices.SortStableFunc(terms, func(a, b cluster.Event) int { return a.Done.Compare(b.Done) })
	n := 0
	for _, write := range events {
		if !writes(write) {
			continue
		}
		n++
		at := write.Done
		if write.Response.Code >= 300 {
			at = write.Received // it has changed nothing, and may have been cut off long after it was sent
		}
		var term *cluster.Event // the last one then
		for i := range terms {
			if !terms[i].Done.After(at) {
				term = &terms[i]
			}
		}
		switch {
		case replica(write) == "":
			return fmt.Errorf("a write of nobody: %v", write)
		case term == nil:
			return fmt.Errorf("a write before any term: %v", write)
		case replica(*term) != replica(write):
			return fmt.Errorf("%s wrote at %s, and %s had the term since %s: %v",
				replica(write), write.Done, replica(*term), term.Done, write)
		case write.Received.Sub(term.Received) > leaseDuration:
			return fmt.Errorf("%s wrote %s after it had renewed its term: %v", replica(write), write.Received.Sub(term.Received), write)
		}
	}
	if n == 0 {
		return fmt.Errorf("there are no writes among %d requests", len(events))
	}
	return nil
}

// concurrentWrites is the default of --concurrent-writes.
const concurrentWrites = 32

// isLate reports whether a replica that was stopped and resumed had a write refused since. Such a write passed its last check of
// the Lease before the stop, and was sent after it.
func isLate(e cluster.Event, pod string, resumed time.Time) bool {
	return writes(e) && replica(e) == pod && e.Received.After(resumed) && e.Response.Code >= 300
}

// expectTerms fails the test if there was a write outside a term since the controller was installed, or one beside another
// writer.
func (w *world) expectTerms() {
	w.Helper()
	if err := termError(w.since(w.installedAt)); err != nil {
		w.Error(err)
	}
}

// TestTermError shows that the judge sees what the tests look for.
func TestTermError(t *testing.T) {
	begin := time.Now()
	event := func(second float64, pod, verb, resource string) cluster.Event {
		e := cluster.Event{Verb: verb, Received: begin.Add(time.Duration(second * float64(time.Second)))}
		e.Done = e.Received.Add(100 * time.Millisecond)
		e.Object.Resource = resource
		e.User.Extra = map[string][]string{"authentication.kubernetes.io/pod-name": {pod}}
		return e
	}
	cutOff := event(1, "a", "create", "configmaps")
	cutOff.Done, cutOff.Response.Code = begin.Add(3*time.Second), 500
	a, b := event(0, "a", "update", "leases"), event(2, "b", "update", "leases")
	for name, c := range map[string]struct {
		events []cluster.Event
		good   bool
	}{
		"within its term":        {[]cluster.Event{a, event(1, "a", "create", "configmaps"), b, event(3, "b", "delete", "configmaps")}, true},
		"cut off":                {[]cluster.Event{a, b, cutOff}, true},
		"before any term":        {[]cluster.Event{event(-1, "a", "update", "configmaps"), a}, false},
		"after another has it":   {[]cluster.Event{a, b, event(3, "a", "update", "configmaps")}, false},
		"while another takes it": {[]cluster.Event{a, b, event(2.05, "a", "update", "configmaps")}, false},
		"after its end":          {[]cluster.Event{a, event(16, "a", "update", "configmaps")}, false},
		"nothing":                {[]cluster.Event{a, b}, false},
	} {
		if err := termError(c.events); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
