// Package plan holds the decisions: whether a ConfigMap is a source, which
// namespaces are its targets, whether a ConfigMap there is our copy, which content
// a copy has, and which change a target needs. The package does no I/O, reads no
// clock and knows no client. So the controller and kubectl-mirror decide by the
// same functions, and a test needs no cluster.
//
// Each file uses those above it in this list:
//
//	keys.go       labels, annotations and reasons of events of the contract
//	text.go       what texts quote
//	maps.go       entries of labels and annotations
//	metadata.go   which labels and annotations of a source are copied
//	checksum.go   the digest of everything that is copied
//	state.go      the states of a source at a target, and what each means
//	options.go    the options that decide, and their validation
//	rules.go      the options, ready to decide; which names the flags allow
//	marks.go      whether a ConfigMap is a source, a copy of ours or foreign
//	strip.go      what a cache keeps of an object
//	source.go     a source, parsed, and the sources of one name, the winner first
//	exclusion.go  the rules that keep a source from a namespace
//	notargets.go  why a source has no target at all
//	sync.go       whether a copy is in sync
//	decide.go     the change at a target
//	copy.go       what a copy holds
//	reason.go     decisions in words
package plan
