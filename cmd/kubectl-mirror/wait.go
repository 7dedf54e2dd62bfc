package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const waitHelp = `Wait until every copy of a source holds what the source holds now. SOURCE is a name or NAMESPACE/NAME. Progress goes to stderr.
The command ends at once if a foreign ConfigMap or another source blocks a target, or if nothing is mirrored from the source. It
waits for copies that the API server rejects, and not for copies that expire, nor for targets that an annotation of the source
holds.

Who may read only the source and its events waits for the report of the controller that this content has arrived. Whoever may
write events in that namespace can forge the report.

Exit codes: 0 in sync but for held targets, 1 blocked, all held or timed out, 2 unknown, also if there is no report in time.`

func newWait(c *cli) *cobra.Command {
	var output outputFlag
	var timeout time.Duration
	var allow allowed
	cmd := &cobra.Command{
		Use:     "wait SOURCE",
		Short:   "Wait until all copies of a source are in sync",
		Long:    waitHelp,
		Example: "  kubectl apply -f settings.yaml && kubectl mirror wait platform/settings --timeout=2m",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := c.parseKey(args[0])
			switch {
			case err != nil:
				return err
			case timeout <= 0:
				return fmt.Errorf("--timeout=%v: must be more than 0, such as 5m", timeout)
			}
			r, p, err := c.wait(cmd, asked, timeout, allow)
			if err == nil {
				err = output.print(cmd.OutOrStdout(), r)
			}
			switch {
			case err != nil:
				return err
			case r.Status == snapshot.NotKnown:
				return errUnknown
			}
			return verdict(p == waitDone)
		},
	}
	output.bind(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "Time after which the command ends with exit code 1.")
	cmd.Flags().BoolVar(&allow.blocked, "ignore-blocked", false, "Wait for the other targets if some are blocked, and do not fail because of them.")
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
func (c *cli) wait(cmd *cobra.Command, asked types.NamespacedName, timeout time.Duration, allow allowed) (r *oneReport, p phase, err error) {
	limited, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	cmd.SetContext(limited)
	a := &asker{cli: c, cmd: cmd, asked: asked}
	for p == waitOn && limited.Err() == nil {
		began := time.Now()
		now, err := a.ask()
		switch {
		case limited.Err() != nil: // perhaps in the middle of a request
		case err != nil:
			return nil, p, err
		default:
			r, p = now, phaseOf(now.Source, allow)
			if a.progress(r.Source); p == waitOn {
				pause(limited, time.Since(began))
			}
		}
	}
	switch {
	case r == nil:
		return nil, p, fmt.Errorf("--timeout=%v: over before the cluster was read", timeout)
	case p == waitOn:
		a.say(fmt.Sprintf("Timed out after %v", timeout))
	case p == waitHeld:
		a.say("Every target is held, so the change reaches none. Correct or remove the annotation, or accept this with --allow-held")
	}
	return r, p, nil
}

// pause waits for a second, or five times as long as the last reading took: large clusters are read seldom.
func pause(ctx context.Context, took time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(max(time.Second, 5*took)):
	}
}

// progress says how far a source is.
func (a *asker) progress(s *snapshot.Source) {
	a.say(fmt.Sprintf("%s: %s", s.Key(), s.Summary()))
	if expiring := s.In(plan.StateExpiring); len(expiring) > 0 {
		a.say("Not waited for: copies expire: " + strings.Join(expiring, ", "))
	}
	if held := s.In(plan.StateHeld); len(held) > 0 {
		a.say(fmt.Sprintf("Held: %s: %s", count(len(held), "target", "targets"), strings.Join(held, ", ")))
	}
}
