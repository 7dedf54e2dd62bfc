// Command storm has random operations of users and random faults happen to two replicas of the controller on a real API
// server, and judges each of their writes by the API server's audit log. `make storm` runs it.
//
// The random histories of package mirror prove the controller in finer detail, in virtual time. The storm has what they
// cannot have: real processes, which are killed, stopped and paused, a real Lease, a real API server, which crashes, and
// faults between the two.
//
// # A round
//
// A round follows from the seed and its number alone: it begins in an empty cluster.
//
//  1. Users and faults happen at the same time. Then all has to become what a plan from scratch says, and nothing may be
//     written for a while.
//  2. The controllers stop, users go on, and the controllers start with other flags, of which --prune is now set and now not.
//     The end is the same.
//
// # The judge
//
// The audit log holds what requests and answers carry, and etcd tells every state of every object. So each write of the
// controllers is judged by the state that its precondition names, be it refused or not:
//
//   - It names a state, and that is a copy of ours: no foreign object and no source is touched. Nobody hands objects over.
//   - What it writes is a copy, and its source asked for that content, there, since the controllers started.
//   - A deletion follows a live read of the source, and of the namespace if that matters, by which the copy is not wanted.
//     No source claimed the copy for longer than a cache may be behind, nor within the deletion grace. Nothing goes that
//     is out of scope, unless --prune is set, or that lost its label.
//   - Its sender has the lease, or sent it before it lost it.
//   - It changes something, and does not come when all is as it has to be.
//
// Faults, and a machine without time for anybody, give requests the benefit of the doubt for as long as they last.
//
// # When it fails
//
// It exits with 1, and prints what was wrong and how to play that round again. A folder keeps what happened: steps.log, the
// logs of the replicas, and audit.log.
//
// # The files
//
//	round.go     a round; ops.go what users do; faults.go what goes wrong; replicas.go the controllers
//	history.go   every state, from etcd; request.go a line of the audit log
//	judge.go     the judgement on each write; lease.go on who made it; contract.go what it rests on
//	rest.go      what has to be in the end; world.go the plan from scratch
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
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
	o := settings{out: out}
	fs := flag.NewFlagSet("storm", flag.ContinueOnError)
	fs.StringVar(&o.controller, "controller", "bin/mirror-controller", "the controller's binary")
	fs.StringVar(&o.deploy, "deploy", "deploy/base", "the kustomization that installs the controller")
	fs.Uint64Var(&o.seed, "seed", 1, "what happens follows from this")
	fs.IntVar(&o.rounds, "rounds", 20, "how many rounds")
	fs.IntVar(&o.first, "first", 0, "the number of the first round")
	if err := fs.Parse(args); err != nil {
		return err
	}
	return rage(ctx, o)
}

// rage runs the rounds on one cluster.
func rage(ctx context.Context, o settings) (err error) {
	if o.artefacts, err = os.MkdirTemp("", "storm-"); err != nil {
		return err
	}
	s, err := newStorm(ctx, o)
	if err != nil {
		return err
	}
	number, err := s.playAll(ctx)
	if err != nil {
		err = fmt.Errorf("seed %d, round %d: %w\n\n"+
			"Play it again: make storm STORM_SEED=%d STORM_ROUNDS=1 STORM_ARGS='-first %d'\nWhat happened is in %s",
			o.seed, number, err, o.seed, number, o.artefacts)
		err = errors.Join(err, s.keep())
	} else {
		err = os.RemoveAll(o.artefacts)
	}
	return errors.Join(err, s.close())
}

// playAll plays the rounds, and returns the number of the first that fails, with its error.
func (s *storm) playAll(ctx context.Context) (int, error) {
	began := time.Now()
	for number := s.first; number < s.first+s.rounds; number++ {
		s.note("--- seed %d, round %d", s.seed, number)
		if err := s.play(ctx, number); err != nil {
			return number, err
		}
		fmt.Fprintf(s.out, "%8s  seed %d, round %d: all is as it should be, and quiet\n",
			time.Since(began).Round(time.Second), s.seed, number)
	}
	return 0, nil
}

// note adds a line to the log of the steps.
func (s *storm) note(format string, args ...any) {
	f, err := os.OpenFile(s.file("steps.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return // the log is for people, and its loss is no finding
	}
	fmt.Fprintf(f, format+"\n", args...)
	_ = f.Close()
}

// keep copies the audit log.
func (s *storm) keep() error {
	log, err := os.ReadFile(filepath.Join(s.cluster.Dir(), "audit.log"))
	if err != nil {
		return err
	}
	return os.WriteFile(s.file("audit.log"), log, 0o600)
}
