package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// The parts of an SPDX 2.3 document that are used here. https://spdx.github.io/spdx-spec/v2.3/
type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	DataLicense   string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID         string          `json:"SPDXID"`
	Name       string          `json:"name"`
	Version    string          `json:"versionInfo"`
	Location   string          `json:"downloadLocation"`
	Analyzed   bool            `json:"filesAnalyzed"`
	Concluded  string          `json:"licenseConcluded"`
	Declared   string          `json:"licenseDeclared"`
	Copyright  string          `json:"copyrightText"`
	References []spdxReference `json:"externalRefs"`
}

type spdxReference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const self = "github.com/kubemend/kubemend"

// spdx is the document. Its namespace has to be unique to its content, so it is made of it.
func spdx(name, version string, created time.Time, modules []*module) ([]byte, error) {
	d := spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name + "-" + version,
		Creation:      spdxCreation{Created: created.Format(time.RFC3339), Creators: []string{"Organization: kubemend", "Tool: hack/release/inventory"}},
		Packages:      []spdxPackage{packageOf(&module{path: self, version: version, licence: "Apache-2.0"})},
		Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", idOf(self)}},
	}
	for _, m := range modules {
		d.Packages = append(d.Packages, packageOf(m))
		d.Relationships = append(d.Relationships, spdxRelationship{idOf(self), "DEPENDS_ON", idOf(m.path)})
	}
	content, err := json.Marshal(d.Packages)
	if err != nil {
		return nil, fmt.Errorf("write the SPDX document: %w", err)
	}
	d.Namespace = fmt.Sprintf("https://%s/spdx/%s-%x", self, version, sha256.Sum256(content))
	document, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the SPDX document: %w", err)
	}
	return append(document, '\n'), nil
}

func packageOf(m *module) spdxPackage {
	return spdxPackage{
		ID: idOf(m.path), Name: m.path, Version: m.version, Location: "NOASSERTION", Concluded: m.licence, Declared: m.licence, Copyright: "NOASSERTION",
		References: []spdxReference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.path + "@" + m.version}},
	}
}

var forbidden = regexp.MustCompile(`[^A-Za-z0-9.-]`)

func idOf(path string) string { return "SPDXRef-Package-" + forbidden.ReplaceAllString(path, "-") }
