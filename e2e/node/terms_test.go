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

// copyOf is the copy that a request is about.
func copyOf(e cluster.Event) string { return e.Object.Namespace + "/" + e.Object.Name }

// termError returns an error if a replica wrote without ever having had the term, or to a copy to which its successor had written
// in a term of its own. The replica that wrote the Lease last has the term. On a slow machine a write may arrive when the term is
// over, and is refused if the copy has changed.
func termError(events []cluster.Event) error {
	byTime := func(a, b cluster.Event) int { return a.Done.Compare(b.Done) }
	terms := slices.DeleteFunc(slices.Clone(events), func(e cluster.Event) bool { return !takes(e) })
	slices.SortStableFunc(terms, byTime)
	accepted := map[string][]cluster.Event{}
	for _, e := range events {
		if writes(e) && e.Response.Code < 300 {
			accepted[copyOf(e)] = append(accepted[copyOf(e)], e)
		}
	}
	if len(accepted) == 0 {
		return fmt.Errorf("there are no writes among %d requests", len(events))
	}
	for _, all := range accepted {
		slices.SortStableFunc(all, byTime)
		for i, write := range all {
			var last, own *cluster.Event // the last term when the write came, and the last one of its replica
			for i := range terms {
				if terms[i].Done.After(write.Received) {
					break
				}
				last = &terms[i]
				if replica(*last) == replica(write) {
					own = last
				}
			}
			switch {
			case replica(write) == "":
				return fmt.Errorf("a write of nobody: %v", write)
			case own == nil:
				return fmt.Errorf("a write before any term: %v", write)
			}
			for _, before := range all[:i] {
				if replica(before) == replica(*last) && replica(before) != replica(write) &&
					before.Received.After(own.Done) && before.Done.Before(write.Received) {
					return fmt.Errorf("%s wrote at %s, and %s had written in its term at %s: %v",
						replica(write), write.Received, replica(before), before.Done, write)
				}
			}
		}
	}
	return nil
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
	update := func(second float64, pod string) cluster.Event { return event(second, pod, "update", "configmaps") }
	refused, other := update(4, "a"), update(4, "a")
	refused.Response.Code, other.Object.Name = 409, "other"
	a, b := event(0, "a", "update", "leases"), event(2, "b", "update", "leases")
	for name, c := range map[string]struct {
		events []cluster.Event
		good   bool
	}{
		"in terms":             {[]cluster.Event{a, update(1, "a"), b, update(3, "b")}, true},
		"refused":              {[]cluster.Event{a, b, update(3, "b"), refused}, true},
		"late, another copy":   {[]cluster.Event{a, b, update(3, "b"), other}, true},
		"late, but before":     {[]cluster.Event{a, b, update(3, "a"), update(4, "b")}, true},
		"in a new term":        {[]cluster.Event{a, b, update(3, "b"), event(4, "a", "update", "leases"), update(5, "a")}, true},
		"before any term":      {[]cluster.Event{update(-1, "a"), a}, false},
		"never in a term":      {[]cluster.Event{a, update(1, "b")}, false},
		"after its successor":  {[]cluster.Event{a, update(1, "a"), b, update(3, "b"), update(4, "a")}, false},
		"nothing but terms":    {[]cluster.Event{a, b}, false},
		"nothing but refusals": {[]cluster.Event{a, b, refused}, false},
	} {
		if err := termError(c.events); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
