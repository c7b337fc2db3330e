package main

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// spdxPredicate is in-toto's name for SPDX documents.
const spdxPredicate = "https://spdx.dev/Document"

// statement is an in-toto statement about images: https://github.com/in-toto/attestation/tree/main/spec
type statement struct {
	Type          string          `json:"_type"`
	PredicateType string          `json:"predicateType"`
	Subject       []subject       `json:"subject"`
	Predicate     json.RawMessage `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// attestation returns an entry of the image index with the inventory of one platform's image. Like BuildKit's attestations it has the
// platform unknown/unknown, which no engine runs (https://docs.docker.com/build/metadata/attestations/attestation-storage). It is copied
// with the image, even to registries that do not support referrers.
func attestation(r release, platform v1.Hash) (mutate.IndexAddendum, error) {
	none := mutate.IndexAddendum{}
	inventory, err := os.ReadFile(r.inventory)
	if err != nil {
		return none, fmt.Errorf("read the inventory: %w", err)
	}
	content, err := json.Marshal(statement{
		Type: "https://in-toto.io/Statement/v0.1", PredicateType: spdxPredicate, Predicate: inventory,
		Subject: []subject{{Name: qualified(r.name) + ":" + r.version, Digest: map[string]string{platform.Algorithm: platform.Hex}}},
	})
	if err != nil {
		return none, fmt.Errorf("write the statement: %w", err)
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:       static.NewLayer(content, "application/vnd.in-toto+json"),
		Annotations: map[string]string{"in-toto.io/predicate-type": spdxPredicate},
	})
	if err != nil {
		return none, fmt.Errorf("attach the statement: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return none, fmt.Errorf("describe the statement: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created, config.History = "unknown", "unknown", v1.Time{Time: r.created}, nil
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return none, fmt.Errorf("describe the statement: %w", err)
	}
	return mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
		Platform:    &v1.Platform{OS: "unknown", Architecture: "unknown"},
		Annotations: map[string]string{"vnd.docker.reference.digest": platform.String(), "vnd.docker.reference.type": "attestation-manifest"},
	}}, nil
}
