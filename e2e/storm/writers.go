package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// writers judges by the audit log that one process at a time writes: the one whose user has written the lease last. A
// process that stops gives the lease back when its last write is done, and one that was killed leaves it to expire, so
// that nothing of theirs comes after the next one's first renewal. A process that stood still may send what had passed
// its last look at the lease: not more than --concurrent-writes requests.
type writers struct {
	mark    cluster.Mark
	renewed []cluster.Event // writes of the lease that were accepted, in order, of this round and the last of before
}

// heldUp are the faults by which requests may arrive long after they were sent.
var heldUp = []string{"pause", "silence", "lose-connections", "pause-apiserver", "requests-delay", "zombie"}

// term is the reign of a process up to a renewal.
type term struct {
	user    string
	renewed time.Time
}

// judge returns what is wrong with the writes since it was called last. late is how many requests may come too late
// after each renewal.
func (w *writers) judge(log *cluster.AuditLog, ours func(string) bool, lives []life, late int) ([]string, error) {
	events, mark, err := log.Since(w.mark)
	if err != nil {
		return nil, err
	}
	w.mark = mark
	var writes []cluster.Event
	for _, e := range events {
		switch {
		case !ours(e.User.Username) || !slices.Contains(writeVerbs, e.Verb):
		case e.Object.Resource == "leases" && isWrite(e):
			w.renewed = append(w.renewed, e)
		case e.Object.Resource == "configmaps":
			writes = append(writes, e)
		}
	}
	byReceipt := func(a, b cluster.Event) int { return a.Received.Compare(b.Received) }
	slices.SortFunc(w.renewed, byReceipt)
	slices.SortFunc(writes, byReceipt)
	problems := w.compare(writes, lives, late)
	w.forget()
	return problems, nil
}

// compare holds the writes against the renewals.
func (w *writers) compare(writes []cluster.Event, lives []life, late int) []string {
	var problems []string
	overtaken, dead := map[term][]cluster.Event{}, map[term][]cluster.Event{}
	for _, e := range writes {
		own, other := w.around(e)
		at := term{e.User.Username, own.Received}
		switch {
		case own.Received.IsZero():
			problems = append(problems, fmt.Sprintf("written by who never had the lease: %v", e))
		case !other.Received.IsZero() && e.Done.After(other.Received):
			overtaken[at] = append(overtaken[at], e)
		case diedBetween(lives, at, e.Received):
			dead[at] = append(dead[at], e)
		}
	}
	for at, list := range overtaken {
		if len(list) > late {
			problems = append(problems, fmt.Sprintf("two writers: %d requests of %s, which had the lease at %s, came when another had it, at most %d may; the last at %s: %v",
				len(list), at.user, at.renewed, late, list[len(list)-1].Received, list[len(list)-1]))
		}
	}
	for at, list := range dead {
		if len(list) > concurrentWrites {
			problems = append(problems, fmt.Sprintf("%d requests of %s, whose next process does not have the lease; the last at %s: %v",
				len(list), at.user, list[len(list)-1].Received, list[len(list)-1]))
		}
	}
	return problems
}

// around returns the last renewal of the writer before its write, and the first of another after that.
func (w *writers) around(e cluster.Event) (own, other cluster.Event) {
	for _, r := range w.renewed {
		switch {
		case r.User.Username == e.User.Username && !r.Received.After(e.Received):
			own, other = r, cluster.Event{}
		case r.User.Username != e.User.Username && !own.Received.IsZero() && other.Received.IsZero():
			other = r
		}
	}
	return own, other
}

// diedBetween reports whether the process that renewed the lease had ended when the write came.
func diedBetween(lives []life, at term, write time.Time) bool {
	return slices.ContainsFunc(lives, func(l life) bool {
		return l.user == at.user && l.has(at.renewed) && !l.has(write)
	})
}

// forget leaves of the renewals the last of each user.
func (w *writers) forget() {
	last := map[string]cluster.Event{}
	for _, r := range w.renewed {
		last[r.User.Username] = r
	}
	w.renewed = w.renewed[:0:0]
	for _, r := range last {
		w.renewed = append(w.renewed, r)
	}
	slices.SortFunc(w.renewed, func(a, b cluster.Event) int { return cmp.Compare(a.Received.UnixNano(), b.Received.UnixNano()) })
}

// judgeWriters finds two writers at a time, and leases that were lost for no reason.
func (j *judgement) judgeWriters() {
	late := 0
	stalls, _ := j.stalls.since(j.round.began)
	if stalls > 0 || j.happened(heldUp...) > 0 {
		late = concurrentWrites
	}
	lives := j.fleet.allLives()
	if j.fleet.elects {
		problems, err := j.writers.judge(j.cluster.Audit(), j.fleet.isOurs, lives, late)
		if err != nil {
			problems = append(problems, err.Error())
		}
		j.problems = append(j.problems, problems...)
	}
	if problem := lostForNothing(lives, j.round.began, j.happened()+stalls); problem != "" {
		j.problems = append(j.problems, problem)
	}
}

// lostForNothing says if more leases were lost since then than so many causes can account for. A fault of all replicas
// can cost each of them a lease.
func lostForNothing(lives []life, since time.Time, causes int) string {
	lost := 0
	for _, l := range lives {
		if l.lost && l.ended.After(since) {
			lost++
		}
	}
	if lost <= 2*causes {
		return ""
	}
	return fmt.Sprintf("%d leases were lost, and %d things went wrong that cost one", lost, causes)
}

// happened returns how many faults of these kinds, or of all, there were in the round.
func (j *judgement) happened(kinds ...string) int {
	n := 0
	for _, st := range j.round.happened {
		if faults[st.kind] != nil && (len(kinds) == 0 || slices.Contains(kinds, st.kind)) {
			n++
		}
	}
	return n
}
