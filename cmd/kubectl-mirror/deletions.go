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

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/installation"
)

const (
	// parallelDeletions is how many deletions are in flight: enough for a thousand a second, and few for an API server.
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
	failure                error     // the first
	protected              string    // the binding of a policy that has refused a deletion: it would refuse all others, too
	said                   time.Time // when progress was said
}

// delete deletes the copies and says what has come of it. It returns errNo if not all are gone.
func (s *session) delete(ctx context.Context, copies []*oneCopy) error {
	defer context.AfterFunc(ctx, func() { s.say("Interrupted: waiting for the deletions in flight.") })()
	d := &deletions{said: time.Now()}
	var workers sync.WaitGroup
	places := make(chan struct{}, parallelDeletions)
	for _, c := range copies {
		if places <- struct{}{}; ctx.Err() != nil || d.isHopeless() {
			break
		}
		workers.Go(func() {
			defer func() { <-places }()
			if n := d.count(s.deleteOne(ctx, c)); n > 0 {
				s.say(fmt.Sprintf("Deleted %d of %s", n, count(len(copies), "copy", "copies")))
			}
		})
	}
	workers.Wait()
	s.say(d.result(len(copies), ctx.Err() != nil))
	if d.deleted+d.gone < len(copies) {
		return errNo
	}
	return nil
}

func (d *deletions) isHopeless() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.protected != ""
}

// deleteOne deletes a copy if it is still as it was listed. An interruption does not cut the request.
func (s *session) deleteOne(ctx context.Context, c *oneCopy) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deletionTimeout)
	defer cancel()
	return s.Client.CoreV1().ConfigMaps(c.Namespace).Delete(ctx, c.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &c.object.UID, ResourceVersion: &c.object.ResourceVersion},
	})
}

// policyRefusal is how the API server names the binding of a policy that has refused a request.
var policyRefusal = regexp.MustCompile(`ValidatingAdmissionPolicy '[^']*` + installation.ProtectedPolicies + `' with binding '([^']*)'`)

// count counts the result of one deletion, and returns how many are deleted, if it is time to say so.
func (d *deletions) count(err error) (progress int) {
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
	if time.Since(d.said) < progressPeriod {
		return 0
	}
	d.said = time.Now()
	return d.deleted
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
