// Package mirror keeps copies of ConfigMaps in other namespaces in sync.
//
// A ConfigMap with the label mirror=true, the source, is copied into every target: a namespace that the flags, the
// namespace itself and the source allow. Package plan holds the contract and decides; this package reads the cluster,
// carries the decisions out and reports.
//
// # From an event to a write
//
//	event ──> handlers ──> queue of sources: a name ────────> fanout: plans all targets of the name
//	             │                                               │ keys of the targets that are out of sync
//	             └───────> queue of copies: name, namespace <────┘
//	                          └──> reconciler: decides about one target, makes one call, records the result
//
// A key names sources by their name alone. A target has room for one ConfigMap of a name, so all sources of a name
// contend for the same copies, and one decision sees all of them. The queues are client-go's: a key is never in work
// twice at the same time, and an event during the work brings it back.
//
// When no key of a name is waiting or in work and something has changed, the name goes to the first queue once more, to report
// its sources. A report rests on counts, and compares the targets only if the sources have changed since the last fan-out.
//
// A reconcile and a fan-out may read the same target at the same time. A reconcile that ends after its sources have changed asks
// for one more fan-out. A fan-out queues each target whose record changes while the fan-out works. A reconcile repeats if the
// watch shows our own former write meanwhile.
//
// # Reading order
//
//	plan/         what is wanted: sources, targets, copies, and the change at each target
//	retry.go      why a target is retried, and when
//	sources.go    the queue of sources: fan-outs, and reports alone
//	order.go      the queue of copies: events first, fan-outs in turns
//	lanes.go      the places for calls: normal and slow
//	record.go     what is known of one target, and the next step there
//	status.go     a record for each target, and counts
//	confirm.go    live reads before deletions
//	apply.go      one change, one conditional call
//	cache.go      the informers and what is read from them
//	texts.go      the texts of events
//	report.go     when an event on a source is written
//	reconcile.go  one target: read, decide, confirm, write, record, retry
//	fanout.go     all targets of a name
//	prune.go      the prune limit
//	confined.go   the self-check of the admission policy
//	share.go      the metadata that equal objects in the cache share
//	handlers.go   every event to keys
//	metrics.go    what is counted
//	options.go    the flags
//	controller.go construction, takeover, stop
//	outcome.go    when the work is done, and what came of it
//
// # Why it is safe
//
// One watch carries sources and copies in one order: a cache that holds a copy has already held its source. Every
// decision reads the target first and the sources after it.
//
// Every write is conditional. A create fails if any object is there, an update carries the resourceVersion that was
// judged, a delete UID and resourceVersion. An old cache therefore costs a refused call and a retry, never a wrong object.
//
// Preconditions cannot guard the premise of a deletion: the source is gone, or the namespace no longer qualifies. The
// confirmer reads it live, once for all deletions that depend on it within five seconds. It reads a source that is gone a
// second time after a second, in which tools that replace an object create it again.
//
// Decisions come from the present state alone. Records and answers can be lost at any moment: a takeover plans everything.
// The leadership is asked right before each write.
//
// # Why one bad target holds up no other
//
// A call that takes much longer than usual moves to one of the slow places and frees its normal one. A namespace that is
// known to be slow starts one call at a time. If all slow places are taken and other keys wait, the call is cut and
// retried: it is conditional, so nothing is lost. A fan-out takes its targets in random order. Each target has its own
// backoff.
//
// # Status
//
// A record says how a target stands and what its next try waits for. Targets that are simply in sync share one record, so
// that a copy costs a pointer here. A record for every target, and not only for those out of sync, makes all counts exact
// at every moment without planning all targets again for each new namespace.
//
// # Locks
//
// Seven types have a mutex. The order is: confirmer or lanes, then the queue of copies, then order. The confirmer adds keys to
// the queue with its mutex held, lanes asks the queue for its length, and the queue calls order with its own lock held.
// caches reads an index of client-go with its mutex held. The mutexes of status, of the queue of sources and of the
// shared metadata are taken alone.
//
// # Dry run
//
// The writer is the one place that makes writes, and in a dry run it makes none. A target at which it withheld a change is
// pending, and waits for its next try as one that failed: an event, or other wanted content, ends the wait. Before a create the
// writer reads the target, because only the API server knows the foreign objects.
package mirror
