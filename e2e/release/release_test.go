package release

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

const (
	plugin        = "kubectl-mirror"
	archiveEnding = ".tar.gz"
)

// TestReleaseIsCompleteAndReproducible makes a release of two copies of the repository, at different paths, and looks
// at what is in dist/.
func TestReleaseIsCompleteAndReproducible(t *testing.T) {
	one, other := checkOut(t, "one"), checkOut(t, "quite/another")
	archs := "ARCHS=" + strings.Join(architectures(), " ")
	one.make("release", archs)
	other.make("release", archs)
	entries, err := os.ReadDir(filepath.Join(one.dir, "dist"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{} // what is in dist/, by name
	for _, entry := range entries {
		files[entry.Name()] = one.read("dist", entry.Name())
	}
	expectComplete(t, files)
	if again := other.read("dist", "SHA256SUMS"); !bytes.Equal(again, files["SHA256SUMS"]) {
		t.Errorf("two releases of the same differ:\n%s\n%s", files["SHA256SUMS"], again)
	}
	one.command("sh", "-c", "cd '"+one.dir+"/dist' && sha256sum --check --strict SHA256SUMS")
	if n := bytes.Count(files["SHA256SUMS"], []byte("\n")); n != len(files)-1 {
		t.Errorf("there are checksums of %d files, want %d", n, len(files)-1)
	}
	for name := range files {
		target := platform.FindStringSubmatch(name)
		if target == nil || strings.HasSuffix(name, archiveEnding) || strings.HasSuffix(name, ".json") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			info, err := buildinfo.Read(bytes.NewReader(files[name]))
			if err != nil {
				t.Fatal(err)
			}
			expectBuiltFor(t, info, target[1], target[2])
			expectListed(t, files[name+".cdx.json"], files[name], info)
		})
	}
	if !bytes.Equal(files["install.yaml"], one.read("deploy/install.yaml")) {
		t.Error("install.yaml is not that of deploy/")
	}
	expectKrew(t, one, files)
	// The programs that tests, demo and benchmarks run are those that are released.
	one.make("build")
	for _, name := range []string{"mirror-controller", plugin} {
		got := one.command(filepath.Join(one.dir, "bin", name), "--version")
		if !strings.HasPrefix(got, name+" "+version+" ") {
			t.Errorf("the program says %q", got)
		}
		if !bytes.Equal(one.read("bin", name), files[name+"-linux-"+runtime.GOARCH]) {
			t.Errorf("bin/%s is not the one that is released", name)
		}
	}
}

// platform finds the system and the architecture that a file is for.
var platform = regexp.MustCompile(`-(linux|darwin|windows)-(amd64|arm64)`)

// expectComplete: there is each command for each architecture, the other things that belong to a release, and no more.
func expectComplete(t *testing.T, files map[string][]byte) {
	want := []string{"SHA256SUMS", "install.yaml", "mirror.yaml", "mirror-controller-1.2.3.tgz"}
	for _, arch := range architectures() {
		arch = "-" + arch
		want = append(want, plugin+"-linux"+arch+archiveEnding, plugin+"-darwin"+arch+archiveEnding,
			plugin+"-windows"+arch+archiveEnding)
		for _, program := range []string{"mirror-controller-linux" + arch, plugin + "-linux" + arch,
			plugin + "-darwin" + arch, plugin + "-windows" + arch + ".exe"} {
			want = append(want, program, program+".cdx.json")
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("dist has %v, want %v", got, want)
	}
}

// expectBuiltFor: the program is for this system and architecture, and needs no library of it.
func expectBuiltFor(t *testing.T, info *debug.BuildInfo, system, arch string) {
	t.Helper()
	got := map[string]string{}
	for _, setting := range info.Settings {
		got[setting.Key] = setting.Value
	}
	if got["GOOS"] != system || got["GOARCH"] != arch || got["CGO_ENABLED"] != "0" {
		t.Errorf("it is for %s and %s, with CGO_ENABLED=%s", got["GOOS"], got["GOARCH"], got["CGO_ENABLED"])
	}
	if want := "all=-dwarf=false"; got["-gcflags"] != want {
		t.Errorf("it is compiled with -gcflags=%s, want %s: what is released is inlined", got["-gcflags"], want)
	}
}

// expectListed: a bill of materials is of this very program, and lists as many modules as are linked.
func expectListed(t *testing.T, content []byte, program []byte, info *debug.BuildInfo) {
	t.Helper()
	var bill struct {
		Metadata struct {
			Properties []struct{ Name, Value string }
		}
		Components []any
	}
	if err := json.Unmarshal(content, &bill); err != nil {
		t.Fatal(err)
	}
	var sums []string
	for _, p := range bill.Metadata.Properties {
		if p.Name == "cdx:gomod:binary:hash:SHA-256" {
			sums = append(sums, p.Value)
		}
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(program)); !slices.Equal(sums, []string{sum}) {
		t.Errorf("the checksum is %s, listed are %s", sum, sums)
	}
	if listed, linked := len(bill.Components), len(info.Deps)+1; listed != linked { // and the standard library
		t.Errorf("it lists %d modules, and %d are linked", listed, linked)
	}
}

// expectKrew: krew finds nothing wrong with the manifest, and installs each archive by it, for which the checksum has
// to be right.
func expectKrew(t *testing.T, c checkout, files map[string][]byte) {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join(repository, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(c.dir, "dist", "mirror.yaml")
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
