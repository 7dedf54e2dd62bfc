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

// hold says when the sender of a request had the lease: it has who was the last to write it, but not who gives it back.
type hold struct {
	took time.Time // when its process got it last; zero: it never did
	lost time.Time // zero: it has it still
}

func (p *part) holdAt(r *request) (h hold) {
	holder := ""
	for _, lease := range p.leases() {
		if lease.Received.After(r.Received) {
			break
		}
		own, again := lease.User.Username == r.User.Username && lease.holder() != "", lease.holder() == holder
		switch {
		case own && !again:
			h = hold{took: lease.Received}
		case !own && h.lost.IsZero():
			h.lost = lease.Done
		}
		holder = lease.holder()
	}
	return h
}

// judgeWriter finds a write of a process without the lease.
func (j *judge) judgeWriter(r *request) {
	h := j.holdAt(r)
	late := r.Received.Sub(h.lost)
	switch allowed := overtaken + j.disturbed(r.User.Username, h.lost.Add(-overtaken), r.Received); {
	case h.took.IsZero():
		j.problem(r, "its sender never had the lease")
	case !h.lost.IsZero() && late > allowed:
		j.problem(r, "its sender had lost the lease %s ago, and may be late by %s", late, allowed)
	}
}
