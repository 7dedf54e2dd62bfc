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

// printed is what a command has to print, in every form. The writer keeps its errors until it is flushed.
type printed interface {
	table(w io.Writer)
	end() error // ends the command, after it is printed
}

// printAs prints in one of the formats.
func printAs(w io.Writer, format string, p printed) {
	if format != "json" {
		p.table(w)
		return
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(p) // fails as the writer does
}

// printTable prints rows as kubectl does, without the columns that are empty, or 0, in all rows.
func printTable(w io.Writer, columns []string, rows [][]any) {
	if len(rows) == 0 {
		return // not even a header
	}
	t := &metav1.Table{Rows: make([]metav1.TableRow, len(rows))}
	for i, name := range columns {
		if !slices.ContainsFunc(rows, func(row []any) bool { return row[i] != "" && row[i] != 0 }) {
			continue
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
		for j, row := range rows {
			t.Rows[j].Cells = append(t.Rows[j].Cells, printable(fmt.Sprint(row[i])))
		}
	}
	_ = printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(t, w) // fails as the writer does
}

// printLines prints the lines that are not empty.
func printLines(w io.Writer, lines ...string) {
	for _, line := range lines {
		if line != "" {
			fmt.Fprintln(w, printable(line))
		}
	}
}

// printable escapes what a terminal could take for more than text: anybody may write an annotation, or the error of a
// webhook.
func printable(text string) string {
	quoted := strconv.Quote(text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
}
