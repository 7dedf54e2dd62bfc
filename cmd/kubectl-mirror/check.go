package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	stamped "github.com/mirror-controller/mirror-controller/cmd/internal/version"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/installation"
)

const checkHelp = `Check the installation of the controller, line by line:

  ok           it is as it should be
  to do        a fault, and what to do about it
  not checked  the line names the permission that you lack

The command reads. If you may impersonate the account of the controller, it asks the API server by dry-run whether the policies hold.

Exit codes: 0 all well, 1 something to do, 2 unknown: nothing to do is known, and not all could be checked.`

func newCheck(c *cli) *cobra.Command {
	var output outputFlag
	policies := []string{"confined", "publishers"}
	var probes bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the installation of the controller, line by line",
		Long:  checkHelp,
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.refuseNamespace(); err != nil {
				return err
			}
			if given := c.settings.Given(); len(given) > 0 {
				return fmt.Errorf("%s: check compares what is installed, and takes no settings but --controller", strings.Join(given, ", "))
			}
			for _, name := range policies {
				if known := installation.Policies(); !slices.Contains(known, name) {
					return fmt.Errorf("--policies=%q: must be of: %s", name, strings.Join(known, ", "))
				}
			}
			client, err := c.client("")
			if err != nil {
				return err
			}
			r, err := installation.Check(cmd.Context(), installation.CheckOptions{
				Client: client, As: func(user string) (kubernetes.Interface, error) { return c.client(user) },
				Controller: c.settings.Controller(), Policies: policies, Probes: probes, Version: stamped.Of(stamp)})
			if err == nil {
				err = output.print(cmd.OutOrStdout(), &checked{r})
			}
			if err != nil {
				return err
			}
			for _, d := range r.Differences {
				fmt.Fprintln(cmd.ErrOrStderr(), printable(d.String()))
			}
			return map[int]error{exitNo: errNo, exitError: errUnknown}[r.ExitCode()]
		},
	}
	output.bind(cmd)
	cmd.Flags().StringSliceVar(&policies, "policies", policies,
		"Admission policies that have to be in force: "+strings.Join(installation.Policies(), ", ")+". Empty: none.")
	cmd.Flags().BoolVar(&probes, "probes", true, "Ask as the account of the controller, by dry-run, whether the policies hold.")
	_ = cmd.RegisterFlagCompletionFunc("policies", cobra.FixedCompletions(installation.Policies(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// checked is what check prints.
type checked struct{ *installation.Report }

func (r *checked) table(w io.Writer, wide bool) error {
	counts := map[string]int{}
	var rows [][]any
	for _, l := range r.Checks {
		counts[l.Result]++
		text := l.Detail
		if l.Advice != "" {
			text += ": " + l.Advice
		}
		rows = append(rows, []any{l.Check, l.Result, printable(text)})
	}
	if err := printTable(w, wide, []string{"Check", "Result", "Detail"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d ok, %d to do, %d not checked.\n", counts[installation.ResultOK], counts[installation.ResultTodo], counts[installation.ResultUnknown])
	return err
}

func (r *checked) names() (names []string) {
	for _, l := range r.Checks {
		names = append(names, l.Check)
	}
	return names
}
