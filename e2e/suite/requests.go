package suite

import (
	"fmt"
	"maps"
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

// Cut reports whether the API server found that nobody waits for its answer any
// more: the controller cuts what takes long, and sends it again. The request
// took effect, or it did not.
func Cut(e cluster.Event) bool { return e.Response.Code >= http.StatusInternalServerError }

// ExpectWrites fails the test unless the writes of the world's controllers to ConfigMaps of the name that took
// effect, each as "verb namespace", are exactly these, in whichever order. (The audit log has a request a moment after
// its effect.)
func (w *World) ExpectWrites(name string, want ...string) {
	w.Helper()
	wanted := map[string]int{}
	for _, write := range want {
		wanted[write]++
	}
	got := map[string]int{}
	w.Until("writes to ConfigMaps "+name, func() error {
		got = effectsOf(WritesTo(w.Requests(), name), wanted)
		for write, n := range wanted {
			if got[write] < n {
				return fmt.Errorf("%v, want %v", got, wanted)
			}
		}
		return nil
	})
	if !maps.Equal(got, wanted) {
		w.Errorf("writes to ConfigMaps %s: %v, want %v", name, got, wanted)
	}
}

// effectsOf counts the writes that took effect. One that the controller has cut
// may have: it counts if others of its kind are fewer than wanted. (One that
// nobody wants may have found a foreign object before the cut.)
func effectsOf(requests []cluster.Event, wanted map[string]int) map[string]int {
	took, cut := map[string]int{}, map[string]int{}
	for _, e := range requests {
		write := e.Verb + " " + e.Object.Namespace
		switch {
		case e.Response.Code < 300:
			took[write]++
		case Cut(e) && wanted[write] > 0:
			cut[write]++
		}
	}
	for write, n := range cut {
		took[write] = max(took[write], min(took[write]+n, wanted[write]))
	}
	return took
}

// ExpectQuiet fails the test if a ConfigMap of the name is written to while the
// controllers handle other changes. A write that brought all in sync may have
// been cut, and then the controller sends it again: that is refused, and over
// when the controllers have handled one change. What the API server received
// before is not counted, however late it ends.
func (w *World) ExpectQuiet(name string, namespaces ...string) {
	w.Helper()
	began, mark := time.Now(), w.AuditMark()
	w.Settle(namespaces...)
	settled := time.Now()
	w.Settle(namespaces...)
	for _, e := range WritesTo(w.RequestsSince(mark), name) {
		accepted := e.Response.Code < http.StatusMultipleChoices
		if e.Received.After(settled) || accepted && e.Received.After(began) {
			w.Errorf("a write when all is in sync: %v", e)
		}
	}
}
