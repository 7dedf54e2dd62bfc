package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const waitHelp = `Wait until every copy of a source holds what the source holds now. SOURCE is a name or NAMESPACE/NAME.
The command ends at once if something blocks a target, or if nothing is mirrored from the source. It waits for copies
that the API server rejects, and not for copies that expire, nor for targets that an annotation of the source holds.

A user who may read no more than the source and its events waits for the report of the controller, and a warning does
not end that: see status --help.

Exit codes: 0 in sync but for held targets; 1 blocked, all held or timed out; 2 unknown, also without a report in time.`

func newWait(c *cli) *cobra.Command {
	var timeout time.Duration
	var allow allowed
	cmd := c.command("wait SOURCE", "Wait until all copies of a source are in sync", waitHelp,
		"  kubectl apply -f settings.yaml && kubectl mirror wait platform/settings --timeout=2m",
		cobra.ExactArgs(1),
		func(cmd *cobra.Command, args []string) (printed, error) { return c.wait(cmd, args[0], timeout, allow) })
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "Time after which the command ends with exit code 1.")
	cmd.Flags().BoolVar(&allow.blocked, "ignore-blocked", false, "Do not fail if targets are blocked.")
	cmd.Flags().BoolVar(&allow.held, "allow-held", false, "Do not fail if every target is held.")
	return cmd
}

// allowed says which outcomes do not fail the command.
type allowed struct {
	blocked bool // some targets are
	held    bool // all targets are
}

// phase is how far a source is.
type phase int

const (
	waitOn      phase = iota // copies are pending
	waitDone                 // every copy holds what the source holds
	waitBlocked              // that will not come by itself
	waitHeld                 // every target is held
)

// phaseOf returns how far a source is.
func phaseOf(s *snapshot.Source, allow allowed) phase {
	blocked := s.Blocked + s.Count(plan.StateForeign, plan.StateSuperseded, plan.StateRejected, plan.StateFrozen)
	switch {
	case s.Status == snapshot.NotYet || s.Status == snapshot.NotKnown:
		return waitOn
	case s.Status != snapshot.InSync && s.Status != snapshot.OutOfSync, blocked > 0 && !allow.blocked:
		return waitBlocked
	case s.Count(plan.StatePending) > 0:
		return waitOn
	case s.Count(plan.StateHeld) > 0 && s.Reached == 0 && !allow.held:
		return waitHeld // a selector with a typing error matches nothing
	}
	return waitDone
}

// wait waits until a source is in sync or blocked, or the time is over, and returns the last report on it.
func (c *cli) wait(cmd *cobra.Command, arg string, timeout time.Duration, allow allowed) (printed, error) {
	if timeout <= 0 {
		return nil, fmt.Errorf("--timeout=%v: must be above zero", timeout)
	}
	limited, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	cmd.SetContext(limited)
	s, asked, err := c.beginOne(cmd, arg)
	var r *report
	p := waitOn
	for err == nil && p == waitOn {
		began := time.Now()
		var now *report
		if now, err = s.ask(limited, asked); err != nil {
			break
		}
		r, p = now, phaseOf(now.Sources[0], allow)
		if p == waitOn {
			s.say(fmt.Sprintf("%s: %s", asked, r.Sources[0].Summary()))
			s.say(r.Sources[0].Warning.String())
			select {
			case <-limited.Done():
				err = limited.Err()
			case <-time.After(max(time.Second, 5*time.Since(began))): // large clusters are read seldom
			}
		}
	}
	switch {
	case err != nil && limited.Err() == nil:
		return nil, err
	case r == nil: // in the middle of a request
		return nil, fmt.Errorf("--timeout=%v: over before the cluster was read", timeout)
	case p == waitOn:
		s.say(fmt.Sprintf("Timed out after %v", timeout))
	case p == waitHeld:
		s.say("Every target is held: the change reaches none. Remove or correct the annotation, or add --allow-held")
	}
	if r.answer != exitUnknown {
		r.answer = verdict(p == waitDone)
	}
	return r, nil
}
