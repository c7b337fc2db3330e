// Package remediation is a remediation of a bare-metal host, of either kind: what it asks for, what it remembers, and which others exist.
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

// Object is a remediation of either kind, as far as it is decided on: its spec. No decision depends on a status, which only one of the
// kinds has in full.
type Object interface {
	client.Object
	conditions.Setter
	// Strategy is what is asked for; nil if nothing is.
	Strategy() *mendv1.HostRemediationStrategy
	// Report writes into the status what the kind has fields for, but for the conditions.
	Report(mendv1.HostRemediationStatus)
	// Unwrapped is the object that the API server knows.
	Unwrapped() client.Object
}

// Kind is one of the two kinds of remediations.
type Kind struct {
	schema.GroupVersionKind
	// Finalizer keeps an object of the kind until its host is released and its node unfenced.
	Finalizer string
	// New returns an empty object, List an empty list.
	New  func() Object
	List func() client.ObjectList
}

// SignsNothing reports whether CAPM3 acts on the kind elsewhere: it has the same finalizer, and leaves no mark on the nodes that it fences.
func (k Kind) SignsNothing() bool { return k.Finalizer == infrav1.RemediationFinalizer }

// MetadataOnly returns a kind of remediations that only other controllers act on, in a version of which kubemend knows no more than
// metadata. That is enough to see which hosts they keep powered off, and what those remember that were kubemend's.
func MetadataOnly(gvk schema.GroupVersionKind) Kind {
	return Kind{GroupVersionKind: gvk, List: func() client.ObjectList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		return list
	}}
}

// Watched is an object of the kind, for watches.
func (k Kind) Watched() client.Object {
	if k.New != nil {
		return k.New().Unwrapped()
	}
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(k.GroupVersionKind)
	return o
}

// ControllerName is that of the kind's controller.
func (k Kind) ControllerName() string { return strings.ToLower(k.Kind) }

// InstalledKinds are the kinds of remediations whose CRDs exist, whichever controller acts on them. CAPM3 before v1.13 has
// Metal3Remediations in v1beta1 alone: of these kubemend knows no more than metadata. A mapper asks the API server each time for a kind
// that does not exist.
func InstalledKinds(mapper meta.RESTMapper) ([]Kind, error) { return installed(mapper, Metal3, Own) }

// KindsWithCRD are InstalledKinds for a caller who asks often: those alone that has reports to have a CustomResourceDefinition.
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

// Metal3 is CAPM3's kind.
var Metal3 = Kind{
	GroupVersionKind: infrav1.GroupVersion.WithKind("Metal3Remediation"),
	Finalizer:        infrav1.RemediationFinalizer,
	New:              func() Object { return metal3{&infrav1.Metal3Remediation{}} },
	List:             func() client.ObjectList { return &infrav1.Metal3RemediationList{} },
}

// Own is the kind that kubemend alone acts on.
var Own = Kind{
	GroupVersionKind: mendv1.GroupVersion.WithKind("HostRemediation"),
	Finalizer:        mendv1.HostRemediationFinalizer,
	New:              func() Object { return own{&mendv1.HostRemediation{}} },
	List:             func() client.ObjectList { return &mendv1.HostRemediationList{} },
}

type metal3 struct{ *infrav1.Metal3Remediation }

func (m metal3) Unwrapped() client.Object { return m.Metal3Remediation }

// Strategy reads a retryLimit of less than 1 as the default, as CAPM3 does. The kind has one number for all of an attempt.
func (m metal3) Strategy() *mendv1.HostRemediationStrategy {
	s := m.Spec.Strategy
	if s == nil {
		return nil
	}
	seconds := cmp.Or(s.TimeoutSeconds, infrav1.DefaultTimeoutSeconds)
	return &mendv1.HostRemediationStrategy{
		Type: s.Type, RetryLimit: ptr.To(max(s.RetryLimit, infrav1.DefaultRetryLimit)), TimeoutSeconds: seconds, BootTimeoutSeconds: seconds,
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

// Wrap returns an Object of either kind.
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
