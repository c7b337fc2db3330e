// Package remediation has the two kinds of remediations of bare-metal hosts: their strategies, their records, and lists of them.
//
// It decides nothing about the power of a host.
package remediation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Object is a remediation of either kind. Decisions depend on its spec and annotations, never on the status: a Metal3Remediation has only a
// part of it.
type Object interface {
	client.Object
	conditions.Setter
	// Strategy is spec.strategy, with the defaults of the kind; nil if it is not set.
	Strategy() *mendv1.HostRemediationStrategy
	// Report writes those parts of the status that the kind has fields for, except the conditions.
	Report(mendv1.HostRemediationStatus)
	// Unwrapped returns the API object.
	Unwrapped() client.Object
}

// Kind is one of the two kinds of remediations.
type Kind struct {
	schema.GroupVersionKind
	// Finalizer keeps an object of the kind until its host is released and its node is unfenced.
	Finalizer string
	New       func() Object
	List      func() client.ObjectList
}

// SignsNothing reports whether the kind is CAPM3's. CAPM3 uses the same finalizer, and does not mark the nodes that it fences as its own.
func (k Kind) SignsNothing() bool { return k.Finalizer == infrav1.RemediationFinalizer }

// MetadataOnly returns a kind whose objects kubemend reads only as metadata, because it does not know their version. Other controllers act
// on them. The metadata is enough to see which hosts these remediations keep off, and what kubemend once stored in them.
func MetadataOnly(gvk schema.GroupVersionKind) Kind {
	return Kind{GroupVersionKind: gvk, List: func() client.ObjectList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		return list
	}}
}

// Watched returns an empty object of the kind, for watches.
func (k Kind) Watched() client.Object {
	if k.New != nil {
		return k.New().Unwrapped()
	}
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(k.GroupVersionKind)
	return o
}

// ControllerName returns the name of the controller of the kind.
func (k Kind) ControllerName() string { return strings.ToLower(k.Kind) }

// InstalledKinds returns the kinds of remediations that have a CRD, whichever controller acts on them. CAPM3 before v1.13 has
// Metal3Remediations only in v1beta1, for which the result is MetadataOnly. For a kind without a CRD, each call asks the API server.
func InstalledKinds(mapper meta.RESTMapper) ([]Kind, error) { return installed(mapper, Metal3, Own) }

// KindsWithCRD is like InstalledKinds for a caller that asks often. It looks up only the kinds for which has reports a
// CustomResourceDefinition.
func KindsWithCRD(mapper meta.RESTMapper, has func(crd string) (bool, error)) ([]Kind, error) {
	var there []Kind
	for _, kind := range []Kind{Metal3, Own} {
		switch found, err := has(kind.ControllerName() + "s." + kind.Group); {
		case err != nil:
			return nil, err
		case found:
			there = append(there, kind)
		}
	}
	return installed(mapper, there...)
}

func installed(mapper meta.RESTMapper, of ...Kind) ([]Kind, error) {
	var kinds []Kind
	for _, kind := range of {
		known, err := mapper.RESTMappings(kind.GroupKind())
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find a version of %s: %w", kind.Kind, err)
		}
		if !slices.ContainsFunc(known, func(m *meta.RESTMapping) bool { return m.GroupVersionKind == kind.GroupVersionKind }) {
			kind = MetadataOnly(known[0].GroupVersionKind)
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// Metal3 is CAPM3's kind, Metal3Remediation.
var Metal3 = Kind{
	GroupVersionKind: infrav1.GroupVersion.WithKind("Metal3Remediation"),
	Finalizer:        infrav1.RemediationFinalizer,
	New:              func() Object { return metal3{&infrav1.Metal3Remediation{}} },
	List:             func() client.ObjectList { return &infrav1.Metal3RemediationList{} },
}

// Own is kubemend's kind, HostRemediation.
var Own = Kind{
	GroupVersionKind: mendv1.GroupVersion.WithKind("HostRemediation"),
	Finalizer:        mendv1.HostRemediationFinalizer,
	New:              func() Object { return own{&mendv1.HostRemediation{}} },
	List:             func() client.ObjectList { return &mendv1.HostRemediationList{} },
}

type metal3 struct{ *infrav1.Metal3Remediation }

func (m metal3) Unwrapped() client.Object { return m.Metal3Remediation }

// Strategy raises a retryLimit below 1 to the default, as CAPM3 does. timeoutSeconds is both timeouts, because the kind has only one.
func (m metal3) Strategy() *mendv1.HostRemediationStrategy {
	s := m.Spec.Strategy
	if s == nil {
		return nil
	}
	seconds := cmp.Or(s.TimeoutSeconds, infrav1.DefaultTimeoutSeconds)
	return &mendv1.HostRemediationStrategy{
		Type: s.Type, RetryLimit: ptr.To(max(s.RetryLimit, infrav1.DefaultRetryLimit)), TimeoutSeconds: seconds,
		BootTimeoutSeconds: seconds,
	}
}

func (m metal3) Report(status mendv1.HostRemediationStatus) {
	m.Status.Phase, m.Status.LastRemediated, m.Status.Message = status.Phase, status.Started, status.Message
	m.Status.RetryCount = max(status.Attempt-1, 0) // the first attempt is no retry
}

type own struct{ *mendv1.HostRemediation }

func (o own) Unwrapped() client.Object { return o.HostRemediation }

func (o own) Strategy() *mendv1.HostRemediationStrategy { return o.Spec.Strategy }

func (o own) Report(status mendv1.HostRemediationStatus) {
	status.Conditions = o.Status.Conditions
	o.Status = status
}

// Wrap returns obj, a remediation of either kind, as an Object.
func Wrap(obj client.Object) Object {
	switch o := obj.(type) {
	case *infrav1.Metal3Remediation:
		return metal3{o}
	case *mendv1.HostRemediation:
		return own{o}
	default:
		panic(fmt.Sprintf("a %T is no remediation", obj)) // only kinds of this file are served
	}
}
