package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// replayer runs rounds on a new cluster and returns why they fail; nil if they do not.
type replayer func(ctx context.Context, o settings, rounds []round) error

// shrink looks for the shortest list of steps that still fails, by replays, and prints it. The objects from before the
// round are part of the list. The time of quiet is cut short, unless that is when it failed: why.
func shrink(ctx context.Context, o settings, given, failed round, why error, replay replayer) {
	ctx, cancel := context.WithTimeout(ctx, o.shrink)
	defer cancel()
	out := o.out
	o.out, o.dump = io.Discard, ""
	if !errors.Is(why, errDisturbed) {
		o.quiet = min(o.quiet, 5*time.Second)
	}
	last := error(nil)
	fails := func(given, r []step) bool {
		err := replay(ctx, o, []round{{calm: true, steps: given}, {calm: failed.calm, steps: r}})
		if ctx.Err() != nil {
			return false // the time is over, and with it what was being tried
		}
		fmt.Fprintf(out, "replayed %d steps behind %d: fails: %v\n", len(r), len(given), err != nil)
		if err != nil {
			last = err
		}
		return err != nil
	}
	fmt.Fprintf(out, "\nLooking for a shorter list that fails, for %s.\n", o.shrink)
	const tries = 3 // for the order of what happens at the same time is not replayed
	if !slices.ContainsFunc(make([]struct{}, tries), func(struct{}) bool { return fails(given.steps, failed.steps) }) {
		fmt.Fprintf(out, "The round alone did not fail again in %d replays. Run the whole seed again.\n", tries)
		return
	}
	rest := reduce(failed.steps, func(steps []step) bool { return fails(given.steps, steps) })
	before := reduce(given.steps, func(steps []step) bool { return fails(steps, rest) })
	fmt.Fprintf(out, "\n%v\n\nThe shortest list found that fails; write it to a file and replay it with -replay FILE:\n\n", last)
	_ = writeRounds(out, []round{{calm: true, steps: before}, {calm: failed.calm, steps: rest}})
}

// replay is the replayer on a real cluster.
func replay(ctx context.Context, o settings, rounds []round) error {
	s, err := newStorm(ctx, o)
	if err != nil {
		return err
	}
	_, err = s.weatherAll(ctx, rounds)
	return joinClose(err, s)
}

// reduce returns a part of the list that still fails, from which no single piece of any length that was tried can be
// taken away: delta debugging without the tries that its theory needs and practice does not.
func reduce[T any](list []T, fails func([]T) bool) []T {
	for size := (len(list) + 1) / 2; size > 0; size /= 2 {
		for at := 0; at < len(list); {
			shorter := slices.Concat(list[:at], list[min(at+size, len(list)):])
			if fails(shorter) {
				list = shorter
			} else {
				at += size
			}
		}
		if size == 1 {
			break
		}
	}
	return list
}
