package checks

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks follows the links of the pages to files and headings of the repository.
func TestLinks(t *testing.T) {
	const root = "../.."
	out, err := exec.Command("git", "-C", root, "ls-files", "*.md").Output()
	if err != nil {
		t.Skipf("this is no clone: %v", err)
	}
	pages, links := strings.Fields(string(out)), 0
	for _, page := range pages {
		content, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(content), -1) {
			file, heading, _ := strings.Cut(link[1], "#")
			if strings.Contains(file, ":") {
				continue // elsewhere
			}
			links++
			target := filepath.Join(root, page)
			if file != "" {
				target = filepath.Join(filepath.Dir(target), file)
			}
			if there, err := os.ReadFile(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if heading != "" && !headings(string(there))[heading] {
				t.Errorf("%s: %s: there is no such heading", page, link[1])
			}
		}
	}
	if links == 0 {
		t.Errorf("there is no link in %v", pages)
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
