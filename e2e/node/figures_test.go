package node

import (
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// patience is 1 in `make bench BENCH=node`, which takes a machine that does nothing else.
var patience = flag.Float64("patience", 0, "a time fails at this many times its bar; 0: never")

// figures are the times that the tests have measured.
var figures measured

type measured []figure

// figure is a time, and its bar: 0 for none.
type figure struct {
	name      string
	took, bar time.Duration
}

func (m *measured) add(name string, took, bar time.Duration) {
	*m = append(*m, figure{name, took, bar})
}

func (m measured) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "figure\tmeasured\tbar\t")
	for _, f := range m {
		bar, verdict := "-", ""
		if f.bar > 0 {
			bar, verdict = f.bar.String(), "met"
		}
		if f.bar > 0 && f.took > f.bar {
			verdict = "MISSED"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.name, f.took.Round(10*time.Millisecond), bar, verdict)
	}
	_ = table.Flush()
}

// figure notes a time, and fails the test if times are held to their bars and this one is above.
func (w *world) figure(name string, took, bar time.Duration) {
	w.Helper()
	figures.add(name, took, bar)
	w.Logf("%s: %s", name, took)
	if limit := time.Duration(*patience * float64(bar)); limit > 0 && took > limit {
		w.Errorf("%s: %s, and the limit is %s", name, took, limit)
	}
}
