package main

import (
	"bytes"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"
)

// TestBillListsWhatIsLinked reads the bill of materials of this test program back. The library of SPDX finds it valid,
// and the program depends on the modules that the Go runtime knows of.
func TestBillListsWhatIsLinked(t *testing.T) {
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
	urls := map[common.ElementID]string{}
	for _, p := range doc.Packages {
		if p.PackageVersion == "" || notInID.MatchString(string(p.PackageSPDXIdentifier)) {
			t.Errorf("package %q lacks something: %+v", p.PackageSPDXIdentifier, p)
		}
		for _, r := range p.PackageExternalReferences {
			urls[p.PackageSPDXIdentifier] = r.Locator
		}
	}
	var listed []string
	for _, r := range doc.Relationships {
		if r.Relationship == common.TypeRelationshipDependsOn {
			listed = append(listed, urls[r.RefB.ElementRefID])
		}
	}
	info, _ := debug.ReadBuildInfo()
	want := []string{"pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want = append(want, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	if !slices.Equal(listed, want) || len(want) < 3 {
		t.Errorf("listed are\n%q\nand linked\n%q", listed, want)
	}
}
