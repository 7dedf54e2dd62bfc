// Command vuln looks for known vulnerabilities in what a module calls, as govulncheck does:
//
//	vuln [-db URL] [-required] DIRECTORY
//
// A finding fails. A database that cannot be reached does not, unless it is required: a machine without a way to it still
// can build and test. It says then that nothing was looked for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/vuln/scan"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0 nothing found, or nothing to look it up in; 1 failed; 2 wrong usage; 3 found.
func run(ctx context.Context, args []string, out, errout io.Writer) int {
	flags := flag.NewFlagSet("vuln", flag.ContinueOnError)
	flags.SetOutput(errout)
	db := flags.String("db", "https://vuln.go.dev", "URL of the vulnerability database")
	required := flags.Bool("required", false, "fail if the database cannot be reached")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() != 1 {
		fmt.Fprintln(errout, "vuln: one directory of a module is wanted")
		return 2
	}
	if err := reach(ctx, *db); err != nil {
		fmt.Fprintf(errout, "vuln: NOTHING WAS LOOKED FOR: the database cannot be reached: %v\n", err)
		if *required {
			return 1
		}
		return 0
	}
	return search(ctx, *db, flags.Arg(0), out, errout)
}

// reach returns an error if the database does not answer. One in files is asked by the search itself.
func reach(ctx context.Context, db string) error {
	if strings.HasPrefix(db, "file:") {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, db+"/index/db.json.gz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", request.URL, response.Status)
	}
	return nil
}

// search looks through all packages of the module in dir and returns the exit code of govulncheck.
func search(ctx context.Context, db, dir string, out, errout io.Writer) int {
	command := scan.Command(ctx, "-C", dir, "-db", db, "./...")
	command.Stdout, command.Stderr = out, errout
	err := command.Start()
	if err == nil {
		err = command.Wait()
	}
	var exit interface{ ExitCode() int }
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	fmt.Fprintln(errout, "vuln:", err)
	return 1
}
