// Package cluster runs a Kubernetes control plane for tests, for the demo and for measurements: etcd and
// kube-apiserver, the real programs, and controllers of kube-controller-manager, with no container and no node.
//
//	c, err := cluster.Start(ctx, cluster.Options{})
//	if err != nil { … }
//	defer c.Stop()
//	client, err := kubernetes.NewForConfig(c.Admin())
//
// Package programs finds the programs, or builds them. Everything else lives in one temporary folder, listens on
// loopback, on ports that were free, and is gone after Stop.
//
// It is gone, too, when the process that called Start panics, is killed or runs into the time limit of go test. A shell
// in a session of its own reads from a pipe that only this process can write to. When the pipe ends, for whatever
// reason, the shell kills each process that has the mark of the folder in its environment, and removes the folder. Stop
// takes the same path, so it is the one that is always tested.
//
// The package needs /bin/sh and process groups: Linux or macOS.
package cluster
