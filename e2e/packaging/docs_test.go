package packaging

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestDocumentedValues finds the chart's values that the table of components names, and each component in it.
func TestDocumentedValues(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(deploy, "docs/install.md"))
	if err != nil {
		t.Fatal(err)
	}
	components := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.*$").FindAllStringSubmatch(string(content), -1)
	folders, err := os.ReadDir(filepath.Join(deploy, "components"))
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, folder := range folders {
		missing[folder.Name()] = true
	}
	for _, row := range components {
		delete(missing, row[1])
		if _, err := os.Stat(filepath.Join(deploy, "components", row[1])); err != nil {
			t.Error(err)
		}
		for _, value := range regexp.MustCompile("`([a-zA-Z.]+)=[^`]+`").FindAllStringSubmatch(row[0], -1) {
			defaultOf(t, value[1]) // fails if there is none
		}
	}
	if len(missing) > 0 {
		t.Errorf("the table does not have the components %v", slices.Sorted(maps.Keys(missing)))
	}
}
