package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// auditor counts the controller's requests in the API server's audit log.
type auditor struct {
	log  auditLog
	user string
	mark cluster.Mark // up to where the log was read
	// strays are the requests that came when none was expected, since the last call of forget.
	strays tally
}

// auditLog is the audit log of a cluster.
type auditLog interface {
	Since(cluster.Mark) ([]cluster.Event, cluster.Mark, error)
	Mark() (cluster.Mark, error)
}

// afterthought is how long the audit log is read on after the last expected request, to find one too many. It is longer than
// the second after which the controller reads a deleted source again.
const afterthought = 1200 * time.Millisecond

// tally are the requests of the controller to ConfigMaps and namespaces. A list is one, however it is made: a watch counts
// only if it begins as a list.
type tally struct {
	writes, reads, lists int
	odd                  map[string]int // by what is not as expected of them, and requests to other resources
}

// want are the requests that are to be made, no more and no fewer.
type want struct {
	writes, reads, lists int
	// events is how many there may be. They are about sources, and summed up.
	events int
	// ended is set if the work leaves no process that could ask for anything afterwards.
	ended bool
	// alone is set if there is to be no request to other resources, but for renewals of the lease. Otherwise there may be
	// what it takes to get the lease.
	alone bool
}

// watchedResources is how many lists the controller makes at its start: ConfigMaps and namespaces.
const watchedResources = 2

// Requests besides: what keeps the lease, and what tells of an outcome.
const (
	renewal  = "update leases"
	newEvent = "create events"
	addEvent = "patch events"
)

// beside is what the controller may ask for besides.
var beside = []string{renewal, "create leases", "get leases", newEvent, addEvent}

func newTally() tally { return tally{odd: map[string]int{}} }

func (w want) total() int { return w.writes + w.reads + w.lists }

// met reports whether the requests are those that are wanted.
func (w want) met(t tally) bool {
	for what := range t.odd {
		if w.alone && what != renewal || !slices.Contains(beside, what) {
			return false
		}
	}
	return t.writes == w.writes && t.reads == w.reads && t.lists == w.lists && t.odd[newEvent]+t.odd[addEvent] <= w.events
}

// during fills a row with the requests that the controller makes while f runs, against those that are wanted.
func (a *auditor) during(ctx context.Context, r *row, wanted want, f func() error) error {
	if err := a.pass(); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	t := newTally()
	// The line of a request may come a moment after its effect.
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Second, true, func(context.Context) (bool, error) {
		return t.writes >= wanted.writes && t.reads >= wanted.reads && t.lists >= wanted.lists, a.addTo(&t)
	})
	if err != nil && !wait.Interrupted(err) {
		return err
	}
	if !wanted.ended {
		time.Sleep(afterthought)
	}
	if err := a.addTo(&t); err != nil {
		return err
	}
	r.add(float64(t.writes+t.reads+t.lists), float64(wanted.total()))
	if !wanted.met(t) {
		r.off = true
		r.say("%d writes, %d reads, %d lists, %d events instead of %d, %d, %d, at most %d",
			t.writes, t.reads, t.lists, t.odd[newEvent]+t.odd[addEvent], wanted.writes, wanted.reads, wanted.lists, wanted.events)
	}
	r.count(t.odd)
	return nil
}

// pass reads the log up to its end. Each request of the controller there is a stray.
func (a *auditor) pass() error { return a.addTo(&a.strays) }

// skip goes on at the end of the log, without reading what it passes: there may be a million lines.
func (a *auditor) skip() (err error) {
	a.mark, err = a.log.Mark()
	return err
}

// forget begins with no strays.
func (a *auditor) forget() error {
	err := a.pass()
	a.strays = newTally()
	return err
}

// judgeStrays fails a row if there were strays since forget.
func (a *auditor) judgeStrays(r *row) error {
	err := a.pass()
	r.refuse(a.strays)
	return err
}

// refuse fails the row if there were requests, which came when none was expected.
func (r *row) refuse(t tally) {
	if t.writes+t.reads+t.lists > 0 {
		r.off = true
		r.say("%d writes, %d reads, %d lists at other times", t.writes, t.reads, t.lists)
	}
}

// next returns the requests of the controller that the log has got since it was last read.
func (a *auditor) next() ([]cluster.Event, error) {
	events, mark, err := a.log.Since(a.mark)
	a.mark = mark
	return slices.DeleteFunc(events, func(e cluster.Event) bool {
		selfCheck := strings.Contains(e.RequestURI, "dryRun=All")
		return e.User.Username != a.user || strings.HasPrefix(e.UserAgent, plainAgent) || selfCheck
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
	case !ours:
		t.odd[fmt.Sprintf("%s %s", e.Verb, e.Object.Resource)]++
	case e.Verb == "list" || e.Verb == "watch" && strings.Contains(e.RequestURI, "sendInitialEvents=true"):
		t.lists++
	case e.Verb == "watch":
	case e.Verb == "get":
		t.reads++
	default:
		t.writes++
		if e.Response.Code >= 300 {
			t.odd[fmt.Sprintf("%s answered with %d", e.Verb, e.Response.Code)]++
		}
	}
}
