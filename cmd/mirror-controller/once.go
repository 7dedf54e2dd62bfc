package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// runOnce runs a controller until nothing is left to do, or ctx or the timeout ends, and prints the summary. It returns an
// error if the cluster is not in sync then. holder names the process that holds the Lease; empty: none is known.
func (o *options) runOnce(ctx context.Context, controller *mirror.Controller, run func(context.Context) error, holder func() string, stdout io.Writer) error {
	working, stop := context.WithTimeout(ctx, o.onceTimeout)
	idle := make(chan bool, 1)
	go func() {
		defer stop()
		idle <- controller.WaitIdle(working)
	}()
	err := run(working)
	stop()
	done := <-idle
	if err != nil {
		return err
	}
	outcome := controller.Outcome()
	if _, err := fmt.Fprint(stdout, outcome); err != nil {
		return fmt.Errorf("print the summary: %w", err)
	}
	err = outcome.Err()
	if leader := holder(); !outcome.Led && leader != "" {
		err = fmt.Errorf("nothing was compared: %s holds the Lease", leader)
	}
	switch {
	case done:
		return err
	case err == nil:
		err = errors.New("not everything was compared")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped before the end: %w", err)
	}
	return fmt.Errorf("--once-timeout=%v exceeded: %w", o.onceTimeout, err)
}
