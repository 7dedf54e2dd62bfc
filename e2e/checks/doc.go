// Package checks judges the manifests of deploy/ by other people's programs, without a cluster: kube-score finds what is no
// good practice, and promtool plays to each alert what it is there for. It also compares the pages with what they speak of.
package checks
