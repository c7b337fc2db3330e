package capacity

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/controllers/decide/capacity"
	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
)

// moment is t, or the zero time.
func moment(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func groupOf(apiVersion string) string { return schema.FromAPIVersionAndKind(apiVersion, "").Group }

// condition is that of a type.
func condition(from conditions.Getter, kind string) capacity.Condition {
	is := conditions.Get(from, kind)
	if is == nil {
		return capacity.Condition{}
	}
	return capacity.Condition{Status: string(is.Status), Reason: is.Reason, Message: is.Message, Since: is.LastTransitionTime.Time}
}

// whenTrue is since when a condition is true; zero if it is not.
func whenTrue(from conditions.Getter, kind string) time.Time {
	if is := conditions.Get(from, kind); is != nil && is.Status == metav1.ConditionTrue {
		return is.LastTransitionTime.Time
	}
	return time.Time{}
}

// machine are the facts about m that are in m itself.
func (o *Observer) machine(m *clusterv1.Machine) capacity.Machine {
	is := capacity.Machine{
		Name: m.Name, UID: string(m.UID), Created: m.CreationTimestamp.Time, Deleting: moment(m.DeletionTimestamp), Deletion: deletionOf(m),
		Asked: condition(m, clusterv1.MachineOwnerRemediatedCondition), Unhealthy: conditions.IsFalse(m, clusterv1.MachineHealthCheckSucceededCondition),
		Bootstrap:         condition(m, clusterv1.MachineBootstrapConfigReadyCondition),
		BootstrapProvided: ptr.Deref(m.Status.Initialization.BootstrapDataSecretCreated, false) || !m.Spec.Bootstrap.ConfigRef.IsDefined(),
		BootstrapConfig:   object(m, m.Spec.Bootstrap.ConfigRef),
		Infrastructure:    condition(m, clusterv1.MachineInfrastructureReadyCondition), Infra: object(m, m.Spec.InfrastructureRef),
		InfrastructureProvisioned: ptr.Deref(m.Status.Initialization.InfrastructureProvisioned, false) ||
			conditions.IsTrue(m, clusterv1.MachineInfrastructureReadyCondition),
		Metal3: isMetal3(m), Node: m.Status.NodeRef.Name, Ready: condition(m, clusterv1.MachineReadyCondition), NodeReady: o.nodeReady(m),
	}
	if node := condition(m, clusterv1.MachineNodeReadyCondition); node.Reason == clusterv1.MachineNodeConnectionDownReason {
		is.Connection = node
	}
	_, is.Paused = m.Annotations[clusterv1.PausedAnnotation]
	_, is.ControlPlane = m.Labels[clusterv1.MachineControlPlaneLabel]
	if owner := metav1.GetControllerOf(m); owner != nil && owner.Kind == machineSetKind {
		is.Set = owner.Name
	}
	replaces := replacementBy(m)
	is.Replaces, is.ReplacesSince = replaces.Machine, replaces.Timestamp.Time
	return is
}

// nodeReady is the condition Ready of the node of m: as the caller knows it, or as the Machine controller has read it.
func (o *Observer) nodeReady(m *clusterv1.Machine) capacity.Condition {
	if o.NodeReady != nil && m.Status.NodeRef.IsDefined() {
		if is, known := o.NodeReady(m); known {
			return is
		}
	}
	return condition(m, clusterv1.MachineNodeReadyCondition)
}

func object(m *clusterv1.Machine, ref clusterv1.ContractVersionedObjectReference) capacity.Object {
	if !ref.IsDefined() {
		return capacity.Object{}
	}
	return capacity.Object{Kind: ref.Kind, Namespace: m.Namespace, Name: ref.Name}
}

func isMetal3(m *clusterv1.Machine) bool {
	return m.Spec.InfrastructureRef.Kind == metal3MachineKind && m.Spec.InfrastructureRef.APIGroup == infrav1.GroupVersion.Group
}

// deletionOf is how far the deletion of m is, by what is in m itself.
func deletionOf(m *clusterv1.Machine) capacity.Deletion {
	if m.DeletionTimestamp.IsZero() {
		return capacity.Deletion{}
	}
	spec := m.Spec.Deletion
	d := capacity.Deletion{
		Condition: condition(m, clusterv1.MachineDeletingCondition), Finalizers: finalizersOf(m),
		PreDrainHooks: hooks(m, clusterv1.PreDrainDeleteHookAnnotationPrefix), PreTerminateHooks: hooks(m, clusterv1.PreTerminateDeleteHookAnnotationPrefix),
		DrainTimeout: seconds(spec.NodeDrainTimeoutSeconds, 0), VolumeTimeout: seconds(spec.NodeVolumeDetachTimeoutSeconds, 0),
		NodeTimeout: seconds(spec.NodeDeletionTimeoutSeconds, 0),
	}
	if is := m.Status.Deletion; is != nil {
		d.DrainSince, d.VolumesSince = is.NodeDrainStartTime.Time, is.WaitForNodeVolumeDetachStartTime.Time
		d.PreDrainSince, d.PreTerminateSince = is.WaitForPreDrainHookStartTime.Time, is.WaitForPreTerminateHookStartTime.Time
	}
	return d
}

// seconds is the one place here where seconds of a spec become durations.
func seconds(n *int32, otherwise int32) time.Duration {
	return time.Duration(ptr.Deref(n, otherwise)) * time.Second
}

// hooks are the annotations of a hook, sorted.
func hooks(m *clusterv1.Machine, prefix string) []capacity.Hook {
	var all []capacity.Hook
	for key, value := range m.Annotations {
		if strings.HasPrefix(key, prefix) {
			all = append(all, capacity.Hook{Name: key, Owner: value})
		}
	}
	slices.SortFunc(all, func(a, b capacity.Hook) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// finalizersOf are those of an object, each with the field manager that added it, where managed fields were read.
func finalizersOf(obj client.Object) []capacity.Finalizer {
	all := make([]capacity.Finalizer, 0, len(obj.GetFinalizers()))
	for _, name := range obj.GetFinalizers() {
		is := capacity.Finalizer{Name: name}
		for _, entry := range obj.GetManagedFields() {
			if entry.FieldsV1 != nil && setsFinalizer(entry.FieldsV1.GetRawBytes(), name) {
				is.By = entry.Manager
			}
		}
		all = append(all, is)
	}
	return all
}

// setsFinalizer reports whether managed fields have a finalizer of that name. (Kubernetes: a set has its values as keys, behind "v:".)
func setsFinalizer(fields []byte, name string) bool {
	var set struct {
		Metadata struct {
			Finalizers map[string]json.RawMessage `json:"f:finalizers"`
		} `json:"f:metadata"`
	}
	quoted, err := json.Marshal(name)
	if err != nil || json.Unmarshal(fields, &set) != nil {
		return false
	}
	_, has := set.Metadata.Finalizers["v:"+string(quoted)]
	return has
}

// replacement is what a KubeadmControlPlane writes about the machine that another one was made for. (Cluster API, RemediationData.)
type replacement struct {
	Machine    string      `json:"machine"`
	Timestamp  metav1.Time `json:"timestamp"`
	RetryCount int         `json:"retryCount"`
}

// replacementBy is the remediation that m was made by. A user may have written anything.
func replacementBy(m *clusterv1.Machine) replacement {
	return remediationIn(m.Annotations[controlplanev1.RemediationForAnnotation])
}

// remediationIn is what an annotation says; zero if it says nothing that can be read.
func remediationIn(annotation string) replacement {
	var says replacement
	if json.Unmarshal([]byte(annotation), &says) != nil || len(validation.IsDNS1123Subdomain(says.Machine)) > 0 {
		return replacement{}
	}
	return says
}

// Replaces is the machine that m was made for, and when that was deleted, if its owner has written it down.
func Replaces(m *clusterv1.Machine) (name string, at time.Time) {
	by := replacementBy(m)
	return by.Machine, by.Timestamp.Time
}

// KubeadmFacts are what decides when kcp replaces m, of machines that are those of kcp or others too.
func KubeadmFacts(kcp *controlplanev1.KubeadmControlPlane, m *clusterv1.Machine, machines []*clusterv1.Machine, now time.Time) kubeadm.Facts {
	return kubeadmFacts(kubeadmRules(kcp, now), m, slices.DeleteFunc(slices.Clone(machines), func(m *clusterv1.Machine) bool {
		owner := metav1.GetControllerOf(m)
		return owner == nil || owner.Kind != kubeadmKind || owner.Name != kcp.Name
	}))
}

// kubeadmRules are the facts that are in kcp itself.
func kubeadmRules(kcp *controlplanev1.KubeadmControlPlane, now time.Time) *kubeadm.Facts {
	rules := kcp.Spec.Remediation
	return &kubeadm.Facts{
		Now: now, InProgress: remediationIn(kcp.Annotations[controlplanev1.RemediationInProgressAnnotation]).Machine,
		Initialized: ptr.Deref(kcp.Status.Initialization.ControlPlaneInitialized, false),
		Rules: kubeadm.Rules{
			MaxRetry: int(ptr.Deref(rules.MaxRetry, -1)), RetryPeriod: seconds(rules.RetryPeriodSeconds, 0),
			MinHealthy: seconds(rules.MinHealthyPeriodSeconds, controlplanev1.DefaultMinHealthyPeriodSeconds),
		},
	}
}

// kubeadmFacts adds to the rules what is in the machine, which may be nil, and in all of its control plane.
func kubeadmFacts(rules *kubeadm.Facts, m *clusterv1.Machine, all []*clusterv1.Machine) kubeadm.Facts {
	f := *rules
	f.Machines = len(all)
	if m != nil {
		if f.InProgress == m.Name {
			f.InProgress = ""
		}
		asked, by := condition(m, clusterv1.MachineOwnerRemediatedCondition), replacementBy(m)
		f.Asked, f.Refused = asked.Since, asked.Reason == controlplanev1.KubeadmControlPlaneMachineCannotBeRemediatedReason
		f.Last = kubeadm.Remediation{At: by.Timestamp.Time, Retries: by.RetryCount}
	}
	for _, other := range all {
		if !other.DeletionTimestamp.IsZero() {
			f.Deleting = append(f.Deleting, other.Name)
		}
		if !other.Status.NodeRef.IsDefined() && !conditions.IsFalse(other, clusterv1.MachineHealthCheckSucceededCondition) {
			f.Provisioning = append(f.Provisioning, other.Name)
		}
	}
	slices.Sort(f.Deleting)
	slices.Sort(f.Provisioning)
	return f
}
