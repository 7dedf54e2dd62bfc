package main

// One process writes at a time: the one that has the lease.

import "time"

// overtaken is how long a request may be under way that was sent while its sender had the lease, besides what faults add to
// it.
const overtaken = time.Second

// leases returns the accepted writes of the lease.
func (p *part) leases() (out []*request) {
	for _, r := range p.requests {
		if r.isAbout("leases") && r.isWrite() && r.accepted {
			out = append(out, r)
		}
	}
	return out
}

// hold says who had the lease when a request came: the last to write it, but who gives it back.
type hold struct {
	own   bool      // the sender of the request
	since time.Time // from when on
	ever  bool      // whether the sender ever had it before
}

func (p *part) holdAt(r *request) (h hold) {
	for _, lease := range p.leases() {
		if lease.Received.After(r.Received) {
			break
		}
		own := lease.User.Username == r.User.Username && lease.holder() != ""
		if own != h.own || h.since.IsZero() {
			h.own, h.since = own, lease.Done
		}
		h.ever = h.ever || own
	}
	return h
}

// tookOver returns when the sender of a request got the lease that it has.
func (p *part) tookOver(r *request) time.Time {
	since, holder := time.Time{}, ""
	for _, lease := range p.leases() {
		if lease.Received.After(r.Received) {
			break
		}
		if lease.holder() != holder && lease.User.Username == r.User.Username {
			since = lease.Received
		}
		holder = lease.holder()
	}
	return since
}

// judgeWriters finds writes of processes without the lease.
func (j *judge) judgeWriters() {
	for _, r := range j.requests {
		if !r.isWrite() || !r.isAbout("configmaps") || !j.isOurs(r.User.Username) {
			continue
		}
		h := j.holdAt(r)
		late := r.Received.Sub(h.since)
		switch allowed := overtaken + j.disturbed(r.User.Username, h.since.Add(-overtaken), r.Received); {
		case !h.ever:
			j.problem(r, "its sender never had the lease")
		case !h.own && late > allowed:
			j.problem(r, "its sender had lost the lease %s ago, and may be late by %s", late, allowed)
		}
	}
}
