package programs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompile compiles two packages that no cache has, and looks at what it prints: how far it is, and what is wrong.
func TestCompile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/new\n")
	write("a/a.go", "package a\n\nconst Folder = `"+dir+"`\n")
	write("b/b.go", "package b\n\nimport \"example.com/new/a\"\n\nconst Folder = a.Folder\n")
	for _, want := range []string{"Compiling 2 packages\n   50%: 1 of 2 packages\n  100%: 2 of 2 packages\n", ""} {
		var out bytes.Buffer
		if err := Compile(t.Context(), &out, dir, "./..."); err != nil || out.String() != want {
			t.Errorf("%v, after\n%swant\n%s", err, out.String(), want)
		}
	}
	write("b/b.go", "package b\n\nconst Folder = unknown\n")
	err := Compile(t.Context(), &bytes.Buffer{}, dir, "./...")
	if err == nil || !strings.Contains(err.Error(), "undefined") {
		t.Errorf("the error of the compiler is %v", err)
	}
}
