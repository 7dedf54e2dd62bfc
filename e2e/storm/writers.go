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
// that nothing of theirs comes after the next one's first renewal. Of a process that stood still, or whose requests were held
// up, those may come late that it began when it still had the lease: see lateRequests.
type writers struct {
	mark    cluster.Mark
	renewed []cluster.Event // writes of the lease that were accepted, in order, of this round and the last of before
	ended   time.Time       // when the last term ended that was counted

	strict, excused int // terms that ended, by how their last requests were judged
}

// excuse returns how many requests that a user sent between the two may have come late.
type excuse func(user string, from, to time.Time) int

// term is the reign of a process up to a renewal.
type term struct {
	user    string
	renewed time.Time
}

// trace is for how long before a renewal something may have been that held up a request until after it.
const trace = 2 * time.Second

// late returns how many requests of a term that ended may come too late, if they come until then.
func (t term) late(until time.Time, excused excuse) int {
	return excused(t.user, t.renewed.Add(-trace), until)
}

// judge returns what is wrong with the writes since it was called last.
func (w *writers) judge(log *cluster.AuditLog, ours func(string) bool, lives []life, excused excuse) ([]string, error) {
	events, mark, err := log.Since(w.mark)
	if err != nil {
		return nil, err
	}
	w.mark = mark
	var writes []cluster.Event
	for _, e := range events {
		switch {
		case !ours(e.User.Username) || !slices.Contains(writeVerbs, e.Verb):
		case isDryRun(e):
		case e.Object.Resource == "leases" && isWrite(e):
			w.renewed = append(w.renewed, e)
		case e.Object.Resource == "configmaps":
			writes = append(writes, e)
		}
	}
	slices.SortFunc(w.renewed, byReceipt)
	slices.SortFunc(writes, byReceipt)
	problems := slices.Concat(w.compare(writes, lives, excused), w.released(writes, lives, excused))
	w.count(excused)
	w.forget()
	return problems, nil
}

func byReceipt(a, b cluster.Event) int { return a.Received.Compare(b.Received) }

// compare holds the writes against the renewals.
func (w *writers) compare(writes []cluster.Event, lives []life, excused excuse) []string {
	var problems []string
	overtaken, dead := map[term][]cluster.Event{}, map[term][]cluster.Event{}
	for _, e := range writes {
		own, other := w.around(e)
		at := term{e.User.Username, own.Received}
		switch {
		case own.Received.IsZero():
			problems = append(problems, fmt.Sprintf("written by a replica that never had the lease: %v", e))
		case !other.Received.IsZero() && e.Done.After(other.Received):
			overtaken[at] = append(overtaken[at], e)
		case diedBetween(lives, at, e.Received):
			dead[at] = append(dead[at], e)
		}
	}
	for at, list := range overtaken {
		if late := at.late(lastDone(list), excused); len(list) > late {
			problems = append(problems, fmt.Sprintf("two writers: %d requests of %s, which had the lease at %s, came when another had it, at most %d may; the last at %s: %v",
				len(list), at.user, at.renewed, late, list[len(list)-1].Received, list[len(list)-1]))
		}
	}
	for at, list := range dead {
		if late := max(concurrentWrites, at.late(lastDone(list), excused)); len(list) > late {
			problems = append(problems, fmt.Sprintf("%d requests of %s, whose next process does not have the lease, at most %d may; the last at %s: %v",
				len(list), at.user, late, list[len(list)-1].Received, list[len(list)-1]))
		}
	}
	return problems
}

func lastDone(list []cluster.Event) time.Time {
	return slices.MaxFunc(list, func(a, b cluster.Event) int { return a.Done.Compare(b.Done) }).Done
}

// released finds what was written by a process that had given the lease back, also before another had it.
func (w *writers) released(writes []cluster.Event, lives []life, excused excuse) []string {
	var problems []string
	for i, l := range lives {
		at := w.release(lives, i)
		if at.IsZero() {
			continue
		}
		var list []cluster.Event
		for _, e := range writes {
			own, _ := w.around(e)
			if e.User.Username == l.user && !e.Received.Before(l.started) && e.Done.After(at) && !own.Received.After(at) {
				list = append(list, e)
			}
		}
		if len(list) == 0 {
			continue
		}
		if late := (term{l.user, at}).late(lastDone(list), excused); len(list) > late {
			problems = append(problems, fmt.Sprintf("%d requests of %s were not done when it gave the lease back at %s, at most %d may; the last at %s: %v",
				len(list), l.user, at, late, list[len(list)-1].Received, list[len(list)-1]))
		}
	}
	return problems
}

// release returns when a process gave the lease back; zero if it did not, or that is not known. The log does not tell
// what was written to the lease: it was the last write of a process that stopped and did not complain, unless another
// had the lease by then.
func (w *writers) release(lives []life, i int) time.Time {
	l := lives[i]
	if !l.gaveBack {
		return time.Time{}
	}
	end := l.ended
	for _, next := range lives[i+1:] {
		if next.user == l.user && next.started.Before(end) {
			end = next.started // whose requests are not this one's
		}
	}
	var at time.Time
	for _, r := range w.renewed {
		switch {
		case r.Received.Before(l.started) || r.Received.After(end):
		case r.User.Username == l.user:
			at = r.Received
		default:
			at = time.Time{}
		}
	}
	return at
}

// count counts the terms that ended.
func (w *writers) count(excused excuse) {
	for i, next := range w.renewed[min(1, len(w.renewed)):] {
		last := w.renewed[i]
		if last.User.Username == next.User.Username || !next.Received.After(w.ended) {
			continue
		}
		w.ended = next.Received
		if (term{last.User.Username, last.Received}).late(next.Received, excused) == 0 {
			w.strict++
		} else {
			w.excused++
		}
	}
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
	lives := j.fleet.allLives()
	problems, err := j.writers.judge(j.cluster.Audit(), j.fleet.isOurs, lives, j.lateRequests)
	if err != nil {
		problems = append(problems, err.Error())
	}
	j.problems = append(j.problems, problems...)
	j.lostForNothing(lives)
}

// losing is how long before the end of a process the reason may have ended for which it lost its lease: it tries to
// renew it until the deadline, and then ends its requests, and tells of what it has done, for some seconds.
const losing = 10 * time.Second

// lostForNothing finds processes that lost their lease in the round, and nothing had happened to them that costs one.
func (j *judgement) lostForNothing(lives []life) {
	for _, l := range lives {
		if !l.lost || !l.ended.After(j.round.began) {
			continue
		}
		if from := l.ended.Add(-losing); j.stalls.Between(from, l.ended) == 0 && !j.met(l.user, from, l.ended, incident.touchesLease) {
			j.problems = append(j.problems, fmt.Sprintf("%s lost its lease before %s, and nothing had gone wrong that costs one", l.user, l.ended))
		}
	}
}
