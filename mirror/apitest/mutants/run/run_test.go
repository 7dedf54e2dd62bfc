package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// times are what differs between two runs.
var times = regexp.MustCompile(`(?m)^ *\d+ s  | \([\d.]+s\)|\t[\d.]+s$`)

// runOn returns what a check of a package in testdata prints without times, and
// its error.
func runOn(t *testing.T, c check, sample, survivors string) (printed, failed string) {
	t.Helper()
	c.out = t.TempDir()
	c.list = filepath.Join(c.out, "survivors.txt")
	if err := os.WriteFile(c.list, []byte(survivors), 0o600); err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	c.stdout = &output
	if err := c.run([]string{"./testdata/" + sample}); err != nil {
		failed = strings.ReplaceAll(err.Error(), c.out, "FOLDER")
	}
	return times.ReplaceAllString(output.String(), ""), failed
}

func TestRun(t *testing.T) {
	const (
		sample    = "mirror/apitest/mutants/run/testdata/sample/sample.go "
		inPackage = "github.com/mirror-controller/mirror-controller/" +
			"mirror/apitest/mutants/run/testdata/sample "
		withoutIf  = sample + "Delay: tries == 0 is false in tries == 0 || isUrgent"
		twice      = sample + "Delay: 3*step is doubled in return min(time.Duration(tries)*step, 3*step)"
		notCounted = sample + `Count: no calls["all"]++`
		notCalled  = sample + `Count: "called" is zero`
		bound      = sample + "IsFull: calls > room with >="
		edited     = sample + "IsFull: calls > places with >="
		ofAll      = "19 mutants\n" + inPackage + "has 4 tests\n" + inPackage + "killed 15 mutants of 19\n"
		ofOne      = "1 mutants\n" + inPackage + "has 4 tests\n"
		noReach    = "SURVIVES, and makes no difference to any test: "
		reason     = "# Nobody minds.\n"
		all        = reason + withoutIf + "\n" + twice + "\n\n" + reason + notCounted + "\n" + notCalled + "\n"
	)
	for _, row := range []struct {
		name, survivors, chosen string
		printed, err            string
	}{
		{"none is listed", "", "",
			ofAll + "SURVIVES " + withoutIf + "\nSURVIVES " + twice + "\n" + noReach + notCounted +
				"\n" + noReach + notCalled +
				"\n15 killed, 0 of them as a test did not end; 0 survive that are listed, 4 not\n",
			errSurvivors.Error()},
		{"all are listed", all, "",
			ofAll + "15 killed, 0 of them as a test did not end; 4 survive that are listed, 0 not\n", ""},
		{"one that is noticed is listed", all + reason + bound, "",
			ofAll + "NOTICED, though the list of survivors has it: " + bound +
				"\n15 killed, 0 of them as a test did not end; 4 survive that are listed, 0 not\n", ""},
		{"one is listed whose code was edited", all + reason + edited, "",
			ofAll + "NO SUCH MUTANT as the list of survivors has: " + edited +
				"\n15 killed, 0 of them as a test did not end; 4 survive that are listed, 1 not\n",
			errSurvivors.Error()},
		{"one of another package is listed", all + reason + "mirror/other.go F: 1 is 2", "",
			ofAll + "15 killed, 0 of them as a test did not end; 4 survive that are listed, 0 not\n", ""},
		{"one alone that is noticed", all, bound,
			ofOne + "--- FAIL: TestIsFull\n    sample_test.go:38: two calls have room, and three have not\nFAIL\n\n" +
				inPackage + "killed 1 mutants of 1\n" +
				"1 killed, 0 of them as a test did not end; 0 survive that are listed, 0 not\n", ""},
		{"one alone that is not", "", twice,
			ofOne + "PASS\n\n" + inPackage + "killed 0 mutants of 1\nSURVIVES " + twice +
				"\n0 killed, 0 of them as a test did not end; 0 survive that are listed, 1 not\n",
			errSurvivors.Error()},
		{"none has this name", all, "no such code", "", `no mutant has a name with "no such code"`},
		{"no reason", withoutIf, "", "",
			"FOLDER/survivors.txt:1: a survivor needs a reason above it, in a line that begins with '#'"},
		{"a reason ends with its paragraph", reason + withoutIf + "\n\n" + twice, "", "",
			"FOLDER/survivors.txt:4: a survivor needs a reason above it, in a line that begins with '#'"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := check{chosen: row.chosen, processes: 2, patience: patience}
			printed, failed := runOn(t, c, "sample", row.survivors)
			if failed != row.err {
				t.Errorf("got error %q, want %q", failed, row.err)
			}
			if printed != row.printed {
				t.Errorf("got\n%s\nwant\n%s", printed, row.printed)
			}
		})
	}
}

func TestTestThatDoesNotEnd(t *testing.T) {
	c := check{chosen: "no n--", processes: 1, patience: time.Second}
	printed, failed := runOn(t, c, "endless", "")
	const want = "1 killed, 1 of them as a test did not end; "
	if failed != "" || !strings.Contains(printed, want) {
		t.Errorf("got error %q and\n%s\nwithout %q", failed, printed, want)
	}
}

// TestBound: tests that would take longer are left out, and may have noticed it.
func TestBound(t *testing.T) {
	const mutant = "Delay: tries == 0 is false in tries == 0 || isUrgent"
	c := check{chosen: mutant, processes: 1, patience: patience, bound: 1}
	printed, failed := runOn(t, c, "sample", "")
	for _, want := range []string{
		"\nUNDECIDED mirror/apitest/mutants/run/testdata/sample/sample.go " + mutant + "\n",
		"\n0 killed, 0 of them as a test did not end; 0 survive that are listed, 0 not\n",
		"\n1 undecided: ",
	} {
		if failed != "" || !strings.Contains(printed, want) {
			t.Errorf("got error %q and\n%s\nwithout %q", failed, printed, want)
		}
	}
}

// TestNames are compared with all files that the list has, without a test.
func TestNames(t *testing.T) {
	const (
		file    = "mirror/apitest/mutants/run/testdata/sample/sample.go "
		isThere = file + "IsFull: calls > room with >="
		edited  = file + "IsFull: calls > places with >="
		atStart = "mirror/apitest/mutants/mutants.go: 1 is 2"
	)
	t.Chdir("../../../..")
	for name, row := range map[string]struct{ survivors, printed, err string }{
		"all are there": {isThere, "0 of 1 names have no mutant\n", ""},
		"two are not": {isThere + "\n" + edited + "\n" + atStart,
			"NO SUCH MUTANT as the list of survivors has: " + edited +
				"\nNO SUCH MUTANT as the list of survivors has: " + atStart +
				"\n2 of 3 names have no mutant\n", errUnknown.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			var output strings.Builder
			c := check{stdout: &output, list: filepath.Join(t.TempDir(), "survivors.txt")}
			if err := os.WriteFile(c.list, []byte("# Nobody minds.\n"+row.survivors), 0o600); err != nil {
				t.Fatal(err)
			}
			failed := ""
			if err := c.compareNames(); err != nil {
				failed = err.Error()
			}
			if printed := times.ReplaceAllString(output.String(), ""); printed != row.printed || failed != row.err {
				t.Errorf("got error %q and\n%s\nwant %q and\n%s", failed, printed, row.err, row.printed)
			}
		})
	}
}
