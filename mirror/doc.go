// Package mirror keeps copies of ConfigMaps in other namespaces.
//
// A ConfigMap with the label mirror=true, the source, is copied into every namespace that the flags, the
// namespace's owner and the source itself allow, the targets, and kept identical there. Copies whose reason
// is gone are deleted. What is not a copy of ours is never changed and never deleted.
//
// # The contract
//
// An object is a copy of ours if its annotations copy, source and instance are all there and true: copy names the
// object itself, source has the object's own name in another namespace, instance is ours. The label proves nothing.
// A copy that lost only its label is ours and is healed; one that lost an annotation has been released. Everything
// else is foreign, until its owner hands it over by the adopt annotation.
//
// Of several sources of one name that want a target, the first by compareSources has it, and the next takes over
// where the copy is when that one goes. A copy is deleted only if no source claims its target. A source whose
// narrowing cannot be read is frozen: its copies stay as they are, also against namesakes, until it is mended or goes.
//
// Drift is judged by content: a copy whose data was edited behind an untouched checksum is put right. Whatever a
// target refuses, or somebody changes back again and again, is tried ever more slowly, at that target alone.
//
// # Reading order
//
//	api.go        keys and values of labels and annotations: the contract
//	options.go    what can be configured, and what is refused
//	rules.go      what is a source, a copy, a target; whose an object is       pure
//	source.go     a source, read: its narrowing, what travels, who comes first pure
//	metadata.go   which labels and annotations travel                          pure
//	checksum.go   the digest of what is copied                                 pure
//	copy.go       what a copy holds, whether it is in line, what is cached     pure
//	plan.go       what is to be done at each target                            pure
//	backlog.go    which targets of a name need a look
//	looks.go      what is asked for live before a deletion
//	retries.go    when a target in trouble is tried again
//	fights.go     when a target that somebody changes back is put right again
//	apply.go      one change, one conditional call
//	reconcile.go  a slice of targets: plan, write, settle
//	brake.go      the copies outside the flags, judged once
//	watches.go    the two informers, and which targets their events make due
//	caches.go     what the caches have about a name, and which its targets are
//	controller.go its life: caches, leadership, workers
//	ledger.go     how every source stands at each target
//	latency.go    how long changes take to arrive, for the metrics
//	metrics.go    what is counted
//	report.go     what is said about it, in events on the source               pure
//
// # One key for all sources of a name
//
// Every event, of a source, of a copy or of a namespace, becomes the key of the sources that it concerns.
// That key is their name alone, and not namespace and name: a target has room for one ConfigMap of a name, so
// all sources of that name contend for the same copies. Under one key the queue itself sees to it that they
// are never reconciled side by side, the winner of a target is found where all contenders are at hand, a
// source that goes hands its copies over in the same pass, and an event about a source that is known by
// its tombstone only still finds them all.
//
// Beside each key the backlog keeps which targets need a look, so that an edited copy costs one look, a new
// namespace one for each source, and only a changed source one for each target. Those long rounds are taken
// in slices, and a slice does not wait for the writes of the one before: it is decided while they are in
// flight, and a target with a write in flight is not handed out again before that ends.
//
// # Why it is safe
//
// One watch carries sources and copies, in one order: a cache that holds a copy has already held the state of
// its source from which the copy was made.
//
// Every write is conditional. A create fails if any object is there. An update carries the resourceVersion
// that was judged, a delete UID and resourceVersion. So an old cache costs a refused call and another look,
// never a wrong object, and no record of our own writes is needed for that: names are known beforehand, so
// nothing can be made twice. (The writer remembers its last writes to spare the API server calls that it would
// refuse, and to have a look where the watch has gone past one and shows nothing there.)
//
// What preconditions cannot guard is the premise of a deletion: that the source is gone, or that the
// namespace, whose watch is not ordered with the other one, no longer qualifies, for this source or for a
// namesake. It is asked for live, once for all deletions that rest on it within a few seconds. A source that is
// not there at all is asked for a second time when the second is over in which whoever deleted it may create it
// anew. (The first answer tells a source that lost its label, whose copies go at once, from one that was deleted;
// the watch shows both in the same way.)
//
// Of several processes one leads. It is asked right before each write whether its leadership still holds; what was
// past that question when the process was stopped for a while arrives late, and is conditional.
//
// Decisions come from the present state alone; the ledger, the retries and the answers of live looks can be
// lost at any moment. A process that takes over begins with a round over everything.
//
// Deleting because a flag was changed is judged once, when a process takes over, and only up to a limit: see
// judgeStrangers.
//
// # Why it is fast
//
// The cache holds the digest of a copy's payload instead of the payload, and no ConfigMap without our label is
// ever watched. Writes go out in parallel, bounded for the whole process and not throttled. Each target is
// decided from a handful of map lookups.
package mirror
