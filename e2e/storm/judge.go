package main

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// onStage reports whether it is one of the ConfigMaps that steps are about.
func onStage(key model.Key) bool {
	return slices.Contains(names, key.Name) && slices.Contains(stage, key.Namespace)
}

// judge returns what the controller did in the round that it must not do, be it for a moment: by what the watch of
// the history showed, as far as users did not do it, and by the API server's audit log.
func (s *storm) judge() []string {
	j := &judgement{storm: s, transitions: s.history.takeRound()}
	for _, t := range j.transitions {
		if onStage(t.key) && !model.Reserved(t.key.Name) && !j.byUser(t) {
			j.controllers = append(j.controllers, t)
		}
	}
	for _, t := range j.controllers {
		j.rightful(t)
		j.needed(t)
		j.braked(t)
	}
	j.audited()
	return j.problems
}

// judgement is what is known when a round is judged.
type judgement struct {
	*storm
	transitions []transition
	controllers []transition // those that the controller made
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
	j.users.mu.Lock()
	defer j.users.mu.Unlock()
	closing := j.users.disturbed[t.key.Namespace] || j.round.closing[t.key.Namespace]
	switch {
	case j.users.unsure[t.key]:
		return true
	case t.after != nil && (j.users.wrote[t.after.ResourceVersion] || t.appeared() && madeBy(t.after, user)):
		return true
	case t.ended():
		return closing || j.users.deleted[stateOf(t.before)] || t.before.DeletionTimestamp != nil
	}
	return false
}

// rightful finds what was done to an object that is not ours, and where nothing of ours has a place.
func (j *judgement) rightful(t transition) {
	if t.appeared() || !t.ended() {
		if !j.fleet.allows(t.key.Namespace) {
			j.problem(t, "written outside the flags")
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

// needed finds what was done without need, where that can be told: when neither the flags nor the namespace changed.
func (j *judgement) needed(t transition) {
	if t.gap || j.fleet.changed() || j.disturbedNamespace(t.key.Namespace) {
		return
	}
	if j.round.settled[t.key] && !j.usersTouched(t.key) {
		j.problem(t, "written without need")
	}
	if owner, ok := j.frozenOwner(t); ok {
		j.problem(t, owner.String()+" is frozen, and it was written for it or taken from it")
	}
	if holder, ok := j.robbed(t); ok {
		j.problem(t, "taken from "+holder.String()+", which had it and did not give it up")
	}
	if !t.ended() || !ours(t.before) || immutable(t.before) {
		return
	}
	if steady := j.steady(t); steady != "" {
		j.problem(t, "deleted, and "+steady+" wanted it all the time")
	}
}

// braked finds what was deleted because a flag had changed, where the brake blocks that.
func (j *judgement) braked(t transition) {
	if !j.blocked || !t.ended() || !ours(t.before) {
		return
	}
	owner, _ := instance.Ours(t.before)
	if cm := j.history.present()[owner]; cm != nil && j.fleet.present().Outside(cm, t.key.Namespace) {
		j.problem(t, "deleted behind the brake")
	}
}

func (j *judgement) disturbedNamespace(name string) bool {
	j.users.mu.Lock()
	defer j.users.mu.Unlock()
	return j.users.disturbed[name] || j.round.closing[name]
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
		if ok && j.all(owner, func(cm *corev1.ConfigMap) bool { return j.fleet.present().IsSource(cm) && model.Frozen(cm) }) {
			return owner, true
		}
	}
	return model.Key{}, false
}

// robbed returns the source from which a copy went to another, if it claimed the place all the time or was frozen,
// and no other source of the name changed: then it still has precedence.
func (j *judgement) robbed(t transition) (model.Key, bool) {
	if t.appeared() || t.after == nil || !j.round.settled[t.key] || !ours(t.before) || j.round.start[t.key] == nil {
		return model.Key{}, false
	}
	holder, _ := instance.Ours(j.round.start[t.key])
	from, _ := instance.Ours(t.before)
	to, _ := instance.Ours(t.after)
	kept := func(cm *corev1.ConfigMap) bool { return j.claims(cm, t.key.Namespace, true) }
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

// steady returns a source, if there is one, that has claimed the place during the whole round, but for moments in
// which it was replaced within the second.
func (j *judgement) steady(t transition) string {
	owner, _ := instance.Ours(t.before)
	for key, cm := range j.round.start {
		if key.Name == t.key.Name && j.claims(cm, t.key.Namespace, key == owner) && j.claimsOn(key, t.key.Namespace, key == owner) {
			return key.String()
		}
	}
	return ""
}

// claimsOn reports whether each state of the source in the round claims the namespace.
func (j *judgement) claimsOn(key model.Key, namespace string, owner bool) bool {
	return !slices.ContainsFunc(j.transitions, func(t transition) bool {
		if t.key != key {
			return false
		}
		if t.after == nil {
			j.users.mu.Lock()
			defer j.users.mu.Unlock()
			return !j.users.replaced[stateOf(t.before)]
		}
		return !j.claims(t.after, namespace, owner)
	})
}

// claims reports whether a source claims the namespace; a frozen one keeps what it owns.
func (j *judgement) claims(cm *corev1.ConfigMap, namespace string, owner bool) bool {
	ns := j.seen.Namespace(namespace)
	return ns != nil && (j.fleet.present().Claims(cm, ns) || owner && source(cm) && model.Frozen(cm))
}

// audited finds writes in the audit log that are none of the controller's business, or that changed nothing.
func (j *judgement) audited() {
	events, _, err := j.cluster.Audit().Since(j.round.mark)
	if err != nil {
		j.problems = append(j.problems, err.Error())
		return
	}
	writes := map[model.Key][]cluster.Event{}
	for _, e := range events {
		if e.User.Username != j.fleet.installed.User || !isWrite(e) {
			continue
		}
		key := model.Key{Namespace: e.Object.Namespace, Name: e.Object.Name}
		switch e.Object.Resource {
		case "events", "leases":
		case "configmaps":
			if !onStage(key) || model.Reserved(key.Name) || e.Verb == "patch" || e.Verb == "deletecollection" {
				j.problems = append(j.problems, fmt.Sprintf("an improper write: %v", e))
			}
			writes[key] = append(writes[key], e)
			j.counts.write(e.Verb)
		default:
			j.problems = append(j.problems, fmt.Sprintf("an improper write: %v", e))
		}
	}
	for key, list := range writes {
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
	return !unsure && !j.disturbedNamespace(key.Namespace) &&
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
