// Command sbom writes a software bill of materials for Go programs, as SPDX 2.3 in JSON, to stdout:
//
//	sbom -version v1.2.3 -created 1700000000 dist/mirror-controller-linux-amd64 dist/mirror-controller-linux-arm64
//
// It asks the programs themselves, as `go version -m` does, so it lists the modules that are linked and no others, and
// of the standard library the version. Equal programs give equal bytes. Licenses are not looked into.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"
)

var (
	version = flag.String("version", "devel", "version of the programs")
	created = flag.Int64("created", 0, "time of the document, in seconds since 1970")
)

func main() {
	flag.Parse()
	doc, err := document(flag.Args(), *version, time.Unix(*created, 0))
	if err == nil {
		err = spdxlib.ValidateDocument(doc)
	}
	if err == nil {
		err = json.Write(doc, os.Stdout, json.Indent("  "))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// document returns a package for each program, which the document describes, and one for each module, on which they depend.
func document(paths []string, version string, created time.Time) (*spdx.Document, error) {
	doc := &spdx.Document{
		SPDXVersion:    spdx.Version,
		DataLicense:    spdx.DataLicense,
		SPDXIdentifier: "DOCUMENT",
		DocumentName:   "mirror-controller " + version,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "mirror-controller-sbom"}},
			Created:  created.UTC().Format(time.RFC3339),
		},
	}
	modules, bytes := map[spdx.ElementID]*spdx.Package{}, sha256.New()
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		p := newPackage("Program", filepath.Base(path), version, "APPLICATION")
		p.PackageFileName = p.PackageName
		p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: fmt.Sprintf("%x", sha256.Sum256(content))}}
		fmt.Fprintln(bytes, p.PackageName, p.PackageChecksums[0].Value)
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, relationship(doc.SPDXIdentifier, common.TypeRelationshipDescribe, p))
		for _, m := range linked(info) {
			modules[m.PackageSPDXIdentifier] = m
			doc.Relationships = append(doc.Relationships, relationship(p.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, m))
		}
	}
	// A URI that no other document may have.
	doc.DocumentNamespace = fmt.Sprintf("https://mirror-controller.github.io/spdx/%x", bytes.Sum(nil))
	for _, id := range slices.Sorted(maps.Keys(modules)) {
		doc.Packages = append(doc.Packages, modules[id])
	}
	return doc, nil
}

// linked returns the modules in a program. Scanners know them by their package URLs, and the standard library as stdlib.
func linked(info *debug.BuildInfo) []*spdx.Package {
	modules := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	var packages []*spdx.Package
	for _, m := range append(modules, info.Deps...) {
		if m.Replace != nil {
			m = m.Replace
		}
		p := newPackage("Module", m.Path, m.Version, "LIBRARY")
		p.PackageExternalReferences = []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager,
			RefType:  common.TypePackageManagerPURL,
			Locator:  "pkg:golang/" + m.Path + "@" + m.Version, // a + stays as it is
		}}
		if m.Sum != "" {
			p.PackageSourceInfo = "go.sum " + m.Sum
		}
		packages = append(packages, p)
	}
	return packages
}

// notInID is what an identifier must not contain.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// newPackage has nothing but its name. Each forbidden character of its identifier becomes its code between dots, so that
// different names have different identifiers.
func newPackage(kind, name, version, purpose string) *spdx.Package {
	const unknown = "NOASSERTION"
	id := notInID.ReplaceAllStringFunc(name+"-"+version, func(s string) string { return fmt.Sprintf(".%x.", s) })
	return &spdx.Package{
		PackageSPDXIdentifier:   spdx.ElementID(kind + "-" + id),
		PackageName:             name,
		PackageVersion:          version,
		PackageDownloadLocation: unknown,
		PackageLicenseConcluded: unknown,
		PackageLicenseDeclared:  unknown,
		PackageCopyrightText:    unknown,
		PrimaryPackagePurpose:   purpose,
	}
}

func relationship(from spdx.ElementID, kind string, to *spdx.Package) *spdx.Relationship {
	return &spdx.Relationship{
		RefA:         common.DocElementID{ElementRefID: from},
		RefB:         common.DocElementID{ElementRefID: to.PackageSPDXIdentifier},
		Relationship: kind,
	}
}
