package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// auditor counts the controller's requests in the API server's audit log.
type auditor struct {
	log  *cluster.AuditLog
	user string
	mark cluster.Mark // up to where the log was read
}

// afterthought is how long the audit log is read on after the last request that is expected: what is one too many
// comes then.
const afterthought = 200 * time.Millisecond

// tally are the requests of the controller to ConfigMaps and namespaces. Watches are not counted.
type tally struct {
	writes, reads int
	odd           map[string]int // by what is not as expected of them, and requests to other resources
}

// want are the requests that are to be made, no more and no fewer.
type want struct{ writes, reads int }

// during fills a row with the requests that the controller makes while f runs, against those that are wanted.
func (a *auditor) during(ctx context.Context, r *row, wanted want, f func() error) error {
	if _, err := a.next(); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	t := tally{odd: map[string]int{}}
	// The line of a request may come a moment after its effect.
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Second, true, func(context.Context) (bool, error) {
		return t.writes >= wanted.writes && t.reads >= wanted.reads, a.addTo(&t)
	})
	if err != nil && !wait.Interrupted(err) {
		return err
	}
	time.Sleep(afterthought)
	if err := a.addTo(&t); err != nil {
		return err
	}
	r.add(float64(t.writes+t.reads), float64(wanted.writes+wanted.reads))
	if t.writes != wanted.writes || t.reads != wanted.reads {
		r.off = true
		r.say("%d writes and %d reads instead of %d and %d", t.writes, t.reads, wanted.writes, wanted.reads)
	}
	for _, what := range slices.Sorted(maps.Keys(t.odd)) {
		r.say("besides, %s", what)
	}
	return nil
}

// next returns the requests of the controller that the log has got since it was last read.
func (a *auditor) next() ([]cluster.Event, error) {
	events, mark, err := a.log.Since(a.mark)
	a.mark = mark
	return slices.DeleteFunc(events, func(e cluster.Event) bool {
		return e.User.Username != a.user || strings.HasPrefix(e.UserAgent, plainAgent)
	}), err
}

func (a *auditor) addTo(t *tally) error {
	events, err := a.next()
	for _, e := range events {
		t.add(e)
	}
	return err
}

func (t *tally) add(e cluster.Event) {
	ours := e.Object.Resource == "configmaps" || e.Object.Resource == "namespaces"
	switch {
	case e.Verb == "watch":
	case !ours:
		t.odd[fmt.Sprintf("%s %s", e.Verb, e.Object.Resource)]++
	case e.Verb == "get" || e.Verb == "list":
		t.reads++
	default:
		t.writes++
		if e.Response.Code >= 300 {
			t.odd[fmt.Sprintf("%s answered with %d", e.Verb, e.Response.Code)]++
		}
	}
}
