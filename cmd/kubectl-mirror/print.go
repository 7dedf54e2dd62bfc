package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// outputFormats are the values of -o. The first one is the default.
var outputFormats = []string{"table", "json"}

// answer is what a command prints on stdout: as a table for a reader or, by its
// exported fields, as JSON for a program.
type answer interface {
	table(w io.Writer)
}

// printAs prints an answer in one of the formats. An error of the writer shows
// when run flushes it.
func printAs(w io.Writer, format string, a answer) {
	if format != "json" {
		a.table(w)
		return
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(a) // fails as the writer does
}

// printTable prints rows as kubectl does, without the columns that are empty,
// or 0, in all rows. Without rows it prints not even a header.
func printTable(w io.Writer, columns []string, rows [][]any) {
	if len(rows) == 0 {
		return
	}
	t := &metav1.Table{Rows: make([]metav1.TableRow, len(rows))}
	for i, name := range columns {
		isFilled := func(row []any) bool { return row[i] != "" && row[i] != 0 }
		if !slices.ContainsFunc(rows, isFilled) {
			continue
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions,
			metav1.TableColumnDefinition{Name: name, Type: "string"})
		for j, row := range rows {
			t.Rows[j].Cells = append(t.Rows[j].Cells, escape(fmt.Sprint(row[i])))
		}
	}
	// It fails as the writer does.
	_ = printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(t, w)
}

// printLines prints the lines that are not empty.
func printLines(w io.Writer, lines ...string) {
	for _, line := range lines {
		if line != "" {
			fmt.Fprintln(w, escape(line))
		}
	}
}

// escape replaces what a terminal could take for more than text, such as an
// escape sequence that hides a line: anybody may write an annotation, or the
// error of a webhook. Quotes and backslashes stay as they are.
func escape(text string) string {
	quoted := strconv.Quote(text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
}
