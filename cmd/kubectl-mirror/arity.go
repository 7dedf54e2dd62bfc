package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// sayWhatIsExpected has every subcommand say what it takes when the number of its arguments is wrong. Cobra counts only.
func sayWhatIsExpected(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		check := cmd.Args
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if check == nil || check(cmd, args) == nil {
				return nil
			}
			return wrongArity(cmd.Use, len(args))
		}
	}
}

// knownCommand refuses arguments of the root, which are misspelt commands.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() && cmd.Name() != "help" {
			names = append(names, cmd.Name())
		}
	}
	return fmt.Errorf("unknown command %q: must be one of: %s", args[0], strings.Join(names, ", "))
}

// wrongArity says that a command does not take so many arguments. use is its name and the names of its arguments.
func wrongArity(use string, given int) error {
	name, arguments, _ := strings.Cut(use, " ")
	takes := "argument"
	if strings.Contains(arguments, "SOURCE") {
		takes = "source"
	}
	switch {
	case given == 0:
		takes = "needs one " + takes
	case arguments == "":
		takes = "takes no " + takes
	default:
		takes = fmt.Sprintf("takes one %s, not %d", takes, given)
	}
	return fmt.Errorf("%s %s: %s %s", name, takes, displayName, strings.ReplaceAll(use, "SOURCE", "NAMESPACE/NAME"))
}
