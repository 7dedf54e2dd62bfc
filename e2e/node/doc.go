// Package node brings up a Kubernetes node on this machine, for the tests beside it: kubelet, containerd and runc run
// the image of the controller, as the shipped Deployment asks for it. There is no Docker, and nothing is downloaded.
//
//	node.Enter(ctx) // first thing in main: a network of its own
//	n, err := node.Start(ctx, repository, image)
//	defer n.Stop()
//
// # What keeps it apart
//
// The tests run in a network namespace of their own, so all addresses are theirs. The node runs in a process and a
// mount namespace besides. Process 1 in there, a shell, mounts an empty /run, and folders of the node's own at
// /var/lib and /var/log. So every program has its usual paths, and no file, mount, bridge or process of the node is one
// of the machine's, nor is a setting of the kernel.
//
// When the tests end, for whatever reason, cluster.Folder kills process 1, the kernel kills the rest of the node, and
// then the folder and the cgroups are removed.
//
// # The network
//
// The API server listens on the address of its Service, 10.96.0.1:443, which is one of this network's own. So Pods
// find it without kube-proxy, and without a rule of iptables. There is no DNS, and nobody enforces a NetworkPolicy.
package node
