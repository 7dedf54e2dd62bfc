package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const waitHelp = `Wait until every copy of a source holds what the source holds now. SOURCE is a name or NAMESPACE/NAME. Progress goes to stderr.
The command ends at once if a foreign ConfigMap or another source blocks a target, if nothing is mirrored from the source, or if flags
and annotations of the controller differ. It waits for copies that the API server rejects, and not for copies that expire, nor for
targets that an annotation of the source holds.

Exit codes: 0 in sync but for held targets, 1 blocked, all held or timed out, or flags and annotations of the controller differ, 2
unknown.`

func newWait(c *cli) *cobra.Command {
	var output outputFlag
	var timeout time.Duration
	var allow allowed
	cmd := &cobra.Command{
		Use:               "wait SOURCE",
		Short:             "Wait until all copies of a source are in sync",
		Long:              waitHelp,
		Example:           "  kubectl apply -f settings.yaml && kubectl mirror wait platform/settings --timeout=2m",
		Args:              arguments(1, 1),
		ValidArgsFunction: c.complete(c.sources),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := c.parseKey(args[0])
			switch {
			case err != nil:
				return err
			case timeout <= 0:
				return fmt.Errorf("--timeout=%v: must be more than 0, such as 5m", timeout)
			}
			s, err := c.begin(cmd)
			if err != nil {
				return err
			}
			r, p, err := s.wait(cmd.Context(), asked, timeout, allow)
			if err != nil {
				return err
			}
			if err := output.print(cmd.OutOrStdout(), r); err != nil {
				return err
			}
			return s.verdict(p == waitDone)
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
	blocked := 0
	for _, state := range []plan.State{plan.StateForeign, plan.StateSuperseded, plan.StateRejected, plan.StateFrozen} {
		blocked += s.Counts[state.Metric()]
	}
	switch {
	case s.Status != snapshot.InSync && s.Status != snapshot.OutOfSync, blocked > 0 && !allow.blocked:
		return waitBlocked
	case s.Counts[plan.StatePending.Metric()] > 0:
		return waitOn
	case s.Counts[plan.StateHeld.Metric()] > 0 && s.Reached == 0 && !allow.held:
		return waitHeld // a selector with a typing error matches nothing
	}
	return waitDone
}

// wait waits until a source is in sync or blocked, or the time is over, and returns the last report on it.
func (s *session) wait(ctx context.Context, asked types.NamespacedName, timeout time.Duration, allow allowed) (r *oneReport, p phase, err error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = follow(limited, func() (bool, error) {
		now, err := s.statusOf(limited, asked)
		if err != nil {
			return false, err
		}
		if now.Status == snapshot.Gone {
			return false, fmt.Errorf("no source %s: %s", now.Key(), now.Note)
		}
		r, p = now, phaseOf(now.Source, allow)
		s.sayOnce(fmt.Sprintf("%s: %d of %d in sync", r.Key(), r.Counts[plan.StateSynced.Metric()], r.Total()))
		if expiring := r.In(plan.StateExpiring); len(expiring) > 0 {
			verb := map[bool]string{true: "expires", false: "expire"}[len(expiring) == 1]
			s.sayOnce(fmt.Sprintf("Not waited for: %s %s: %s", count(len(expiring), "copy", "copies"), verb, strings.Join(expiring, ", ")))
		}
		if held := r.In(plan.StateHeld); len(held) > 0 {
			s.sayOnce(fmt.Sprintf("Held: %s: %s", count(len(held), "target", "targets"), strings.Join(held, ", ")))
		}
		if p == waitHeld {
			s.sayOnce("Every target is held, so the change reaches none. Correct or remove the annotation, or accept this with --allow-held")
		}
		if p == waitOn && s.differ {
			s.sayOnce("Not waited: flags and annotations differ, so the API server may refuse copies for good")
		}
		return p != waitOn || s.differ, nil
	})
	if limited.Err() != nil && ctx.Err() == nil { // the time is over, perhaps in the middle of a request
		if r == nil {
			return nil, p, fmt.Errorf("--timeout=%v: over before the cluster was read", timeout)
		}
		s.say(fmt.Sprintf("Timed out after %v", timeout))
		return r, p, nil
	}
	return r, p, err
}

// grace says how long copies expire; empty if that is not known.
func (s *session) grace() string {
	in := s.settings.Installation
	if in == nil || in.Deployment == nil {
		return ""
	}
	return fmt.Sprintf(" (--deletion-grace=%v)", s.settings.DeletionGrace)
}

// A cluster is read again after a second, or after five times as long as the last time took: large ones are read seldom.
const (
	followPeriod = time.Second
	followShare  = 5
)

// follow calls step until it is done, fails, or ctx ends.
func follow(ctx context.Context, step func() (done bool, err error)) error {
	for {
		began := time.Now()
		done, err := step()
		if done || err != nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(followPeriod, followShare*time.Since(began))):
		}
	}
}

// flush has what was printed reach the user now.
func flush(w io.Writer) error {
	if b, ok := w.(*bufio.Writer); ok {
		return b.Flush()
	}
	return nil
}
