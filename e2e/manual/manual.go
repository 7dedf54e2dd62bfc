// Package manual reads the blocks of commands in README.md and deploy/docs, so that tests run what users read.
// TestCommands of package checks fails if no test calls Find or Commands for a block of commands, and the page does not
// say why.
package manual

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Block is what a page has between two fences.
type Block struct {
	Language  string
	Text      string // with a newline at the end
	NotTested string // the reason that the page gives right above the block
}

// IsCommands reports whether readers run what the block contains. A picture has the language text.
func (b Block) IsCommands() bool {
	return slices.Contains([]string{"", "sh", "bash", "shell", "console"}, b.Language)
}

// Pages returns the paths of the pages that tell users what to run.
func Pages(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, docs, "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no page in %s: %v", docs, err)
	}
	pages := []string{"README.md"}
	for _, file := range files {
		pages = append(pages, docs+"/"+filepath.Base(file))
	}
	return pages
}

const (
	root = "../.." // the folder of the repository, from that of a test
	docs = "deploy/docs"
)

// Read returns a file of the repository.
func Read(t testing.TB, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

var fenced = regexp.MustCompile("(?m)(?:<!-- not tested: (.+) -->\\s*)?^ *```([a-z]*)\n((?s:.*?))^ *```$")

// Blocks returns the blocks of a page.
func Blocks(t testing.TB, page string) []Block {
	t.Helper()
	var out []Block
	for _, found := range fenced.FindAllStringSubmatch(Read(t, page), -1) {
		out = append(out, Block{NotTested: found[1], Language: found[2], Text: found[3]})
	}
	return out
}

// Find returns the one block of a page with a text in it. Page and text are literals where it is called: TestCommands
// reads the source.
func Find(t testing.TB, page, text string) Block {
	t.Helper()
	var found []Block
	for _, b := range Blocks(t, page) {
		if strings.Contains(b.Text, text) {
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks with %q, want 1", page, len(found), text)
	}
	return found[0]
}

// Commands returns the text of the one block of a page with a text in it. Of the words that stand for something each is
// followed by what it stands for.
func Commands(t testing.TB, page, text string, words ...string) string {
	t.Helper()
	return strings.NewReplacer(words...).Replace(Find(t, page, text).Text)
}

// Inline returns a command if a page has it within a sentence, as it is.
func Inline(t testing.TB, page, command string) string {
	t.Helper()
	if !strings.Contains(Read(t, page), "`"+command+"`") {
		t.Fatalf("%s does not have the command %q", page, command)
	}
	return command
}
