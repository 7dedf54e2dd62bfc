package checks

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// TestCommands finds, for each block of commands in README.md and deploy/docs, a test that reads it, or the reason why none
// does. That a test reads a block and runs something else is for a review to see.
func TestCommands(t *testing.T) {
	calls, blocks := readBlocks(t), 0
	for _, page := range manual.Pages(t) {
		for _, b := range manual.Blocks(t, page) {
			if !b.IsCommands() {
				continue
			}
			blocks++
			read := false
			for _, text := range calls[page] {
				read = read || strings.Contains(b.Text, text)
			}
			switch {
			case !read && b.NotTested == "":
				t.Errorf("%s: no test reads this block (package manual), and it is not marked: <!-- not tested: REASON -->\n%s", page, b.Text)
			case read && b.NotTested != "":
				t.Errorf("%s: the page says that this block is not tested (%s), and a test reads it:\n%s", page, b.NotTested, b.Text)
			}
		}
	}
	if blocks < 20 {
		t.Errorf("%d blocks of commands: are they still found?", blocks)
	}
}

// The calls by which tests read blocks: of package manual, and shown, which compares what kubectl mirror prints.
var (
	callOfManual = regexp.MustCompile(`manual\.(?:Find|Commands)\([\w.]+, "([^"]+)", "((?:[^"\\]|\\.)+)"`)
	callOfShown  = regexp.MustCompile(`\bshown\(t, "([^"]+)"\)`)
)

// readBlocks returns, for each page, the texts by which tests look for blocks.
func readBlocks(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, call := range callOfManual.FindAllStringSubmatch(string(content), -1) {
			out[call[1]] = append(out[call[1]], strings.NewReplacer(`\n`, "\n", `\"`, `"`).Replace(call[2]))
		}
		for _, call := range callOfShown.FindAllStringSubmatch(string(content), -1) {
			out[ofPlugin] = append(out[ofPlugin], "$ kubectl mirror "+call[1]+"\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const ofPlugin = "deploy/docs/kubectl-mirror.md"
