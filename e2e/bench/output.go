package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// section is what there is besides the table: text, and a picture in a file of its own. Either may be empty.
type section struct {
	text, file, picture string
}

// columns are the head of the table.
var columns = []string{"figure", "ours", "limit", "ratio", "90% interval", "bar", "verdict", "rounds", "note"}

// cells are the line of a row under the columns.
func (r *row) cells() []string {
	verdict := r.verdict()
	if verdict == unmeasured {
		return []string{r.figure, "", "", "", "", "", verdict, "", r.remarks()}
	}
	cells := []string{r.figure, r.unit(median(r.ours)), "", "", "", "", verdict, fmt.Sprint(len(r.ours)), r.remarks()}
	if len(r.limit) > 0 {
		cells[2], cells[3] = r.unit(median(r.limit)), fmt.Sprintf("%.2f", r.ratio())
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

// report prints the table and what the sections say, and writes them and their pictures into the folder.
func (b *bench) report(rows []*row, sections ...section) error {
	printTable(os.Stdout, rows, b.caution)
	for _, s := range sections {
		fmt.Printf("\n%s", s.text)
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	bars := section{file: b.name + ".svg", picture: plot(b.head(), rows)}
	errs := []error{os.WriteFile(filepath.Join(b.out, b.name+".md"), []byte(b.markdown(rows, append([]section{bars}, sections...))), 0o644)}
	for _, s := range append(sections, bars) {
		if s.file != "" {
			errs = append(errs, os.WriteFile(filepath.Join(b.out, s.file), []byte(s.picture), 0o644))
		}
	}
	return errors.Join(errs...)
}

// head says over a picture what the run was.
func (b *bench) head() string {
	return fmt.Sprintf("%s, controller %s", time.Now().Format(time.DateOnly), b.version())
}

func printTable(out io.Writer, rows []*row, note string) {
	w := tabwriter.NewWriter(out, 2, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r.cells(), "\t"))
	}
	_ = w.Flush() // standard output is all there is to tell it on
	fmt.Fprintf(out, "\n%s%s\n", summary(rows), note)
}

// summary counts the rows by their verdict.
func summary(rows []*row) string {
	counts := map[string]int{}
	for _, r := range rows {
		counts[r.verdict()]++
	}
	return fmt.Sprintf("%d rows: %d %s, %d %s, %d %s, %d without a bar",
		len(rows), counts[met], met, counts[missed], missed, counts[unmeasured], unmeasured, counts[information])
}

// markdown is the table with the date, the machine and the sizes over it, and the sections below.
func (b *bench) markdown(rows []*row, sections []section) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s. Controller %s; %s; etcd without fsync. %s; load before the run %s, after it %s; it took %s.\n\n",
		time.Now().Format(time.DateOnly), b.version(), b.plane(), machine(), b.loadBefore, load(), time.Since(b.began).Round(time.Second))
	fmt.Fprintf(&s, "Ours and limit are medians. The ratio is the median of the rounds' own ratios, and beside it stands its 90%% interval "+
		"(fewer than 5 rounds: from the smallest ratio to the largest). A bar is missed if the interval lies above it.\n"+
		"Sizes: %s%s.\n\n", b.given, b.caution)
	line := func(cells []string) { fmt.Fprintf(&s, "| %s |\n", strings.Join(cells, " | ")) }
	line(columns)
	line(strings.Split(strings.Repeat("---,", len(columns)-1)+"---", ","))
	for _, r := range rows {
		line(r.cells())
	}
	for _, part := range sections {
		if part.text != "" {
			fmt.Fprintf(&s, "\n%s", part.text)
		}
		if part.file != "" {
			fmt.Fprintf(&s, "\n![%s](%s)\n", strings.TrimSuffix(part.file, ".svg"), part.file)
		}
	}
	return s.String()
}

// version is that of the controller, by its own word.
func (b *bench) version() string {
	out, err := exec.Command(b.controller, "--version").Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

// plane is the version of the control plane, from the name of the folder with its programs.
func (b *bench) plane() string {
	versions, _, _ := strings.Cut(filepath.Base(filepath.Dir(b.cluster.Bin(cluster.APIServer))), "-go")
	return versions
}

// machine says what the run was on.
func machine() string {
	model := runtime.GOARCH
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(cpuinfo)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	memory := "?"
	meminfo, _ := os.ReadFile("/proc/meminfo")
	if _, value, found := strings.Cut(string(meminfo), "MemTotal:"); found {
		var kilobytes int
		if _, err := fmt.Sscan(value, &kilobytes); err == nil {
			memory = strconv.Itoa(kilobytes>>20) + " GiB"
		}
	}
	return fmt.Sprintf("%d cores (%s), %s, %s, %s", runtime.NumCPU(), model, memory, runtime.GOOS, runtime.Version())
}

// load is how many processes wanted a core in the last minute.
func load() string {
	content, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(content), " ")
	return first
}
