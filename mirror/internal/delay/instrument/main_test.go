package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fewestPoints is a little less than the delay points that package mirror and the packages below it have. Code that
// leaves the instrumented files takes its points along, and the histories still pass: they only find less.
const fewestPoints = 1530

const mirror = "../../.."

// TestEveryPackageHasDelayPoints: the overlay holds every product file below mirror with a statement, and no fewer
// points than before.
func TestEveryPackageHasDelayPoints(t *testing.T) {
	out := t.TempDir()
	if err := instrument(mirror, out); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(out, "overlay.json"))
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(config, &overlay); err != nil {
		t.Fatal(err)
	}
	points := 0
	for path, name := range products(t) {
		if functions, isLocked := locked[name]; isLocked && functions == nil {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		delayed, err := os.ReadFile(overlay.Replace[path])
		if err != nil {
			t.Errorf("%s has no delay points: %v", name, err)
			continue
		}
		n := bytes.Count(delayed, []byte("delay.At("))
		if n == 0 && bytes.Contains(src, []byte("\nfunc ")) {
			t.Errorf("%s has no delay points", name)
		}
		points += n
	}
	if points < fewestPoints {
		t.Errorf("got %d delay points, want %d or more", points, fewestPoints)
	}
}

// products returns the names of the product files of package mirror and of the packages below it, by their paths. It
// leaves out the contract, which is pure, and packages for tests.
func products(t *testing.T) map[string]string {
	t.Helper()
	folder, err := filepath.Abs(mirror)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	err = fs.WalkDir(os.DirFS(folder), ".", func(name string, _ fs.DirEntry, err error) error {
		isProduct := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
		for _, leftOut := range []string{"plan/", "apitest/", "internal/delay/"} {
			isProduct = isProduct && !strings.HasPrefix(name, leftOut)
		}
		if isProduct {
			names[filepath.Join(folder, filepath.FromSlash(name))] = name
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
