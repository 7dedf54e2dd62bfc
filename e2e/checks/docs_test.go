package checks

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/testnames"
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
		t.Run(file, func(t *testing.T) {
			if text := strings.Join(strings.Fields(manual.Read(t, "deploy/"+file)), " "); !strings.Contains(text, want) {
				t.Errorf("got no list %s", want)
			}
		})
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

// TestAssets finds in the README the version of envtest's programs that make
// takes: the newest.
func TestAssets(t *testing.T) {
	versions, err := filepath.Glob(root + "/e2e/kubernetes/*")
	if err != nil || len(versions) == 0 {
		t.Fatal("there is no version:", err)
	}
	want := " use -p path " + filepath.Base(versions[len(versions)-1]) + ".x)"
	if !strings.Contains(manual.Read(t, "README.md"), want) {
		t.Errorf("there is no %q", want)
	}
}

var update = flag.Bool("update", false, "write the links of CASES.md")

var (
	// rowOfCase is a row of CASES.md: the case, what happens, and its tests.
	rowOfCase = regexp.MustCompile(`(?m)^\| (C\d\d) \| (.+) \| (.+) \|$`)
	// testOfCase is a test as folder.TestName, with the link to its file or without.
	testOfCase = regexp.MustCompile(`\[?([\w/-]+)\.(Test\w+)\]?(?:\([^)]*\))?`)
	// numberOfCase begins the name of a test.
	numberOfCase = regexp.MustCompile(`^Test(C\d\d)`)
)

// TestCases finds each test of CASES.md where its link leads; -update writes the
// links. A test says for which cases it is: its name, its comment or one of its
// rows has the number. Each case has a test, and each number of a test is a case.
func TestCases(t *testing.T) {
	const page = "e2e/CASES.md"
	content := manual.Read(t, page)
	known := map[string]bool{}
	for i, row := range rowOfCase.FindAllStringSubmatch(content, -1) {
		number, tests := row[1], row[3]
		known[number] = true
		if want := fmt.Sprintf("C%02d", i+1); number != want {
			t.Fatalf("got the row %s, want that of %s: no number is given away anew", number, want)
		}
		t.Run(number, func(t *testing.T) {
			linked := testOfCase.ReplaceAllStringFunc(tests, func(test string) string { return linkTo(t, number, test) })
			if *update {
				content = strings.Replace(content, row[0], strings.TrimSuffix(row[0], tests+" |")+linked+" |", 1)
			} else if linked != tests {
				t.Errorf("the links are not up to date (go test ./checks -args -update writes them): want %s", linked)
			}
		})
	}
	for folder := range testFiles(t) {
		tests, err := testnames.In(folder)
		if err != nil {
			t.Fatal(err)
		}
		for test := range tests {
			if number := numberOfCase.FindStringSubmatch(test); number != nil && !known[number[1]] {
				t.Errorf("%s: %s is no case of %s", test, number[1], page)
			}
		}
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, page), []byte(content), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// linkTo returns a test of CASES.md with the link to its file. The test fails
// unless it is there, and has the number.
func linkTo(t *testing.T, number, test string) string {
	t.Helper()
	parts := testOfCase.FindStringSubmatch(test)
	folder, name := parts[1], parts[2]
	for _, above := range []string{"e2e", "."} {
		tests, err := testnames.In(filepath.Join(root, above, folder))
		if err != nil {
			t.Fatal(err)
		}
		file := tests[name]
		if file == "" {
			continue
		}
		text := regexp.MustCompile(`(?m)(^//.*\n)*^func ` + name + `\(t \*testing\.T\) \{\n(.*\n)*?\}\n`).
			FindString(manual.Read(t, strings.TrimPrefix(file, root)))
		if !strings.Contains(text, number) {
			t.Errorf("%s.%s does not say that it is for %s", folder, name, number)
		}
		link, err := filepath.Rel(filepath.Join(root, "e2e"), file)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("[%s.%s](%s)", folder, name, link)
	}
	t.Errorf("there is no %s in %s", name, folder)
	return test
}

// TestLinks follows the links of the pages to files and headings of the repository.
func TestLinks(t *testing.T) {
	links := 0
	for _, page := range strings.Fields(tracked(t, "*.md")) {
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
