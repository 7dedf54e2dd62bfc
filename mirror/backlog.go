package mirror

import (
	"slices"
	"sync"
)

// backlog holds, beside the queue of names, which targets of a name need a look, so that what an event costs
// follows what changed and not the size of the cluster.
//
// Targets that an event named come first, in the order of the events. Behind them comes the round: all
// targets of the name, after a change of a source. It is taken in slices, goes on where it stopped when it is
// started anew, so that a source that changes all the time still reaches its last target, and lets whatever
// is marked meanwhile go ahead.
//
// A target that was taken is busy until done is called for it; it is not handed out a second time before.
type backlog struct {
	mu    sync.Mutex
	names map[string]*pending
}

// pending is the backlog of one name. It exists as long as there is anything in it.
type pending struct {
	marked   []string        // in the order of marking; each is a key of due
	due      map[string]mark // targets to look at before the round goes on
	busy     map[string]bool // targets handed out
	round    bool            // a round was asked for and its targets are not listed yet
	listing  bool            // its targets are being listed
	opened   bool            // somebody is about to take; see open
	targets  []string        // the targets of the round, sorted
	next     int             // index of the next target of the round
	left     int             // how many targets of the round are still to be taken
	lastSeen string          // the target at which the previous round stopped
}

// mark is why a target is due.
type mark struct {
	vanished bool // a copy disappeared from there by no delete of ours, and may only have lost its label: it is to be looked for
	deleted  bool // a copy disappeared from there by no delete of ours, and was not put back
	round    bool // it is due with all others of the name, and not for something that happened there
}

// merge returns why a target is due that was due before: what vanished stays so until somebody has looked.
func (m mark) merge(before mark) mark {
	return mark{vanished: m.vanished || before.vanished, deleted: m.deleted || before.deleted}
}

// job is one target that was taken from the backlog.
type job struct {
	namespace string
	mark
}

func newBacklog() *backlog { return &backlog{names: map[string]*pending{}} }

func (b *backlog) of(name string) *pending {
	p := b.names[name]
	if p == nil {
		p = &pending{due: map[string]mark{}, busy: map[string]bool{}}
		b.names[name] = p
	}
	return p
}

// mark makes a target of the name due.
func (b *backlog) mark(name, namespace string, m mark) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.of(name)
	before, marked := p.due[namespace]
	if !marked {
		p.marked = append(p.marked, namespace)
	}
	p.due[namespace] = m.merge(before)
}

// markAll starts a round over all targets of the name.
func (b *backlog) markAll(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(name).round = true
}

// open has the name count as not idle until the next take: what somebody learns about it before that is not told before the
// targets were taken.
func (b *backlog) open(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(name).opened = true
}

// take hands out up to limit targets of the name. list returns all targets of the name, in any order; it is
// called when a round begins. more reports whether there is something left to take at once.
func (b *backlog) take(name string, limit int, list func() []string) (jobs []job, more bool) {
	if b.wantsRound(name) {
		b.begin(name, list())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.names[name]
	if p == nil {
		return nil, false
	}
	p.opened = false
	// A part of each slice is the round's, or targets that are marked all the time would keep it from its end.
	jobs = p.takeMarked(jobs, limit-min(p.left, limit/4))
	jobs = p.takeRound(jobs, limit)
	// What the round has left of its part is the marked targets' again: nobody else would wake them.
	jobs = p.takeMarked(jobs, limit)
	more = len(jobs) == limit && (p.left > 0 || len(p.marked) > 0)
	b.dropIfEmpty(name, p)
	return jobs, more
}

// wantsRound reports whether a round of the name has to be listed. Listing is done outside the lock, for it
// reads the caches.
func (b *backlog) wantsRound(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.names[name]
	if p == nil || !p.round {
		return false
	}
	// Cleared before the list is made: what changes while it is made asks for another round.
	p.round, p.listing = false, true
	return true
}

func (b *backlog) begin(name string, targets []string) {
	slices.Sort(targets)
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.of(name)
	p.targets, p.left = targets, len(targets)
	p.listing = false
	i, found := slices.BinarySearch(targets, p.lastSeen)
	if found {
		i++
	}
	p.next = i
}

// takeMarked moves due targets to jobs, passing over busy ones: they are looked at again when done.
func (p *pending) takeMarked(jobs []job, limit int) []job {
	var rest []string
	for i, namespace := range p.marked {
		if len(jobs) == limit {
			rest = append(rest, p.marked[i:]...)
			break
		}
		if p.busy[namespace] {
			rest = append(rest, namespace)
			continue
		}
		jobs = append(jobs, job{namespace: namespace, mark: p.due[namespace]})
		delete(p.due, namespace)
		p.busy[namespace] = true
	}
	p.marked = rest
	return jobs
}

// takeRound moves targets of the round to jobs. A busy one is made due instead, so that what was changed
// while it was being written is not missed.
func (p *pending) takeRound(jobs []job, limit int) []job {
	for ; p.left > 0 && len(jobs) < limit; p.left-- {
		if p.next >= len(p.targets) {
			p.next = 0
		}
		namespace := p.targets[p.next]
		p.next++
		_, due := p.due[namespace]
		switch {
		case due:
		case p.busy[namespace]:
			p.marked = append(p.marked, namespace)
			p.due[namespace] = mark{round: true}
		default:
			jobs = append(jobs, job{namespace: namespace, mark: mark{round: true}})
			p.busy[namespace] = true
		}
		p.lastSeen = namespace
	}
	if p.left == 0 {
		p.targets = nil
	}
	return jobs
}

// done ends a job. due reports whether there is something to take for the name, which the caller then puts
// into the queue; idle, whether there is nothing left of the name at all.
func (b *backlog) done(name, namespace string) (due, idle bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.names[name]
	if p == nil {
		return false, true
	}
	delete(p.busy, namespace)
	_, due = p.due[namespace]
	return due, b.dropIfEmpty(name, p)
}

// idle reports whether there is nothing of the name: no target due, and none busy.
func (b *backlog) idle(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.names[name] == nil
}

func (b *backlog) dropIfEmpty(name string, p *pending) bool {
	empty := !p.round && !p.listing && !p.opened && p.left == 0 && len(p.marked) == 0 && len(p.busy) == 0
	if empty {
		delete(b.names, name)
	}
	return empty
}
