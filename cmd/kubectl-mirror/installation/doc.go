// Package installation knows an installed controller by its objects in the cluster: which settings count, whether it runs, and
// whether all of it is as it should be.
//
//	settings.go     the settings that count: flags of the user, arguments of the Deployment, annotations of the ClusterRoleBinding
//	find.go         the installations of a cluster
//	differences.go  flags of a Deployment beside the annotations by which the policies judge
//	lease.go        who leads, or since when nobody does
//	check.go        each line of kubectl mirror check; permissions.go, policies.go, probes.go: what they are about
package installation
