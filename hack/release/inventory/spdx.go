package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const self = "github.com/kubemend/kubemend"

// document returns an SPDX 2.3 document (https://spdx.github.io/spdx-spec/v2.3/) of a release: its programs with their checksums, and their
// modules. The namespace of a document must be unique, so it contains a hash of the content.
func document(name, version string, created time.Time, programs []string, modules []*module) ([]byte, error) {
	d := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name + "-" + version,
		CreationInfo: &spdx.CreationInfo{Created: created.Format(time.RFC3339), Creators: []common.Creator{
			{CreatorType: "Organization", Creator: "kubemend"}, {CreatorType: "Tool", Creator: "hack/release/inventory"},
		}},
	}
	whole := packageOf(&module{path: self, version: version, licence: "Apache-2.0"})
	add(d, "DOCUMENT", common.TypeRelationshipDescribe, whole)
	for _, path := range programs {
		program, err := programOf(path, version)
		if err != nil {
			return nil, err
		}
		add(d, whole.PackageSPDXIdentifier, common.TypeRelationshipContains, program)
	}
	for _, m := range modules {
		add(d, whole.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, packageOf(m))
	}
	content, err := json.Marshal(d.Packages)
	if err != nil {
		return nil, fmt.Errorf("write the SPDX document: %w", err)
	}
	d.DocumentNamespace = fmt.Sprintf("https://%s/spdx/%s-%x", self, version, sha256.Sum256(content))
	written, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the SPDX document: %w", err)
	}
	return append(written, '\n'), nil
}

// add adds a package, and its relationship to an existing package.
func add(d *spdx.Document, to common.ElementID, is string, p *spdx.Package) {
	d.Packages = append(d.Packages, p)
	d.Relationships = append(d.Relationships, &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: to}, Relationship: is, RefB: common.DocElementID{ElementRefID: p.PackageSPDXIdentifier},
	})
}

func packageOf(m *module) *spdx.Package {
	p := &spdx.Package{
		PackageSPDXIdentifier: idOf(m.path), PackageName: m.path, PackageVersion: m.version, PackageDownloadLocation: "NOASSERTION",
		IsFilesAnalyzedTagPresent: true, PackageLicenseConcluded: m.licence, PackageLicenseDeclared: m.licence, PackageCopyrightText: "NOASSERTION",
		PackageExternalReferences: []*spdx.PackageExternalReference{
			{Category: common.CategoryPackageManager, RefType: "purl", Locator: "pkg:golang/" + m.path + "@" + m.version},
		},
	}
	// go.sum has a SHA-256 of the checksums of all files; the standard library is not in go.sum.
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.sum, "h1:")); err == nil && len(sum) == sha256.Size {
		p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(sum)}}
	}
	return p
}

// programOf returns a program as an SPDX package. An SPDX file would need a SHA-1.
func programOf(path, version string) (*spdx.Package, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("sum up the program: %w", err)
	}
	p := packageOf(&module{path: filepath.Base(path), version: version, licence: "Apache-2.0"})
	p.PackageFileName, p.PrimaryPackagePurpose, p.PackageExternalReferences = filepath.Base(path), "APPLICATION", nil
	p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: fmt.Sprintf("%x", sha256.Sum256(content))}}
	return p, nil
}

var forbidden = regexp.MustCompile(`[^A-Za-z0-9.-]`)

func idOf(path string) common.ElementID {
	return common.ElementID("Package-" + forbidden.ReplaceAllString(path, "-"))
}
