// Package seeds has the manifests of documents that users may have copied, with their mistakes, and the API server's answer to each.
//
// 000 is the first README of medik8s' operator, 001 OKD's documentation of that operator, 003 the Metal3 book on remediation, and 004 the
// Cluster API book on MachineHealthChecks. 002, medik8s' workflow, has no manifest. test/RULES.md lists the sentences of all documents.
//
// Two files differ from the documents: 001 lacks callouts such as (1) after some lines, and in 000 nodehealthcheck-with-options.yaml is
// nodehealthcheck.yaml with the commented lines uncommented.
package seeds

import (
	"embed"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubemend/kubemend/test/manifests"
)

//go:embed */*.yaml
var files embed.FS

// Manifest is a file, and the answer of an API server that refuses unknown fields and serves all kinds of Cluster API and kubemend.
type Manifest struct {
	File string

	// Refused is a part of the error for an object of the file, or "" if all objects are accepted.
	Refused string
}

// notYAML is the error for a line "..." among fields, which abridges a manifest. Clients report it before they send anything.
const notYAML = "mapping values are not allowed in this context"

// All are the files of all documents. docs/differences.md lists the refused ones too.
var All = []Manifest{
	{File: "000/nodehealthcheck.yaml"},
	{File: "000/nodehealthcheck-with-options.yaml", Refused: `spec.unhealthyConditions[0].status: Invalid value: "boolean"`},
	{File: "000/nodehealthcheck-abridged.yaml", Refused: "Either RemediationTemplate or at least one EscalatingRemediations must be set"},
	{File: "000/template.yaml", Refused: `no matches for kind "ProviderXRemdiationTemplate" in version "medik8s.io/v1alpha1"`},
	{File: "000/remediation.yaml", Refused: `no matches for kind "ProviderXRemdiation" in version "medik8s.io/v1alpha1"`},
	{File: "001/nodehealthcheck.yaml"},
	{File: "003/workers.yaml"},
	{File: "003/control-plane.yaml"},
	{File: "004/workers.yaml"},
	{File: "004/control-plane.yaml"},
	{File: "004/kubeadm-control-plane.yaml", Refused: notYAML},
}

// Objects returns the objects of a file in the order in which kubectl reads them. A line "..." ends a document.
func Objects(file string) ([]*unstructured.Unstructured, error) {
	content, err := files.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read a manifest: %w", err)
	}
	decoded, err := manifests.Decode(content)
	if err != nil {
		return nil, fmt.Errorf("read the manifest %s: %w", file, err)
	}
	all := make([]*unstructured.Unstructured, len(decoded))
	for i := range decoded {
		all[i] = &decoded[i]
	}
	return all, nil
}
