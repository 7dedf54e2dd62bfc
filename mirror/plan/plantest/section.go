package plantest

import (
	"os"
	"strings"
	"testing"
)

// Section compares the part of a file between the lines <!-- name --> and <!-- /name --> with want, or writes it if
// update is set.
func Section(t testing.TB, file, name, want string, update bool) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	head, rest, found := strings.Cut(string(content), begin)
	have, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no section between %q and %q", file, begin, end)
	}
	if have == want {
		return
	}
	if !update {
		t.Errorf("the section %s of %s is out of date (-update writes it); want:\n%s", name, file, want)
		return
	}
	if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
