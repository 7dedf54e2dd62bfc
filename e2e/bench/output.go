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
)

// columns are the head of the table.
var columns = []string{"figure", "ours", "limit", "ratio", "90% interval", "bar", "verdict", "rounds", "note"}

// cells are the line of a row under the columns.
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

// report prints the table, and writes it into the folder.
func (b *bench) report(rows []*row) error {
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	name := "bench.md"
	if b.million > 0 {
		name = "million.md"
	}
	file, err := os.Create(filepath.Join(b.out, name))
	if err != nil {
		return err
	}
	defer file.Close()
	out := io.MultiWriter(os.Stdout, file)
	version, err := exec.Command(b.controller, "--version").CombinedOutput()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, %s, %d cores (%s), load %s before the run.\n"+
		"Sizes: %+v. The bars are for BENCH=full and BENCH=million.\n\n",
		time.Now().Format(time.DateOnly), bytes.TrimSpace(version), runtime.NumCPU(), processor(), b.loadBefore, b.sizes)
	var lines [][]string
	for _, r := range rows {
		lines = append(lines, r.cells())
	}
	printTable(out, columns, lines)
	if len(b.growth.lines) > 0 {
		if err := b.growth.report(out, b.out); err != nil {
			return err
		}
	}
	return file.Close()
}

// printTable prints a table in Markdown, and aligned.
func printTable(out io.Writer, head []string, lines [][]string) {
	w := tabwriter.NewWriter(out, 2, 8, 1, ' ', 0)
	for _, line := range append([][]string{head, strings.Fields(strings.Repeat("--- ", len(head)))}, lines...) {
		fmt.Fprintf(w, "| %s |\n", strings.Join(line, "\t| "))
	}
	_ = w.Flush() // whoever writes to the file sees its error at the end
}

// processor is the name of the processor.
func processor() string {
	content, _ := os.ReadFile("/proc/cpuinfo")
	_, name, _ := strings.Cut(string(content), "model name\t: ")
	name, _, _ = strings.Cut(name, "\n")
	return name
}

// load is how many processes wanted a core in the last minute.
func load() string {
	content, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(content), " ")
	return first
}
