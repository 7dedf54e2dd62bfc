package main

import (
	"flag"
	"fmt"
	"regexp"
	"time"
)

// sizes say how much of everything is measured. The defaults make a run of some ten minutes on two idle cores.
type sizes struct {
	rounds   int           // interleaved rounds of a comparison
	few      int           // rounds of those comparisons that move the most objects
	fanOut   int           // target namespaces of a fan-out
	large    int           // target namespaces of a large fan-out
	synced   int           // sources of the rows that begin with copies in sync
	hanging  int           // hanging namespaces of a second row about them; 0: no such row
	pluginAt int           // target namespaces of 10 sources when kubectl mirror is measured
	million  int           // target namespaces of 100 sources; 0: the other rows are measured
	settle   time.Duration // how long a process is left alone before its memory is read
	idle     time.Duration // how long an idle controller is watched
}

const (
	// payload is the bytes of data of a source.
	payload = 1024
	// smallTargets is the number of namespaces of small scenes.
	smallTargets = 100
	// samples is the number of new namespaces, and of repaired copies.
	samples = 50
)

// options are what the flags say.
type options struct {
	sizes
	controller, manifests, plugin, out string
	only                               *regexp.Regexp
}

// fullSizes are those of BENCHMARKS.md.
var fullSizes = sizes{
	rounds: 21, few: 7, fanOut: 1000, large: 5000, synced: 100, hanging: 1000, pluginAt: 10000,
	settle: 10 * time.Second, idle: 2 * time.Minute,
}

// parse reads the flags.
func parse(args []string) (o options, err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&o.controller, "controller", "bin/mirror-controller", "the controller's binary")
	fs.StringVar(&o.manifests, "deploy", "deploy/base", "the kustomization that installs the controller")
	fs.StringVar(&o.plugin, "plugin", "bin/kubectl-mirror", "the binary of kubectl-mirror")
	fs.StringVar(&o.out, "out", "e2e/bench/out", "folder for the table and the plot")
	only := fs.String("run", "", "measure only rows whose figure matches this regular expression")
	full := fs.Bool("full", false, "use the sizes of BENCHMARKS.md; takes about an hour")
	o.sizes.bind(fs)
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	switch {
	case o.million > 0:
		o.settle, o.idle = 15*time.Second, 4*time.Minute // a collection of a large heap comes every two minutes
	case *full:
		o.sizes = fullSizes
	}
	if err := fs.Parse(args); err != nil { // what is given counts more
		return o, err
	}
	o.only, err = regexp.Compile(*only)
	return o, err
}

func (s *sizes) bind(fs *flag.FlagSet) {
	fs.IntVar(&s.rounds, "rounds", 7, "interleaved `rounds` of a comparison")
	fs.IntVar(&s.few, "few", 3, "interleaved `rounds` of the comparisons that move the most objects")
	fs.IntVar(&s.fanOut, "fan-out", 1000, "target `namespaces` of a fan-out")
	fs.IntVar(&s.large, "large", 2000, "target `namespaces` of a large fan-out")
	fs.IntVar(&s.synced, "synced", 30, "`sources`, with copies in 200 namespaces, of the rows that begin in sync")
	fs.IntVar(&s.hanging, "hanging", 0, "hanging `namespaces` of a second row about them; 0: no such row")
	fs.IntVar(&s.pluginAt, "plugin-at", 1000, "target `namespaces` of 10 sources when kubectl mirror is measured")
	fs.IntVar(&s.million, "million", 0, "measure only the rows with 100 sources and this many `namespaces`")
	fs.DurationVar(&s.settle, "settle", 5*time.Second, "how `long` a process is left alone before its memory is read")
	fs.DurationVar(&s.idle, "idle", 20*time.Second, "how `long` an idle controller is watched")
}

// asked returns those of the rows that -run matches.
func (o options) asked(rows []*row) (out []*row) {
	for _, r := range rows {
		if o.only.MatchString(r.figure) {
			out = append(out, r)
		}
	}
	return out
}
