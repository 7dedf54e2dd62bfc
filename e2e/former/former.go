// Package former has the version of this repository from which tests upgrade: the commit behind which the changelog begins. Nothing
// is released, and a clone need not have the commit, so what it takes to build and to install that version is kept as an archive.
package former

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Commit is the version.
const Commit = "e48290e"

// Paths are what the archive has of the commit, as `git archive` takes it: programs and manifests, without tests, texts and
// the dashboard.
var Paths = []string{
	"go.mod", "go.sum", "cmd", "mirror", "deploy", ":(exclude)*_test.go", ":(exclude,glob)**/testdata/**",
	":(exclude)deploy/README.md", ":(exclude)deploy/install.yaml", ":(exclude,glob)**/dashboard.json",
}

//go:embed e48290e.tar.gz
var archive []byte

// Files returns the content of each file of the archive by its path.
func Files() (map[string][]byte, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	return Read(unzipped)
}

// Read returns the content of each file of a tar archive by its path.
func Read(r io.Reader) (map[string][]byte, error) {
	out := map[string][]byte{}
	for files := tar.NewReader(r); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the archive of %s: %w", Commit, err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if out[header.Name], err = io.ReadAll(files); err != nil {
			return nil, err
		}
	}
}

// Unpack writes the files of the archive into a folder.
func Unpack(dir string) error {
	files, err := Files()
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
