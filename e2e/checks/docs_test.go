package checks

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// root is the folder of the repository.
const root = "../.."

// TestReservedNames compares the lists of reserved names in the policies and in the reference with the one in the code.
func TestReservedNames(t *testing.T) {
	inPolicy := "['" + strings.Join(plan.ReservedNames, "', '") + "']"
	for file, want := range map[string]string{
		"components/admission/confined/policy.yaml":   inPolicy,
		"components/admission/publishers/policy.yaml": inPolicy,
		"components/protect-copies/policy.yaml":       inPolicy,
		"docs/reference.md":                           ": `" + strings.Join(plan.ReservedNames, "`, `") + "`.",
	} {
		if text := strings.Join(strings.Fields(manual.Read(t, "deploy/"+file)), " "); !strings.Contains(text, want) {
			t.Errorf("%s does not contain the list %s", file, want)
		}
	}
}

// TestPicture parses the picture of the README, of which GitHub shows nothing if one line is wrong: each is an arrow.
func TestPicture(t *testing.T) {
	_, picture, _ := strings.Cut(manual.Read(t, "README.md"), "```mermaid\nflowchart LR\n")
	picture, _, _ = strings.Cut(picture, "```\n")
	const place = `\w+(\["[^"]+"\])?`
	arrows := regexp.MustCompile(`^(  ` + place + ` (-->|-\.-)(\|[\w ]+\|)? ` + place + `\n){4,}$`)
	if !arrows.MatchString(picture) {
		t.Errorf("not a flowchart of arrows:\n%s", picture)
	}
}

// cases is how many there are: their numbers are never given away anew.
const cases = 83

// TestCases finds each test of CASES.md in its folder, and at least one for each case. A test says for which cases it is:
// its name, its comment or one of its rows has the number.
func TestCases(t *testing.T) {
	page := manual.Read(t, "e2e/CASES.md")
	for i := range cases {
		number := fmt.Sprintf("C%02d", i+1)
		row := regexp.MustCompile(`(?m)^\| ` + number + ` \| .+ \| (.+) \|$`).FindStringSubmatch(page)
		if row == nil {
			t.Errorf("%s has no test", number)
			continue
		}
		for test := range strings.SplitSeq(row[1], ", ") {
			if text := textOf(t, test); !strings.Contains(text, number) {
				t.Errorf("%s: there is no %s, or it does not say that it is for this case", number, test)
			}
		}
	}
}

// textOf returns a test of a folder of e2e, or else of the repository, with its comment; empty: there is none. The test
// is given as folder.TestName.
func textOf(t *testing.T, test string) string {
	t.Helper()
	folder, name, _ := strings.Cut(test, ".")
	text := regexp.MustCompile(`(?m)(^//.*\n)*^func ` + name + `\(t \*testing\.T\) \{\n(.*\n)*?\}\n`)
	for _, above := range []string{"e2e", "."} {
		files, _ := filepath.Glob(filepath.Join(root, above, folder, "*_test.go")) // fails for a malformed pattern
		for _, file := range files {
			if found := text.FindString(manual.Read(t, strings.TrimPrefix(file, root))); found != "" {
				return found
			}
		}
	}
	return ""
}

// TestLinks follows the links of the pages to files and headings of the repository.
func TestLinks(t *testing.T) {
	out, err := exec.Command("git", "-C", root, "ls-files", "*.md").Output()
	if err != nil {
		t.Skipf("this is no clone: %v", err)
	}
	links := 0
	for _, page := range strings.Fields(string(out)) {
		for _, link := range regexp.MustCompile(`\]\(([^)\s:]+)\)`).FindAllStringSubmatch(manual.Read(t, page), -1) {
			links++
			file, heading, _ := strings.Cut(link[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if heading != "" && !headings(manual.Read(t, target))[heading] {
				t.Errorf("%s: %s: there is no such heading", page, link[1])
			}
		}
	}
	if links == 0 {
		t.Error("there is no link")
	}
}

// headings returns those of a page as links name them.
func headings(page string) map[string]bool {
	out := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(line[1]), "")
		out[strings.ReplaceAll(name, " ", "-")] = true
	}
	return out
}

// TestCommands finds, for each block of commands in README.md and deploy/docs, a test that reads it, or the reason why
// none does. That a test reads a block and runs something else is for a review to see.
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
			if read == (b.NotTested != "") {
				t.Errorf("%s: a test reads this block (package manual): %v; the mark <!-- not tested: REASON --> says %q:\n%s",
					page, read, b.NotTested, b.Text)
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

// readBlocks returns, for each page, the texts by which tests find blocks.
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
		const ofPlugin = "deploy/docs/kubectl-mirror.md"
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
