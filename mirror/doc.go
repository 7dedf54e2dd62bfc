// Package mirror keeps copies of ConfigMaps in other namespaces in sync.
//
// A ConfigMap with the label mirror=true, the source, is copied into every
// target: a namespace that the flags, the namespace itself and the source
// allow. Package plan holds the contract, which users read in
// deploy/docs/reference.md, and decides; this package reads the cluster, carries
// the decisions out and reports.
//
// # From an event to a write and a report
//
//	event about a source ──> queue sources: a name ──> fan-out: decides about all targets of the name
//	                                                      │ those that are out of sync
//	event about a target ──> decision ──────────────────> queue copies: a name and a namespace
//	                                                      └──> reconciler: decides, makes one change,
//	                                                           records its result, decides again
//	                                                              └──> queue slow: the namespace,
//	                                                                   if its calls take long
//
//	the standing of a target changes ──> queue reports: a name ──> reporter: announces deletions in the log
//	                                                      │ sources about which a message is due
//	                                                      └──> queue events: a namespace ──> makes and sends one message
//
// A key names sources by their name alone. A target has room for one ConfigMap
// of a name, so all sources of a name contend for the same copies, and one
// decision sees all of them. The queues are client-go's.
//
// A target is a place: a namespace, and a name. Its record holds what the
// controller knows of it and the caches do not show, such as a failure. One
// decision reads both under the lock of the name, records how the target
// stands, and has three answers: act, look again after a time, or nothing. The
// fan-out, the reconciler and each event about the target decide by the same
// function. While a call for the target is on its way, they leave it alone: the
// caller decides at its end, and so takes in what happened meanwhile.
//
// # Where to look
//
//   - handlers.go, fanout.go, reconcile.go: the three that decide and queue
//   - decide.go: the decision; records.go: the records of all targets, and counts
//   - record.go: what is known of a target; conditions.go: why it waits
//   - apply.go: the calls that write
//   - report.go: what is reported of a name; announce.go: the lines about
//     deletions; events.go: the messages
//
// # Why it is safe
//
// One watch carries sources and copies in one order: a cache that holds a copy
// has already held its source. Every decision reads the target first and the
// sources after it.
//
// Every write is conditional. A create fails if any object is there. An update
// carries the resourceVersion of the object that was judged, or of one that was
// just read and differs from it in other people's metadata alone. A delete
// carries UID and resourceVersion. An old cache, or a leader that has lost its
// lease, therefore costs a refused call and a retry, never a wrong object.
//
// Preconditions cannot guard the premise of a deletion: the source is gone, or
// the namespace no longer qualifies. A copy that no source claims waits for the
// deletion grace. Then the reconciler reads the source live, and the namespace
// if labels decide. An answer serves all deletions that depend on it for five
// seconds. A live read that shows a claim begins the grace anew. The reconciler
// also reads an object live that is in the way of a create, and decides again.
//
// # Why one bad target holds up no other
//
// Package slow cuts a call that takes much longer than usual, sooner if the API
// server answers others. If that is no single stall, the namespace waits in a
// queue of its own, which few workers serve, until a call there is answered in
// time. A call is conditional, so a cut loses nothing. A fan-out takes its
// targets in random order. Each target has its own backoff.
//
// # Reports
//
// A change of a standing puts the name into the queue of reports. Its workers never
// wait for the API server. They queue the sources about which a message is due. In
// rounds, a second apart, one of them writes the lines of the log that announce
// deletions: such a line begins the grace of the copies that it counts.
//
// A message is made when it is sent, from what holds at that moment. It is due if
// it differs from the last one with its reason, announces more deletions, or is
// half an hour old. One message is on its way in each namespace of sources, so a
// slow webhook there holds up no other. While a fan-out runs there is no report:
// it would count a part of the copies. A line waits for the fan-out for a second
// at most.
//
// Counts may be wrong for a moment, and are right when the queues are empty.
//
// # Locks
//
// A goroutine that holds the lock of a name may take the lock of the map of
// names, of the cache, or of a queue. A goroutine that holds one of these never
// takes the lock of a name.
package mirror
