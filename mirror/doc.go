// Package mirror keeps copies of ConfigMaps in other namespaces in sync.
//
// A ConfigMap with the label mirror=true, the source, is copied into every target: a namespace that the flags, the
// namespace itself and the source allow. Package plan holds the contract and decides; this package reads the cluster,
// carries the decisions out and reports.
//
// # From an event to a write and a report
//
//	event ──> handlers ──> queue sources: a name ──────────> fanout: decides about all targets of the name
//	             │                                              │ keys of the targets that are out of sync
//	             └───────> queue copies: name, namespace <──────┘
//	                          └──> reconciler: decides about one target, makes one change, decides again
//	                                  └──> queue slow: the namespace, if its calls take long
//
//	a target stands otherwise ──> queue reports: a name ──> reporter: makes messages, sends those that are due
//
// A key names sources by their name alone. A target has room for one ConfigMap of a name, so all sources of a name
// contend for the same copies, and one decision sees all of them. The queues are client-go's.
//
// A target holds what the controller knows of one target and the caches do not show. One decision reads the target and
// what is known of it together, under the lock of their name, records how the target stands, and has three answers:
// act, look again after a time, or nothing. The fan-out and the reconcile decide by the same function. A worker that
// meets a target with a call on its way leaves it: whoever makes the call decides at its end.
//
// # Why it is safe
//
// One watch carries sources and copies in one order: a cache that holds a copy has already held its source. Every
// decision reads the target first and the sources after it.
//
// Every write is conditional. A create fails if any object is there, an update carries the resourceVersion that
// was judged, or that of an object that was read and differs in other people's metadata alone, a delete UID and resourceVersion. An old cache, or a leader that has lost its lease, therefore costs
// a refused call and a retry, never a wrong object.
//
// Preconditions cannot guard the premise of a deletion: the source is gone, or the namespace no longer qualifies. A
// copy that no source claims waits for the deletion grace. Then the reconcile reads the source live, and the namespace
// if labels decide. An answer serves all deletions that depend on it for five seconds. A live read that shows a claim
// begins the grace anew. The reconcile also reads an object live that is in the way of a create, and decides again.
//
// # Why one bad target holds up no other
//
// Package slow cuts a call that takes much longer than usual, sooner if the API server answers others. If that is no
// single stall, the namespace waits in a queue of its own, which few workers serve, until a call there is answered in
// time. A call is conditional, so a cut loses nothing. A fan-out takes its targets in random order. Each target has its
// own backoff.
//
// # Reports
//
// A change of how a target stands puts its name into the queue of reports. The reporter makes the messages from what
// holds at that moment, and at once sends those that are due: that differ from the last one with their reason, announce
// more deletions, or are half an hour old. While a fan-out runs there is no report, or it would count a part of the
// copies.
//
// Counts may be wrong for a moment, and are right when the queues are empty. The event of our own write starts no
// reconcile of a target in sync.
//
// # Locks
//
// A goroutine that holds the lock of a name may take the lock of the map of names, of the cache, or of a queue. A
// goroutine that holds one of these never takes the lock of a name.
package mirror
