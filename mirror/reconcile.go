package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// sliceSize is how many targets of one name are taken from the backlog at a time. Between two slices the
// other names have their turn, and what was marked meanwhile goes first: at some 2,500 writes a second that
// is every 25 milliseconds.
const sliceSize = 64

// reconcile takes the next slice of targets of a name, compares them with what the sources of that name want,
// and starts the writes that bring them in line. It reads only the caches and does not wait for the writes,
// only for a free slot to start each in, so that the next slice follows without a gap. It begins nothing more when
// ctx ends; what it began ends with term at the latest. It returns whether there is more to take at once, for which the
// name is in the queue again.
func (c *Controller) reconcile(ctx, term context.Context, name string) (more bool) {
	c.backlog.open(name) // not idle until the targets are taken: nothing is said of what is opened here before that
	if _, changed := c.look(name); changed {
		// The cache may be ahead of the event that tells of the change, and nothing may be said of the new content
		// before all targets were compared with it.
		c.backlog.markAll(name)
	}
	jobs, more := c.backlog.take(name, sliceSize, func() []string {
		targets := c.targetsOf(name)
		if c.ledger.announce(name) {
			c.expect(c.view(name), targets)
		}
		return targets
	})
	if more {
		defer c.queue.Add(name)
	}
	if len(jobs) == 0 {
		if c.backlog.idle(name) {
			c.report(ctx, name)
		}
		return more
	}
	// What the targets are judged by is read after they were taken. A change that came before that is in it, and one that
	// comes later makes them due again; of one that came between an older reading and the taking nothing would be left.
	// And it is read after what stands at the targets: see look.
	targets := make([]target, 0, len(jobs))
	for _, j := range jobs {
		targets = append(targets, c.target(name, j))
	}
	v := c.lookBehind(name)
	for i, ch := range c.rules.plan(v, targets) {
		if ch.op == opNone {
			c.settle(ctx, v, targets[i], result{change: ch, outcome: ch.outcome})
			continue
		}
		if ch.op == opCreate && jobs[i].round && c.retries.is(v.copyIn(targets[i]), obstructed) {
			// No change of the source takes the object away that is in the way: the try that is set stays the next.
			c.settle(ctx, v, targets[i], result{change: ch, outcome: outcomeForeign, paced: true})
			continue
		}
		release, crowded := c.acquire(ctx, v.copyIn(targets[i]))
		switch {
		case release != nil:
			c.writes.Go(func() {
				defer release()
				c.carryOut(ctx, term, name, jobs[i])
			})
		case crowded:
			c.settle(ctx, v, targets[i], result{change: ch, again: crowdedPatience, untold: true})
		default:
			return false // we are stopping
		}
	}
	return more
}

// expect notes what the sources want at the targets of a round, which may take long: until then it is pending.
func (c *Controller) expect(v view, targets []string) {
	for _, namespace := range targets {
		ns := c.cachedNamespace(namespace)
		if ns == nil || terminating(ns) {
			continue
		}
		if s := c.rules.winner(v.sources, ns); s != nil {
			c.ledger.expect(s.key, namespace)
		}
	}
}

// crowdedPatience is the time before the next try at a target that refuses, where others of its kind have all
// the slots that such may have.
const crowdedPatience = time.Second

// result is what came of one target.
type result struct {
	change  change
	outcome outcome
	wrote   bool
	trouble trouble
	err     error // why there is trouble; nil where the trouble says it all
	// again asks for another look after this time although there is no trouble.
	again time.Duration
	// alone is set if the API server did not answer, and does answer to others.
	alone bool
	// paced is set if the target is in trouble and waits for the try that is set already.
	paced bool
	// untold is set if it is not known how the target stands: what was known before goes on to hold.
	untold bool
	// looked is set if the target was read live, found if something is there, and ours if that is a copy of ours.
	looked, found, ours bool
}

// carryOut brings one target in line. It decides anew, for the caches may have moved on while it waited for a
// slot, and what it writes is what is wanted now.
func (c *Controller) carryOut(ctx, term context.Context, name string, j job) {
	t := c.target(name, j)
	v := c.lookBehind(name)
	c.settle(ctx, v, t, c.bring(ctx, term, v, t))
}

// bring makes the calls for one target: none if there is nothing to do any more, one as a rule. Where a
// create meets an object that the watch does not show, or is refused before it could, or a copy vanished, the
// object is read and judged.
func (c *Controller) bring(ctx, term context.Context, v view, t target) result {
	ch := c.rules.decide(v, t)
	if ch.op != opCreate && ch.op != opLook {
		return c.write(ctx, term, v, t, ch)
	}
	res := result{change: ch}
	if ch.op == opCreate {
		res = c.write(ctx, term, v, t, ch)
		collided := apierrors.IsAlreadyExists(res.err)
		if !collided && res.trouble != refused {
			return res
		}
		if collided {
			res = result{change: ch, outcome: outcomeForeign, trouble: obstructed}
		}
		if !t.vanished && !c.retries.worthALook(v.copyIn(t), c.opts.ResyncPeriod) {
			return res
		}
	}
	return c.judgeLive(ctx, term, v, t, res)
}

// judgeLive reads the object at a target, which the watch does not show, and does what it calls for. before is
// what came of a create there, if there was one.
func (c *Controller) judgeLive(ctx, term context.Context, v view, t target, before result) result {
	if !c.active.Load() {
		return stopping(before.change)
	}
	at := v.copyIn(t)
	live, err := c.readLive(ctx, at)
	switch {
	case err != nil && ctx.Err() != nil:
		return stopping(before.change)
	case err != nil:
		return failed(before.change, err)
	}
	c.writer.forget(at) // it is known what came of that
	res := c.judge(ctx, term, v, t, live, before)
	res.looked = true
	if live != nil {
		res.found = true
		_, res.ours = c.rules.sourceOf(live)
	}
	return res
}

// judge does what the object calls for that was just read at a target; nil if there is none.
func (c *Controller) judge(ctx, term context.Context, v view, t target, live *corev1.ConfigMap, before result) result {
	switch {
	case live == nil && before.trouble == obstructed:
		return result{change: before.change, outcome: outcomePending, trouble: behind} // it has just gone
	case live == nil:
		return before
	}
	t.have, t.vanished = live, false
	ch := c.rules.decide(v, t)
	if ch.op != opNone && c.moved(v, t) {
		return result{change: before.change, outcome: outcomePending, again: lookAnew}
	}
	res := c.write(ctx, term, v, t, ch)
	switch {
	case res.change.op != opNone:
	case c.rules.seen(live):
		if res.outcome != outcomeNone && c.cachedConfigMap(v.copyIn(t)) == nil {
			res.trouble = unseen // and if it goes before a relist, the watch never will show it
		}
	case res.outcome == outcomeFrozen, res.outcome == outcomePending:
		res.trouble = behind // an event about its source ends that, and then it has to be looked at
	case res.outcome != outcomeNone && res.outcome != outcomeSynced:
		res.trouble = obstructed // no event will tell of its end
	}
	return res
}

// stopping is the result for a target for which no more calls are begun.
func stopping(ch change) result {
	return result{change: ch, again: crowdedPatience, untold: true}
}

// write carries out one change, behind its premise.
func (c *Controller) write(ctx, term context.Context, v view, t target, ch change) result {
	if ch.op == opNone || ch.op == opLook {
		return result{change: ch, outcome: ch.outcome}
	}
	if !c.active.Load() {
		return stopping(ch)
	}
	at := v.copyIn(t)
	if c.writer.ahead(at, ch, c.cacheVersion()) {
		return result{change: ch, outcome: outcomePending, again: echoPatience}
	}
	if hold := c.fights.hold(at, contentOf(ch)); hold > 0 {
		return result{change: ch, outcome: outcomeFight, again: hold}
	}
	switch holds, again, err := c.premiseHolds(ctx, v, t, ch); {
	case err != nil && ctx.Err() != nil:
		return stopping(ch)
	case err != nil:
		return failed(ch, err)
	case again > 0:
		return result{change: ch, outcome: outcomePending, again: again}
	case !holds:
		return result{change: ch, outcome: outcomePending, trouble: behind}
	}
	if !c.active.Load() {
		return stopping(ch) // it was looked for long
	}
	began := time.Now()
	err := c.send(ctx, term, ch)
	altered := errors.Is(err, errAltered)
	if err != nil && !altered {
		if time.Since(began) >= longTime {
			c.retries.tookLong(at)
		}
		res := failed(ch, err)
		res.alone = errors.Is(err, context.DeadlineExceeded) && c.answers(ctx, at)
		return res
	}
	cause := c.rules.repairCause(ch, t.deleted)
	if cause != "" {
		c.measures.repairs.WithLabelValues(cause).Inc()
	}
	c.fights.wrote(at, contentOf(ch), altered || cause != "")
	switch {
	case altered:
		return c.altered(at, ch)
	case ch.op == opDelete:
		return result{change: ch}
	}
	return result{change: ch, outcome: outcomeSynced, wrote: true}
}

// send makes the calls of a change. What has begun is brought to its end, for which a stop waits, but not beyond the term.
// Reads end with ctx, which ends at a stop: nothing comes of them any more.
func (c *Controller) send(ctx, term context.Context, ch change) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(term, cancel)()
	return c.writer.apply(ctx, ch)
}

// alteredPatience is the time before the next write where what was written was altered on its way, before that counts as
// a fight.
const alteredPatience = 100 * time.Millisecond

// altered is the result of a write that was altered on its way. If it made of the copy what it had been before, no event
// tells of it.
func (c *Controller) altered(at cache.ObjectName, ch change) result {
	if hold := c.fights.hold(at, contentOf(ch)); hold > 0 {
		return result{change: ch, outcome: outcomeFight, again: hold}
	}
	return result{change: ch, outcome: outcomePending, again: alteredPatience}
}

// longTime is what a request takes at most, as a rule, even on a busy day.
const longTime = 2 * time.Second

// answers reports whether the API server answers for a target where it did not answer to a write.
func (c *Controller) answers(ctx context.Context, at cache.ObjectName) bool {
	if !c.active.Load() {
		return false
	}
	_, err := c.writer.read(ctx, at)
	return err == nil || answered(err)
}

// failed is the result of a change that the API server refused or did not answer.
func failed(ch change, err error) result {
	res := result{change: ch, outcome: outcomePending, trouble: troubleOf(ch.op, err), err: err}
	if res.trouble == refused {
		res.outcome = outcomeFailed
	}
	return res
}

// premiseHolds asks live for what the change rests on and preconditions cannot guard. If again is above zero
// there is no answer before that time is over.
func (c *Controller) premiseHolds(ctx context.Context, v view, t target, ch change) (holds bool, again time.Duration, err error) {
	if ch.premise == (premise{}) {
		return true, 0, nil
	}
	var source *corev1.ConfigMap
	if ch.premise.source {
		cached := ""
		if s := find(v.sources, ch.owner); s != nil {
			cached = s.cm.ResourceVersion
		}
		if source, again, err = c.looks.source(ctx, c.rules, ch.owner, cached); err != nil || again > 0 {
			return false, again, err
		}
	}
	namespace := t.object
	if ch.premise.namespace {
		if namespace, again, err = c.looks.namespace(ctx, t.object); err != nil || again > 0 {
			return false, again, err
		}
		if namespace == nil || terminating(namespace) {
			return false, 0, nil
		}
	}
	if c.moved(v, t) {
		return false, lookAnew, nil
	}
	return c.rules.stillUnwanted(v, source, namespace), 0, nil
}

// moved reports whether the caches have moved on since v and t were read.
func (c *Controller) moved(v view, t target) bool {
	return !slices.Equal(c.view(v.name).all(), v.all()) || c.cachedNamespace(t.namespace) != t.object
}

// settle notes the result for a target and sees to it that a target in trouble is tried again.
func (c *Controller) settle(ctx context.Context, v view, t target, res result) {
	at := v.copyIn(t)
	if hard := c.retries.hardened(at, res.trouble, res.alone || answered(res.err)); hard != res.trouble {
		res.trouble, res.outcome = hard, outcomeFailed
	}
	if res.outcome == outcomeSynced {
		// The other side may well come again: the fight is over when it has not for a while.
		if calm := c.fights.calmIn(at); calm > 0 {
			res.outcome, res.again = outcomeFight, calm
		}
	}
	if res.trouble == closing && !c.open(t.namespace) {
		// Our own cache shows it as well: an event will tell if a namespace of that name returns.
		res = result{change: res.change}
	}
	// The event of a copy's disappearance may have passed for one of a deletion of ours that then failed, and of a copy that
	// the watch has not shown there may be none.
	m := mark{
		vanished: t.vanished && !res.looked || res.ours || res.err != nil && res.change.have != nil,
		deleted:  t.deleted && !res.found,
	}
	if res.looked {
		c.retries.looked(at, res.found)
	}
	switch {
	case res.paced:
	case res.again > 0:
		c.retries.after(at, m, res.again)
	case res.trouble != noTrouble:
		c.retries.add(at, m, res.trouble)
	default:
		c.retries.settled(at)
	}
	c.logResult(ctx, at, res)
	if !res.untold {
		c.enter(v, t, res)
	}
	if fill := c.latencies.settled(v, t.namespace, res); fill > 0 {
		c.measures.fill.Observe(fill.Seconds())
	}
	due, idle := c.backlog.done(v.name, t.namespace)
	if due {
		c.queue.Add(v.name)
	}
	if idle {
		c.report(ctx, v.name)
	}
}

// enter notes in the ledger how every source of the name stands at the target.
func (c *Controller) enter(v view, t target, res result) {
	for _, s := range v.all() {
		st := standing{}
		switch {
		case res.change.source == s:
			st = standing{outcome: res.outcome, note: note(res), wrote: res.wrote}
		case res.change.source == nil && res.change.owner == s.key:
			st = standing{outcome: res.outcome, note: note(res)}
		case t.object != nil && s.claims(c.rules, t.object) && res.change.holder() != "":
			st = standing{outcome: outcomeSuperseded, note: res.change.holder()}
		}
		c.ledger.enter(s, t.namespace, st)
	}
}

// holder returns the key of the source that has the target; empty if none has.
func (c change) holder() string {
	switch {
	case c.source != nil:
		return c.source.key.String()
	case c.outcome == outcomeFrozen:
		return c.owner.String()
	}
	return ""
}

// note returns what there is to tell the owner of the source about a result.
func note(res result) string {
	if res.outcome != outcomeFailed || res.err == nil {
		return ""
	}
	return res.err.Error()
}

func (c *Controller) logResult(ctx context.Context, at cache.ObjectName, res result) {
	logger := klog.FromContext(ctx)
	if res.change.op == opDelete && res.trouble == refused {
		// The source may be gone, and with it the place for an event.
		c.undeleted.Do(func() {
			logger.Error(res.err, "Cannot delete a copy, trying again until it works", "copy", at, "source", res.change.owner)
		})
	}
	switch {
	case res.err != nil && !errors.Is(res.err, context.Canceled):
		logger.V(2).Info("Copy not in line, trying again", "copy", at, "op", res.change.op, "trouble", res.trouble, "err", res.err)
	case res.wrote:
		logger.V(2).Info("Copy written", "copy", at, "op", res.change.op, "source", res.change.source.key)
	case res.change.op == opDelete && res.trouble == noTrouble && res.again == 0:
		logger.V(2).Info("Copy deleted", "copy", at, "source", res.change.owner)
	case res.outcome == outcomePending && res.change.have != nil && res.change.have.DeletionTimestamp != nil:
		logger.V(2).Info("Copy is being deleted, and somebody's finalizers hold it", "copy", at, "finalizers", res.change.have.Finalizers)
	default:
		logger.V(4).Info("Nothing to do", "copy", at, "outcome", res.outcome)
	}
}

// report tells people what is new about the sources of a name, in the order in which it came to be so.
func (c *Controller) report(ctx context.Context, name string) {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	idle := func() bool { return c.backlog.idle(name) }
	for _, took := range c.latencies.idle(name, func(key cache.ObjectName) bool { return !idle() || c.ledger.pending(key) }) {
		c.measures.propagation.Observe(took.Seconds())
	}
	for _, s := range c.ledger.statements(name, idle) {
		klog.FromContext(ctx).Info(s.note, "source", cache.MetaObjectToName(s.source), "outcome", s.reason)
		c.recorder.Eventf(s.source, nil, s.kind, s.reason, s.action, "%s", s.note)
	}
}

// all returns the sources of the name and those outside the flags.
func (v view) all() []*source {
	if len(v.outsiders) == 0 {
		return v.sources
	}
	return slices.Concat(v.sources, v.outsiders)
}

// copyIn returns the key of the copy in a target.
func (v view) copyIn(t target) cache.ObjectName {
	return cache.ObjectName{Namespace: t.namespace, Name: v.name}
}

// readLive reads an object as the cache would hold it; nil if there is none.
func (c *Controller) readLive(ctx context.Context, key cache.ObjectName) (*corev1.ConfigMap, error) {
	cm, err := c.writer.read(ctx, key)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	c.rules.strip(cm)
	return cm, nil
}
