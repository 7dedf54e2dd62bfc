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
` + statusTable + `
The exit code is the highest of all sources. Copies that expire are no targets: wait does not wait for them.`

func newWait(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait SOURCE...",
		Short: "Wait until all copies of some sources are in sync",
		Long:  waitHelp,
		Example: "  kubectl apply -f settings.yaml && " +
			"kubectl mirror wait platform/settings --timeout=2m",
		Args: cobra.MinimumNArgs(1),
	}
	timeout := cmd.Flags().Duration("timeout", 5*time.Minute,
		"Time after which the command ends with exit code 1 or 2.")
	ignoreBlocked := cmd.Flags().Bool("ignore-blocked", false,
		"Do not fail if targets are rejected or blocked.")
	// A pipeline of an owner who cannot remove what blocks a target passes with
	// --ignore-blocked.
	return c.command(cmd, false, func(
		ctx context.Context, s *session, keys []types.NamespacedName,
	) error {
		sources, err := s.wait(ctx, keys, *timeout, *ignoreBlocked)
		if err != nil {
			return err
		}
		s.print(&statuses{sources, true})
		return exitOf(sources, func(source *snapshot.Source) bool {
			return source.Succeeds(*ignoreBlocked)
		})
	})
}

// wait reads the sources again and again, until none goes on or the time is
// over, and returns the last statuses that it has read. Meanwhile it prints
// which sources go on.
func (s *session) wait(
	ctx context.Context, keys []types.NamespacedName, timeout time.Duration, ignoreBlocked bool,
) (last []*snapshot.Source, err error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		began := time.Now()
		sources, err := s.sources(limited, keys)
		switch {
		case err == nil:
			last = sources
		case limited.Err() != nil:
			// The time ended in the middle of a request.
		case last != nil && utilnet.IsConnectionRefused(err):
			// The API server has answered before, so it may be starting again.
		default:
			return nil, err
		}
		if last != nil && !s.anyGoesOn(last, ignoreBlocked) {
			return last, nil
		}
		select {
		// Large clusters are read seldom: at most a sixth of the time goes into
		// reading.
		case <-time.After(max(time.Second, 5*time.Since(began))):
		case <-limited.Done():
			if last == nil {
				return nil, fmt.Errorf("--timeout=%v: over before the cluster was read", timeout)
			}
			s.say(fmt.Sprintf("Timed out after %v", timeout))
			return last, nil
		}
	}
}

// anyGoesOn reports whether a source may still change by itself. It prints
// which do, and in which status they are.
func (s *session) anyGoesOn(sources []*snapshot.Source, ignoreBlocked bool) (goesOn bool) {
	for _, source := range sources {
		if source.GoesOn(ignoreBlocked) {
			goesOn = true
			s.say(fmt.Sprintf("%s: %s", source.Key(), source.Summary()))
			s.say(source.Warning)
		}
	}
	return goesOn
}
