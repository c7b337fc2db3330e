package simulator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// hostAnnotation is CAPM3's annotation on a Metal3Machine with the name of its host, as namespace/name.
const hostAnnotation = "metal3.io/BareMetalHost"

// image is the image of every host; nothing reads it.
var image = bmov1alpha1.Image{URL: "http://simulated/image.qcow2", Checksum: "http://simulated/image.qcow2.sha256sum",
	ChecksumType: "sha256"}

// keptOut are annotations that keep a host from being chosen. CAPM3 writes the first since 1.13, and respects the second too.
var keptOut = []string{
	"capm3.metal3.io/unhealthy", "capi.metal3.io/unhealthy", bmov1alpha1.PausedAnnotation, bmov1alpha1.DetachedAnnotation,
}

// pool assigns BareMetalHosts to Metal3Machines, as CAPM3 does. It uses only the objects; the kubelet alone is put on the Host itself.
type pool struct {
	client client.Client
	hosts  *Hosts
}

// place returns the host of a Metal3Machine. It takes a free host if the machine has none, and returns nil if none is free.
func (p *pool) place(ctx context.Context, infra *unstructured.Unstructured) (*bmov1alpha1.BareMetalHost, error) {
	if infra.GetAnnotations()[hostAnnotation] != "" {
		return p.hostOf(ctx, infra)
	}
	list := &bmov1alpha1.BareMetalHostList{}
	if err := p.client.List(ctx, list, client.InNamespace(infra.GetNamespace())); err != nil {
		return nil, fmt.Errorf("list hosts for %s: %w", infra.GetName(), err)
	}
	host := choose(list.Items, infra)
	if host == nil {
		return nil, nil
	}
	// The host is written first. If the write of the machine then fails, choose finds the host again by its consumer.
	if err := p.take(ctx, host, infra); err != nil {
		return nil, err
	}
	before := infra.DeepCopy()
	annotations := infra.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[hostAnnotation] = host.Namespace + "/" + host.Name
	infra.SetAnnotations(annotations)
	if err := p.client.Patch(ctx, infra, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("write the host of %s: %w", infra.GetName(), err)
	}
	return host, nil
}

// choose returns the host that already has the machine as its consumer, or else the first free host by name; nil if there is none. (CAPM3,
// chooseHost. Host selectors and node reuse, which need fields of the Metal3MachineTemplate, are not simulated.)
func choose(hosts []bmov1alpha1.BareMetalHost, infra *unstructured.Unstructured) *bmov1alpha1.BareMetalHost {
	slices.SortFunc(hosts, func(a, b bmov1alpha1.BareMetalHost) int { return cmp.Compare(a.Name, b.Name) })
	if i := slices.IndexFunc(hosts, func(h bmov1alpha1.BareMetalHost) bool { return consumedBy(&h, infra) }); i >= 0 {
		return &hosts[i]
	}
	if i := slices.IndexFunc(hosts, free); i >= 0 {
		return &hosts[i]
	}
	return nil
}

func free(host bmov1alpha1.BareMetalHost) bool {
	for _, unwanted := range keptOut {
		if _, marked := host.Annotations[unwanted]; marked {
			return false
		}
	}
	state := host.Status.Provisioning.State
	return host.Spec.ConsumerRef == nil && host.DeletionTimestamp.IsZero() && host.Status.ErrorMessage == "" &&
		(state == bmov1alpha1.StateAvailable || state == bmov1alpha1.StateReady)
}

func consumedBy(host *bmov1alpha1.BareMetalHost, infra *unstructured.Unstructured) bool {
	ref := host.Spec.ConsumerRef
	return ref != nil && ref.Kind == infra.GetKind() && ref.Name == infra.GetName() && ref.Namespace == infra.GetNamespace() &&
		strings.HasPrefix(ref.APIVersion, metal3Group.Group+"/")
}

// take makes the machine the consumer of a host and asks BMO to provision it. With optimistic locking only one of two machines gets the
// host.
func (p *pool) take(ctx context.Context, host *bmov1alpha1.BareMetalHost, infra *unstructured.Unstructured) error {
	if host.Spec.Image != nil && consumedBy(host, infra) {
		return nil
	}
	patch := client.MergeFromWithOptions(host.DeepCopy(), client.MergeFromWithOptimisticLock{})
	host.Spec.ConsumerRef = &corev1.ObjectReference{
		APIVersion: infra.GetAPIVersion(), Kind: infra.GetKind(), Namespace: infra.GetNamespace(), Name: infra.GetName(),
	}
	host.Spec.Image, host.Spec.Online = image.DeepCopy(), true
	if err := p.client.Patch(ctx, host, patch); err != nil {
		return fmt.Errorf("take host %s for %s: %w", host.Name, infra.GetName(), err)
	}
	return nil
}

// pausedByProvider is the value of the paused annotation that CAPM3 sets on a host.
const pausedByProvider = "metal3.io/capm3"

// pause pauses the host of a Metal3Machine while its Cluster is paused. It stores the status in an annotation, so that the host can be
// moved to another management cluster.
func (p *pool) pause(ctx context.Context, infra *unstructured.Unstructured, paused bool) error {
	host, err := p.hostOf(ctx, infra)
	if err != nil || host == nil || !consumedBy(host, infra) {
		return err
	}
	by, is := host.Annotations[bmov1alpha1.PausedAnnotation]
	before := host.DeepCopy()
	switch {
	case paused && !is:
		status, err := json.Marshal(host.Status)
		if err != nil {
			return fmt.Errorf("write down the status of host %s: %w", host.Name, err)
		}
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.PausedAnnotation, pausedByProvider)
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.StatusAnnotation, string(status))
	case !paused && by == pausedByProvider:
		delete(host.Annotations, bmov1alpha1.PausedAnnotation)
	default:
		return nil
	}
	if err := p.client.Patch(ctx, host, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("pause host %s, or end its pause: %w", host.Name, err)
	}
	return nil
}

// hostOf returns the host that the Metal3Machine names, or nil if it does not exist.
func (p *pool) hostOf(ctx context.Context, infra *unstructured.Unstructured) (*bmov1alpha1.BareMetalHost, error) {
	_, name, named := strings.Cut(infra.GetAnnotations()[hostAnnotation], "/")
	if !named {
		return nil, nil
	}
	host := &bmov1alpha1.BareMetalHost{}
	return present(host, p.client.Get(ctx, client.ObjectKey{Namespace: infra.GetNamespace(), Name: name}, host))
}

// vacate powers off, deprovisions and then releases the host of a Metal3Machine, and reports whether it is released.
func (p *pool) vacate(ctx context.Context, infra *unstructured.Unstructured) (bool, error) {
	host, err := p.hostOf(ctx, infra)
	if err != nil {
		return false, err
	}
	if host == nil || !consumedBy(host, infra) {
		return true, nil
	}
	patch := client.MergeFrom(host.DeepCopy())
	online := host.Spec.DisablePowerOff
	if host.Spec.Image != nil || host.Spec.Online != online {
		host.Spec.Image, host.Spec.Online = nil, online
		if err := p.client.Patch(ctx, host, patch); err != nil {
			return false, fmt.Errorf("deprovision host %s: %w", host.Name, err)
		}
		return false, nil
	}
	switch host.Status.Provisioning.State {
	case bmov1alpha1.StateNone, bmov1alpha1.StateUnmanaged, bmov1alpha1.StateRegistering, bmov1alpha1.StateMatchProfile,
		bmov1alpha1.StateInspecting, bmov1alpha1.StateReady, bmov1alpha1.StateAvailable:
	case bmov1alpha1.StateExternallyProvisioned:
		if host.Status.PoweredOn && !host.Spec.DisablePowerOff {
			return false, nil
		}
	default:
		return false, nil
	}
	host.Spec.ConsumerRef = nil
	if err := p.client.Patch(ctx, host, patch); err != nil {
		return false, fmt.Errorf("release host %s: %w", host.Name, err)
	}
	return true, nil
}

// tenantsOf returns the Metal3Machines for which a change of a host matters: its consumer, or those without a host.
func (p *pool) tenantsOf(ctx context.Context, object client.Object) []reconcile.Request {
	host, ok := object.(*bmov1alpha1.BareMetalHost)
	if !ok {
		return nil
	}
	if ref := host.Spec.ConsumerRef; ref != nil {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}}}
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(metal3Machine)
	if err := p.client.List(ctx, list, client.InNamespace(host.Namespace)); err != nil {
		return nil // only a stopping cache returns an error
	}
	var requests []reconcile.Request
	for _, item := range list.Items {
		if item.GetAnnotations()[hostAnnotation] == "" {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&item)})
		}
	}
	return requests
}
