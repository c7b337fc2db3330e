package crd

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// version is one served version of a kind.
type version struct {
	kind       schema.GroupVersionKind
	namespaced bool
	hasStatus  bool

	// storage is the version in which objects of the kind are stored.
	storage string

	structural *structuralschema.Structural
	openAPI    schemavalidation.SchemaValidator
	rules      *cel.Validator
}

func newVersion(definition *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) (*version, error) {
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v.Schema, internal, nil); err != nil {
		return nil, fmt.Errorf("convert the schema of %s %s: %w", definition.Name, v.Name, err)
	}
	structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("the schema of %s %s is not structural: %w", definition.Name, v.Name, err)
	}
	structural = structural.DeepCopy() // pruning must not change the definition
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, fmt.Errorf("prune the defaults of %s %s: %w", definition.Name, v.Name, err)
	}
	openAPI, _, err := schemavalidation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("read the schema of %s %s: %w", definition.Name, v.Name, err)
	}
	return &version{
		kind:       schema.GroupVersionKind{Group: definition.Spec.Group, Version: v.Name, Kind: definition.Spec.Names.Kind},
		namespaced: definition.Spec.Scope == apiextensionsv1.NamespaceScoped,
		hasStatus:  v.Subresources != nil && v.Subresources.Status != nil,
		structural: structural,
		openAPI:    openAPI,
		rules:      cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
}

// coerce removes what the schema does not have, and nulls where it allows none. It returns the paths of the unknown fields.
func (v *version) coerce(o *unstructured.Unstructured) ([]string, error) {
	kind, apiVersion := o.GetKind(), o.GetAPIVersion() // schemas need not have them
	meta, found, unknown, err := objectmeta.GetObjectMetaWithOptions(o.Object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, err
	}
	unknown = append(unknown, pruning.PruneWithOptions(o.Object, v.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	defaulting.PruneNonNullableNullsWithoutDefaults(o.Object, v.structural)
	fieldErr, paths := objectmeta.CoerceWithOptions(nil, o.Object, v.structural, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if fieldErr != nil {
		return nil, fieldErr
	}
	o.SetKind(kind)
	o.SetAPIVersion(apiVersion)
	if found {
		if err := objectmeta.SetObjectMeta(o.Object, meta); err != nil {
			return nil, err
		}
	}
	return append(unknown, paths...), nil
}

func (v *version) complete(o *unstructured.Unstructured) { defaulting.Default(o.Object, v.structural) }

func (v *version) validate(ctx context.Context, o *unstructured.Unstructured) field.ErrorList {
	errs := validation.ValidateObjectMetaAccessor(o, v.namespaced, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, schemavalidation.ValidateCustomResource(nil, o.Object, v.openAPI)...)
	errs = append(errs, objectmeta.Validate(nil, o.Object, v.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, v.structural, o.Object)...)
	return v.followRules(ctx, errs, o, nil)
}

// validateUpdate ratchets: what is wrong already, and stays as it is, is no error.
func (v *version) validateUpdate(ctx context.Context, o, was *unstructured.Unstructured) field.ErrorList {
	both := common.NewCorrelatedObject(o.Object, was.Object, &model.Structural{Structural: v.structural})
	errs := validation.ValidateObjectMetaAccessorUpdate(o, was, field.NewPath("metadata"))
	errs = append(errs, schemavalidation.ValidateCustomResourceUpdate(nil, o.Object, was.Object, v.openAPI, schemavalidation.WithRatcheting(both))...)
	errs = append(errs, objectmeta.Validate(nil, o.Object, v.structural, false)...)
	if len(listtype.ValidateListSetsAndMaps(nil, v.structural, was.Object)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, v.structural, o.Object)...)
	}
	return v.followRules(ctx, errs, o, was.Object, cel.WithRatcheting(both))
}

// followRules adds what the rules in CEL refuse. They are not evaluated for an object that the schema has made unfit for them.
func (v *version) followRules(
	ctx context.Context, errs field.ErrorList, o *unstructured.Unstructured, was map[string]any, options ...cel.Option,
) field.ErrorList {
	if v.rules == nil {
		return errs
	}
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return append(errs, field.Invalid(nil, nil,
				"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
		}
	}
	var old any
	if was != nil {
		old = was
	}
	refused, _ := v.rules.Validate(ctx, nil, v.structural, o.Object, old, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, refused...)
}
