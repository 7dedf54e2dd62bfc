package packaging

import (
	"bytes"
	"compress/gzip"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/former"
)

// TestGeneratedFormer holds the archive of the version from which tests upgrade to its commit, or writes it with -update. In a
// clone without the commit the tests have the archive alone.
func TestGeneratedFormer(t *testing.T) {
	if err := exec.Command("git", "-C", deploy, "cat-file", "-e", former.Commit+"^{commit}").Run(); err != nil {
		t.Skipf("this is no clone with the commit %s, so nothing tells whether the archive is what it was: %v", former.Commit, err)
	}
	archived, err := exec.Command("git", slices.Concat([]string{"-C", deploy + "/..", "archive", former.Commit, "--"}, former.Paths)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	want, err := former.Read(bytes.NewReader(archived))
	if err != nil {
		t.Fatal(err)
	}
	have, err := former.Files()
	if err == nil && maps.EqualFunc(have, want, bytes.Equal) {
		return
	}
	if !*update {
		t.Fatalf("the archive is not what git has (%v): make generate writes it", err)
	}
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(archived); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("../former/"+former.Commit+".tar.gz", zipped.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
