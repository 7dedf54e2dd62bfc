package main

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// sizes say how much of everything is measured. The defaults make a run of some twelve minutes on two idle cores.
type sizes struct {
	rounds     int           // interleaved rounds of a comparison
	few        int           // rounds of those comparisons that move the most objects
	fanOut     int           // target namespaces of a fan-out
	large      int           // target namespaces of a large fan-out
	sources    int           // sources of a cold start
	synced     int           // sources of the rows that begin with copies in sync
	targets    int           // target namespaces of both
	samples    int           // new namespaces, and repaired copies
	crowd      int           // sources that a new namespace gets copies of
	payload    int           // bytes of data of a source
	fat        int           // bytes of data of a large source
	thin       int           // bytes of data of a small source
	starts     int           // rounds of a figure of memory, each with processes of its own
	repairs    int           // repaired copies, and half of the created ones, of which a figure of CPU is the mean
	moreRepair int           // target namespaces while the CPU time of a repair is measured, against smallTargets
	moreFresh  int           // sources while the CPU time of a new namespace is measured, against smallSources
	contended  int           // target namespaces of sources that compete
	hanging    int           // hanging namespaces of a second row about them; 0: no such row
	pluginAt   int           // target namespaces of 10 sources when kubectl mirror is measured
	settle     time.Duration // how long a process is left alone before its memory is read
	idle       time.Duration // how long an idle controller is watched
}

// options are the sizes, and what the flags say besides.
type options struct {
	sizes
	settings
	full bool
}

// settings are what all programs of this binary have that measure.
type settings struct {
	controller, manifests, out string
	plugin                     string // kubectl-mirror
	only                       *regexp.Regexp
	name                       string // begins the names of the files with what was measured
	given                      string // the sizes, as flags
	caution                    string // what to think of sizes that are not those of BENCHMARKS.md
	bounds                     bounds
	ends                       []int    // of how many namespaces of the pool rows want the first
	prefix                     string   // of namespaces that are targets besides; empty: none
	args, env                  []string // of each controller, besides what is shipped
	lean                       bool     // the cluster is one for very many ConfigMaps
}

// bind declares the flags, and returns what reads them from the arguments.
func (s *settings) bind(fs *flag.FlagSet, name string) (parse func(args []string) error) {
	s.name = name
	fs.StringVar(&s.controller, "controller", "bin/mirror-controller", "the controller's binary")
	fs.StringVar(&s.manifests, "deploy", "deploy/base", "the kustomization that installs the controller")
	fs.StringVar(&s.plugin, "plugin", "bin/kubectl-mirror", "the binary of kubectl-mirror")
	fs.StringVar(&s.out, "out", "e2e/bench/out", "folder for the table and the plot")
	only := fs.String("run", "", "measure only rows whose figure matches this regular expression")
	return func(args []string) (err error) {
		if err := fs.Parse(args); err != nil {
			return err
		}
		if fs.NArg() > 0 {
			return fmt.Errorf("unexpected argument %q", fs.Arg(0))
		}
		if s.only, err = regexp.Compile(*only); err != nil {
			return fmt.Errorf("-run: %w", err)
		}
		return nil
	}
}

// fullSizes are the flags of the table in the issue, where they differ from the defaults.
var fullSizes = map[string]string{
	"rounds": "21", "few": "7", "large": "5000", "sources": "100", "synced": "100", "starts": "7", "crowd": "200",
	"contended": "5000", "plugin-at": "10000", "hanging": "1000", "more-repair": "5000", "more-fresh": "500", "settle": "10s", "idle": "2m",
}

// parse reads the flags. -full stands for all of fullSizes that are not given.
func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	read := o.settings.bind(fs, "bench")
	fs.BoolVar(&o.full, "full", false, "use the sizes of BENCHMARKS.md; takes about an hour")
	o.sizes.bind(fs)
	if err := read(args); err != nil {
		return o, err
	}
	o.caution = "; the bars are for the sizes of BENCH=full"
	if o.full {
		o.caution = ""
		given := map[string]bool{}
		fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
		for name, value := range fullSizes {
			if given[name] {
				continue
			}
			if err := fs.Set(name, value); err != nil {
				return o, err
			}
		}
	}
	o.given = describe(fs, new(sizes).bind)
	o.ends = []int{o.fanOut, o.large, o.targets, o.samples, o.contended, o.pluginAt, smallTargets, o.moreRepair}
	return o, nil
}

func (s *sizes) bind(fs *flag.FlagSet) {
	fs.IntVar(&s.rounds, "rounds", 7, "interleaved `rounds` of a comparison")
	fs.IntVar(&s.few, "few", 3, "interleaved `rounds` of the comparisons that move the most objects")
	fs.IntVar(&s.fanOut, "fan-out", 1000, "target `namespaces` of a fan-out")
	fs.IntVar(&s.large, "large", 2000, "target `namespaces` of a large fan-out")
	fs.IntVar(&s.sources, "sources", 25, "`sources` of a cold start, each to -targets namespaces")
	fs.IntVar(&s.synced, "synced", 30, "`sources`, each with copies in -targets namespaces, of the rows that begin with copies in sync")
	fs.IntVar(&s.targets, "targets", 200, "target `namespaces` of -sources and of -synced")
	fs.IntVar(&s.samples, "samples", 50, "`number` of new namespaces, and of repaired copies")
	fs.IntVar(&s.crowd, "crowd", 100, "`sources` that a new namespace gets copies of")
	fs.IntVar(&s.payload, "payload", 1024, "`bytes` of data of a source")
	fs.IntVar(&s.fat, "fat", 10240, "`bytes` of data of a source in the rows about memory and payload")
	fs.IntVar(&s.thin, "thin", 100, "`bytes` of data of the sources that these are compared with")
	fs.IntVar(&s.starts, "starts", 1, "`rounds` of the rows about memory, each with processes of its own")
	fs.IntVar(&s.repairs, "repairs", 500, "`number` of repaired copies, and half that of created ones, of which a figure of CPU is the mean")
	fs.IntVar(&s.moreRepair, "more-repair", 1000, fmt.Sprintf("target `namespaces` while the CPU time of a repair is measured, against %d", smallTargets))
	fs.IntVar(&s.moreFresh, "more-fresh", 300, fmt.Sprintf("`sources` while the CPU time of a new namespace is measured, against %d", smallSources))
	fs.IntVar(&s.contended, "contended", 1000, "target `namespaces` of sources that compete")
	fs.IntVar(&s.pluginAt, "plugin-at", 1000, "target `namespaces` of 10 sources when kubectl mirror is measured")
	fs.IntVar(&s.hanging, "hanging", 0, fmt.Sprintf("hanging `namespaces` of a second row about them, beside that of %d; 0: no such row", fewHanging))
	fs.DurationVar(&s.settle, "settle", 5*time.Second, "how `long` a process is left alone before its memory is read")
	fs.DurationVar(&s.idle, "idle", 20*time.Second, "how `long` an idle controller is watched")
}

// asked returns those of the rows that -run matches.
func (s settings) asked(rows []*row) []*row {
	var out []*row
	for _, r := range rows {
		if s.only.MatchString(r.figure) {
			out = append(out, r)
		}
	}
	return out
}

// describe lists the flags that are sizes, which bind declares, and their values.
func describe(fs *flag.FlagSet, bind func(*flag.FlagSet)) string {
	var list []string
	named := flag.NewFlagSet("", flag.ContinueOnError)
	bind(named)
	named.VisitAll(func(f *flag.Flag) {
		list = append(list, fmt.Sprintf("%s %s", f.Name, fs.Lookup(f.Name).Value))
	})
	return strings.Join(list, ", ")
}
