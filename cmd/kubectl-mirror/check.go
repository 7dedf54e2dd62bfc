package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const checkHelp = `Check the installation of the controller, line by line:

  ok           it is as it should be
  to do        what is wrong, and what to do about it
  not checked  it could not be asked: the missing permission is named

It reads, and if you may impersonate the account of the controller it asks the API server by dry-run whether the policies hold.

Exit codes: 0 nothing to do, though some lines may not be checked; 1 something to do; 2 error.`

func newCheck(c *cli) *cobra.Command {
	var output outputFlag
	expected := []string{policyConfined, policyPublishers}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the installation of the controller, line by line",
		Long:  checkHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.refuseNamespace(); err != nil {
				return err
			}
			if changed := c.settings.changed(); len(changed) > 0 {
				return fmt.Errorf("%s: check compares what is installed, and takes no settings but --controller", strings.Join(changed, ", "))
			}
			for _, name := range expected {
				if !slices.Contains(policyNames(), name) {
					return fmt.Errorf("--policies=%q: must be of: %s", name, strings.Join(policyNames(), ", "))
				}
			}
			f, err := c.readFacts(cmd.Context(), *c.settings.controller, expected)
			if err != nil {
				return err
			}
			r := newCheckReport(f)
			if err := output.print(cmd.OutOrStdout(), r); err != nil {
				return err
			}
			if !r.OK {
				return errNo
			}
			return nil
		},
	}
	output.bind(cmd)
	cmd.Flags().StringSliceVar(&expected, "policies", expected,
		"Admission policies that have to be in force: "+strings.Join(policyNames(), ", ")+". Empty: none.")
	_ = cmd.RegisterFlagCompletionFunc("policies", cobra.FixedCompletions(policyNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// Results of a check.
const (
	checkOK      = "ok"
	checkTodo    = "to do"
	checkUnknown = "not checked"
)

// checkLine is the result of one check.
type checkLine struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
	// Advice is what to do.
	Advice string `json:"advice,omitempty"`
}

func fine(detail string, args ...any) checkLine {
	return checkLine{Result: checkOK, Detail: fmt.Sprintf(detail, args...)}
}

func todo(advice, detail string, args ...any) checkLine {
	return checkLine{Result: checkTodo, Detail: fmt.Sprintf(detail, args...), Advice: advice}
}

// notAllowed is the result of a check that takes a permission that the user does not have.
func notAllowed(permission string) checkLine {
	return checkLine{Result: checkUnknown, Detail: "you may not " + permission}
}

func unknown(detail string, args ...any) checkLine {
	return checkLine{Result: checkUnknown, Detail: fmt.Sprintf(detail, args...)}
}

func (l checkLine) named(check string) checkLine {
	l.Check = check
	return l
}

// checkReport is what check prints.
type checkReport struct {
	Controller string `json:"controller,omitempty"`
	// OK tells that there is nothing to do.
	OK     bool        `json:"ok"`
	Checks []checkLine `json:"checks"`
}

func newCheckReport(f *facts) *checkReport {
	r := &checkReport{OK: true, Checks: f.lines()}
	if f.found {
		r.Controller = f.key.String()
	}
	for _, l := range r.Checks {
		r.OK = r.OK && l.Result != checkTodo
	}
	return r
}

func (r *checkReport) table(w io.Writer, wide bool) error {
	counts := map[string]int{}
	var rows [][]any
	for _, l := range r.Checks {
		counts[l.Result]++
		text := l.Detail
		if l.Advice != "" {
			text += ": " + l.Advice
		}
		rows = append(rows, []any{l.Check, l.Result, text})
	}
	if err := printTable(w, wide, []column{{name: "CHECK"}, {name: "RESULT"}, {name: "DETAIL"}}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d ok, %d to do, %d not checked.\n", counts[checkOK], counts[checkTodo], counts[checkUnknown])
	return err
}

func (r *checkReport) names() (names []string) {
	for _, l := range r.Checks {
		names = append(names, l.Check)
	}
	return names
}

// lines returns the results of all checks.
func (f *facts) lines() []checkLine {
	if f.hidden != "" {
		return []checkLine{notAllowed(f.hidden + ", which the other checks need").named("controller")}
	}
	if !f.found {
		return []checkLine{todo("install it as deploy/docs/install.md says",
			"there is no controller: no ClusterRoleBinding has the label %s, and no Deployment the label %s", installationLabel, deploymentSelector).named("controller")}
	}
	lines := []checkLine{
		f.deploymentLine().named("deployment"),
		f.argumentsLine().named("arguments"),
		f.leaderLine().named("leader"),
		f.bindingLine().named("binding"),
		f.missingLine().named("permissions/missing"),
		f.needlessLine().named("permissions/needless"),
		f.kubernetesLine().named("version/kubernetes"),
		f.versionLine().named("version/controller"),
	}
	return slices.Concat(lines, f.policyLines(), f.settingLines(), f.probeLines())
}
