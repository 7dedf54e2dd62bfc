// Package mirror keeps copies of ConfigMaps in other namespaces in sync.
//
// A ConfigMap with the label mirror=true, the source, is copied into every target: a namespace that the flags, the
// namespace itself and the source allow. Package plan holds the contract and decides; this package reads the cluster,
// carries the decisions out and reports.
//
// # From an event to a write
//
//	event ──> handlers ──> queue of sources: a name ────────> fanout: decides about all targets of the name
//	             │                                               │ keys of the targets that are out of sync
//	             └───────> queue of copies: name, namespace <────┘
//	                          └──> reconciler: decides about one target, makes one change, records the result
//
// A key names sources by their name alone. A target has room for one ConfigMap of a name, so all sources of a name
// contend for the same copies, and one decision sees all of them. The queues are client-go's: a key is never in work
// twice at the same time, and an event during the work brings it back.
//
// One rule keeps fan-outs and reconciles apart: a target and its record are read together, under the lock of their
// name. While a call for a target is on its way, only its reconcile writes the record; handlers and fan-outs queue
// the key. One decider decides, for the fan-out and for the reconcile.
//
// When no target of a name is queued any more and something has changed, the name goes to the first queue once more,
// to report its sources. While targets keep the queue busy, it does so after ten seconds.
//
// Inside the package one idea follows from the other: a record holds what is known of one target, the status of a
// name holds the records of its targets, the decider decides by them, the reconciler carries a decision out, and the
// reporter sums the status up for each source.
//
// # Packages
//
//	plan               the contract: sources, targets, copies, and the change at each target
//	internal/cache     the objects that the watches show, and the sources of each name
//	internal/queue     the two queues: which key is next
//	internal/lanes     the slots for calls: a slow namespace holds up no other
//	internal/liveread  reads past the cache, shared by all deletions that depend on them
//	internal/outcome   the meaning of an error: the retry, the state, the metric
//	internal/report    the messages about a source: which are due, and their words
//	internal/outbox    events on their way to the recorder
//
// None of the internal packages imports another one.
//
// # Why it is safe
//
// One watch carries sources and copies in one order: a cache that holds a copy has already held its source. Every
// decision reads the target first and the sources after it.
//
// Every write is conditional. A create fails if any object is there, an update carries the resourceVersion that was
// judged, a delete UID and resourceVersion. An old cache therefore costs a refused call and a retry, never a wrong
// object.
//
// Preconditions cannot guard the premise of a deletion: the source is gone, or the namespace no longer qualifies. A
// copy that no source claims waits for the deletion grace. Then the reconcile reads the source live, and the
// namespace if its labels matter. The answer serves all deletions that depend on it for five seconds. A live read
// that shows a claim begins the grace anew. The reconcile also reads an object live that is in the way of a create.
//
// Decisions come from the present state alone, but for the time since a copy is unclaimed, which begins anew at a
// takeover. Records and answers can be lost at any moment. The leadership is asked right before each write.
//
// # Why one bad target holds up no other
//
// Package lanes has normal and slow slots for calls. A call that takes much longer than usual moves to a slow slot
// and frees its normal one. A slow namespace is tried only now and then: in a slow slot or, while all are taken, by a
// call that is cut when it is slow. While all slow slots are taken, keys wait, and the API server answers other
// calls, lanes cuts a slow call. The reconcile retries a call that was cut: the call is conditional, so nothing is
// lost. Lanes treats reads as writes. A fan-out takes its targets in random order. Each target has its own backoff.
//
// # Status
//
// A record says how a target stands and what its next try waits for. Targets that are simply in sync share one
// record, so that a copy costs a pointer here. Counts may be wrong for a moment, and are right when the queue is
// empty.
//
// Our own last write is part of the record until the cache shows it: an event that shows it wakes nobody, and until
// then nothing is written again. If a relist hides the event, because etcd was restored for example, its fan-out
// compares the target anew after a minute at most.
//
// # Locks
//
// A goroutine that holds the lock of a name may take the lock of the map of names, of the cache, or of a queue. A
// goroutine that holds the lock of lanes may ask a queue for its length. No goroutine takes any other lock while it
// holds one.
package mirror
