package main

import (
	"strings"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// afterthought is how long the audit log is read on after the last expected request, to find one too many. It is
// longer than the second after which the controller reads a deleted source again.
const afterthought = 1200 * time.Millisecond

// requests fills a row with the requests that the controller makes while f runs, and shortly after, against those
// that are wanted.
func (b *bench) requests(r *row, want int, f func()) {
	log := b.cluster.Audit()
	mark := get(log.Mark())
	f()
	b.sleep(afterthought)
	events, _, err := log.Since(mark)
	check(err)
	n := 0
	for _, e := range events {
		if e.User.Username == b.installed.User && counts(e) {
			n++
		}
	}
	r.add(float64(n), float64(want))
}

// counts reports whether a request is one of the controller for its work: to ConfigMaps and namespaces, but for its
// self-check. A list counts however it is made: a watch counts only if it begins as a list.
func counts(e cluster.Event) bool {
	switch {
	case strings.HasPrefix(e.UserAgent, plainAgent), strings.Contains(e.RequestURI, "dryRun=All"):
		return false
	case e.Object.Resource != "configmaps" && e.Object.Resource != "namespaces":
		return false
	}
	return e.Verb != "watch" || strings.Contains(e.RequestURI, "sendInitialEvents=true")
}
