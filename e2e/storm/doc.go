// Package storm has random operations of users and random faults happen to two replicas of the controller on a real
// API server. `make storm` plays many rounds; a run of the tests plays one.
//
// The random histories of package mirror judge the controller in finer detail, in virtual time. The storm has what
// they cannot have: real processes, which are killed, stopped and paused, a real Lease, a real API server, which
// crashes, and faults of the network between the two.
//
// # A round
//
// A round follows from its seed alone. It begins in an empty cluster.
//
//  1. Users and faults act at the same time.
//  2. The controllers stop, users go on, and the controllers start with other flags.
//
// # What is judged
//
// At the end of each part, the ConfigMaps are as a plan from scratch has them, and stay so. And each update and each
// deletion by the controllers, accepted or refused, names the state on which it depends, and that state was a copy of
// ours. etcd has each state. So no source and no foreign object is ever written to. Users hand no object over
// here. That only the leader writes is for the tests of faults to show.
//
// A controller ends only if it is told to, or if it has lost the Lease: a panic is a failure, also one of the detector
// that watches over the objects in its cache.
//
// # When a round fails
//
// The test prints what was wrong, each step of the round, and the command that plays that round again. `make storm`
// keeps the logs of the replicas and the audit log below bin/artifacts.
package storm
