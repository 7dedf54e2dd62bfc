// Package packaging holds what the installations have in common: the chart, the kustomizations and install.yaml are
// three ways to the same objects. Its tests need the program helm, and no cluster.
package packaging
