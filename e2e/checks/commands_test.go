package checks

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/testnames"
)

// TestCommandsOfContributors takes each command of make and go test that a page
// has in a sentence or in a block: its targets, settings and packages exist, and
// the tests that it names, with their rows. Such a command would run nothing, and
// end well. What the commands do is for the other tests.
func TestCommandsOfContributors(t *testing.T) {
	makefile := manual.Read(t, "Makefile")
	rows := 0
	for _, page := range strings.Fields(tracked(t, "*.md")) {
		for _, command := range commandsOf(manual.Read(t, page)) {
			rows++
			t.Run(page+": "+command, func(t *testing.T) {
				words := wordsOf(command)
				if words[0] == "make" {
					checkMake(t, makefile, words[1:])
				} else {
					checkGoTest(t, words[2:])
				}
			})
		}
	}
	if rows < 30 {
		t.Errorf("got %d commands: are they still found?", rows)
	}
}

// TestMakeRunsEachPackage finds each package of e2e that has tests in the
// Makefile. Those of the other module are `./...` there.
func TestMakeRunsEachPackage(t *testing.T) {
	folders, err := testnames.Folders("..")
	if err != nil || len(folders) == 0 {
		t.Fatal("no package has tests:", err)
	}
	makefile := manual.Read(t, "Makefile")
	for _, folder := range folders {
		name := strings.TrimPrefix(folder, "./")
		if !regexp.MustCompile(`(?m)^\t.*(\./|e2e/)` + name + `\b`).MatchString(makefile) {
			t.Errorf("no target runs the tests in e2e/%s", name)
		}
	}
}

var (
	// inBlock is a command in a block, up to a comment or another command.
	inBlock = regexp.MustCompile(`(?m)^(?:\$ )?((?:make|go test)\b[^#&\n]*)`)
	// inSentence is a command, or a setting.
	inSentence = regexp.MustCompile("`((?:make |go test |[A-Z][A-Z0-9_]+=)[^`\n]*)`")
	// ofRow is the command that a row of a table is about.
	ofRow = regexp.MustCompile("^\\| `(make [a-z0-9-]+)` \\|")
)

// commandsOf returns the commands of a page. A setting is one of the command that
// its row of a table is about.
func commandsOf(page string) (all []string) {
	blocks := regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	sentences := blocks.ReplaceAllStringFunc(page, func(block string) string {
		for _, found := range inBlock.FindAllStringSubmatch(block, -1) {
			all = append(all, strings.TrimSpace(found[1]))
		}
		return ""
	})
	for line := range strings.Lines(sentences) {
		about := "make"
		if found := ofRow.FindStringSubmatch(line); found != nil {
			about = found[1]
		}
		for _, found := range inSentence.FindAllStringSubmatch(line, -1) {
			command := found[1]
			if !strings.HasPrefix(command, "make ") && !strings.HasPrefix(command, "go ") {
				command = about + " " + command
			}
			all = append(all, command)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// wordsOf returns the words of a command, as a shell sees them.
func wordsOf(command string) []string {
	words := regexp.MustCompile(`(?:[^\s"']|"[^"]*"|'[^']*')+`).FindAllString(command, -1)
	for i, word := range words {
		words[i] = strings.NewReplacer(`"`, "", "'", "").Replace(word)
	}
	return words
}

// checkMake fails the test unless make knows the targets and the settings, and
// there are the tests that these name.
func checkMake(t *testing.T, makefile string, args []string) {
	t.Helper()
	for _, arg := range args {
		setting, value, isSetting := strings.Cut(arg, "=")
		if isSetting && !regexp.MustCompile(`(?m)^(?:export )?`+setting+` [?:]?=`).MatchString(makefile) {
			t.Errorf("make knows no setting %s", setting)
		}
		if isSetting {
			checkRows(t, value)
		}
	}
	dryRun := exec.CommandContext(t.Context(), "make", append([]string{"-C", root, "-n"}, args...)...)
	plan, err := dryRun.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, plan)
	}
	const run = "go run ./testnames/run "
	for line := range strings.Lines(string(plan)) {
		isOfTests := strings.Contains(line, run) && strings.Contains(line, " -run ")
		if !isOfTests || strings.Contains(line, " -any ") {
			continue
		}
		look := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(line, run, run+"-n ", 1))
		look.Dir = root
		if out, err := look.CombinedOutput(); err != nil {
			t.Errorf("%s%s", line, out)
		}
	}
}

// checkRows fails the test if a pattern names rows of a table, and no text in the
// folder of the test is such a name.
func checkRows(t *testing.T, pattern string) {
	t.Helper()
	found := regexp.MustCompile(`(Test\w+)/(\S+)`).FindStringSubmatch(pattern)
	if found == nil {
		return
	}
	for folder, files := range testFiles(t) {
		tests, err := testnames.In(folder)
		if err != nil {
			t.Fatal(err)
		}
		for test := range tests {
			if !strings.HasPrefix(test, found[1]) {
				continue
			}
			for row := range strings.SplitSeq(found[2], "/") {
				if !hasText(t, files, regexp.MustCompile(row)) {
					t.Errorf("%s has no row %s", test, row)
				}
			}
			return
		}
	}
	t.Errorf("there is no %s", found[1])
}

// hasText reports whether a text in the files is the name of a row that the
// pattern matches.
func hasText(t *testing.T, files []string, row *regexp.Regexp) bool {
	t.Helper()
	return slices.ContainsFunc(files, func(file string) bool {
		content := manual.Read(t, strings.TrimPrefix(file, root))
		texts := regexp.MustCompile(`"([^"\n]+)"`).FindAllString(content, -1)
		return slices.ContainsFunc(texts, func(text string) bool {
			return row.MatchString(strings.ReplaceAll(strings.Trim(text, `"`), " ", "_"))
		})
	})
}

// checkGoTest fails the test unless the packages of go test have the tests that
// it names.
func checkGoTest(t *testing.T, args []string) {
	t.Helper()
	for i, arg := range args {
		name, pattern, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || name != "run" && name != "fuzz" {
			continue
		}
		if !hasValue {
			pattern = args[i+1]
		}
		isNoFolder := func(arg string) bool { return !strings.HasPrefix(arg, "./") }
		folders := slices.DeleteFunc(slices.Clone(args), isNoFolder)
		matching, err := testnames.Matching(root, pattern, folders)
		if err != nil || len(matching) == 0 {
			t.Errorf("no test in %q has the name %s: %v", folders, pattern, err)
		}
		checkRows(t, pattern)
	}
}

// tracked returns the files of the repository that match a pattern of git.
func tracked(t *testing.T, pattern string) string {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files", pattern).Output()
	if err != nil {
		t.Skipf("this is no clone: %v", err)
	}
	return string(out)
}
