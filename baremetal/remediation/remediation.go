package remediation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/capi"
)

// Existing are the remediations of all kinds in a namespace, whichever controller acts on them. Users can edit the annotation with the
// record, so a record counts only where it agrees with the objects that exist. (docs/security.md)
type Existing struct {
	// All are shared with the cache: read only.
	All []OfKind
	own map[types.UID]bool
}

// OfKind is a remediation with its kind.
type OfKind struct {
	client.Object
	Kind Kind
}

// Installed returns the kinds of remediations that have a CRD.
type Installed func() ([]Kind, error)

// In lists the remediations of all installed kinds in a namespace.
func (installed Installed) In(ctx context.Context, reader client.Reader, namespace string) (Existing, error) {
	kinds, err := installed()
	if err != nil {
		return Existing{}, err
	}
	return List(ctx, reader, kinds, namespace)
}

// List lists the remediations of these kinds in a namespace.
func List(ctx context.Context, reader client.Reader, kinds []Kind, namespace string) (Existing, error) {
	e := Existing{own: map[types.UID]bool{}}
	for _, kind := range kinds {
		list := kind.List()
		if err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return Existing{}, fmt.Errorf("list %s in %s: %w", kind.Kind, namespace, err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			rem := OfKind{o.(client.Object), kind}
			e.All, e.own[rem.GetUID()] = append(e.All, rem), true
			return nil
		})
		if err != nil {
			return Existing{}, fmt.Errorf("read the list of %s in %s: %w", kind.Kind, namespace, err)
		}
	}
	return e, nil
}

// Former returns the UID that rem had before `clusterctl move`. It is empty if rem was not moved, or if the record cannot be true: a
// remediation with that UID exists, or the record names another machine than the owner of rem.
func (e Existing) Former(rem client.Object) types.UID {
	rec, owner := Remembered(rem), OwnerOf(rem)
	if rec.UID == rem.GetUID() || e.own[rec.UID] || owner == nil || rec.Machine != owner.Name {
		return ""
	}
	return rec.UID
}

// Has reports whether a remediation has that UID, or had it before `clusterctl move`.
func (e Existing) Has(uid types.UID) bool {
	return e.own[uid] || uid != "" && slices.ContainsFunc(e.All, func(rem OfKind) bool { return e.Former(rem) == uid })
}

// Of returns the remediations that m owns, in the order of the kinds.
func (e Existing) Of(m *clusterv1.Machine) []OfKind {
	return slices.DeleteFunc(slices.Clone(e.All), func(rem OfKind) bool { return !OwnedBy(rem, m) })
}

// OnHost returns the remediations with annotations on h that act on its power, in the order of the kinds, and the UIDs in such annotations
// that belong to none of e: these remediations do not exist any more, or are of another kind.
func (e Existing) OnHost(h metav1.Object) (known []OfKind, unknown []types.UID) {
	left := map[types.UID]bool{}
	for _, uid := range host.AllMarks(h) {
		left[uid] = true
	}
	acting := maps.Clone(left)
	for _, rem := range e.All {
		uid, former := rem.GetUID(), Remembered(rem).UID
		if acting[uid] || former != "" && acting[former] {
			known = append(known, rem)
			delete(left, uid)
			delete(left, former)
		}
	}
	return known, slices.Sorted(maps.Keys(left))
}

// OwnerOf returns the owner reference of rem to a Machine; nil if there is none.
func OwnerOf(rem client.Object) *metav1.OwnerReference {
	for _, owner := range rem.GetOwnerReferences() {
		if owner.Kind == "Machine" && schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group == clusterv1.GroupVersion.Group {
			return &owner
		}
	}
	return nil
}

// OwnedBy reports whether m owns rem.
func OwnedBy(rem client.Object, m *clusterv1.Machine) bool {
	owner := OwnerOf(rem)
	return owner != nil && owner.UID == m.UID
}

// Record is what a remediation remembers. It is stored in an annotation, because annotations survive `clusterctl move`, and because
// Metal3Remediation has no field for it.
type Record struct {
	powercycle.Memory `json:",inline"`

	// UID is the UID of the remediation that wrote the record. After `clusterctl move` the host still has annotations with this old UID.
	UID types.UID `json:"uid,omitempty"`
	// HostUID is the UID of the host that was asked to power off or to reboot. A new host with the same name was not asked.
	HostUID types.UID `json:"hostUID,omitempty"`
	// Machine is the name of the machine. If the owner has another name, the record was copied from another remediation.
	Machine string `json:"machine,omitempty"`
	// Host, Node and Cluster are names, for when the objects that name them are gone.
	Host    string `json:"host,omitempty"`
	Node    string `json:"node,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// ControlPlane says that the machine is a member of a control plane, by a label of the Machine or its Node. The Node may be unreadable
	// later.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// MayControl says that it may be one: its API did not answer before the Node was seen, and no Machine of the cluster has the label.
	MayControl bool `json:"mayControl,omitempty"`
	// Filter is the value of --watch-filter under which the remediation began. Such a manager finishes it even without the label.
	Filter string `json:"filter,omitempty"`
	// BootID is the node's boot ID before the power cycle. A node that is Ready with the same boot ID has not booted yet.
	BootID string `json:"bootID,omitempty"`
	// NodeUID is the UID of the node before the power cycle. Another node with its name is not fenced.
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// BootSeconds is how long a boot of the host may take, by its last boot; zero if that was not yet looked up.
	BootSeconds int64 `json:"bootSeconds,omitempty"`
	// Pods had to move when the node was fenced; nil if they are not known. Later pods have never run on the host.
	Pods []types.UID `json:"pods,omitzero"`
}

// RecordOf returns the record of rem. A record that cannot be read is an error, because a remediation that started over could do everything
// twice. The record besides the error is that of a failed remediation, so that the controller releases what it can find.
func RecordOf(rem client.Object) (Record, error) {
	value, found := rem.GetAnnotations()[mendv1.PowerCycleAnnotation]
	if !found {
		return Record{}, nil
	}
	var r Record
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		err = fmt.Errorf("metadata.annotations[%s]: expected what kubemend wrote there: %w", mendv1.PowerCycleAnnotation, err)
		return Record{Memory: powercycle.Memory{State: powercycle.Failed, Fencing: true, Cause: powercycle.Cause{Said: err.Error()}}}, err
	}
	return r, nil
}

// Remembered returns the record of rem; an empty one if it cannot be read.
func Remembered(rem client.Object) Record {
	if rec, err := RecordOf(rem); err == nil {
		return rec
	}
	return Record{}
}

// Encode returns the value of the annotation.
func (r Record) Encode() (string, error) {
	content, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode what is remembered: %w", err)
	}
	return string(content), nil
}

// By returns the UIDs with which rem is known on its host. The caller must have checked the UID in the record (see Existing.Former).
func (r Record) By(rem client.Object) host.Remediation {
	who := host.Remediation{UID: rem.GetUID()}
	if r.UID != who.UID {
		who.Before = r.UID
	}
	return who
}

// RequestOwner asks the owner of m to remediate it, with the condition OwnerRemediated in both API versions: current MachineSets and
// KubeadmControlPlanes act only on the v1beta2 condition, older ones on the v1beta1 condition. (CAPM3 writes only the latter, and nothing
// happens.)
//
// Owners act only if HealthCheckSucceeded is False too, and drop the request if it is True. If no MachineHealthCheck selects m, because a
// NodeHealthCheck or a user asked for the power cycle, RequestOwner sets HealthCheckSucceeded.
func RequestOwner(ctx context.Context, c client.Client, m *clusterv1.Machine, now time.Time) error {
	judged, err := Judged(ctx, c, m)
	if err != nil {
		return err
	}
	next := m.DeepCopy()
	if !judged {
		conditions.Set(next, metav1.Condition{
			Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now),
			Reason: mendv1.PowerCycleFailedReason, Message: "Power-cycling the host did not help, and no MachineHealthCheck judges " +
				"the machine",
		})
		v1beta1conditions.Set(next, &clusterv1.Condition{
			Type: clusterv1.MachineHealthCheckSucceededV1Beta1Condition, Status: corev1.ConditionFalse,
			Severity: clusterv1.ConditionSeverityWarning, Reason: mendv1.PowerCycleFailedReason,
		})
	}
	conditions.Set(next, metav1.Condition{
		Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now),
		Reason:  clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
		Message: "Waiting for remediation: power-cycling the host did not help",
	})
	v1beta1conditions.Set(next, &clusterv1.Condition{
		Type: clusterv1.MachineOwnerRemediatedV1Beta1Condition, Status: corev1.ConditionFalse,
		Severity: clusterv1.ConditionSeverityWarning, Reason: clusterv1.WaitingForRemediationV1Beta1Reason,
	})
	return patch(ctx, c, next)
}

// WithdrawFromOwner removes the request, unless the owner has already answered it, and the HealthCheckSucceeded that RequestOwner set.
func WithdrawFromOwner(ctx context.Context, c client.Client, m *clusterv1.Machine) error {
	next := m.DeepCopy()
	cond := conditions.Get(m, clusterv1.MachineOwnerRemediatedCondition)
	asked := cond != nil && cond.Status == metav1.ConditionFalse &&
		cond.Reason == clusterv1.MachineOwnerRemediatedWaitingForRemediationReason
	if asked {
		conditions.Delete(next, clusterv1.MachineOwnerRemediatedCondition)
		v1beta1conditions.Delete(next, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
	}
	marked := markedByKubemend(m)
	if marked {
		conditions.Delete(next, clusterv1.MachineHealthCheckSucceededCondition)
		v1beta1conditions.Delete(next, clusterv1.MachineHealthCheckSucceededV1Beta1Condition)
	}
	if !asked && !marked {
		return nil
	}
	return patch(ctx, c, next)
}

func patch(ctx context.Context, c client.Client, m *clusterv1.Machine) error {
	if err := client.IgnoreNotFound(capi.PatchConditions(ctx, c, m)); err != nil {
		return fmt.Errorf("write the conditions of machine %s: %w", m.Name, err)
	}
	return nil
}

// Judged reports whether a MachineHealthCheck, kubemend's or Cluster API's, selects m. If none does, because it was paused or deleted, its
// last verdict stays on m. A NodeHealthCheck sets no condition on Machines.
func Judged(ctx context.Context, checks client.Reader, m *clusterv1.Machine) (bool, error) {
	list := &clusterv1.MachineHealthCheckList{}
	if err := checks.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the MachineHealthChecks in %s: %w", m.Namespace, err)
	}
	return slices.ContainsFunc(list.Items, func(check clusterv1.MachineHealthCheck) bool { return capi.Judges(&check, m) }), nil
}

// MarkedUnhealthy reports whether a health check has marked m unhealthy. HealthCheckSucceeded from RequestOwner does not count.
func MarkedUnhealthy(m *clusterv1.Machine) bool {
	return conditions.IsFalse(m, clusterv1.MachineHealthCheckSucceededCondition) && !markedByKubemend(m)
}

// markedByKubemend reports whether RequestOwner has set HealthCheckSucceeded.
func markedByKubemend(m *clusterv1.Machine) bool {
	return conditions.GetReason(m, clusterv1.MachineHealthCheckSucceededCondition) == mendv1.PowerCycleFailedReason
}
