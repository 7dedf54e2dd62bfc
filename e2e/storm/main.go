// Command storm has random operations of users and random faults happen to the controller, on a real API server, and
// compares what comes of it with a model. `make storm` runs it.
//
// # What happens
//
// A round is a list of steps: some 50 operations of users on sources, copies, foreign objects and namespaces, and
// faults between them: of requests and watches, by a proxy between each controller and the API server; of the API server
// and etcd; of the controllers, which are killed, stopped, paused for longer than their lease, and started with other
// flags, at once or one after the other. Two replicas elect a leader. Faults of their lease are steps of their own,
// which some storms do not have. The rounds follow from the seed. All of them happen on one cluster, so that each
// begins with what the one before left behind. Where an operation finds nothing to act on, it acts on something else that
// it can be done to, and the step says so from then on.
//
// # What is demanded
//
// When all steps have happened and no fault is at work any more, the cluster has to become what package model says,
// within -patience, and then it has to be quiet for the time -quiet (quiet.go): nothing is written, and hardly anything
// is asked for. Where an object is in the way, creates come as slowly as the contract says. And in no moment may the
// controller have done what it must not (judge.go). The storm knows users' writes by their resourceVersion, and deletions by
// the audit log, so that every other state that the watches from outside have shown (history.go) is the controller's
// work:
//
//   - no foreign object and no source is ever changed or deleted, but for an adoption, which comes within a minute;
//   - nothing is made or changed out of scope of the flags, nor of a name or a kind that is none of its business, nor with a
//     content, or in a namespace, for which no source has asked shortly before (premises.go);
//   - a copy that was in sync, and about which nothing changed, is not written;
//   - a copy is not deleted while a source claims its place all the time, however its namespace changed, also if its
//     own source was replaced within the deletion grace or is frozen, unless it is immutable and has another content; and not for
//     being out of scope of the flags if it turned up later;
//   - a copy is not deleted sooner than the deletion grace after the last claim, nor after its process took over. The grace is
//     drawn for each round;
//   - a copy that lost its label is not deleted, unless a source claims its place and it is immutable;
//   - labels, annotations and finalizers of others stay on a copy, and checksums follow from the contents (metadata.go);
//   - each write that the audit log has did something;
//   - events are about sources, and as many as there are changes to tell of, and a process writes one for each reason and
//     source in the time -event-gap (events.go);
//   - one process at a time writes, and none after it has given its lease back. One that stood still, or whose requests
//     were held up, may send the requests too late that were in flight (writers.go). A lease is lost only if something
//     went wrong that can cost one.
//
// The audit log has writes and not what they met, so it is the watch that tells whose an object was, and the log that
// tells of writes that the watch does not show. It does not hold the content of a request: that each write is conditional is
// shown only by collisions that would otherwise do harm. Each replica has an account of its own, so that the log tells
// them apart. Where both users and the controller may have made a change, and in states that nobody saw, the controller
// has the benefit of the doubt, unless nothing can have been there that it may touch; and so it has where the machine had
// no time for anybody (load.go).
//
// With -plugin, `kubectl mirror plan` has to say what the controllers do next, before they are started on what users have done
// meanwhile, and `kubectl mirror status` and mirror_copies have to say what the model says whenever all is quiet.
//
// # When it fails
//
// It prints the seed, what was wrong, by what arguments all of it happens again, and the steps of the round behind what
// users had put into the cluster before.
// Then it replays that on new clusters, with fewer and fewer steps, and prints the shortest list that still fails.
// Such a list, in a file, is replayed by -replay. Simultaneous steps do not always have the same order, so a
// replay need not fail each time.
//
// # Where to find what
//
//	step.go      a step as a line of text
//	draw.go      rounds from a seed; selection.go those about labels of namespaces
//	ops.go       operations of users; users.go their requests, content.go what they put into ConfigMaps
//	faults.go    faults; replicas.go the controllers and their flags, accounts.go who they are
//	storm.go     a round; quiet.go its end
//	judge.go     the judgement on it; premises.go, metadata.go, events.go, writers.go its parts
//	plugin.go    what kubectl mirror says, beside that
//	history.go   what it rests on; tape.go, record.go, load.go
//	run.go       many rounds, and what is told of them; counts.go, shrink.go
//	model/       the model
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
}

// run reads the arguments and runs the storm that they ask for.
func run(ctx context.Context, args []string, out io.Writer) error {
	var o settings
	o.out = out
	fs := flag.NewFlagSet("storm", flag.ContinueOnError)
	fs.StringVar(&o.controller, "controller", "bin/mirror-controller", "the controller's binary")
	fs.StringVar(&o.manifests, "deploy", "deploy/base", "the kustomization that installs the controller")
	fs.StringVar(&o.plugin, "plugin", "", "the binary of kubectl-mirror, which is asked what it says; empty: it is not")
	fs.StringVar(&o.verbosity, "v", "2", "the verbosity of the controller's log")
	fs.Uint64Var(&o.seed, "seed", 1, "what happens follows from this")
	fs.DurationVar(&o.quiet, "quiet", 30*time.Second, "the time after each round in which nothing may be written")
	fs.DurationVar(&o.patience, "patience", 150*time.Second, "the time in which the cluster has to be what the model says")
	fs.DurationVar(&o.eventGap, "event-gap", 10*time.Second, "the time between two events of a process with the same reason about the same source; 0: any")
	fs.IntVar(&o.rounds, "rounds", 20, "how many rounds")
	fs.IntVar(&o.first, "first", 0, "the number of the first round: several storms can share the rounds of a seed")
	fs.IntVar(&o.operations, "operations", 70, "how many operations in a round; of four one finds nothing to act on")
	fs.DurationVar(&o.shrink, "shrink", 20*time.Minute, "how long to look for the shortest list of steps that fails; 0: not at all")
	fs.StringVar(&o.dump, "dump", "", "a folder for what there was, and the whole logs of the controllers, if a round fails")
	fs.StringVar(&o.replay, "replay", "", "a file of steps that are to happen instead")
	if err := fs.Parse(args); err != nil {
		return err
	}
	rounds := o.plan
	if o.replay != "" {
		rounds = func() ([]round, error) { return readFile(o.replay) }
	}
	planned, err := rounds()
	if err != nil {
		return err
	}
	return rage(ctx, o, planned)
}

// plan draws the rounds, behind one that lays out the cluster.
func (o *settings) plan() ([]round, error) {
	beginning := drawBeginning(o.seed)
	beginning.number = o.first
	out := []round{beginning}
	for n := range o.rounds {
		for _, r := range drawRound(o.seed, o.first+n, o.operations) {
			r.number = o.first + n
			out = append(out, r)
		}
	}
	return out, nil
}

// again returns the arguments by which all that happened up to the round of that number happens again.
func (o *settings) again(number int) string {
	if o.replay != "" {
		return "-replay " + o.replay
	}
	return fmt.Sprintf("-seed %d -first %d -rounds %d -operations %d -quiet %s", o.seed, o.first, number-o.first+1, o.operations, o.quiet)
}

func readFile(name string) ([]round, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rounds, err := readRounds(file)
	for n := range rounds {
		rounds[n].number = n
	}
	return rounds, err
}

func joinClose(err error, s *storm) error { return errors.Join(err, s.close()) }
