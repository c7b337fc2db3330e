package host

import (
	"context"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/workload"
)

// Kind is the kind BareMetalHost.
var Kind = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")

// Host is the part of a BareMetalHost that remediations need. Its maps are shared with the cache: read only.
type Host struct {
	metav1.ObjectMeta
	powercycle.Power
	// Consumer is spec.consumerRef; nil if there is none.
	Consumer *corev1.ObjectReference
	// Model is the manufacturer and product name that BMO has found by inspection; empty if BMO has not inspected the host.
	Model string
}

// From returns the Host of a BareMetalHost.
func From(bmh *bmov1alpha1.BareMetalHost) *Host {
	vendor := ptr.Deref(bmh.Status.HardwareDetails, bmov1alpha1.HardwareDetails{}).SystemVendor
	return &Host{ObjectMeta: bmh.ObjectMeta, Power: PowerOf(bmh), Consumer: bmh.Spec.ConsumerRef,
		Model: strings.Join(strings.Fields(vendor.Manufacturer+" "+vendor.ProductName), " ")}
}

// List returns the hosts that reader lists.
func List(ctx context.Context, reader client.Reader, options ...client.ListOption) ([]*Host, error) {
	list := &bmov1alpha1.BareMetalHostList{}
	if err := reader.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("list BareMetalHosts: %w", err)
	}
	hosts := make([]*Host, 0, len(list.Items))
	for i := range list.Items {
		hosts = append(hosts, From(&list.Items[i]))
	}
	return hosts, nil
}

// Reference returns host's kind, name and UID, for an event or a patch.
func Reference(host metav1.Object) *metav1.PartialObjectMetadata {
	about := &metav1.PartialObjectMetadata{}
	about.SetGroupVersionKind(Kind)
	about.Name, about.Namespace, about.UID = host.GetName(), host.GetNamespace(), host.GetUID()
	return about
}

// Watched returns an empty host, for watches.
func Watched() client.Object { return &bmov1alpha1.BareMetalHost{} }

// Changes lets only changes of a host through that a remediation may depend on.
func Changes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !SameToUs(e.ObjectOld.(*bmov1alpha1.BareMetalHost), e.ObjectNew.(*bmov1alpha1.BareMetalHost))
	}}
}

// MachineOf returns the Machine whose Metal3Machine spec.consumerRef of host leads to; nil if there is none. Of verifies whether the
// Machine leads back to the host.
func (h *Hosts) MachineOf(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*clusterv1.Machine, error) {
	m3m, err := h.consumer(ctx, From(host))
	if err != nil || !spare.IsMetal3Machine(m3m) || m3m.Namespace != host.Namespace { // both are in one namespace
		return nil, err
	}
	list := &clusterv1.MachineList{}
	if err := h.Client.List(ctx, list, client.InNamespace(host.Namespace)); err != nil {
		return nil, fmt.Errorf("list the machines in %s: %w", host.Namespace, err)
	}
	for i := range list.Items {
		ref := list.Items[i].Spec.InfrastructureRef
		if ref.Kind == metal3Machine.Kind && ref.APIGroup == metal3Machine.Group && ref.Name == m3m.Name {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// WantsOf returns what m wants of its host; reader reads its whole Metal3Machine. The replacement of m will want the same, because its
// owner clones both from one template. (Only a KubeadmControlPlane whose rollout changes hostSelector clones another one.)
func WantsOf(ctx context.Context, reader client.Reader, c client.Client, m *clusterv1.Machine) (spare.Wants, error) {
	kind, err := Metal3MachineKind(c.RESTMapper())
	if err != nil {
		return spare.Any, err
	}
	m3m, key := &unstructured.Unstructured{}, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.InfrastructureRef.Name}
	m3m.SetGroupVersionKind(kind.GroupVersionKind())
	if err := reader.Get(ctx, key, m3m); err != nil {
		return spare.Any, fmt.Errorf("read Metal3Machine %s: %w", key, err)
	}
	return spare.WantsBy(m3m, m)
}

// PowerOf returns what host reports about its power.
func PowerOf(host *bmov1alpha1.BareMetalHost) powercycle.Power {
	p := powercycle.Power{
		Wanted: host.Spec.Online, KeptOffBy: keptOffByHand(host), PoweredOn: host.Status.PoweredOn, NoPowerOff: host.Spec.DisablePowerOff,
		Unmanaged: unmanaged(host), External: host.Status.Provisioning.State == bmov1alpha1.StateExternallyProvisioned,
		Serviced: host.Status.OperationalStatus == bmov1alpha1.OperationalStatusServicing ||
			host.Status.ErrorType == bmov1alpha1.ServicingError,
		Fails: host.Status.ErrorType == bmov1alpha1.PowerManagementError,
	}
	_, paused := host.Annotations[bmov1alpha1.PausedAnnotation]
	_, detached := host.Annotations[bmov1alpha1.DetachedAnnotation] // status stays detached while the host is attached again
	p.SetAside = paused || detached || host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached
	if at := host.Status.LastUpdated; at != nil {
		p.Said = at.Time
	}
	if host.Status.OperationalStatus == bmov1alpha1.OperationalStatusError || host.Status.ErrorType != "" {
		p.Trouble = fmt.Sprintf("%s: %s", host.Status.ErrorType, host.Status.ErrorMessage)
	}
	manageable := meta.FindStatusCondition(host.Status.Conditions, bmov1alpha1.ManageableCondition)
	p.Provable = manageable != nil
	switch {
	case p.Provable && manageable.Status != metav1.ConditionTrue:
		p.Doubt = fmt.Sprintf("its condition %s is %s (%s)", manageable.Type, manageable.Status, manageable.Reason)
		p.Fails = p.Fails || manageable.Reason == bmov1alpha1.PowerFailureReason
	case p.Trouble != "":
		p.Doubt = p.Trouble
	case host.Status.OperationalStatus != bmov1alpha1.OperationalStatusOK:
		p.Doubt = fmt.Sprintf("its operational status is %q", host.Status.OperationalStatus)
	}
	return p
}

// unmanaged says why BMO does not act on a reboot annotation of host. BMO manages power in the two states of a host with an image. It does
// nothing for a host that is paused or detached, and does not get to the power of a host whose registration fails, whose status then shows
// the power from before. (BMO, actionManageSteadyState, ensureRegistered, checkDelayedHost.)
func unmanaged(host *bmov1alpha1.BareMetalHost) string {
	if by, paused := host.Annotations[bmov1alpha1.PausedAnnotation]; paused {
		return fmt.Sprintf("the host is paused (annotation %s: %q)", bmov1alpha1.PausedAnnotation, by)
	}
	_, detached := host.Annotations[bmov1alpha1.DetachedAnnotation]
	if detached || host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached {
		return "the host is detached"
	}
	switch host.Status.ErrorType {
	case bmov1alpha1.RegistrationError, bmov1alpha1.ProvisionedRegistrationError, bmov1alpha1.DetachError:
		return fmt.Sprintf("the host has a %s, and its power is not read before that is over", host.Status.ErrorType)
	}
	if host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDelayed {
		return "the host is delayed: its operator has too much to do"
	}
	switch state := host.Status.Provisioning.State; state {
	case bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned:
		return ""
	default:
		return fmt.Sprintf("the host is %q, and its power is managed only when it is %q or %q",
			state, bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned)
	}
}

// SlimHost is the transform of the cache of hosts. It drops what kubemend does not read, and reduces a host of 30 KiB to less than 1 KiB.
// It keeps all labels, because a hostSelector may name any.
func SlimHost(obj any) (any, error) {
	h, ok := obj.(*bmov1alpha1.BareMetalHost)
	if !ok {
		return obj, nil
	}
	slim := &bmov1alpha1.BareMetalHost{TypeMeta: h.TypeMeta}
	slim.Name, slim.Namespace, slim.UID, slim.ResourceVersion = h.Name, h.Namespace, h.UID, h.ResourceVersion
	slim.CreationTimestamp, slim.DeletionTimestamp = h.CreationTimestamp, h.DeletionTimestamp
	for key, value := range h.Annotations {
		if relevant(key) {
			if slim.Annotations == nil {
				slim.Annotations = map[string]string{}
			}
			slim.Annotations[key] = value
		}
	}
	slim.Labels, slim.Status.OperationHistory = h.Labels, h.Status.OperationHistory
	slim.Spec.Online, slim.Spec.ConsumerRef, slim.Spec.DisablePowerOff = h.Spec.Online, h.Spec.ConsumerRef, h.Spec.DisablePowerOff
	slim.Status.PoweredOn, slim.Status.OperationalStatus = h.Status.PoweredOn, h.Status.OperationalStatus
	slim.Status.ErrorType, slim.Status.ErrorMessage = h.Status.ErrorType, h.Status.ErrorMessage
	if hardware := h.Status.HardwareDetails; hardware != nil { // From reads only the model
		slim.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{SystemVendor: bmov1alpha1.HardwareSystemVendor{
			Manufacturer: workload.Interned(hardware.SystemVendor.Manufacturer),
			ProductName:  workload.Interned(hardware.SystemVendor.ProductName),
		}}
	}
	slim.Status.Provisioning.State, slim.Status.LastUpdated = h.Status.Provisioning.State, h.Status.LastUpdated
	if manageable := meta.FindStatusCondition(h.Status.Conditions, bmov1alpha1.ManageableCondition); manageable != nil {
		slim.Status.Conditions = []metav1.Condition{{Type: manageable.Type, Status: manageable.Status, Reason: manageable.Reason}}
	}
	return slim, nil
}
