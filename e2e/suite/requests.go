package suite

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// Requests of the controllers of a world, by the audit log of the API server.

// Requests returns the requests of the world's controllers since the world began.
func (w *World) Requests() []cluster.Event { return w.RequestsSince(w.Mark) }

// RequestsSince returns the requests of the world's controllers since the mark.
func (w *World) RequestsSince(mark cluster.Mark) []cluster.Event {
	w.Helper()
	all, _, err := w.Cluster.Audit().Since(mark)
	w.noError(err)
	out := slices.DeleteFunc(all, func(e cluster.Event) bool { return !w.made(e) })
	// Each running controller watches.
	if len(out) == 0 && mark == w.Mark {
		w.Fatal("no requests in the audit log: does the user agent of the controller name its instance?")
	} else if len(out) == 0 {
		w.Requests()
	}
	return out
}

// made reports whether a controller of the world made the request.
func (w *World) made(e cluster.Event) bool {
	agent, mine := e.UserAgent, "instance/"+w.Instance
	return strings.Contains(agent, mine+" ") || strings.HasSuffix(agent, mine)
}

// WritesTo returns the writes to ConfigMaps among the requests; of one name, if it is not empty.
func WritesTo(requests []cluster.Event, name string) []cluster.Event {
	var out []cluster.Event
	for _, e := range requests {
		write := e.Verb == "create" || e.Verb == "update" || e.Verb == "patch" || e.Verb == "delete"
		if write && e.Object.Resource == "configmaps" && (name == "" || e.Object.Name == name) {
			out = append(out, e)
		}
	}
	return out
}

// AuditMark returns the present end of the audit log.
func (w *World) AuditMark() cluster.Mark {
	w.Helper()
	mark, err := w.Cluster.Audit().Mark()
	w.noError(err)
	return mark
}

// WaitRequests waits until the controllers of the world have made n requests that fit since the world began.
func (w *World) WaitRequests(what string, n int, fits func(cluster.Event) bool) {
	w.Helper()
	mark, found := w.Mark, 0
	w.Until(what, func() error {
		events, end, err := w.Cluster.Audit().Since(mark)
		mark = end
		for _, e := range events {
			if w.made(e) && fits(e) {
				found++
			}
		}
		if err == nil && found < n {
			err = fmt.Errorf("%d requests of %d", found, n)
		}
		return err
	})
}

// ExpectWrites fails the test unless the writes of the world's controllers to ConfigMaps of the name that took
// effect, each as "verb namespace", are exactly these, in whichever order. A write that the controller cut has no
// answer: it counts if others of its kind are too few. (The audit log has a request a moment after its effect.)
func (w *World) ExpectWrites(name string, want ...string) {
	w.Helper()
	missing := slices.Clone(want)
	w.WaitRequests("writes to ConfigMaps "+name, len(want), func(e cluster.Event) bool {
		i := slices.Index(missing, writeOf(e))
		if i < 0 || len(WritesTo([]cluster.Event{e}, name)) == 0 || !tookEffect(e) && !isCut(e) {
			return false
		}
		missing = slices.Delete(missing, i, i+1)
		return true
	})
	var got []string
	all := WritesTo(w.Requests(), name)
	for _, e := range all {
		if tookEffect(e) {
			got = append(got, writeOf(e))
		}
	}
	of := func(all []string, op string) (n int) {
		for _, o := range all {
			if o == op {
				n++
			}
		}
		return n
	}
	for _, e := range all {
		if op := writeOf(e); isCut(e) && of(got, op) < max(1, of(want, op)) {
			got = append(got, op)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.Errorf("writes to ConfigMaps %s: %q, want %q", name, got, want)
	}
}

func writeOf(e cluster.Event) string  { return e.Verb + " " + e.Object.Namespace }
func tookEffect(e cluster.Event) bool { return e.Response.Code < 300 }
func isCut(e cluster.Event) bool      { return e.Response.Code == http.StatusGatewayTimeout }

// ExpectQuiet fails the test if a ConfigMap of the name is written to while the controllers handle other changes. What
// the API server received before is not counted, however late it ends.
func (w *World) ExpectQuiet(name string, namespaces ...string) {
	w.Helper()
	began, mark := time.Now(), w.AuditMark()
	w.Settle(namespaces...)
	for _, e := range WritesTo(w.RequestsSince(mark), name) {
		if e.Received.After(began) {
			w.Errorf("a write when all is in sync: %v", e)
		}
	}
}
