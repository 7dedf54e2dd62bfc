package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// onStage reports whether it is one of the ConfigMaps that steps are about.
func onStage(key model.Key) bool {
	return slices.Contains(names, key.Name) && slices.Contains(stage, key.Namespace)
}

// judge returns what the controller did in the round that it must not do, be it for a moment: by what the watches of
// the history showed, as far as users did not do it, and by the API server's audit log.
func (s *storm) judge(ctx context.Context) []string {
	j := s.newJudgement()
	j.readAudit()
	j.judgeTransitions()
	j.effective()
	j.unseen()
	j.judgeEvents(ctx)
	j.judgeWriters()
	return j.problems
}

// border is where one round ends for the judge, and the next begins: nothing is between them. Of what is under way the
// watch may show the effect before the audit log has its line.
type border struct {
	mark      cluster.Mark
	shown     time.Time                       // what was done before this, the watches have shown
	began     time.Time                       // of the round behind it
	start     map[model.Key]*corev1.ConfigMap // what there was, without payload
	takeOvers int                             // how many there had been by then
}

// begins returns the border at which a round begins: where the one before was judged up to; for the first, here.
func (s *storm) begins() (border, error) {
	if s.judged != nil {
		return *s.judged, nil
	}
	mark, err := s.cluster.Audit().Mark()
	_, start, at := s.history.takeRound()
	return border{mark: mark, shown: at, began: at, start: start, takeOvers: len(s.fleet.tookOver())}, err
}

// newJudgement begins a judgement on what happened up to now.
func (s *storm) newJudgement() *judgement {
	happened, now, at := s.history.takeRound()
	s.judged = &border{mark: s.round.mark, shown: s.round.ended, began: at, start: now, takeOvers: len(s.fleet.tookOver())}
	return &judgement{storm: s, transitions: happened, writes: map[model.Key][]cluster.Event{}}
}

// judgeTransitions finds out which transitions the controller made, and what was wrong with them.
func (j *judgement) judgeTransitions() {
	for _, t := range j.transitions {
		if !onStage(t.key) || model.Reserved(t.key.Name) {
			continue
		}
		byUser := j.byUser(t)
		if doubtful := byUser && j.mayBeUsers(t); doubtful || !byUser {
			j.counts.state(doubtful)
		}
		if !byUser {
			j.controllers = append(j.controllers, t)
		}
	}
	for _, t := range j.controllers {
		j.rightful(t)
		j.asked(t)
		j.needed(t)
		j.kept(t)
		j.limited(t)
		j.noticed(t)
	}
}

// judgement is what is known when a round is judged.
type judgement struct {
	*storm
	transitions []transition
	controllers []transition                  // those that the controller made
	writes      map[model.Key][]cluster.Event // of the controller, to ConfigMaps, that were accepted
	events      []cluster.Event               // the events that it wrote
	renewed     []cluster.Event               // its writes of the lease
	problems    []string
}

func (j *judgement) problem(t transition, what string) {
	j.problems = append(j.problems, fmt.Sprintf("%s: %s\n  before: %s\n  after:  %s", t.key, what, describe(t.before), describe(t.after)))
}

// describe is an object in a line.
func describe(cm *corev1.ConfigMap) string {
	if cm == nil {
		return "nothing"
	}
	return fmt.Sprintf("uid=%s rv=%s labels=%v annotations=%v immutable=%v deleted=%v finalizers=%v",
		cm.UID, cm.ResourceVersion, cm.Labels, cm.Annotations, immutable(cm), cm.DeletionTimestamp != nil, cm.Finalizers)
}

// byUser reports whether a user, or the end of a namespace, made the transition, or may have.
func (j *judgement) byUser(t transition) bool {
	if t.ended() {
		return j.endedByUser(t)
	}
	j.users.mu.Lock()
	defer j.users.mu.Unlock()
	switch {
	case j.users.doubtful(t):
		return true
	case t.after != nil:
		return !j.users.wrote[t.after.ResourceVersion].IsZero() || t.appeared() && madeBy(t.after, user)
	}
	return t.before.DeletionTimestamp != nil // somebody took the last finalizer away
}

// doubtful reports whether it cannot be known that no user made the transition. The mutex is held.
func (u *users) doubtful(t transition) bool { return u.unsure[t.key] || t.gap && u.touched[t.key] }

// mayBeUsers reports whether a transition that counts as made by a user is not known to be.
func (j *judgement) mayBeUsers(t transition) bool {
	j.users.mu.Lock()
	defer j.users.mu.Unlock()
	known := t.after != nil && !j.users.wrote[t.after.ResourceVersion].IsZero()
	return !known && j.users.doubtful(t)
}

// endedByUser is byUser for a deletion. The audit log tells how many of them the controller made.
func (j *judgement) endedByUser(t transition) bool {
	j.users.mu.Lock()
	doubtful, deleted := j.users.doubtful(t), !j.users.deleted[stateOf(t.before)].IsZero()
	j.users.mu.Unlock()
	if doubtful || t.before.DeletionTimestamp != nil {
		return true
	}
	endings, torn := 0, false
	for _, other := range j.transitions {
		if other.key == t.key && other.ended() && other.before.DeletionTimestamp == nil {
			endings++
		}
		torn = torn || other.key == t.key && other.gap
	}
	deletions := 0
	for _, e := range j.writes[t.key] {
		if e.Verb == "delete" {
			deletions++
		}
	}
	switch {
	case deletions >= endings && !torn:
		return false // all of them were the controller's
	case deleted:
		return true
	}
	return j.closing(t)
}

// closing reports whether the namespace was being deleted at the time of the transition, so that what was in it was
// deleted with it.
func (j *judgement) closing(t transition) bool {
	r := j.history.ofNamespace(t.key.Namespace, j.round.before)
	states := r.states()
	if !r.torn() {
		states = []*corev1.Namespace{r.before(t.rv).last()}
	}
	return slices.ContainsFunc(states, func(ns *corev1.Namespace) bool { return ns == nil || model.Terminating(ns) })
}

// rightful finds what was done to an object that is not ours, and where nothing of ours has a place.
func (j *judgement) rightful(t transition) {
	if t.appeared() || !t.ended() {
		if !j.fleet.allows(t.key.Namespace) {
			j.problem(t, "written out of scope")
		}
		if !ours(t.after) {
			j.problem(t, "written, and not a copy of ours")
		}
	}
	switch {
	case t.appeared() || ours(t.before):
	case source(t.before):
		j.problem(t, "a source was touched")
	case t.ended() && !(instance.Adoptable(t.before) && immutable(t.before)): // which can only be replaced
		j.problem(t, "a foreign object was deleted")
	case !instance.Adoptable(t.before):
		j.problem(t, "a foreign object was changed")
	}
}

// limited finds copies that were deleted because a flag had changed, where the prune limit blocks that.
func (j *judgement) limited(t transition) {
	if !j.blocked || !t.ended() || !ours(t.before) {
		return
	}
	owner, _ := instance.Ours(t.before)
	flags, ns := j.fleet.present(), j.history.ofNamespace(t.key.Namespace, j.round.began).last()
	if cm := j.history.present()[owner]; cm != nil && (flags.OutOfScope(cm, t.key.Namespace) || ns != nil && flags.Unselected(cm, ns)) {
		j.problem(t, "deleted, and the prune limit blocks")
	}
}

// longestRetry is how long an object in the way may be left alone, and noticeSlack the time for requests on a busy machine.
const (
	longestRetry = time.Minute
	noticeSlack  = 15 * time.Second
)

// noticed finds adoptions that came too late: of objects that no watch shows, and about which nothing changed for longer than
// an object in the way may be left alone, nor about its sources and namespace, after the last fault was over.
func (j *judgement) noticed(t transition) {
	if t.gap || t.before == nil || ours(t.before) || model.Labelled(t.before) || j.round.healed.IsZero() {
		return
	}
	from := j.round.healed.Add(late)
	for _, at := range slices.Concat(j.fleet.tookOver(), j.changes(t)) {
		if at.Before(t.seen) && at.After(from) {
			from = at
		}
	}
	limit := longestRetry + noticeSlack + j.stalls.Between(from, t.seen)
	if took := t.seen.Sub(from); took > limit {
		j.problem(t, fmt.Sprintf("adopted %s after the last change, at most %s is allowed", took, limit))
	}
}

// changes returns when something changed before the transition that it depends on.
func (j *judgement) changes(t transition) (out []time.Time) {
	for _, other := range j.transitions {
		if other.key.Name == t.key.Name && later(t.rv, other.rv) {
			out = append(out, other.seen)
		}
	}
	for _, s := range j.history.ofNamespace(t.key.Namespace, j.round.began).before(t.rv) {
		out = append(out, s.seen)
	}
	return out
}

// readAudit reads what the controllers wrote, and finds writes that are none of their business.
func (j *judgement) readAudit() {
	events, mark, err := j.cluster.Audit().Since(j.round.mark)
	if err != nil {
		j.problems = append(j.problems, err.Error())
		return
	}
	j.judged.mark = mark
	for _, e := range events {
		if !j.fleet.isOurs(e.User.Username) {
			continue
		}
		if took := e.Done.Sub(e.Received); took >= slowAnswer && e.Verb != "watch" && e.Verb != "list" {
			j.stalls.Add(e.Done, took)
		}
		if !isWrite(e) {
			continue
		}
		key := model.Key{Namespace: e.Object.Namespace, Name: e.Object.Name}
		switch e.Object.Resource {
		case "leases":
			j.renewed = append(j.renewed, e)
		case "events":
			j.events = append(j.events, e)
		case "configmaps":
			if !onStage(key) || model.Reserved(key.Name) || e.Verb == "patch" || e.Verb == "deletecollection" {
				j.problems = append(j.problems, fmt.Sprintf("an improper write: %v", e))
			}
			j.counts.write(e.Verb)
			// Others may have had their effect in the round before, or have it in the next.
			if !e.Received.Before(j.round.began) && e.Done.Before(j.judged.shown) {
				j.writes[key] = append(j.writes[key], e)
			}
		default:
			j.problems = append(j.problems, fmt.Sprintf("an improper write: %v", e))
		}
	}
}

// unseen finds foreign objects that the controller changed or deleted in moments that nobody saw, before the history
// went on: whatever users did there, it made them no object of ours, nor anything that may be taken.
func (j *judgement) unseen() {
	judged := map[model.Key]bool{}
	for _, t := range j.transitions {
		if !t.gap || judged[t.key] || !onStage(t.key) {
			continue
		}
		judged[t.key] = true
		for _, e := range j.writes[t.key] {
			if (e.Verb == "update" || e.Verb == "delete") && e.Received.Before(t.seen) && j.keptAway(t) {
				j.problem(t, fmt.Sprintf("a foreign object was written to when nobody saw it: %v", e))
			}
		}
	}
}

// keptAway reports whether nothing was there for the controller to write to in the round, up to the first transition
// of an object that nobody saw.
func (j *judgement) keptAway(gap transition) bool {
	j.users.mu.Lock()
	given := j.users.unsure[gap.key] || j.users.given[gap.key]
	j.users.mu.Unlock()
	if given || j.moved(gap.key.Namespace) || j.history.ofNamespace(gap.key.Namespace, j.round.began).torn() {
		return false
	}
	for _, s := range j.history.of(gap.key, j.round.began).before(gap.rv) {
		if s.gap {
			break // and what comes behind
		}
		if !theirs(s.state) {
			return false
		}
	}
	return true
}

// theirs reports whether there is an object that the controller must not touch.
func theirs(cm *corev1.ConfigMap) bool {
	return cm != nil && !ours(cm) && !instance.Adoptable(cm) && cm.DeletionTimestamp == nil
}

// effective finds writes in the audit log that changed nothing.
func (j *judgement) effective() {
	for key, list := range j.writes {
		if j.accountable(key) && len(list) > j.made(key) {
			j.problems = append(j.problems, fmt.Sprintf("%s: %d writes had %d effects: %v", key, len(list), j.made(key), list))
		}
	}
}

// accountable reports whether all writes to the object are known by their effects.
func (j *judgement) accountable(key model.Key) bool {
	j.users.mu.Lock()
	unsure := j.users.unsure[key]
	j.users.mu.Unlock()
	return !unsure && !j.moved(key.Namespace) &&
		!slices.ContainsFunc(j.transitions, func(t transition) bool { return t.key == key && t.gap })
}

// made returns how many transitions of the object the controller made.
func (j *judgement) made(key model.Key) int {
	n := 0
	for _, t := range j.controllers {
		if t.key == key {
			n++
		}
	}
	return n
}

// moved reports whether the namespace was another one in the round than before, or was being deleted all the time.
func (j *judgement) moved(namespace string) bool {
	r := j.history.ofNamespace(namespace, j.round.began)
	return len(r) > 1 || r.last() == nil || model.Terminating(r.last())
}
