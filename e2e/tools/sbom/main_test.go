package main

import (
	"bytes"
	"os"
	"runtime/debug"
	"testing"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

// TestDocumentIsValid reads the bill of materials of this test program back, and has the library of SPDX find its relationships
// and identifiers good. The tests of a release compare the modules with what is linked.
func TestDocumentIsValid(t *testing.T) {
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
	if err := spdxlib.ValidateDocument(doc); err != nil {
		t.Error(err)
	}
	if doc.DocumentName != "mirror-controller v1.2.3" || doc.CreationInfo.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("it is %q of %s", doc.DocumentName, doc.CreationInfo.Created)
	}
	for _, p := range doc.Packages {
		if p.PackageName == "" || p.PackageVersion == "" || notInID.MatchString(string(p.PackageSPDXIdentifier)) {
			t.Errorf("package %q lacks something: %+v", p.PackageSPDXIdentifier, p)
		}
	}
}

// TestPackageURLsOfIncompatibleModules: a + stays in a path.
func TestPackageURLsOfIncompatibleModules(t *testing.T) {
	info := &debug.BuildInfo{Deps: []*debug.Module{{Path: "github.com/docker/docker", Version: "v28.0.0+incompatible"}}}
	got := linked(info)[1].PackageExternalReferences[0].Locator
	if want := "pkg:golang/github.com/docker/docker@v28.0.0+incompatible"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
