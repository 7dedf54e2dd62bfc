package checks

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// cases is how many there are: their numbers are never given away anew.
const cases = 73

// TestCases finds each test of CASES.md in its folder, and at least one for each case.
func TestCases(t *testing.T) {
	content, err := os.ReadFile("../CASES.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (C\d\d) \| .+ \| (.*) \|$`).FindAllStringSubmatch(string(content), -1) {
		tests[row[1]] = row[2]
	}
	if len(tests) != cases {
		t.Errorf("there are %d cases, want %d", len(tests), cases)
	}
	for i := range cases {
		name := fmt.Sprintf("C%02d", i+1)
		if tests[name] == "" {
			t.Errorf("%s has no test", name)
			continue
		}
		for test := range strings.SplitSeq(tests[name], ", ") {
			if !exists(t, test) {
				t.Errorf("%s: there is no %s", name, test)
			}
		}
	}
}

// exists reports whether a folder of e2e, or else of the repository, has this test: folder.TestName.
func exists(t *testing.T, test string) bool {
	t.Helper()
	folder, name, _ := strings.Cut(test, ".")
	files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	if len(files) == 0 && err == nil {
		files, err = filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), "\nfunc "+name+"(t *testing.T) {") {
			return true
		}
	}
	return false
}
