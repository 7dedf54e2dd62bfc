package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// nameOf names a ConfigMap as the arguments of kubectl get do.
func nameOf(k types.NamespacedName) string { return "configmap/" + k.Name + " -n " + k.Namespace }

func (o *outputFlag) print(w io.Writer, p printed) (err error) {
	var out []byte
	switch *o {
	case "json":
		if out, err = json.MarshalIndent(p, "", "  "); err == nil {
			_, err = fmt.Fprintf(w, "%s\n", out)
		}
		return err
	case "yaml":
		if out, err = yaml.Marshal(p); err == nil {
			_, err = w.Write(out)
		}
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

// printTable prints rows as kubectl does, without the columns that are empty, or 0, in all rows. A column whose name begins
// with '+' shows with -o wide only.
func printTable(w io.Writer, wide bool, columns []string, rows [][]any) error {
	t := &metav1.Table{Rows: make([]metav1.TableRow, len(rows))}
	for i, name := range columns {
		empty := !slices.ContainsFunc(rows, func(row []any) bool { return row[i] != "" && row[i] != 0 })
		name, isWide := strings.CutPrefix(name, "+")
		if empty || isWide && !wide {
			continue
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
		for j, row := range rows {
			t.Rows[j].Cells = append(t.Rows[j].Cells, row[i])
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(t, w)
}

// printable replaces what a terminal could take for more than text: a tenant may write an error of a webhook.
func printable(text string) string {
	return strings.ReplaceAll(printableLines(text), "\n", " ")
}

// printableLines is printable for text with line breaks.
func printableLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// count returns the number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
