package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestDocumentedValues finds the chart's values that the table of components names.
func TestDocumentedValues(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(deploy, "docs/install.md"))
	if err != nil {
		t.Fatal(err)
	}
	components := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.*$").FindAllStringSubmatch(string(content), -1)
	if len(components) < 6 {
		t.Errorf("%d components: is the table still found?", len(components))
	}
	for _, row := range components {
		if _, err := os.Stat(filepath.Join(deploy, "components", row[1])); err != nil {
			t.Error(err)
		}
		for _, value := range regexp.MustCompile("`([a-zA-Z.]+)=[^`]+`").FindAllStringSubmatch(row[0], -1) {
			defaultOf(t, value[1]) // fails if there is none
		}
	}
}
