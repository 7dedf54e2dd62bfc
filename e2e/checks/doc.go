// Package checks judges the manifests of deploy/ by other people's rules, without a cluster: good practice by kube-score, what
// the Prometheus operator reads by its types, the dashboard and the alerts by promtool, which plays to each alert what it is
// there for. It also holds the words of all texts for users.
package checks
