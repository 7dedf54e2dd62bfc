package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
)

const waitHelp = `Wait until every target of some sources holds what its source holds now, or is held by its source.
SOURCE is a name or NAMESPACE/NAME.
` + states + `
The exit code is the highest of all sources. Copies that expire are no targets: wait does not wait for them.`

func newWait(c *cli) *cobra.Command {
	w := &waiter{}
	cmd := c.command("wait SOURCE...", "Wait until all copies of some sources are in sync", waitHelp,
		"  kubectl apply -f settings.yaml && kubectl mirror wait platform/settings --timeout=2m",
		cobra.MinimumNArgs(1),
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
	limited, cancel := context.WithTimeout(cmd.Context(), w.timeout)
	defer cancel()
	cmd.SetContext(limited)
	s, asked, err := c.beginSome(cmd, args)
	var last []*snapshot.Source
	for err == nil {
		began := time.Now()
		var now []*snapshot.Source
		if now, err = w.ask(limited, s, asked); err != nil {
			break
		}
		if last = now; !slices.ContainsFunc(last, w.goesOn) {
			break
		}
		for _, source := range last {
			if w.goesOn(source) {
				s.say(fmt.Sprintf("%s: %s", source.Key(), source.Summary()))
				s.say(source.Warning.String())
			}
		}
		select {
		case <-limited.Done():
			err = limited.Err()
		case <-time.After(max(time.Second, 5*time.Since(began))): // large clusters are read seldom
		}
	}
	switch {
	case err != nil && limited.Err() == nil:
		return nil, err
	case last == nil: // in the middle of a request
		return nil, fmt.Errorf("--timeout=%v: over before the cluster was read", w.timeout)
	case err != nil:
		s.say(fmt.Sprintf("Timed out after %v", w.timeout))
	}
	r := newReport(last)
	r.details = true
	if isDone := !slices.ContainsFunc(last, func(s *snapshot.Source) bool { return !w.succeeds(s) }); isDone {
		r.answer = exitYes
	}
	return r, nil
}

// ask returns the state of each source.
func (w *waiter) ask(ctx context.Context, s *session, asked []types.NamespacedName) (all []*snapshot.Source, err error) {
	for _, k := range asked {
		source, err := s.ask(ctx, k)
		if err != nil {
			return nil, err
		}
		all = append(all, source)
	}
	return all, nil
}

func (w *waiter) goesOn(s *snapshot.Source) bool {
	ends, _ := s.Ends(w.ignoreBlocked)
	return !ends
}

func (w *waiter) succeeds(s *snapshot.Source) bool {
	_, succeeds := s.Ends(w.ignoreBlocked)
	return succeeds
}
