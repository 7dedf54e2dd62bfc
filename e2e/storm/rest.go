package main

// What has to be when nothing happens any more.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// late is how long after the last fault requests may still arrive that were sent before: their effect is repaired.
	late = 5 * time.Second
	// patience is the time in which all has to be as a plan from scratch says.
	patience = 5 * time.Minute
	// quiet is the time in which nothing may be written after that.
	quiet = 10 * time.Second
)

// rest waits until all is as a plan from scratch says, and sees that it stays so, whoever leads. From then on nothing may be
// written. That nothing happens has no event to wait for.
func (s *storm) rest(ctx context.Context) error {
	sleep(ctx, late)
	if err := s.history.eventually(ctx, s.asPlanned); err != nil {
		return err
	}
	s.part.quiet = time.Now()
	sleep(ctx, quiet)
	return s.asPlanned()
}

// asPlanned returns what is not as a plan from scratch says.
func (s *storm) asPlanned() error {
	w, _ := s.history.now()
	return due(w, s.part.flags)
}

// due plans from scratch, and returns what there is to do.
func due(w world, f flags) error {
	rules := plan.NewRules(&f.Options)
	var errs []error
	for v, t := range w.by(rules).Places() {
		if c := rules.Decide(v, t); c.Op != plan.OpNone {
			errs = append(errs, fmt.Errorf("%v: %v is due", t.Key, c.Op))
		}
		if terminating(t.Namespace) {
			errs = append(errs, fmt.Errorf("%s is still there", t.Namespace.Name))
		}
	}
	return errors.Join(errs...)
}
