package main

// The judgement on every request of the controllers, by what was there when it came.

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// part is one life of the fleet: from its start to its end with the same flags.
type part struct {
	flags
	grace     time.Duration
	since     int64        // the revision
	mark      cluster.Mark // where it begins in the audit log
	quiet     time.Time    // since when nothing may be written; zero: it may
	requests  []*request   // of all, in the order of their arrival
	ours      []string     // the users of the controllers
	disturbed func(user string, from, to time.Time) time.Duration
}

func (p *part) isOurs(user string) bool { return slices.Contains(p.ours, user) }

// judge judges the requests of a part.
type judge struct {
	*part
	*history
	times    map[int64]time.Time // when the request came that made a revision, if it is in the log
	problems []string
}

// How old a live read may be when a deletion arrives that depends on it: the controller keeps an answer for 5 seconds, and
// as long as the read took. A process that stood still, and faults on the way, add to that.
const (
	answerLasts = 6 * time.Second
	// unseen is how short a claim may be for a cache to miss it.
	unseen = 10 * time.Second
)

// judge returns what the controllers did that they must not do.
func (p *part) judge(h *history) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := &judge{part: p, history: h, times: map[int64]time.Time{}}
	j.readTimes()
	for _, r := range p.requests {
		if !p.isOurs(r.User.Username) || !r.isWrite() {
			continue
		}
		switch {
		case r.isAbout("configmaps"):
			j.judgeWriter(r)
			j.judgeWrite(r)
		case !r.isAbout("leases") && !r.isAbout("events"):
			j.problem(r, "it is none of the controller's business")
		}
	}
	return j.problems
}

func (j *judge) problem(r *request, format string, args ...any) {
	j.problems = append(j.problems, fmt.Sprintf("%v: %s", r, fmt.Sprintf(format, args...)))
}

// judgeWrite judges a write of a ConfigMap, be it refused: what it would do does not depend on that.
func (j *judge) judgeWrite(r *request) {
	if r.unread() {
		return
	}
	if r.accepted && !j.quiet.IsZero() && r.Received.After(j.quiet) {
		j.problem(r, "it came when all was quiet")
	}
	switch r.Verb {
	case "create":
		j.judgeContent(r)
	case "update":
		if j.judgeState(r) != nil {
			j.judgeContent(r)
		}
		if r.accepted && r.made != 0 && r.made == r.named {
			j.problem(r, "it changed nothing")
		}
	case "delete":
		if have, end := j.judgeState(r), j.endOf(r); have != nil && end != 0 {
			j.judgeDeletion(r, have, end)
		}
	default:
		j.problem(r, "a ConfigMap is created, updated or deleted")
	}
}

// judgeState returns the state on which an update or a delete depends, if that may be written to.
func (j *judge) judgeState(r *request) *corev1.ConfigMap {
	if r.named == 0 {
		j.problem(r, "it depends on no state of the object")
		return nil
	}
	have := j.configMaps[r.at].at(r.named)
	if have == nil || have.ResourceVersion != fmt.Sprint(r.named) {
		j.problem(r, "there never was a state %d", r.named)
		return nil
	}
	_, ours := ownerOf(have)
	switch {
	case isSource(have):
		j.problem(r, "it touches a source")
	case !ours:
		j.problem(r, "it touches a foreign object: %s", describe(have))
	default:
		return have
	}
	return nil
}

func describe(cm *corev1.ConfigMap) string {
	return fmt.Sprintf("labels %v, annotations %v, immutable %v, data %v", cm.Labels, cm.Annotations, immutable(cm), cm.Data)
}

// judgeContent judges what is written: a copy of a source that asked for it, with that content and there, since the part
// began.
func (j *judge) judgeContent(r *request) {
	owner, ours := ownerOf(r.sent)
	if !ours {
		j.problem(r, "it writes no copy: %s", describe(r.sent))
		return
	}
	until := r.made
	if until == 0 {
		until = j.revision
	}
	asked := j.ever(r.at, until, func(source *corev1.ConfigMap) bool {
		return keyOf(source) == owner && sameContent(source, r.sent)
	})
	if !asked {
		j.problem(r, "%v never asked for that there: %s", owner, describe(r.sent))
	}
}

// ever reports whether a source that is such claimed a place, and did not hold it, up to a revision. Each of its states goes with each of the
// namespace: they come by two watches.
func (j *judge) ever(at key, until int64, such func(*corev1.ConfigMap) bool) bool {
	revisions := j.revisionsOf(at, j.since, until)
	for _, revision := range revisions {
		for _, source := range j.sourcesAt(at.Name, revision) {
			asks := func(of int64) bool {
				ns := j.namespaces[at.Namespace].at(of)
				return j.claims(source, ns) && !holds(source, ns)
			}
			if such(source) && slices.ContainsFunc(revisions, asks) {
				return true
			}
		}
	}
	return false
}

// endOf returns the revision at which a deletion was carried out; 0: it was not, or somebody else's was.
func (j *judge) endOf(r *request) int64 {
	if !r.maybe() {
		return 0
	}
	list := j.configMaps[r.at]
	i := slices.IndexFunc(list, func(s state[*corev1.ConfigMap]) bool { return s.revision == r.named })
	if i+1 < len(list) && (list[i+1].object == nil || list[i+1].object.DeletionTimestamp != nil) {
		return list[i+1].revision
	}
	return 0
}

// judgeDeletion judges the deletion of a copy at a revision.
func (j *judge) judgeDeletion(r *request, have *corev1.ConfigMap, end int64) {
	owner, ours := ownerOf(have)
	if j.isRecreated(r, have, end) || !ours {
		return
	}
	if have.Labels[mirrorLabel] == "" {
		j.problem(r, "the copy had lost its label and counts as released")
	}
	j.judgeScope(r)
	j.judgeClaims(r, owner, end)
	j.judgeReads(r, owner)
}

// isRecreated reports whether an immutable copy is deleted to be made again: a source asked for another content there.
func (j *judge) isRecreated(r *request, have *corev1.ConfigMap, end int64) bool {
	return immutable(have) && j.ever(r.at, end, func(source *corev1.ConfigMap) bool { return !sameContent(source, have) })
}

// judgeScope judges that the flags allow a copy there, by what was read live of the namespace. With --prune that
// does not matter.
func (j *judge) judgeScope(r *request) {
	if j.Prune {
		return
	}
	ns := &corev1.Namespace{}
	if read := j.lastRead(r, "namespaces", key{Name: r.at.Namespace}); read != nil {
		ns = answered[corev1.Namespace](read)
	} else if j.NamespaceSelector != "" {
		j.problem(r, "the namespace was not read live before, and its labels decide about the scope")
		return
	}
	if ns == nil || !j.allows(r.at.Namespace) || !j.selects(ns) {
		j.problem(r, "it is out of scope of the flags")
	}
}

// judgeReads judges what was read live before a deletion: that the source does not ask for the copy. If it is for the
// labels of the namespace, these were read, too.
func (j *judge) judgeReads(r *request, owner key) {
	read := j.lastRead(r, "configmaps", owner)
	if read == nil {
		j.problem(r, "%v was not read live before", owner)
		return
	}
	source := answered[corev1.ConfigMap](read)
	if !isSource(source) {
		return
	}
	if frozen(source) {
		j.problem(r, "%v is frozen, by what was read live: %v", owner, read)
		return
	}
	accepting := &corev1.Namespace{}
	accepting.Name = r.at.Namespace
	if _, staged := source.Annotations[domain+"rollout"]; !staged && !j.claims(source, accepting) && !holds(source, accepting) {
		return
	}
	read = j.lastRead(r, "namespaces", key{Name: r.at.Namespace})
	if read == nil {
		j.problem(r, "%v asks for the copy but for the namespace, and that was not read live before", owner)
		return
	}
	switch ns := answered[corev1.Namespace](read); {
	case j.claims(source, ns):
		j.problem(r, "%v asks for the copy, by what was read live: %v", owner, read)
	case holds(source, ns):
		j.problem(r, "%v holds the copy, by what was read live: %v", owner, read)
	}
}

// lastRead returns the last answer to a GET of an object that a deletion may depend on; nil if there is none.
func (j *judge) lastRead(r *request, resource string, of key) (last *request) {
	for _, other := range j.requests {
		object := key{Namespace: other.Object.Namespace, Name: other.Object.Name}
		if resource == "namespaces" {
			object.Namespace = ""
		}
		told := other.accepted || other.Response.Code == 404
		if other.Verb != "get" || !other.isAbout(resource) || object != of || other.User.Username != r.User.Username || !told {
			continue
		}
		took := other.Done.Sub(other.Received) + j.disturbed(r.User.Username, other.Received.Add(-answerLasts), r.Received)
		if !other.Received.After(r.Received) && r.Received.Sub(other.Done) <= answerLasts+took {
			last = other
		}
	}
	return last
}

// judgeClaims finds a copy that was deleted though it was claimed, or too soon after it was, or after the process took over.
func (j *judge) judgeClaims(r *request, owner key, end int64) {
	claimed, since := j.claim(r.at, owner, end)
	if took := j.holdAt(r).took; took.After(since) {
		since = took
	}
	lasted := r.Received.Sub(since)
	most := unseen + j.disturbed(r.User.Username, since, r.Received)
	switch {
	case claimed && lasted > most:
		j.problem(r, "the copy had been claimed for %s, and a cache may be behind by %s", lasted, most)
	case !claimed && lasted < j.grace:
		j.problem(r, "the copy was unclaimed for %s, not for %s", lasted, j.grace)
	}
}

// claim returns whether a copy is claimed up to a revision, and since when, at the earliest; zero: since the part began. A
// claim that lasts so short that a cache may miss it does not interrupt the time without one.
func (j *judge) claim(at, owner key, end int64) (claimed bool, since time.Time) {
	var now, free time.Time // free is the begin of the time without a claim before the present claim
	for i, revision := range j.revisionsOf(at, j.since, end-1) {
		if came, known := j.times[revision]; known { // else it ends a claim, and counts as no later than what came before
			now = came
		}
		is := j.claimedAt(at, owner, revision)
		switch {
		case i == 0 || is == claimed:
		case is:
			free, since = since, now
		case now.Sub(since) < unseen:
			since = free
		default:
			since = now
		}
		claimed = is
	}
	return claimed, since
}

// claimedAt reports whether a source asks for a copy at a revision, or keeps it because it is frozen or held.
func (j *judge) claimedAt(at, owner key, revision int64) bool {
	ns := j.namespaces[at.Namespace].at(revision)
	return slices.ContainsFunc(j.sourcesAt(at.Name, revision), func(cm *corev1.ConfigMap) bool {
		return j.claims(cm, ns) || keyOf(cm) == owner && (frozen(cm) || holds(cm, ns))
	})
}

// readTimes reads when the requests came that made the revisions.
func (j *judge) readTimes() {
	for _, r := range j.requests {
		revision := r.made
		if r.Verb == "delete" && r.isAbout("configmaps") {
			revision = j.endOf(r)
		}
		if r.isWrite() && revision != 0 && revision != r.named { // else it changed nothing
			j.times[revision] = r.Received
		}
	}
}
