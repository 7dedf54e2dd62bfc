package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// confirmation asks the user before a command changes something, unless --yes is given.
type confirmation struct{ yes bool }

func (c *confirmation) bind(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "Do not ask.")
}

// ask returns nil if the answer is yes, and errNo if it is no. It flushes the output first: if nobody reads that, the program
// ends here, before it changes anything.
func (c *confirmation) ask(cmd *cobra.Command, question string) error {
	if err := flush(cmd.OutOrStdout()); err != nil || c.yes {
		return err
	}
	if !isTerminal(cmd.InOrStdin()) {
		return errors.New("stdin is not a terminal, so nobody can be asked: give --yes")
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // a read from a terminal cannot be cancelled
		line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-cmd.Context().Done():
		fmt.Fprintln(cmd.ErrOrStderr())
		return cmd.Context().Err()
	case line := <-answer:
		if line == "y" || line == "yes" {
			return nil
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "Nothing was changed.")
		return errNo
	}
}

func isTerminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
