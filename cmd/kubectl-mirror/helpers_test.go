package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// golden fails the test if got is not what the file has.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%swant, by %s,\n%s", got, file, want)
	}
}

// expectPrinted compares what is printed in each format with golden files.
func expectPrinted(t *testing.T, name string, p printed) {
	t.Helper()
	for _, format := range outputFormats {
		output := outputFlag(format)
		var out bytes.Buffer
		if err := output.print(&out, p); err != nil {
			t.Fatal(err)
		}
		golden(t, name+"-"+format, out.Bytes())
	}
}
