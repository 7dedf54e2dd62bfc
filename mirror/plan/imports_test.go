package plan

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestImports holds the promise of the package comment: no client, no clock, no I/O. It refuses every other package of
// this project too, so that no import can hide behind one.
func TestImports(t *testing.T) {
	std := map[string]bool{
		"bytes": true, "cmp": true, "crypto/sha256": true, "encoding/binary": true, "encoding/hex": true,
		"errors": true, "fmt": true,
		"io": true, "iter": true, "maps": true, "regexp": true, "slices": true, "strconv": true,
		"strings": true, "unique": true,
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		checked++
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !std[path] && !strings.HasPrefix(path, "k8s.io/api/") && !strings.HasPrefix(path, "k8s.io/apimachinery/pkg/") {
				t.Errorf("%s: got an import of %s, want only k8s.io/api, k8s.io/apimachinery and pure packages", name, path)
			}
		}
	}
	if checked == 0 {
		t.Error("got no file checked")
	}
}
