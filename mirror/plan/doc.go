// Package plan decides: what is a source, which namespaces are its targets, whose a ConfigMap is, what a copy holds,
// and what is to be done at each target. It does no I/O, reads no clock and knows no client, so the controller and
// kubectl-mirror decide by the same functions, and a test needs no cluster.
//
//	keys.go      labels and annotations of the contract
//	events.go    reasons of events
//	options.go   the options that decide, and their validation
//	checksum.go  the digest of everything that is copied
//	metadata.go  which labels and annotations of a source are copied
//	rules.go     what is a source, a copy, a target
//	source.go    a source, parsed; which of two sources of one name wins
//	copy.go      what a copy holds, and whether it is in sync
//	strip.go     what a cache keeps of a ConfigMap
//	plan.go      the change at each target
//	unknown.go   annotations of ours that a source cannot have
//	cluster.go   which targets a name has
//	reason.go    decisions in words
package plan
