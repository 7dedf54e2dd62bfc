package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
)

const waitHelp = `Wait until every target of some sources holds what its source holds now, or is held by its source.
SOURCE is a name or NAMESPACE/NAME.
` + states + `
The exit code is the highest of all sources. Copies that expire are no targets: wait does not wait for them.`

func newWait(c *cli) *cobra.Command {
	var timeout time.Duration
	var ignoreBlocked bool
	cmd := &cobra.Command{Use: "wait SOURCE...", Short: "Wait until all copies of some sources are in sync",
		Example: "  kubectl apply -f settings.yaml && kubectl mirror wait platform/settings --timeout=2m",
		Long:    waitHelp, Args: cobra.MinimumNArgs(1)}
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "Time after which the command ends with exit code 1 or 2.")
	cmd.Flags().BoolVar(&ignoreBlocked, "ignore-blocked", false, "Do not fail if targets are rejected or blocked.")
	return c.command(cmd, false, func(ctx context.Context, s *session, keys []types.NamespacedName) (printed, error) {
		sources, err := s.wait(ctx, keys, timeout, ignoreBlocked)
		succeeds := func(source *snapshot.Source) bool { return source.Succeeds(ignoreBlocked) }
		return &report{sources, true, exitOf(sources, succeeds)}, err
	})
}

// wait waits until all sources end, or the time is over, and returns the last that is known of them. It says why it
// goes on.
func (s *session) wait(ctx context.Context, keys []types.NamespacedName, timeout time.Duration, ignoreBlocked bool) (
	last []*snapshot.Source, err error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		began := time.Now()
		sources, err := s.ask(limited, keys)
		if err == nil {
			last = sources
		} else if limited.Err() == nil && (last == nil || !utilnet.IsConnectionRefused(err)) { // it may be restarted
			return nil, err
		}
		ends := last != nil
		for _, source := range last {
			if source.GoesOn(ignoreBlocked) {
				ends = false
				s.say(fmt.Sprintf("%s: %s", source.Key(), source.Summary()))
				s.say(source.Warning)
			}
		}
		if ends {
			return last, nil
		}
		select {
		case <-time.After(max(time.Second, 5*time.Since(began))): // large clusters are read seldom
		case <-limited.Done():
			if last == nil { // in the middle of a request
				return nil, fmt.Errorf("--timeout=%v: over before the cluster was read", timeout)
			}
			s.say(fmt.Sprintf("Timed out after %v", timeout))
			return last, nil
		}
	}
}
