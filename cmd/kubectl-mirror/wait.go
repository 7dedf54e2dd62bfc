package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const waitHelp = `Wait until every copy of a source holds what the source holds now. SOURCE is a name or NAMESPACE/NAME. Progress is said
on stderr. Where a target is blocked, by a foreign ConfigMap or another source, or where nothing is mirrored from the source,
the command ends at once and says so.

Exit codes: 0 in sync, 1 blocked or timed out, 2 error.`

func newWait(c *cli) *cobra.Command {
	var output outputFlag
	var timeout time.Duration
	var ignoreBlocked bool
	cmd := &cobra.Command{
		Use:               "wait SOURCE",
		Short:             "Wait until all copies of a source are in sync",
		Long:              waitHelp,
		Example:           "  kubectl apply -f settings.yaml && kubectl mirror wait platform/settings --timeout=2m",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeSources,
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return fmt.Errorf("--timeout=%v: must be more than 0, such as 5m", timeout)
			}
			s, err := c.begin(cmd)
			if err != nil {
				return err
			}
			r, p, err := s.wait(cmd.Context(), c.namespace(), args[0], timeout, ignoreBlocked)
			if err != nil {
				return err
			}
			if err := output.print(cmd.OutOrStdout(), r.without(plan.StateSynced)); err != nil {
				return err
			}
			if p != waitDone {
				return errNo
			}
			return nil
		},
	}
	output.bind(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "Time after which the command ends with exit code 1.")
	cmd.Flags().BoolVar(&ignoreBlocked, "ignore-blocked", false, "Wait for the other targets if some are blocked, and do not fail because of them.")
	return cmd
}

// phase is how far a source is.
type phase int

const (
	waitOn      phase = iota // copies are pending
	waitDone                 // every copy holds what the source holds
	waitBlocked              // that will not come by itself
)

// phaseOf returns how far a source is, by its counts.
func phaseOf(r *oneReport, ignoreBlocked bool) phase {
	blocked := r.Status != statusInSync && r.Status != statusOutOfSync
	for _, state := range []plan.State{plan.StateForeign, plan.StateSuperseded, plan.StateFailed} {
		blocked = blocked || r.Counts[state.Metric()] > 0
	}
	switch {
	case blocked && !ignoreBlocked:
		return waitBlocked
	case r.Counts[plan.StatePending.Metric()] > 0:
		return waitOn
	}
	return waitDone
}

// wait waits until a source is in sync or blocked, or the time is over, and returns the last report on it.
func (s *session) wait(ctx context.Context, namespace, source string, timeout time.Duration, ignoreBlocked bool) (r *oneReport, p phase, err error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	said := ""
	err = follow(limited, func() (bool, error) {
		now, err := s.statusOf(limited, namespace, source)
		if err != nil {
			return false, err
		}
		if now.Status == statusGone {
			return false, fmt.Errorf("no source %s: %s", now.key(), now.Note)
		}
		r, p = now, phaseOf(now, ignoreBlocked)
		if text := fmt.Sprintf("%s: %d of %d in sync", r.key(), r.Counts[plan.StateSynced.Metric()], r.targets()); text != said {
			s.say(text)
			said = text
		}
		return p != waitOn, nil
	})
	if limited.Err() != nil && ctx.Err() == nil { // the time is over, perhaps in the middle of a request
		if r == nil {
			return nil, p, fmt.Errorf("--timeout=%v: over before the cluster was read", timeout)
		}
		s.say(fmt.Sprintf("Timed out after %v", timeout))
		return r, p, nil
	}
	if err == nil && r == nil {
		err = ctx.Err()
	}
	return r, p, err
}

// without returns the report without the targets in one state.
func (r *oneReport) without(state plan.State) *oneReport {
	out := *r
	out.Targets = nil
	for _, t := range r.Targets {
		if t.State != state.Metric() {
			out.Targets = append(out.Targets, t)
		}
	}
	return &out
}
