package checks

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// TestCases finds each test of CASES.md in its folder, and at least one for each case. A test says for which cases it
// is: its name, its comment or one of its rows has the number.
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

// callOfManual is how a test reads a block of a page: by package manual, or by shown, which compares what kubectl
// mirror prints.
var callOfManual = regexp.MustCompile(
	`(?:manual\.(?:Find|Commands)\([\w.]+, "([^"]+)", |\bshown\(t, )"((?:[^"\\]|\\.)+)"[,)]`)

// TestCommands finds, for each block of commands in README.md and deploy/docs, a test that reads it, or the reason why
// none does. That a test reads a block and runs something else is for a review to see.
func TestCommands(t *testing.T) {
	files, err := filepath.Glob("../*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string][]string{} // by page, the texts by which tests find blocks
	for _, file := range files {
		source := manual.Read(t, filepath.Join("e2e/checks", file))
		for _, call := range callOfManual.FindAllStringSubmatch(source, -1) {
			page, text := call[1], strings.NewReplacer(`\n`, "\n", `\"`, `"`).Replace(call[2])
			if page == "" {
				page, text = "deploy/docs/kubectl-mirror.md", "$ kubectl mirror "+text+"\n"
			}
			read[page] = append(read[page], text)
		}
	}
	blocks := 0
	for _, page := range manual.Pages(t) {
		for _, b := range manual.Blocks(t, page) {
			if !b.IsCommands() {
				continue
			}
			blocks++
			isRead := slices.ContainsFunc(read[page], func(text string) bool { return strings.Contains(b.Text, text) })
			if isRead == (b.NotTested != "") {
				t.Errorf("%s: a test reads this block (package manual): %v; the mark <!-- not tested: REASON --> says %q:\n%s",
					page, isRead, b.NotTested, b.Text)
			}
		}
	}
	if blocks < 20 {
		t.Errorf("%d blocks of commands: are they still found?", blocks)
	}
}
