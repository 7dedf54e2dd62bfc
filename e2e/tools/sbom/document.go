package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

// unknown is how SPDX says that nothing is claimed.
const unknown = "NOASSERTION"

// document returns the bill of materials: a package for each program, which the document describes, and one for each
// module, on which the programs depend.
func document(programs []program, version string, created time.Time) *spdx.Document {
	doc := &spdx.Document{
		SPDXVersion:       spdx.Version,
		DataLicense:       spdx.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      "mirror-controller " + version,
		DocumentNamespace: namespace(programs),
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "mirror-controller-sbom"}},
			Created:  created.UTC().Format(time.RFC3339),
		},
	}
	modules := map[module]bool{}
	for _, p := range programs {
		id := elementID("Program", p.name)
		doc.Packages = append(doc.Packages, programPackage(id, p, version))
		doc.Relationships = append(doc.Relationships, relationship(doc.SPDXIdentifier, common.TypeRelationshipDescribe, id))
		for _, m := range p.modules {
			doc.Relationships = append(doc.Relationships, relationship(id, common.TypeRelationshipDependsOn, m.id()))
			modules[m] = true
		}
	}
	for _, m := range slices.SortedFunc(maps.Keys(modules), func(a, b module) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.version, b.version))
	}) {
		doc.Packages = append(doc.Packages, modulePackage(m))
	}
	return doc
}

// namespace returns the URI that no other document may have: it follows from the bytes of the programs.
func namespace(programs []program) string {
	all := sha256.New()
	for _, p := range programs {
		fmt.Fprintln(all, p.name, p.sha256)
	}
	return "https://mirror-controller.github.io/spdx/" + hex.EncodeToString(all.Sum(nil))
}

func programPackage(id spdx.ElementID, p program, version string) *spdx.Package {
	return &spdx.Package{
		PackageSPDXIdentifier:   id,
		PackageName:             p.name,
		PackageVersion:          version,
		PackageFileName:         p.name,
		PackageDownloadLocation: unknown,
		PackageChecksums:        []common.Checksum{{Algorithm: common.SHA256, Value: p.sha256}},
		PackageLicenseConcluded: unknown,
		PackageLicenseDeclared:  unknown,
		PackageCopyrightText:    unknown,
		PrimaryPackagePurpose:   "APPLICATION",
	}
}

func modulePackage(m module) *spdx.Package {
	p := &spdx.Package{
		PackageSPDXIdentifier:   m.id(),
		PackageName:             m.path,
		PackageVersion:          m.version,
		PackageDownloadLocation: unknown,
		PackageLicenseConcluded: unknown,
		PackageLicenseDeclared:  unknown,
		PackageCopyrightText:    unknown,
		PrimaryPackagePurpose:   "LIBRARY",
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager,
			RefType:  common.TypePackageManagerPURL,
			Locator:  m.url(),
		}},
	}
	if m.sum != "" {
		p.PackageSourceInfo = "go.sum " + m.sum
	}
	return p
}

func relationship(from spdx.ElementID, kind string, to spdx.ElementID) *spdx.Relationship {
	return &spdx.Relationship{
		RefA:         common.DocElementID{ElementRefID: from},
		RefB:         common.DocElementID{ElementRefID: to},
		Relationship: kind,
	}
}

func (m module) id() spdx.ElementID { return elementID("Module", m.path, m.version) }

// url returns the package URL of the module, by which scanners know it. A version may have a + in it.
func (m module) url() string {
	return "pkg:golang/" + m.path + "@" + url.PathEscape(m.version)
}

// notInID is what an identifier must not contain.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// elementID returns an identifier made of parts. Each forbidden character becomes its code between dots, so that parts
// which differ in that alone have different identifiers.
func elementID(parts ...string) spdx.ElementID {
	id := ""
	for i, part := range parts {
		if i > 0 {
			id += "-"
		}
		id += notInID.ReplaceAllStringFunc(part, func(s string) string { return fmt.Sprintf(".%x.", s) })
	}
	return spdx.ElementID(id)
}
