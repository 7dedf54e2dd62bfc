package release

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestRelease makes a release of two copies of the repository, at different paths, and looks at what is in dist/.
func TestRelease(t *testing.T) {
	one, other := checkOut(t, "one"), checkOut(t, "quite/another")
	one.make("release")
	other.make("release")
	files := one.released()
	t.Run("complete", func(t *testing.T) { expectComplete(t, files) })
	t.Run("twice the same", func(t *testing.T) { expectSame(t, files, other.released()) })
	t.Run("checksums", func(t *testing.T) { expectChecksums(t, files) })
	for _, name := range programs(files) {
		t.Run(name, func(t *testing.T) {
			expectBuiltFor(t, name, files[name])
			if strings.Contains(name, "-linux-") {
				expectStatic(t, name, files[name])
			}
			expectListed(t, files["mirror-controller.spdx.json"], name, one.with(t).modules(name))
		})
	}
	t.Run("version", func(t *testing.T) {
		got := one.with(t).command(filepath.Join(one.dir, "dist", "mirror-controller-linux-"+runtime.GOARCH), "--version")
		if !strings.HasPrefix(got, "mirror-controller "+version+" ") {
			t.Errorf("the program says %q", got)
		}
	})
	for _, name := range archives(files) {
		t.Run(name, func(t *testing.T) { expectArchive(t, name, files) })
	}
	t.Run("krew", func(t *testing.T) { expectKrew(t, one.with(t), files) })
	t.Run("install.yaml", func(t *testing.T) {
		if !bytes.Equal(files["install.yaml"], one.with(t).read("deploy/install.yaml")) {
			t.Error("it is not that of deploy/")
		}
	})
}

// released returns what is in dist/, by name.
func (c checkout) released() map[string][]byte {
	c.Helper()
	entries, err := os.ReadDir(filepath.Join(c.dir, "dist"))
	if err != nil {
		c.Fatal(err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		files[entry.Name()] = c.read("dist", entry.Name())
	}
	return files
}

// programs returns the names of the files that are programs.
func programs(files map[string][]byte) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if platform.MatchString(name) && !strings.HasSuffix(name, archiveEnding) {
			names = append(names, name)
		}
	}
	return names
}

// platform finds the system and the architecture that a file is for.
var platform = regexp.MustCompile(`-(linux|darwin|windows)-(amd64|arm64)`)

// expectComplete: there is each command for each architecture, the other things that belong to a release, and no more.
func expectComplete(t *testing.T, files map[string][]byte) {
	want := []string{"SHA256SUMS", "install.yaml", "mirror.yaml", "mirror-controller.spdx.json",
		"mirror-controller-" + strings.TrimPrefix(version, "v") + ".tgz"}
	commands, err := filepath.Glob(filepath.Join(repository, "cmd", "*", "main.go"))
	if err != nil || len(commands) == 0 {
		t.Fatal(commands, err)
	}
	for _, command := range commands {
		name := filepath.Base(filepath.Dir(command))
		want = append(want, name+"-linux-amd64", name+"-linux-arm64")
	}
	for _, arch := range []string{"-amd64", "-arm64"} {
		want = append(want, plugin+"-darwin"+arch, plugin+"-windows"+arch+".exe")
		for _, system := range []string{"-linux", "-darwin", "-windows"} {
			want = append(want, plugin+system+arch+archiveEnding)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("dist has %v, want %v", got, want)
	}
}

func expectSame(t *testing.T, one, other map[string][]byte) {
	for name, content := range one {
		if !bytes.Equal(content, other[name]) {
			t.Errorf("%s differs between two releases of the same", name)
		}
	}
}

// expectChecksums: SHA256SUMS names every other file, with its digest.
func expectChecksums(t *testing.T, files map[string][]byte) {
	var want strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != "SHA256SUMS" {
			fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256(files[name]), name)
		}
	}
	if got := string(files["SHA256SUMS"]); got != want.String() {
		t.Errorf("SHA256SUMS has\n%swant\n%s", got, want.String())
	}
}

// expectBuiltFor: the program is for the system and the architecture that its name tells.
func expectBuiltFor(t *testing.T, name string, content []byte) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, setting := range info.Settings {
		got[setting.Key] = setting.Value
	}
	if want := platform.FindStringSubmatch(name); got["GOOS"] != want[1] || got["GOARCH"] != want[2] {
		t.Errorf("it is for %s and %s", got["GOOS"], got["GOARCH"])
	}
}

// expectStatic: the program is for the architecture that its name tells, and needs no other file to run.
func expectStatic(t *testing.T, name string, content []byte) {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if want := machine(name); file.Machine != want {
		t.Errorf("it is for %s, want %s", file.Machine, want)
	}
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
			t.Errorf("it is linked dynamically: it has a segment %s", segment.Type)
		}
	}
}

// machine returns the architecture with which a name ends.
func machine(name string) elf.Machine {
	if strings.HasSuffix(name, "arm64") {
		return elf.EM_AARCH64
	}
	return elf.EM_X86_64
}

// modules returns what `go version -m` says is linked into a program, as "path version".
func (c checkout) modules(name string) []string {
	c.Helper()
	var modules []string
	for line := range strings.Lines(c.command("go", "version", "-m", filepath.Join(c.dir, "dist", name))) {
		switch fields := strings.Fields(line); {
		case len(fields) == 2 && strings.HasPrefix(fields[1], "go1."): // path: go1.26.0
			modules = append(modules, "stdlib "+strings.TrimPrefix(fields[1], "go"))
		case fields[0] == "dep":
			modules = append(modules, fields[1]+" "+fields[2])
		case fields[0] == "=>":
			modules[len(modules)-1] = fields[1] + " " + fields[2]
		}
	}
	slices.Sort(modules)
	return modules
}

// bill is what is looked at of a bill of materials.
type bill struct {
	Packages      []struct{ SPDXID, Name, VersionInfo string }
	Relationships []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
}

// expectListed: the bill of materials describes the program, and lists as what it depends on just these modules.
func expectListed(t *testing.T, content []byte, program string, modules []string) {
	t.Helper()
	var b bill
	if err := json.Unmarshal(content, &b); err != nil {
		t.Fatal(err)
	}
	names, id := map[string]string{}, ""
	for _, p := range b.Packages {
		names[p.SPDXID] = p.Name + " " + p.VersionInfo
		if p.Name == program && p.VersionInfo == version {
			id = p.SPDXID
		}
	}
	var listed []string
	described := false
	for _, r := range b.Relationships {
		switch {
		case r.RelationshipType == "DESCRIBES" && r.RelatedSPDXElement == id:
			described = true
		case r.RelationshipType == "DEPENDS_ON" && r.SPDXElementID == id:
			listed = append(listed, names[r.RelatedSPDXElement])
		}
	}
	slices.Sort(listed)
	if !described {
		t.Errorf("%s %s is not described", program, version)
	}
	if len(modules) < 30 || !slices.Equal(listed, modules) {
		t.Errorf("listed are\n%q\nand linked\n%q", listed, modules)
	}
}
