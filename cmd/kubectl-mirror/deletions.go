package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// parallelDeletions is how many deletions are in flight: enough for a thousand a second, and few beside what an API server
	// takes from all its clients.
	parallelDeletions = 32
	// deletionTimeout bounds one deletion, also after an interruption: purge waits for those in flight and counts them.
	deletionTimeout = 30 * time.Second
	progressPeriod  = time.Second
)

// deletions is how far the copies of a purge are deleted.
type deletions struct {
	mu                     sync.Mutex
	deleted, gone, changed int
	failed                 int
	failure                error  // the first
	protected              string // the refusal of a policy: it would refuse all others, too
}

// delete deletes the copies and says what has come of it. It returns errNo if not all are gone.
func (p *purge) delete(ctx context.Context, copies []*oneCopy) error {
	work, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(ctx, func() { p.say("Interrupted: waiting for the deletions in flight.") })()
	d := &deletions{}
	next := make(chan *oneCopy)
	var workers sync.WaitGroup
	for range min(parallelDeletions, len(copies)) {
		workers.Go(func() {
			for c := range next {
				if d.count(p.deleteOne(ctx, c)) {
					stop()
				}
			}
		})
	}
	finished := make(chan struct{})
	var progress sync.WaitGroup
	progress.Go(func() { d.sayProgress(p.say, len(copies), finished) })
	hand(work, copies, next)
	workers.Wait()
	close(finished)
	progress.Wait()
	p.say(d.result(len(copies), ctx.Err() != nil))
	if d.deleted+d.gone < len(copies) {
		return errNo
	}
	return nil
}

// hand sends the copies to the workers until ctx ends.
func hand(ctx context.Context, copies []*oneCopy, next chan<- *oneCopy) {
	defer close(next)
	for _, c := range copies {
		if ctx.Err() != nil {
			return
		}
		select {
		case next <- c:
		case <-ctx.Done():
			return
		}
	}
}

// deleteOne deletes a copy if it is still as it was listed. An interruption does not cut the request.
func (p *purge) deleteOne(ctx context.Context, c *oneCopy) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deletionTimeout)
	defer cancel()
	return p.cluster.client.CoreV1().ConfigMaps(c.Namespace).Delete(ctx, c.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &c.uid, ResourceVersion: &c.resourceVersion},
	})
}

// policyRefusal is how the API server names the binding of a policy that has refused a request.
var policyRefusal = regexp.MustCompile(`ValidatingAdmissionPolicy '[^']*` + protectedPolicies + `' with binding '([^']*)'`)

// count counts the result of one deletion, and reports whether the others are to be left.
func (d *deletions) count(err error) (hopeless bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.deleted++
	case apierrors.IsNotFound(err):
		d.gone++
	case apierrors.IsConflict(err):
		d.changed++
	default:
		d.failed++
		if d.failure == nil {
			d.failure = err
		}
		if m := policyRefusal.FindStringSubmatch(err.Error()); m != nil && apierrors.IsForbidden(err) {
			d.protected = m[1]
		}
	}
	return d.protected != ""
}

// sayProgress says how many are deleted, whenever that has changed, until it is finished.
func (d *deletions) sayProgress(say func(string), all int, finished <-chan struct{}) {
	tick := time.NewTicker(progressPeriod)
	defer tick.Stop()
	for said := 0; ; {
		select {
		case <-finished:
			return
		case <-tick.C:
		}
		d.mu.Lock()
		now := d.deleted
		d.mu.Unlock()
		if now != said {
			say(fmt.Sprintf("Deleted %d of %s", now, count(all, "copy", "copies")))
			said = now
		}
	}
}

// result says what has come of the deletions.
func (d *deletions) result(all int, interrupted bool) string {
	parts := []string{fmt.Sprintf("Deleted %d of %s", d.deleted, count(all, "copy", "copies"))}
	add := func(what string, n int) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", what, n))
		}
	}
	add("gone already", d.gone)
	add("changed since they were listed, and left alone", d.changed)
	add("left", all-d.deleted-d.gone-d.changed-d.failed)
	add("failed", d.failed)
	text := strings.Join(parts, "; ")
	if d.failure != nil {
		text += ", the first because of: " + printable(d.failure.Error())
	}
	switch {
	case interrupted:
		text = "Interrupted. " + text + ". To go on, run the command again"
	case d.protected != "":
		text += ". To lift the policy: " + liftCommand(d.protected)
	case d.changed > 0:
		text += ". Run the command again"
	}
	return text + "."
}
