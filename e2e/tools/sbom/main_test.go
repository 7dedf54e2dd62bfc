package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

// bill returns the bill of materials of this test program, read back.
func bill(t *testing.T) *spdx.Document {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{"-version=v1.2.3", "-created=1700000000", self}, &out); err != nil {
		t.Fatal(err)
	}
	doc, err := json.Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestMandatory reads the document back, and looks at what SPDX 2.3 demands.
func TestMandatory(t *testing.T) {
	doc := bill(t)
	if doc.SPDXVersion != "SPDX-2.3" || doc.DataLicense != "CC0-1.0" || doc.SPDXIdentifier != "DOCUMENT" ||
		doc.DocumentName != "mirror-controller v1.2.3" {
		t.Errorf("%s %s %s %q", doc.SPDXVersion, doc.DataLicense, doc.SPDXIdentifier, doc.DocumentName)
	}
	if got := doc.CreationInfo.Created; got != "2023-11-14T22:13:20Z" || len(doc.CreationInfo.Creators) != 1 {
		t.Errorf("created %s by %v", got, doc.CreationInfo.Creators)
	}
	if !regexp.MustCompile(`^https://[^#]+/[0-9a-f]{64}$`).MatchString(doc.DocumentNamespace) {
		t.Errorf("namespace %s", doc.DocumentNamespace)
	}
	ids := map[common.ElementID]bool{doc.SPDXIdentifier: true}
	for _, p := range doc.Packages {
		id := p.PackageSPDXIdentifier
		if !regexp.MustCompile(`^[A-Za-z0-9.-]+$`).MatchString(string(id)) || ids[id] {
			t.Errorf("the identifier %q is malformed, or there twice", id)
		}
		ids[id] = true
		if p.PackageName == "" || p.PackageVersion == "" || p.PackageDownloadLocation == "" || p.FilesAnalyzed {
			t.Errorf("package %s lacks something: %+v", id, p)
		}
	}
	for _, r := range doc.Relationships {
		if !ids[r.RefA.ElementRefID] || !ids[r.RefB.ElementRefID] {
			t.Errorf("%s %s %s: not all of that is there", r.RefA.ElementRefID, r.Relationship, r.RefB.ElementRefID)
		}
	}
}

// TestModules: the program depends on just the modules that are linked into this test, and each is listed.
func TestModules(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok || len(info.Deps) < 2 {
		t.Fatalf("this test does not know what it is made of: %v", info)
	}
	want := []string{"pkg:golang/stdlib@" + strings.TrimPrefix(runtime.Version(), "go")}
	for _, dep := range info.Deps {
		want = append(want, "pkg:golang/"+dep.Path+"@"+dep.Version)
	}
	doc := bill(t)
	urls := map[common.ElementID]string{}
	for _, p := range doc.Packages {
		for _, ref := range p.PackageExternalReferences {
			urls[p.PackageSPDXIdentifier] = ref.Locator
		}
	}
	var depends []string
	for _, r := range doc.Relationships {
		if r.Relationship == common.TypeRelationshipDependsOn {
			depends = append(depends, urls[r.RefB.ElementRefID])
		}
	}
	slices.Sort(want)
	slices.Sort(depends)
	if !slices.Equal(depends, want) {
		t.Errorf("the program depends on %q, want %q", depends, want)
	}
	if len(urls) != len(want) {
		t.Errorf("%d modules are listed, want %d", len(urls), len(want))
	}
}

func TestEqualBytes(t *testing.T) {
	p := program{name: "program"}
	for i := range 100 {
		p.modules = append(p.modules, module{path: "example.com/module", version: fmt.Sprintf("v1.0.%d", i)})
	}
	one := document([]program{p}, "v1.2.3", time.Unix(0, 0))
	if other := document([]program{p}, "v1.2.3", time.Unix(0, 0)); !reflect.DeepEqual(one, other) {
		t.Error("the same program has two bills of materials")
	}
}

func TestPackageURL(t *testing.T) {
	got := module{path: "github.com/docker/docker", version: "v28.0.0+incompatible"}.url()
	if want := "pkg:golang/github.com/docker/docker@v28.0.0+incompatible"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestElementIDsDiffer(t *testing.T) {
	if a, b := elementID("a/b"), elementID("a.b"); a == b {
		t.Errorf("both are %s", a)
	}
}

func TestNoProgram(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {text}, {text + "s"}} {
		var out bytes.Buffer
		if err := run(args, &out); err == nil || out.Len() > 0 {
			t.Errorf("%q: error %v, and %q is written", args, err, out.String())
		}
	}
}
