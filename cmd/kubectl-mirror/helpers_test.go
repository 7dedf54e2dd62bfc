package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// golden collects what is printed, under titles, for one golden file.
type golden struct{ bytes.Buffer }

// print adds what is printed in each of the formats, and the exit code.
func (g *golden) print(t *testing.T, title string, p printed, formats ...string) {
	t.Helper()
	for _, format := range formats {
		fmt.Fprintf(g, "=== %s, %s, %v\n", title, format, p.end())
		if err := printAs(g, format, p); err != nil {
			t.Fatal(err)
		}
	}
}

// compare fails the test if the file has something else.
func (g *golden) compare(t *testing.T, name string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, g.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(g.Bytes(), want) {
		t.Errorf("got\n%swant, by %s,\n%s", g, file, want)
	}
}
