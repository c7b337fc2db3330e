package host

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/spare"
)

// MachineOf returns the machine that host says it belongs to: the owner of the Metal3Machine that its spec.consumerRef leads to, or else
// the machine whose infrastructure that is, also where Metal3Machines must not be read. It returns nil if there is none. Whether the
// machine says the same of the host is for Of to find out.
func (h *Hosts) MachineOf(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*clusterv1.Machine, error) {
	ref, err := h.consumer(ctx, From(host))
	if err != nil || !spare.IsMetal3Machine(ref) || ref.Namespace != host.Namespace { // a Metal3Machine and its host share theirs
		return nil, err
	}
	key := client.ObjectKey{Namespace: host.Namespace, Name: ref.Name}
	between, err := h.metal3Machine(ctx, key)
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsForbidden(err) {
		return nil, err
	}
	if between != nil {
		if m, err := h.owner(ctx, between); err != nil || m != nil {
			return m, err
		}
	}
	return h.builtOn(ctx, key)
}

// owner returns the machine that owns a Metal3Machine, or nil.
func (h *Hosts) owner(ctx context.Context, between *metav1.PartialObjectMetadata) (*clusterv1.Machine, error) {
	for _, owner := range between.OwnerReferences {
		if owner.Kind != "Machine" || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group != clusterv1.GroupVersion.Group {
			continue
		}
		m, key := &clusterv1.Machine{}, client.ObjectKey{Namespace: between.Namespace, Name: owner.Name}
		switch err := h.Client.Get(ctx, key, m); {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("read machine %s: %w", key, err)
		case m.UID == owner.UID:
			return m, nil
		}
	}
	return nil, nil
}

// builtOn returns the machine whose infrastructure is the Metal3Machine called key, or nil.
func (h *Hosts) builtOn(ctx context.Context, key client.ObjectKey) (*clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	if err := h.Client.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		return nil, fmt.Errorf("list the machines in %s: %w", key.Namespace, err)
	}
	for i := range list.Items {
		ref := list.Items[i].Spec.InfrastructureRef
		if ref.Kind == metal3Machine.Kind && ref.APIGroup == metal3Machine.Group && ref.Name == key.Name {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// WantsOf returns what m wants of its host, by its Metal3Machine, which reader reads whole. Its replacement will want the same: both are
// cloned from the template of their owner. Only during a rollout that changes hostSelector a KubeadmControlPlane clones another one.
func WantsOf(ctx context.Context, reader client.Reader, c client.Client, m *clusterv1.Machine) (spare.Wants, error) {
	kind, err := Metal3MachineKind(c.RESTMapper())
	if err != nil {
		return spare.Any, err
	}
	between, key := &unstructured.Unstructured{}, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.InfrastructureRef.Name}
	between.SetGroupVersionKind(kind.GroupVersionKind())
	if err := reader.Get(ctx, key, between); err != nil {
		return spare.Any, fmt.Errorf("read Metal3Machine %s: %w", key, err)
	}
	return spare.WantsBy(between, m)
}
