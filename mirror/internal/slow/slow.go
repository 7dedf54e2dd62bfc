// Package slow keeps namespaces that answer slowly from holding up the others.
//
// A program that writes into a thousand namespaces with 32 workers stands still
// when 32 namespaces hang. So an ordinary call has a deadline, which follows
// from how long such calls take. A call that misses its deadline is cut, and
// frees its worker. From then on the namespace is slow: its targets wait in a
// queue of their own, which few workers serve. The namespace leaves that queue
// when a call there is answered in time.
//
// Not every late answer shows a slow namespace: the API server may stall for a
// moment, or be slow for everybody. The file learn.go
// distinguishes these.
//
// A call must be conditional: after a cut nobody knows whether the API server
// carried it out.
package slow

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/internal/queue"
)

// Workers is how many workers serve the slow namespaces at the pace Growing,
// and how many at the pace Whole. The API server has few seats for one account.
const Workers = 8

// Queue holds the slow namespaces, by UID, and times all calls. A worker takes
// the turn of a namespace, which is one of its targets:
//
//	uid, _ := q.Get()
//	k, ok := q.Next(uid)
//	// if ok, make the calls of the target k by Read and Write
//	back := q.EndTurn(uid)
//	q.Done(uid)
//
// As in every work queue of client-go, a namespace is in work once at a time.
type Queue struct {
	*queue.Queue[types.UID]

	isAnswer func(error) bool

	mu         sync.Mutex // guards the rest
	namespaces map[types.UID]*namespace
	inFlight   map[*call]bool
	lastWrites map[types.UID]lastWrite // ordinary ones
	ordinary   ordinary
}

// namespace is a slow namespace, or one with a target whose read was cut.
type namespace struct {
	took    time.Duration // by the last slow write; 0: the namespace is not slow
	inTime  bool          // the last write of this turn was answered in time
	targets []types.NamespacedName
}

// NewQueue returns an empty queue. name is the label of its metrics. isAnswer
// reports whether the error of a call, or nil, shows that the API server has
// answered.
func NewQueue(name string, isAnswer func(error) bool) *Queue {
	return &Queue{
		Queue:      queue.New(name, queue.OneFlow[types.UID]),
		isAnswer:   isAnswer,
		namespaces: map[types.UID]*namespace{},
		inFlight:   map[*call]bool{},
		lastWrites: map[types.UID]lastWrite{},
	}
}

// Put adds a target to the queue, where it waits for a turn of its namespace,
// and reports whether it did. It adds every target of a slow namespace. Of
// another namespace it adds only a target whose last call ended with ErrReadCut.
func (q *Queue) Put(uid types.UID, k types.NamespacedName, last error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.isSlow(q.namespaces[uid]) && !errors.Is(last, ErrReadCut) {
		return false
	}
	n := q.namespace(uid)
	if !slices.Contains(n.targets, k) {
		n.targets = append(n.targets, k)
	}
	q.add(uid, n)
	return true
}

// Next removes the target whose turn it is. ok is false if ordinary workers may
// serve the namespace again, or if no target waits.
func (q *Queue) Next(uid types.UID) (k types.NamespacedName, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.namespaces[uid]
	if n == nil || len(n.targets) == 0 || q.isOrdinary(n) {
		return k, false
	}
	k = n.targets[0]
	n.targets = n.targets[1:]
	return k, true
}

// EndTurn ends the turn of a namespace. It returns the targets that go back to
// the ordinary workers: all of them if the last call was answered in time.
func (q *Queue) EndTurn(uid types.UID) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.namespaces[uid]
	if n == nil {
		return nil
	}
	isDone := n.took == 0 && len(n.targets) == 0
	if n.inTime || isDone || q.isOrdinary(n) {
		return q.release(uid)
	}
	if len(n.targets) > 0 {
		q.add(uid, n)
	}
	return nil
}

// Written records that the watch shows a copy in sync. If an ordinary write in
// its namespace was cut just before, the API server has carried that out, and
// the namespace is quick. Written returns the targets that go back to the
// ordinary workers.
func (q *Queue) Written(uid types.UID) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.lastWrites[uid].longAt) > shownWithin {
		return nil
	}
	q.lastWrites[uid] = lastWrite{inTime: true}
	return q.release(uid)
}

// Forget forgets a namespace that is deleted, and cuts the calls there.
func (q *Queue) Forget(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.namespaces, uid)
	delete(q.lastWrites, uid)
	for c := range q.inFlight {
		if c.namespace == uid {
			delete(q.inFlight, c) // nothing is learnt from it
			c.cancel(ErrCut)
		}
	}
}

// The methods below need the mutex.

// isSlow reports whether ordinary workers may not serve the namespace: its next
// call may take longer than an ordinary one.
func (q *Queue) isSlow(n *namespace) bool {
	return n != nil && growthFactor*n.took >= q.ordinary.limit()
}

// isOrdinary reports whether a namespace that was slow is so no longer, because
// ordinary calls take as long by now.
func (q *Queue) isOrdinary(n *namespace) bool { return n.took > 0 && !q.isSlow(n) }

// add adds a namespace to those that wait for a turn. Namespaces that hang go
// last: their turns are the longest.
func (q *Queue) add(uid types.UID, n *namespace) {
	if n.took < longLimit {
		q.AddFirst(uid)
	} else {
		q.Add(uid)
	}
}

// namespace returns the record of a namespace, and makes one if there is none.
func (q *Queue) namespace(uid types.UID) *namespace {
	n := cmp.Or(q.namespaces[uid], &namespace{})
	q.namespaces[uid] = n
	return n
}

// release forgets that a namespace is slow, and returns its targets.
func (q *Queue) release(uid types.UID) []types.NamespacedName {
	n := cmp.Or(q.namespaces[uid], &namespace{})
	delete(q.namespaces, uid)
	return n.targets
}
