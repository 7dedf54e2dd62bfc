package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
)

const waitHelp = `Wait until every target of some sources holds what its source holds now, or is held by its source.
SOURCE is a name or NAMESPACE/NAME.
` + states + `
The exit code is the highest of all sources. Copies that expire are no targets: wait does not wait for them.`

func newWait(c *cli) *cobra.Command {
	w := &waiter{}
	cmd := c.command(&cobra.Command{Use: "wait SOURCE...", Short: "Wait until all copies of some sources are in sync",
		Long:    waitHelp,
		Example: "  kubectl apply -f settings.yaml && kubectl mirror wait platform/settings --timeout=2m",
		Args:    cobra.MinimumNArgs(1)}, false,
		func(cmd *cobra.Command, args []string) (printed, error) { return w.wait(c, cmd, args) })
	cmd.Flags().DurationVar(&w.timeout, "timeout", 5*time.Minute, "Time after which the command ends with exit code 1.")
	cmd.Flags().BoolVar(&w.ignoreBlocked, "ignore-blocked", false, "Do not fail if targets are rejected or blocked.")
	return cmd
}

type waiter struct {
	timeout       time.Duration
	ignoreBlocked bool
}

// wait waits until all sources end, or the time is over, and returns the last report on them.
func (w *waiter) wait(c *cli, cmd *cobra.Command, args []string) (printed, error) {
	if w.timeout <= 0 {
		return nil, fmt.Errorf("--timeout=%v: must be above zero", w.timeout)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), w.timeout)
	defer cancel()
	cmd.SetContext(ctx)
	s, keys, err := c.beginKeys(cmd, args)
	var last []*snapshot.Source
	for err == nil {
		began := time.Now()
		now, failed := s.ask(ctx, keys)
		if err = failed; err != nil {
			break
		}
		if last = now; !slices.ContainsFunc(last, w.goesOn) {
			break
		}
		w.tell(s, last)
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(max(time.Second, 5*time.Since(began))): // large clusters are read seldom
		}
	}
	switch {
	case err != nil && ctx.Err() == nil:
		return nil, err
	case last == nil: // in the middle of a request
		return nil, fmt.Errorf("--timeout=%v: over before the cluster was read", w.timeout)
	case err != nil:
		s.say(fmt.Sprintf("Timed out after %v", w.timeout))
	}
	return &report{list{last}, false, exitOf(last, w.succeeds)}, nil
}

// tell says what the sources wait for.
func (w *waiter) tell(s *session, sources []*snapshot.Source) {
	for _, source := range sources {
		if w.goesOn(source) {
			s.say(fmt.Sprintf("%s: %s", source.Key(), source.Summary()))
			s.say(source.Warning)
		}
	}
}

func (w *waiter) goesOn(s *snapshot.Source) bool {
	ends, _ := s.Ends(w.ignoreBlocked)
	return !ends
}

func (w *waiter) succeeds(s *snapshot.Source) bool {
	_, succeeds := s.Ends(w.ignoreBlocked)
	return succeeds
}
