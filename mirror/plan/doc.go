// Package plan decides: what is a source, which namespaces are its targets, whose a ConfigMap is, what a copy holds,
// and what is to be done at each target. It does no I/O, reads no clock and knows no client, so the controller and
// kubectl-mirror decide by the same functions, and a test needs no cluster.
package plan
