package release

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const (
	plugin        = "kubectl-mirror"
	archiveEnding = ".tar.gz"
)

// expectKrew: krew finds nothing wrong with the manifest, and installs each archive by it, for which the checksum has to be
// right.
func expectKrew(t *testing.T, c checkout, files map[string][]byte) {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join(repository, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(c.dir, "dist", "mirror.yaml")
	if !bytes.Contains(files["mirror.yaml"], []byte("version: "+version+"\n")) || bytes.ContainsAny(files["mirror.yaml"], "@") {
		t.Errorf("it is not filled in:\n%s", files["mirror.yaml"])
	}
	c.command(filepath.Join(bin, "validate-krew-manifest"), "-skip-install", "-manifest="+manifest)
	for archive := range files {
		of, home := platform.FindStringSubmatch(archive), t.TempDir()
		program, isArchive := strings.CutSuffix(archive, archiveEnding)
		if !isArchive {
			continue
		}
		ending := ""
		if of[1] == "windows" {
			ending = ".exe"
		}
		install := exec.CommandContext(t.Context(), filepath.Join(bin, "krew"), "install", "--manifest="+manifest,
			"--archive="+filepath.Join(c.dir, "dist", archive))
		install.Env = []string{"HOME=" + home, "KREW_ROOT=" + home, "KREW_OS=" + of[1], "KREW_ARCH=" + of[2],
			"KREW_NO_UPGRADE_CHECK=1"}
		if out, err := install.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", archive, err, out)
			continue
		}
		installed, err := os.ReadFile(filepath.Join(home, "store", "mirror", version, plugin+ending))
		if err != nil || !bytes.Equal(installed, files[program+ending]) {
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
