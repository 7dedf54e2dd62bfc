package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// readLasts is how long a live read may serve a deletion: the 5 s that the controller keeps the answer, and what it takes to
// read and to delete on a busy machine.
const readLasts = 12 * time.Second

// readAt returns from when on a state may have been the one that the controller read live before it made the deletion: longer
// ago if requests of the replica that deleted were slow since then, or the machine was. That counts as an excuse.
func (j *judgement) readAt(t transition) (from time.Time, excused bool) {
	usual := t.seen.Add(-readLasts)
	for from = usual; from.After(j.round.began); {
		earlier := usual.Add(-j.stalls.Between(from, t.seen))
		for _, i := range j.fleet.incidents.between(from, t.seen) {
			if before := i.began.Add(-readLasts); isSlow(i) && j.mayHaveDeleted(i.user, t.key) && before.Before(earlier) {
				earlier = before
			}
		}
		if !earlier.Before(from) {
			return from, from.Before(usual)
		}
		from = earlier
	}
	return j.round.began, from.Before(usual)
}

// mayHaveDeleted reports whether the audit log has a deletion of the object by the user, or none of anybody.
func (j *judgement) mayHaveDeleted(user string, key model.Key) bool {
	deletions := 0
	for _, e := range j.writes[key] {
		if e.Verb != "delete" {
			continue
		}
		if e.User.Username == user {
			return true
		}
		deletions++
	}
	return deletions == 0
}

// asked finds copies that were made or changed although in no moment of this round and the one before there was a
// source with that content that claimed the namespace as it was in any of these moments.
func (j *judgement) asked(t transition) {
	if t.after == nil || t.after.DeletionTimestamp != nil || !ours(t.after) {
		return
	}
	owner, _ := instance.Ours(t.after)
	sources := j.history.of(owner, j.round.before).before(t.rv)
	namespaces := j.history.ofNamespace(t.key.Namespace, j.round.before).before(t.rv)
	if sources.torn() || namespaces.torn() {
		return
	}
	if !j.sometimes(sources, namespaces, func(f model.Flags, cm *corev1.ConfigMap) bool {
		return f.Carries(t.after, cm) && sameContent(cm, t.after)
	}) {
		j.problem(t, "written, and "+owner.String()+" never asked for that there")
	}
}

// sometimes reports whether a source claimed the namespace in any of their states, by any of the flags, and was such.
func (j *judgement) sometimes(sources record[corev1.ConfigMap], namespaces record[corev1.Namespace], such func(model.Flags, *corev1.ConfigMap) bool) bool {
	flags := j.fleet.allInForce()
	for _, cm := range sources.states() {
		for _, ns := range namespaces.states() {
			if cm != nil && ns != nil && slices.ContainsFunc(flags, func(f model.Flags) bool { return f.Claims(cm, ns) && such(f, cm) }) {
				return true
			}
		}
	}
	return false
}

// sameContent reports whether two ConfigMaps of the history have the same payload.
func sameContent(a, b *corev1.ConfigMap) bool {
	return a.Data[digestKey] == b.Data[digestKey] && immutable(a) == immutable(b)
}

// needed finds what was done without need, by all flags that were in force: where they differ, any may have called for it.
func (j *judgement) needed(t transition) {
	deletion := t.ended() && ours(t.before)
	if t.gap {
		if deletion {
			j.counts.deletion(true)
		}
		return
	}
	if !j.moved(t.key.Namespace) && j.settledByAll(t.key) && !j.usersTouched(t.key) {
		j.problem(t, "written without need")
	}
	if owner, ok := j.frozenOwner(t); ok {
		j.problem(t, owner.String()+" is frozen, and it was written for it or taken from it")
	}
	if holder, ok := j.robbed(t); ok {
		j.problem(t, "taken from "+holder.String()+", which had it and did not give it up")
	}
	if !deletion {
		return
	}
	if j.turnedUp(t) {
		j.problem(t, "deleted, and it turned up out of scope after the takeover")
	}
	remade := immutable(t.before) && j.outdated(t)
	if !model.Labelled(t.before) && !remade {
		j.problem(t, "deleted, and it had lost its label and counted as released")
	}
	from, excused := j.readAt(t)
	j.counts.deletion(excused)
	if steady := j.steady(t, from); steady != "" && !remade {
		j.problem(t, "deleted, and "+steady+" wanted it all the time")
	}
	if !remade {
		j.hasty(t)
	}
}

// hasty finds copies that were deleted sooner than the deletion grace after a source claimed them, or after their process took
// over. A slow machine makes both times longer: they begin before a request was sent, and end when the deletion was seen.
func (j *judgement) hasty(t transition) {
	since, what := j.claimedUntil(t), "a source claimed it"
	if led := j.ledFrom(t); led.After(since) {
		since, what = led, "its process took over"
	}
	grace := j.fleet.grace()
	if since.IsZero() || grace == 0 {
		return
	}
	j.counts.timely()
	if took := t.seen.Sub(since); took < grace {
		j.problem(t, fmt.Sprintf("deleted %s after %s, and the grace is %s", took, what, grace))
	}
}

// claimedUntil returns until when at least a source claimed a copy, ever since it was made: no process can have seen it without a
// claim before. With a copy a cache has the sources from when it was made on, by the order of their watch, and namespaces of a round before at
// the earliest. Zero: it is not known.
func (j *judgement) claimedUntil(t transition) (until time.Time) {
	owner, _ := instance.Ours(t.before)
	own := withUID(j.history.of(t.key, j.round.longAgo).before(t.rv), t.before.UID)
	namespaces := j.history.ofNamespace(t.key.Namespace, j.round.before).before(t.rv)
	if own.torn() || namespaces.torn() || slices.ContainsFunc(own.states(), func(cm *corev1.ConfigMap) bool {
		of, ok := instance.Ours(cm)
		return !ok || of != owner
	}) {
		return until
	}
	for _, key := range j.history.named(t.key.Name) {
		sources := j.history.of(key, j.round.longAgo).before(t.rv).from(own[0].from)
		if lost := j.firstLoss(key, sources, namespaces, key == owner); !sources.torn() && lost.After(until) {
			until = lost
		}
	}
	return until
}

// withUID returns the spells of an object that was there.
func withUID(r record[corev1.ConfigMap], uid types.UID) record[corev1.ConfigMap] {
	return slices.DeleteFunc(slices.Clone(r), func(s spell[corev1.ConfigMap]) bool { return s.state == nil || s.state.UID != uid })
}

// firstLoss returns when the request was sent, at the earliest, by which a source that had claimed a namespace all the time did
// not claim it any more. Zero: it is not known.
func (j *judgement) firstLoss(key model.Key, sources record[corev1.ConfigMap], namespaces record[corev1.Namespace], owner bool) (sent time.Time) {
	for len(sources) > 0 && len(namespaces) > 0 {
		if cm, ns := sources[0].state, namespaces[0].state; cm == nil || ns == nil || !j.claims(cm, ns, owner) {
			return sent
		}
		if len(sources) > 1 && (len(namespaces) == 1 || later(namespaces[1].from, sources[1].from)) {
			sent = j.users.sent(key, sources[0].state, sources[1].from)
			sources = sources[1:]
		} else if namespaces = namespaces[1:]; len(namespaces) > 0 {
			sent = j.users.sent(key, nil, namespaces[0].from)
		}
	}
	return time.Time{} // it claims it still
}

// ledFrom returns from when on the process led that made a deletion, by its first renewal: not before the renewal was received. Zero: it
// is not known.
func (j *judgement) ledFrom(t transition) (from time.Time) {
	user, at := j.deletedBy(t)
	var started time.Time
	for _, l := range j.fleet.allLives() {
		if l.user == user && !l.started.After(at) {
			started = l.started
		}
	}
	if j.lateRequests(user, started.Add(-trace), started.Add(trace)) > 0 {
		return from // the request may be one of the process before it
	}
	// Those of the rounds before are not the first ones, but come before all that begins in this one.
	for _, r := range slices.Concat(j.writers.renewed, j.renewed) {
		if r.User.Username == user && !r.Received.Before(started) && (from.IsZero() || r.Received.Before(from)) {
			from = r.Received
		}
	}
	return from
}

// deletedBy returns who made a deletion, and when the request was received, if each of the object has its line in the audit log.
func (j *judgement) deletedBy(t transition) (user string, at time.Time) {
	var requests []cluster.Event
	for _, e := range j.writes[t.key] {
		if e.Verb == "delete" {
			requests = append(requests, e)
		}
	}
	slices.SortStableFunc(requests, byReceipt)
	n, index := 0, 0
	for _, other := range j.controllers {
		if other.key == t.key && other.ended() {
			if other.rv == t.rv {
				index = n
			}
			n++
		}
	}
	if n != len(requests) {
		return "", at
	}
	return requests[index].User.Username, requests[index].Received
}

// outdated reports whether any source that claimed the place had, in this round or the one before, another payload than
// the copy. An immutable copy has to be deleted then, to be made anew.
func (j *judgement) outdated(t transition) bool {
	namespaces := j.history.ofNamespace(t.key.Namespace, j.round.before).before(t.rv)
	return slices.ContainsFunc(j.history.named(t.key.Name), func(key model.Key) bool {
		sources := j.history.of(key, j.round.before).before(t.rv)
		return sources.torn() || namespaces.torn() || j.sometimes(sources, namespaces, func(_ model.Flags, cm *corev1.ConfigMap) bool {
			return !sameContent(cm, t.before)
		})
	})
}

// byAll reports whether something holds by all flags that were in force in the round.
func (j *judgement) byAll(holds func(model.Flags) bool) bool {
	return !slices.ContainsFunc(j.fleet.allInForce(), func(f model.Flags) bool { return !holds(f) })
}

// settledByAll reports whether a place had a copy that was in sync when the round began, by all flags.
func (j *judgement) settledByAll(key model.Key) bool {
	return j.round.settled[key] && (!j.fleet.changed() || j.byAll(func(f model.Flags) bool {
		past := model.Past{
			Pristine: func(types.UID) bool { return true },
			Judged:   func(model.Key, model.Key) bool { return true }, Later: func(*corev1.ConfigMap) bool { return false },
		}
		v, ok := j.verdictAtStart(f, past, key)
		have := j.round.start[key]
		return ok && have != nil && len(v.Allowed) == 1 && v.Allows(model.Copy) && f.Unmet(v, past, have) == nil
	}))
}

// verdictAtStart returns the verdict of flags on a place as the round began.
func (j *judgement) verdictAtStart(f model.Flags, past model.Past, key model.Key) (model.Verdict, bool) {
	ns := j.history.ofNamespace(key.Namespace, j.round.began).states()[0]
	if ns == nil {
		return model.Verdict{}, false
	}
	start := model.State{Namespaces: map[string]*corev1.Namespace{key.Namespace: ns}, ConfigMaps: map[model.Key]*corev1.ConfigMap{}}
	for k, cm := range j.round.start {
		if k.Name == key.Name {
			start.ConfigMaps[k] = cm
		}
	}
	verdicts := f.Verdicts(start, past)
	if len(verdicts) != 1 {
		return model.Verdict{}, false
	}
	return verdicts[0], true
}

// usersTouched reports whether users changed the object, or a source of its name.
func (j *judgement) usersTouched(key model.Key) bool {
	return slices.ContainsFunc(j.transitions, func(t transition) bool {
		return t.key.Name == key.Name && (t.isSource() || t.key == key && j.byUser(t))
	})
}

// frozenOwner returns the source of the copy that was made, changed or deleted, if it has been frozen all the time.
func (j *judgement) frozenOwner(t transition) (model.Key, bool) {
	for _, cm := range []*corev1.ConfigMap{t.before, t.after} {
		if cm == nil {
			continue
		}
		owner, ok := instance.Ours(cm)
		if ok && j.all(owner, func(cm *corev1.ConfigMap) bool {
			return model.Frozen(cm) && j.byAll(func(f model.Flags) bool { return f.IsSource(cm) })
		}) {
			return owner, true
		}
	}
	return model.Key{}, false
}

// robbed returns the source from which a copy went to another, if it claimed the place all the time or was frozen,
// and no other source of the name changed: then it still has precedence.
func (j *judgement) robbed(t transition) (model.Key, bool) {
	if t.appeared() || t.after == nil || !j.settledByAll(t.key) || !ours(t.before) || j.round.start[t.key] == nil || j.moved(t.key.Namespace) {
		return model.Key{}, false
	}
	holder, _ := instance.Ours(j.round.start[t.key])
	from, _ := instance.Ours(t.before)
	to, _ := instance.Ours(t.after)
	ns := j.history.ofNamespace(t.key.Namespace, j.round.began).last()
	kept := func(cm *corev1.ConfigMap) bool { return j.claims(cm, ns, true) }
	rivals := slices.ContainsFunc(j.transitions, func(other transition) bool {
		return other.key.Name == t.key.Name && other.key != holder && other.isSource()
	})
	return holder, from == holder && to != holder && !rivals && j.all(holder, kept)
}

// all reports whether each state of a ConfigMap in the round, from its beginning on, is such, and it was never away.
func (j *judgement) all(key model.Key, such which) bool {
	return j.round.start[key] != nil && such(j.round.start[key]) && !slices.ContainsFunc(j.transitions, func(t transition) bool {
		return t.key == key && (t.after == nil || !such(t.after))
	})
}

// steady returns a source, if there is one, that claimed the place in every moment on which the deletion may rest,
// however the namespace was in any of them, but for moments in which the source was replaced within the grace. If it is
// another one than that of the copy, it has no copy there that could stay: the deletion may rest on such a moment.
func (j *judgement) steady(t transition, from time.Time) string {
	owner, _ := instance.Ours(t.before)
	namespaces := j.history.ofNamespace(t.key.Namespace, from).before(t.rv)
	for _, key := range j.history.named(t.key.Name) {
		since := j.round.began // of the others, the cache has the last word, which may be old
		if key == owner {
			since = from
		} else if j.seenAway(key, t, from) {
			continue
		}
		if j.claimsAlways(j.history.of(key, since).before(t.rv), namespaces, key == owner) {
			return key.String()
		}
	}
	return ""
}

// seenAway reports whether a ConfigMap may have been away in the cache of who made the deletion.
func (j *judgement) seenAway(key model.Key, t transition, from time.Time) bool {
	if slices.ContainsFunc(j.fleet.incidents.between(j.round.began, t.seen), func(i incident) bool {
		return !strings.HasPrefix(i.step.kind, requestsPrefix) && j.mayHaveDeleted(i.user, t.key)
	}) {
		from = j.round.began // its watch may have been far behind
	}
	return slices.Contains(j.history.of(key, from).before(t.rv).states(), nil)
}

// claimsAlways reports whether a source claims a namespace in each of their states.
func (j *judgement) claimsAlways(sources record[corev1.ConfigMap], namespaces record[corev1.Namespace], owner bool) bool {
	if sources.torn() || namespaces.torn() {
		return false
	}
	var before *corev1.ConfigMap
	for _, cm := range sources.states() {
		if cm == nil && !j.replaced(before) {
			return false
		}
		for _, ns := range namespaces.states() {
			if ns == nil || cm != nil && !j.claims(cm, ns, owner) {
				return false
			}
		}
		before = cm
	}
	return true
}

// replaced reports whether the object was followed by a new one within the grace.
func (j *judgement) replaced(cm *corev1.ConfigMap) bool {
	j.users.mu.Lock()
	defer j.users.mu.Unlock()
	return cm != nil && j.users.replaced[stateOf(cm)]
}

// claims reports whether a source claims the namespace by all flags; a frozen one keeps what it owns.
func (j *judgement) claims(cm *corev1.ConfigMap, ns *corev1.Namespace, owner bool) bool {
	return j.byAll(func(f model.Flags) bool {
		return f.Claims(cm, ns) || owner && f.IsSource(cm) && model.Frozen(cm) && !model.Terminating(ns)
	})
}

// turnedUp reports whether the object turned up in this round as a copy out of scope of all flags that were in force, no
// process took over while it was there, and its source asked for copies there, in vain, ever since. No process has judged it
// then.
func (j *judgement) turnedUp(t transition) bool {
	// The second in which it was made may have begun before, and what a process prints may come late.
	made, gone := t.before.CreationTimestamp.Time, t.seen.Add(time.Second)
	if slices.ContainsFunc(j.fleet.tookOver(), func(at time.Time) bool { return !at.Before(made) && at.Before(gone) }) {
		return false
	}
	owner, _ := instance.Ours(t.before)
	own := j.history.of(t.key, j.round.began).before(t.rv)
	if first := own.states()[0]; first != nil && first.UID == t.before.UID || own.torn() {
		return false
	}
	of := j.history.of(owner, j.round.before).before(t.rv)
	return !of.torn() && !slices.ContainsFunc(of.from(withUID(own, t.before.UID)[0].from).states(), func(cm *corev1.ConfigMap) bool {
		return cm == nil || !j.byAll(func(f model.Flags) bool { return f.OutOfScope(cm, t.key.Namespace) })
	})
}
