package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// reasonsOfEvents are the reasons that an event of the controller may have.
var reasonsOfEvents = []string{
	"Mirrored", "Foreign", "Superseded", "ReservedName", "InvalidAnnotation", "WriteFailed", "Fight", "OutOfScope", "PruneBlocked",
	"NoTargets", "Expiring",
}

// eventKey is what an event is about, and why. The audit log does not tell it.
type eventKey struct {
	regarding types.UID
	reason    string
}

// readEvents returns the keys of the events of the controllers that are there, by their namespaces and names.
func (j *judgement) readEvents(ctx context.Context) (map[model.Key]eventKey, error) {
	ctx, cancel := context.WithTimeout(ctx, j.patience)
	defer cancel()
	all, err := j.users.client.EventsV1().Events("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[model.Key]eventKey{}
	for _, e := range all.Items {
		if e.ReportingController == model.Controller {
			// An event about a source that went while no controller ran has no UID.
			regarding := cmp.Or(e.Regarding.UID, types.UID(e.Regarding.Namespace+"/"+e.Regarding.Name))
			out[model.Key{Namespace: e.Namespace, Name: e.Name}] = eventKey{regarding, e.Reason}
		}
	}
	return out, nil
}

// judgeEvents finds what is wrong with the events that were written in the round.
func (j *judgement) judgeEvents(ctx context.Context) {
	j.talk()
	keys, err := j.readEvents(ctx)
	if err != nil {
		j.problems = append(j.problems, err.Error())
		return
	}
	for of, key := range keys {
		if !slices.Contains(reasonsOfEvents, key.reason) {
			j.problems = append(j.problems, fmt.Sprintf("event %s has the reason %s", of, key.reason))
		}
	}
	j.hurried(keys, j.fleet.allLives())
}

// eventSlack is by how much the requests of two events may come closer to each other than they were sent.
const eventSlack = 500 * time.Millisecond

// lastEvents is how long a process that stops writes the events that still wait, without a pause between them.
const lastEvents = 3 * time.Second

// hurried finds events that a process wrote too soon after another one with the same reason about the same source, other
// than the last ones before a stop.
func (j *judgement) hurried(keys map[model.Key]eventKey, lives []life) {
	type writer struct {
		eventKey
		user string
		life int
	}
	last := map[writer]cluster.Event{}
	slices.SortStableFunc(j.events, byReceipt)
	for _, e := range j.events {
		key, known := keys[model.Key{Namespace: e.Object.Namespace, Name: e.Object.Name}]
		if !known {
			continue // it is gone with its namespace
		}
		at := writer{key, e.User.Username, slices.IndexFunc(lives, func(l life) bool { return l.user == e.User.Username && l.has(e.Received) })}
		before, again := last[at]
		last[at] = e
		if at.life >= 0 && lives[at.life].gaveBack && lives[at.life].ended.Sub(e.Received) < lastEvents+eventSlack {
			continue
		}
		if gap := e.Received.Sub(before.Received); again && gap < j.eventGap-eventSlack && !j.held(e.User.Username, before.Received, e.Received) {
			j.problems = append(j.problems, fmt.Sprintf("two events with the reason %s about %s within %s: %v, %v", key.reason, key.regarding, gap, before, e))
		}
	}
}

// held reports whether requests of a replica between the two may have come late.
func (j *judgement) held(user string, from, to time.Time) bool {
	from = from.Add(-j.eventGap)
	return j.stalls.Between(from, to) >= eventSlack || j.met(user, from, to, isSlow)
}

// talk finds events that are about no source, present or former, and those that are more than one for each change of an outcome: one for
// each copy, for example.
func (j *judgement) talk() {
	said := map[model.Key]int{}
	for _, e := range j.events {
		said[model.Key{Namespace: e.Object.Namespace, Name: eventName(e.Object.Name)}]++
	}
	for key, n := range said {
		if !slices.ContainsFunc(j.history.named(key.Name), func(of model.Key) bool { return j.mayConcern(key, of) }) {
			j.problems = append(j.problems, fmt.Sprintf("%d events about %s, which is no source", n, key))
		}
		if most := j.mostEvents(key); n > most {
			j.problems = append(j.problems, fmt.Sprintf("%d events about %s, and there was reason for %d", n, key, most))
		}
	}
}

// mayConcern reports whether a ConfigMap was the source that events are about, or a copy of it: of that it is said that it expires.
func (j *judgement) mayConcern(about, key model.Key) bool {
	was := j.history.of(key, j.round.longAgo)
	return was.torn() || slices.ContainsFunc(was.states(), func(cm *corev1.ConfigMap) bool {
		if cm == nil {
			return false
		}
		owner, ok := instance.Ours(cm)
		return about == key && source(cm) || ok && owner == about
	})
}

// reasons is how many things there are to be said of a source at most, when all of them change.
const reasons = 9

// mostEvents returns how many events about a source there may be in the round: two for each change of anything that its
// outcome depends on, and all that there is to say when another process takes over, and of the round before.
func (j *judgement) mostEvents(key model.Key) int {
	changes := 0
	for _, t := range j.transitions {
		if t.key.Name == key.Name && j.byUser(t) {
			changes++
		}
	}
	since := j.round.began // of the changes of namespaces that the source can have met
	if j.round.start[key] == nil {
		for _, t := range j.transitions {
			if t.key == key {
				since = t.seen
				break
			}
		}
	}
	for _, ns := range stage {
		for _, s := range j.history.ofNamespace(ns, since) {
			if s.seen.After(since) {
				changes++
			}
		}
	}
	return reasons*(1+len(j.fleet.tookOver())-j.round.takeOvers) + 2*changes
}

// eventName returns the name of the object that an event is about, from its own: that is "<name>.<number>".
func eventName(event string) string {
	return event[:max(0, strings.LastIndexByte(event, '.'))]
}
