// Package checks compares without a cluster what deploy/ says with what it speaks of: promtool plays to each alert what
// it is there for, and the commands, links and numbers of the pages are those of the code.
package checks
