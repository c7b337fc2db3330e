// Package crd answers requests for custom resources without an API server, as one answers them that serves their definitions: it decodes,
// removes unknown fields, sets defaults, calls mutating webhooks, validates by schema and by rules in CEL, and converts to the stored version
// and back, in this order and with the API server's own functions, so that the messages are the same.
//
// It stores nothing, and knows no user and no other object: rights, names that are taken and resource versions are an API server's.
package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Server answers requests. It may be used by several goroutines once its fields are set.
type Server struct {
	// Convert converts an object to another version of its kind. Without it only the name of the version changes.
	Convert func(o *unstructured.Unstructured, apiVersion string) (*unstructured.Unstructured, error)

	// Mutating are the mutating webhooks, in the order in which they are called.
	Mutating []Webhook

	kinds map[schema.GroupVersionKind]*version
}

// FromFolder serves the definitions of a folder of manifests, one a file.
func FromFolder(folder string) (*Server, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no manifest in %s", folder)
	}
	s := &Server{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a definition: %w", err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, definition); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if err := s.Serve(definition); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Serve adds all versions of a definition.
func (s *Server) Serve(definition *apiextensionsv1.CustomResourceDefinition) error {
	if s.kinds == nil {
		s.kinds = map[schema.GroupVersionKind]*version{}
	}
	stored := ""
	for i := range definition.Spec.Versions {
		if definition.Spec.Versions[i].Storage {
			stored = definition.Spec.Versions[i].Name
		}
	}
	for i := range definition.Spec.Versions {
		v, err := newVersion(definition, &definition.Spec.Versions[i])
		if err != nil {
			return err
		}
		v.storage = stored
		s.kinds[v.kind] = v
	}
	return nil
}

// Create answers a request that creates o, and returns what is stored then, in the version of the request.
func (s *Server) Create(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return s.create(ctx, o, false)
}

// CreateStrictly refuses unknown fields as well, as `fieldValidation=Strict` asks for.
func (s *Server) CreateStrictly(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return s.create(ctx, o, true)
}

func (s *Server) create(ctx context.Context, o *unstructured.Unstructured, strictly bool) (*unstructured.Unstructured, error) {
	v, o, err := s.decode(o, strictly)
	if err != nil {
		return nil, err
	}
	if err := s.mutate(ctx, v, o); err != nil {
		return nil, err
	}
	if v.hasStatus {
		delete(o.Object, "status")
	}
	if errs := v.validate(ctx, o); len(errs) > 0 {
		return nil, apierrors.NewInvalid(v.kind.GroupKind(), o.GetName(), errs)
	}
	return s.As(o, v.kind.GroupVersion().String())
}

// Update answers a request that replaces an object by o, which is one of the same version. What was stored need not be valid.
func (s *Server) Update(ctx context.Context, was, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	v, o, err := s.decode(o, false)
	if err != nil {
		return nil, err
	}
	if err := s.mutate(ctx, v, o); err != nil {
		return nil, err
	}
	if _, was, err = s.decode(was, false); err != nil {
		return nil, err
	}
	for _, object := range []*unstructured.Unstructured{was, o} {
		object.SetResourceVersion("1") // without which nothing is an update
	}
	if errs := v.validateUpdate(ctx, o, was); len(errs) > 0 {
		return nil, apierrors.NewInvalid(v.kind.GroupKind(), o.GetName(), errs)
	}
	return s.As(o, v.kind.GroupVersion().String())
}

// decode reads an object as if it came in a request.
func (s *Server) decode(o *unstructured.Unstructured, strictly bool) (*version, *unstructured.Unstructured, error) {
	kind := o.GroupVersionKind()
	v, served := s.kinds[kind]
	if !served {
		return nil, nil, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	content, err := json.Marshal(o.Object)
	if err != nil {
		return nil, nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	read := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(content, &read.Object); err != nil {
		return nil, nil, fmt.Errorf("decode %s: %w", kind, err)
	}
	unknown, err := v.coerce(read)
	if err != nil {
		return nil, nil, notOf(v.kind, err)
	}
	v.complete(read)
	if strictly && len(unknown) > 0 {
		errs := make([]error, len(unknown))
		for i, path := range unknown {
			errs[i] = fmt.Errorf("unknown field %q", path)
		}
		return nil, nil, notOf(v.kind, runtime.NewStrictDecodingError(errs))
	}
	return v, read, nil
}

// notOf is what is answered to an object that cannot be decoded.
func notOf(kind schema.GroupVersionKind, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", kind.Kind, kind.Version, kind.Kind, err))
}

// As stores an object and returns it in a version of its kind.
func (s *Server) As(o *unstructured.Unstructured, apiVersion string) (*unstructured.Unstructured, error) {
	v, served := s.kinds[o.GroupVersionKind()]
	if !served {
		return nil, errors.New(o.GetAPIVersion() + " of " + o.GetKind() + " is not served")
	}
	stored, err := s.convert(o, schema.GroupVersion{Group: v.kind.Group, Version: v.storage}.String())
	if err != nil {
		return nil, err
	}
	s.kinds[stored.GroupVersionKind()].complete(stored)
	return s.convert(stored, apiVersion)
}

// convert returns an object in another version, without what that does not have.
func (s *Server) convert(o *unstructured.Unstructured, apiVersion string) (*unstructured.Unstructured, error) {
	converted := o.DeepCopy()
	switch {
	case o.GetAPIVersion() == apiVersion:
	case s.Convert == nil:
		converted.SetAPIVersion(apiVersion)
	default:
		var err error
		if converted, err = s.Convert(converted, apiVersion); err != nil {
			return nil, fmt.Errorf("conversion webhook for %s failed: %w", o.GroupVersionKind(), err)
		}
		converted.Object["metadata"] = o.DeepCopy().Object["metadata"] // of which conversions may change labels and annotations alone: ours change none
	}
	v, served := s.kinds[converted.GroupVersionKind()]
	if !served {
		return nil, fmt.Errorf("request to convert CR to an invalid group/version: %s", apiVersion)
	}
	_, err := v.coerce(converted)
	return converted, err
}
