package release

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	plugin        = "kubectl-mirror"
	archiveEnding = ".tar.gz"
)

// expectKrew: krew finds nothing wrong with the manifest, and installs each archive by it, for which the checksum has
// to be right.
func expectKrew(t *testing.T, c checkout, files map[string][]byte) {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join(repository, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(c.dir, "dist", "mirror.yaml")
	if !bytes.Contains(files["mirror.yaml"], []byte("version: "+version+"\n")) ||
		bytes.ContainsAny(files["mirror.yaml"], "@") {
		t.Errorf("it is not filled in:\n%s", files["mirror.yaml"])
	}
	c.command(filepath.Join(bin, "validate-krew-manifest"), "-skip-install", "-manifest="+manifest)
	for archive := range files {
		program, isArchive := strings.CutSuffix(archive, archiveEnding)
		if !isArchive {
			continue
		}
		of, home, ending := platform.FindStringSubmatch(archive), t.TempDir(), ""
		if of[1] == "windows" {
			ending = ".exe"
		}
		c.command("env", "-i", "HOME="+home, "KREW_ROOT="+home, "KREW_OS="+of[1], "KREW_ARCH="+of[2],
			"KREW_NO_UPGRADE_CHECK=1", filepath.Join(bin, "krew"), "install", "--manifest="+manifest,
			"--archive="+filepath.Join(c.dir, "dist", archive))
		installed, err := os.ReadFile(filepath.Join(home, "store", "mirror", version, plugin+ending))
		if err != nil || !bytes.Equal(installed, files[program+ending]) {
			t.Errorf("%s: what is installed is not the program (%v)", archive, err)
		}
	}
}
