package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// outputFormats are the values of -o.
var outputFormats = []string{"table", "wide", "json", "yaml", "name"}

// outputFlag is the flag -o of a command.
type outputFlag string

func (o *outputFlag) bind(cmd *cobra.Command) {
	*o = "table"
	cmd.Flags().VarP(o, "output", "o", "Output format, one of: "+strings.Join(outputFormats, ", ")+".")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputFormats, cobra.ShellCompDirectiveNoFileComp))
}

func (o *outputFlag) String() string { return string(*o) }

// Type names the kind of value in the help.
func (o *outputFlag) Type() string { return "format" }

// Set takes one of the formats.
func (o *outputFlag) Set(value string) error {
	if !slices.Contains(outputFormats, value) {
		return fmt.Errorf("must be one of: %s", strings.Join(outputFormats, ", "))
	}
	*o = outputFlag(value)
	return nil
}

// printed is what a command has to print, in every form.
type printed interface {
	table(w io.Writer, wide bool) error
	names() []string
}

func (o *outputFlag) print(w io.Writer, p printed) error {
	switch *o {
	case "json":
		out, err := json.MarshalIndent(p, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", out)
		return err
	case "yaml":
		out, err := yaml.Marshal(p)
		if err != nil {
			return err
		}
		_, err = w.Write(out)
		return err
	case "name":
		for _, name := range p.names() {
			if _, err := fmt.Fprintln(w, name); err != nil {
				return err
			}
		}
		return nil
	}
	return p.table(w, *o == "wide")
}

// separate prints what stands between two outputs.
func (o *outputFlag) separate(w io.Writer) {
	if *o == "yaml" {
		_, _ = fmt.Fprintln(w, "---") // an error shows at the next write
	} else if *o != "json" {
		_, _ = fmt.Fprintln(w)
	}
}

// column is a column of a table. One that is wide shows with -o wide only.
type column struct {
	name string
	wide bool
}

// printTable prints rows as kubectl does.
func printTable(w io.Writer, wide bool, columns []column, rows [][]any) error {
	t := &metav1.Table{}
	for _, c := range columns {
		definition := metav1.TableColumnDefinition{Name: c.name, Type: "string"}
		if c.wide {
			definition.Priority = 1
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions, definition)
	}
	for _, cells := range rows {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(t, w)
}
