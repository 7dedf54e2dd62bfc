package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/procfs"
)

// cells are the line of a row in the table.
func (r *row) cells() []string {
	verdict := r.verdict()
	if verdict == unmeasured {
		return []string{r.figure, "", "", "", "", "", verdict, "", r.note}
	}
	cells := []string{r.figure, r.unit(median(r.ours)), "", "", "", "", verdict, fmt.Sprint(len(r.ours)), r.note}
	if len(r.limit) > 0 {
		cells[2], cells[3] = r.unit(median(r.limit)), fmt.Sprintf("%.2f", median(r.ratios()))
	}
	if len(r.limit) > 1 && !r.exact {
		low, high := r.interval()
		cells[4] = fmt.Sprintf("%.2f-%.2f", low, high)
	}
	switch {
	case r.exact:
		cells[5] = "equal"
	case r.bar > 0:
		cells[5] = fmt.Sprintf("%.2f", r.allowed())
	}
	return cells
}

// report prints the tables, and writes them into the folder.
func (b *bench) report(rows []*row) {
	check(os.MkdirAll(b.out, 0o755))
	name := "bench.md"
	if b.million > 0 {
		name = "million.md"
	}
	file := get(os.Create(filepath.Join(b.out, name)))
	defer file.Close()
	out := io.MultiWriter(os.Stdout, file)
	version := get(exec.Command(b.controller, "--version").CombinedOutput())
	fmt.Fprintf(out, "%s, %s, %s before the run.\n"+
		"Sizes: %+v. The bars are for BENCH=full and BENCH=million.\n\n",
		time.Now().Format(time.DateOnly), bytes.TrimSpace(version), b.machine, b.sizes)
	var lines [][]string
	for _, r := range rows {
		lines = append(lines, r.cells())
	}
	printTable(out, []string{"figure", "ours", "limit", "ratio", "90% interval", "bar", "verdict", "rounds", "note"}, lines)
	if len(b.growth.lines) > 0 {
		b.growth.report(out, filepath.Join(b.out, "growth.svg"))
	}
	check(file.Close())
}

// printTable prints a table in Markdown, and aligned.
func printTable(out io.Writer, head []string, lines [][]string) {
	w := tabwriter.NewWriter(out, 2, 8, 1, ' ', 0)
	for _, line := range append([][]string{head, strings.Fields(strings.Repeat("--- ", len(head)))}, lines...) {
		fmt.Fprintf(w, "| %s |\n", strings.Join(line, "\t| "))
	}
	_ = w.Flush() // whoever writes to the file sees its error at the end
}

// machine says what this runs on, and how many processes wanted a core in the last minute.
func machine() string {
	proc := get(procfs.NewDefaultFS())
	processor, load := get(proc.CPUInfo())[0], get(proc.LoadAvg())
	return fmt.Sprintf("%d cores (%s), load %.2f", runtime.NumCPU(), processor.ModelName, load.Load1)
}
