package main

import (
	"bytes"
	"os"
	"regexp"
	"testing"

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

// TestMandatory reads the document back, and looks at what SPDX 2.3 demands. The tests of a release compare the modules with
// what is linked.
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

func TestPackageURL(t *testing.T) {
	got := module{path: "github.com/docker/docker", version: "v28.0.0+incompatible"}.url()
	if want := "pkg:golang/github.com/docker/docker@v28.0.0+incompatible"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
