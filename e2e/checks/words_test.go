package checks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// privateWords are words to which this project gave a sense that readers cannot know, and what to say instead.
var privateWords = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{words(`strangers?|outsiders?`), "foreign, or out of scope"},
	{words(`in line`), "in sync"},
	{words(`(put|puts|putting) (\w+ ){0,2}right|mend(s|ed|ing)?`), "restore, repair or fix"},
	{words(`brakes?`), "scope, or deletion grace"},
	{words(`look(s|ed|ing)?`), "live read, read, check or find"},
	{words(`backlogs?`), "queue"},
	{words(`ledgers?`), "status"},
	{words(`hardened`), "the reason of a retry"},
	{words(`measures`), "metrics, or the verb in another form"},
	{words(`rights|(a|an|the|this|that|each|every|any|no|missing) right( (to|on|for|of|is|are|that)|[.,:;)]|$)`), "permission"},
	{words(`told`), "reported, or said"},
	{words(`(sources?|targets?|copy|copies) ((that|which|has|have|is|are|was|were) ){0,2}failed`), "rejected, or frozen"},
}

// words matches whole words, also where a line ends between them, or a comment goes on in the next one.
func words(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(pattern, " ", `[\s#]+`) + `)(\W|$)`)
}

// privateWord is a private word in a text, what to say instead, and its line.
type privateWord struct {
	word, instead string
	line          int
}

// findPrivate returns the private words of a text.
func findPrivate(text string) (all []privateWord) {
	for _, w := range privateWords {
		for _, at := range w.pattern.FindAllStringSubmatchIndex(text, -1) {
			all = append(all, privateWord{text[at[2]:at[3]], w.instead, 1 + strings.Count(text[:at[2]], "\n")})
		}
	}
	return all
}

// TestTextsUseStandardWords reads every text for users: pages, manifests, and the string literals of the programs.
func TestTextsUseStandardWords(t *testing.T) {
	const root = "../.."
	out, err := exec.Command("git", "-C", root, "ls-files", "*.md", "deploy",
		"mirror/*.go", "cmd/*.go", "e2e/demo/*.go").Output()
	if err != nil {
		t.Skipf("this is no clone: %v", err)
	}
	for _, file := range strings.Fields(string(out)) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		text := string(content)
		if filepath.Ext(file) == ".go" {
			text = literals(t, file, content)
		}
		for _, f := range findPrivate(text) {
			t.Errorf("%s:%d: %q: say %s", file, f.line, f.word, f.instead)
		}
	}
}

// literals returns the string literals of a Go file, each in its line, other than those of the imports.
func literals(t *testing.T, file string, content []byte) string {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, content, 0)
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, set.File(parsed.Pos()).LineCount())
	ast.Inspect(parsed, func(n ast.Node) bool {
		if _, isImport := n.(*ast.ImportSpec); isImport {
			return false
		}
		if literal, isLiteral := n.(*ast.BasicLit); isLiteral && literal.Kind == token.STRING {
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			lines[set.Position(literal.Pos()).Line-1] += strings.ReplaceAll(text, "\n", " ") + " "
		}
		return true
	})
	return strings.Join(lines, "\n")
}

// TestFindPrivate shows that a pattern of each form finds its words, and no others.
func TestFindPrivate(t *testing.T) {
	for text, want := range map[string][]string{
		"A stranger's object":                {"stranger"},
		"# copies that are in\n  # line":     {"in\n  # line"},
		"An inline comment":                  nil,
		"It puts a copy right at once":       {"puts a copy right"},
		"the right to list, or the right.":   {"the right to", "the right."},
		"the right prefix, right after":      nil,
		"A lookup is no look, nor a LEDGER":  {"look", "LEDGER"},
		"copies that have failed; it failed": {"copies that have failed"},
	} {
		var got []string
		for _, f := range findPrivate(text) {
			got = append(got, f.word)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
