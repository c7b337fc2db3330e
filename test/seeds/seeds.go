// Package seeds has the manifests of five documents from which users may have their checks, as these print them, slips included, and what
// an API server answers to each.
//
// 000 is the first README of medik8s' operator, 001 OKD's documentation of it, 003 the Metal3 book on remediation, and 004 the Cluster API
// book on MachineHealthChecks; 002, medik8s' workflow, has no manifest. What they say besides is in test/RULES.md, sentence by sentence.
// Two things are not as printed: the pages have callouts such as (1) behind some lines of 001, and nodehealthcheck-with-options.yaml is
// nodehealthcheck.yaml of 000 with the signs of its comments removed.
package seeds

import (
	"embed"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubemend/kubemend/test/manifests"
)

//go:embed */*.yaml
var files embed.FS

// Manifest is a file with the answer of an API server that refuses unknown fields and serves all kinds of Cluster API and kubemend.
type Manifest struct {
	File string

	// Refused is a part of the message with which an object of the file is refused, and empty if all are accepted.
	Refused string
}

// notYAML is what is said of a line "..." among fields, by which a document leaves something out. No client sends it to an API server.
const notYAML = "mapping values are not allowed in this context"

// All are the files of all documents. docs/differences.md says the same of those that are refused.
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

// Objects are those of a file as kubectl reads them: in their order, and of each document what comes before "...", by which YAML ends one.
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
