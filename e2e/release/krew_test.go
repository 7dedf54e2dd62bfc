package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const (
	plugin        = "kubectl-mirror"
	archiveEnding = ".tar.gz"
)

// archives returns the names of the plug-in's archives.
func archives(files map[string][]byte) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(files)), func(name string) bool { return !strings.HasSuffix(name, archiveEnding) })
}

// programIn returns the name of the plug-in in an archive.
func programIn(archive string) string {
	if strings.Contains(archive, "-windows-") {
		return plugin + ".exe"
	}
	return plugin
}

// expectArchive: in the archive is the program, which anyone may run, and the license if the repository has one.
func expectArchive(t *testing.T, name string, files map[string][]byte) {
	unzipped, err := gzip.NewReader(bytes.NewReader(files[name]))
	if err != nil {
		t.Fatal(err)
	}
	program := programIn(name)
	want := map[string][]byte{program: files[strings.TrimSuffix(name, archiveEnding)+filepath.Ext(program)]}
	if license, err := os.ReadFile(filepath.Join(repository, "LICENSE")); err == nil {
		want["LICENSE"] = license
	}
	got := map[string][]byte{}
	for entries := tar.NewReader(unzipped); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if got[header.Name], err = io.ReadAll(entries); err != nil {
			t.Fatal(err)
		}
		if mode := header.FileInfo().Mode(); header.Name == program && mode != 0o755 || header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s has the mode %o and belongs to %d:%d", header.Name, mode, header.Uid, header.Gid)
		}
	}
	if !maps.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("it has %v, want %v, as they are outside", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// expectKrew: krew finds nothing wrong with the manifest, and installs each archive by it, for which the checksum has to be right.
func expectKrew(t *testing.T, c checkout, files map[string][]byte) {
	bin, err := filepath.Abs(filepath.Join(repository, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(c.dir, "dist", "mirror.yaml")
	if !bytes.Contains(files["mirror.yaml"], []byte("version: "+version+"\n")) || bytes.ContainsAny(files["mirror.yaml"], "@") {
		t.Errorf("it is not filled in:\n%s", files["mirror.yaml"])
	}
	c.command(filepath.Join(bin, "validate-krew-manifest"), "-skip-install", "-manifest="+manifest)
	for _, archive := range archives(files) {
		of, home := platform.FindStringSubmatch(archive), t.TempDir()
		install := exec.CommandContext(t.Context(), filepath.Join(bin, "krew"), "install", "--manifest="+manifest, "--archive="+filepath.Join(c.dir, "dist", archive))
		install.Env = []string{"HOME=" + home, "KREW_ROOT=" + home, "KREW_OS=" + of[1], "KREW_ARCH=" + of[2], "KREW_NO_UPGRADE_CHECK=1"}
		if out, err := install.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", archive, err, out)
			continue
		}
		installed, err := os.ReadFile(filepath.Join(home, "store", "mirror", version, programIn(archive)))
		if errors.Is(err, fs.ErrNotExist) || !bytes.Equal(installed, files[strings.TrimSuffix(archive, archiveEnding)+filepath.Ext(programIn(archive))]) {
			t.Errorf("%s: what is installed is not the program (%v)", archive, err)
		}
		if of[1] != runtime.GOOS || of[2] != runtime.GOARCH {
			continue
		}
		if got := c.command(filepath.Join(home, "bin", plugin), "--version"); !strings.HasPrefix(got, plugin+" "+version+" ") {
			t.Errorf("the plug-in says %q", got)
		}
	}
}
