package model

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestNoCodeOfTheController: the oracle is written from the contract, and would otherwise share its faults.
func TestNoCodeOfTheController(t *testing.T) {
	for _, pattern := range []string{"*.go", "../*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range file.Imports {
				if path, err := strconv.Unquote(spec.Path.Value); err != nil || strings.HasPrefix(path, "github.com/mirror-controller/mirror-controller/mirror") {
					t.Errorf("%s: got an import of %s, %v", name, path, err)
				}
			}
		}
	}
}
