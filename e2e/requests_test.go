package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// Requests of the controllers of a world, by the audit log of the API server.

// requests returns the requests of the world's controllers since the world began.
func (w *world) requests() []cluster.Event { return w.requestsSince(w.mark) }

func (w *world) requestsSince(mark cluster.Mark) []cluster.Event {
	w.Helper()
	all, _, err := w.cluster.Audit().Since(mark)
	if err != nil {
		w.Fatal(err)
	}
	var out []cluster.Event
	for _, e := range all {
		if w.made(e) {
			out = append(out, e)
		}
	}
	// Each running controller watches.
	if len(out) == 0 && mark == w.mark {
		w.Fatal("no requests in the audit log: does the user agent of the controller name its instance?")
	} else if len(out) == 0 {
		w.requests()
	}
	return out
}

// made reports whether a controller of the world made the request, and not for its self-check.
func (w *world) made(e cluster.Event) bool {
	if strings.Contains(e.RequestURI, "dryRun=All") {
		return false
	}
	agent, mine := e.UserAgent, "instance/"+w.instance
	return strings.Contains(agent, mine+" ") || strings.HasSuffix(agent, mine)
}

// writesTo returns the writes to ConfigMaps among the requests; of one name, if it is not empty.
func writesTo(requests []cluster.Event, name string) []cluster.Event {
	var out []cluster.Event
	for _, e := range requests {
		write := e.Verb == "create" || e.Verb == "update" || e.Verb == "patch" || e.Verb == "delete"
		if write && e.Object.Resource == "configmaps" && (name == "" || e.Object.Name == name) {
			out = append(out, e)
		}
	}
	return out
}

func (w *world) auditMark() cluster.Mark {
	w.Helper()
	mark, err := w.cluster.Audit().Mark()
	if err != nil {
		w.Fatal(err)
	}
	return mark
}

// waitRequests waits until the controllers of the world have made n requests that fit since the world began.
func (w *world) waitRequests(what string, n int, fits func(cluster.Event) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	found := 0
	_, err := w.cluster.Audit().WaitFor(ctx, w.mark, func(e cluster.Event) bool {
		if w.made(e) && fits(e) {
			found++
		}
		return found == n
	})
	if err != nil {
		w.Fatalf("%s: %d of %d: %v", what, found, n, err)
	}
}

// waitWrites waits until n writes of the world's controllers to ConfigMaps of the name took effect, and returns all of
// them as "verb namespace", in the order of the audit log. (It has a request a moment after its effect can be seen.)
func (w *world) waitWrites(name string, n int) []string {
	w.Helper()
	took := func(e cluster.Event) bool {
		return e.Response.Code < 300 && len(writesTo([]cluster.Event{e}, name)) > 0
	}
	if n > 0 {
		w.waitRequests("writes to ConfigMaps "+name, n, took)
	}
	var out []string
	for _, e := range w.requests() {
		if took(e) {
			out = append(out, e.Verb+" "+e.Object.Namespace)
		}
	}
	return out
}

// expectWrites fails the test unless the writes of the world's controllers to ConfigMaps of the name that took
// effect, each as "verb namespace", are exactly these, in whichever order.
func (w *world) expectWrites(name string, want ...string) {
	w.Helper()
	got := w.waitWrites(name, len(want))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.Errorf("writes to ConfigMaps %s: %q, want %q", name, got, want)
	}
}

// expectFew fails the test if there are more than most requests for the ConfigMap. Those count that have no name in
// the audit log, as they were refused before they were read.
func (w *world) expectFew(most int, requests []cluster.Event, namespace, name string) {
	w.Helper()
	var found []string
	for _, e := range requests {
		named := e.Object.Name == name || e.Object.Name == ""
		if e.Object.Resource == "configmaps" && e.Object.Namespace == namespace && named {
			found = append(found, fmt.Sprintf("%s %d", e.Verb, e.Response.Code))
		}
	}
	if len(found) > most {
		w.Errorf("requests for %s/%s: %v, want %d at most", namespace, name, found, most)
	}
}

// wroteOnce fails the test if a copy of the name was created, updated or deleted more than once, if there were
// more than a number of writes that were refused for what they said, or if anything was written in the namespace that is taken.
func (w *world) wroteOnce(name, taken string, refusals int) {
	w.Helper()
	accepted, refused := map[string]int{}, 0
	for _, e := range writesTo(w.requests(), name) {
		switch {
		case e.Response.Code == http.StatusTooManyRequests || e.Response.Code >= 500: // the API server's own failure
		case e.Response.Code >= 300:
			if e.Object.Namespace != taken {
				refused++
			}
		case e.Object.Namespace == taken:
			w.Errorf("a foreign object was written to: %v", e)
		default:
			accepted[e.Verb+" in "+e.Object.Namespace]++
		}
	}
	if len(accepted) == 0 {
		w.Error("the audit log has no write")
	}
	for what, n := range accepted {
		if n > 1 {
			w.Errorf("%d times %s", n, what)
		}
	}
	if refused > refusals {
		w.Errorf("%d writes were refused by the API server, want %d at most", refused, refusals)
	}
	w.Logf("%d writes accepted, %d refused of at most %d", len(accepted), refused, refusals)
}
