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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/workload"
)

// Kind is that of hosts.
var Kind = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")

// Host is a BareMetalHost as far as a remediation of its machine goes by it. Its maps are shared with the cache: read only.
type Host struct {
	// ObjectMeta has its name, UID, version and annotations.
	metav1.ObjectMeta
	powercycle.Power
	// Consumer is what it says it belongs to, by its spec.consumerRef; nil if it does not say.
	Consumer *corev1.ObjectReference
	// Model is its manufacturer and product name, as the Bare Metal Operator has inspected them; empty if it has not.
	Model string
}

// From is the Host of a BareMetalHost.
func From(bmh *bmov1alpha1.BareMetalHost) *Host {
	return &Host{ObjectMeta: bmh.ObjectMeta, Power: PowerOf(bmh), Consumer: bmh.Spec.ConsumerRef, Model: modelOf(bmh.Status.HardwareDetails)}
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

// Reference is host with its kind, as the object of an event or a patch.
func Reference(host metav1.Object) *metav1.PartialObjectMetadata {
	about := &metav1.PartialObjectMetadata{}
	about.SetGroupVersionKind(Kind)
	about.Name, about.Namespace, about.UID = host.GetName(), host.GetNamespace(), host.GetUID()
	return about
}

// Watched is an object of the kind, for watches.
func Watched() client.Object { return &bmov1alpha1.BareMetalHost{} }

// Changes passes the changes of a host that a remediation may depend on.
func Changes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !SameToUs(e.ObjectOld.(*bmov1alpha1.BareMetalHost), e.ObjectNew.(*bmov1alpha1.BareMetalHost))
	}}
}

func modelOf(hardware *bmov1alpha1.HardwareDetails) string {
	if hardware == nil {
		return ""
	}
	return strings.Join(strings.Fields(hardware.SystemVendor.Manufacturer+" "+hardware.SystemVendor.ProductName), " ")
}

// slimHardware is what modelOf reads of what was inspected. There are as many copies of the words as there are models.
func slimHardware(hardware *bmov1alpha1.HardwareDetails) *bmov1alpha1.HardwareDetails {
	if hardware == nil {
		return nil
	}
	return &bmov1alpha1.HardwareDetails{SystemVendor: bmov1alpha1.HardwareSystemVendor{
		Manufacturer: workload.Interned(hardware.SystemVendor.Manufacturer), ProductName: workload.Interned(hardware.SystemVendor.ProductName),
	}}
}

// MachineOf returns the machine that host says it belongs to: the one whose infrastructure is the Metal3Machine that its spec.consumerRef
// leads to. It returns nil if there is none. Whether the machine says the same of the host is for Of to find out.
func (h *Hosts) MachineOf(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*clusterv1.Machine, error) {
	between, err := h.consumer(ctx, From(host))
	if err != nil || !spare.IsMetal3Machine(between) || between.Namespace != host.Namespace { // a Metal3Machine and its host share theirs
		return nil, err
	}
	list := &clusterv1.MachineList{}
	if err := h.Client.List(ctx, list, client.InNamespace(host.Namespace)); err != nil {
		return nil, fmt.Errorf("list the machines in %s: %w", host.Namespace, err)
	}
	for i := range list.Items {
		ref := list.Items[i].Spec.InfrastructureRef
		if ref.Kind == metal3Machine.Kind && ref.APIGroup == metal3Machine.Group && ref.Name == between.Name {
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

// PowerOf returns what host says of its power.
func PowerOf(host *bmov1alpha1.BareMetalHost) powercycle.Power {
	p := powercycle.Power{
		Wanted: host.Spec.Online, KeptOffBy: keptOffByHand(host), PoweredOn: host.Status.PoweredOn, NoPowerOff: host.Spec.DisablePowerOff,
		Unmanaged: unmanaged(host), External: host.Status.Provisioning.State == bmov1alpha1.StateExternallyProvisioned,
		Serviced: host.Status.OperationalStatus == bmov1alpha1.OperationalStatusServicing || host.Status.ErrorType == bmov1alpha1.ServicingError,
		Fails:    host.Status.ErrorType == bmov1alpha1.PowerManagementError,
	}
	_, paused := host.Annotations[bmov1alpha1.PausedAnnotation]
	_, detached := host.Annotations[bmov1alpha1.DetachedAnnotation] // the status shows one that is being attached again
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

// unmanaged says why BMO does not act on a reboot annotation of host. It manages power in the two states of a host with an image on it,
// does nothing for one that is paused or detached, and does not get to the power of one whose registration fails: what it says of that
// power is what it was before. (BMO, actionManageSteadyState, ensureRegistered, checkDelayedHost.)
func unmanaged(host *bmov1alpha1.BareMetalHost) string {
	if by, paused := host.Annotations[bmov1alpha1.PausedAnnotation]; paused {
		return fmt.Sprintf("the host is paused (annotation %s: %q)", bmov1alpha1.PausedAnnotation, by)
	}
	if _, detached := host.Annotations[bmov1alpha1.DetachedAnnotation]; detached || host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached {
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

// SlimHost is the transform of the cache of hosts. It drops what is not read here: hardware details but the model, images, firmware,
// networks, and annotations that are neither ours nor about power. A host of 30 KiB becomes one of less than 1 KiB. Of its labels it keeps
// those that a hostSelector may name, which is all of them.
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
	slim.Status.HardwareDetails = slimHardware(h.Status.HardwareDetails)
	slim.Status.Provisioning.State, slim.Status.LastUpdated = h.Status.Provisioning.State, h.Status.LastUpdated
	if manageable := meta.FindStatusCondition(h.Status.Conditions, bmov1alpha1.ManageableCondition); manageable != nil {
		slim.Status.Conditions = []metav1.Condition{{Type: manageable.Type, Status: manageable.Status, Reason: manageable.Reason}}
	}
	return slim, nil
}
