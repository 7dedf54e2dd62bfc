package release

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
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

// TestReleaseIsCompleteAndReproducible makes a release of two copies of the repository, at different paths, and looks at
// what is in dist/.
func TestReleaseIsCompleteAndReproducible(t *testing.T) {
	one, other := checkOut(t, "one"), checkOut(t, "quite/another")
	one.make("release")
	other.make("release")
	files := one.released()
	expectComplete(t, files)
	again := other.released()
	for name, content := range files {
		if !bytes.Equal(content, again[name]) {
			t.Errorf("%s differs between two releases of the same", name)
		}
	}
	one.command("sh", "-c", "cd '"+one.dir+"/dist' && sha256sum --check --strict SHA256SUMS")
	if n := bytes.Count(files["SHA256SUMS"], []byte("\n")); n != len(files)-1 {
		t.Errorf("there are checksums of %d files, want %d", n, len(files)-1)
	}
	for name := range files {
		target := platform.FindStringSubmatch(name)
		if target == nil || strings.HasSuffix(name, archiveEnding) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			info, err := buildinfo.Read(bytes.NewReader(files[name]))
			if err != nil {
				t.Fatal(err)
			}
			expectBuiltFor(t, info, target[1], target[2])
			expectListed(t, files["mirror-controller.spdx.json"], name, info)
		})
	}
	got := one.command(filepath.Join(one.dir, "dist", "mirror-controller-linux-"+runtime.GOARCH), "--version")
	if !strings.HasPrefix(got, "mirror-controller "+version+" ") {
		t.Errorf("the program says %q", got)
	}
	if !bytes.Equal(files["install.yaml"], one.read("deploy/install.yaml")) {
		t.Error("install.yaml is not that of deploy/")
	}
	expectKrew(t, one, files)
	// The programs that tests, demo and benchmarks run are those that are released.
	one.make("build")
	for _, name := range []string{"mirror-controller", plugin} {
		if !bytes.Equal(one.read("bin", name), files[name+"-linux-"+runtime.GOARCH]) {
			t.Errorf("bin/%s is not the one that is released", name)
		}
	}
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

// linked returns what is linked into a program, as "path version".
func linked(info *debug.BuildInfo) []string {
	modules := []string{"stdlib " + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, m.Path+" "+m.Version)
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
func expectListed(t *testing.T, content []byte, program string, info *debug.BuildInfo) {
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
	if modules := linked(info); len(modules) < 30 || !slices.Equal(listed, modules) {
		t.Errorf("listed are\n%q\nand linked\n%q", listed, modules)
	}
}
