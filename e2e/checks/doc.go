// Package checks judges the manifests of deploy/ by other people's rules, without a cluster: Pod Security by the code of
// the API server, good practice by kube-score, and the alerts by promtool, which plays to each what it is there for.
package checks
