package simulator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// leaseSeconds is the value of a real kubelet. The node-lifecycle controller uses the time of the renewals, not this value.
const leaseSeconds = 40

// attachedByController is the annotation with which a kubelet leaves the attaching of volumes to kube-controller-manager.
const attachedByController = "volumes.kubernetes.io/controller-managed-attach-detach"

// healthyReports returns the conditions of a healthy node, with the reasons and messages of a real kubelet.
func healthyReports() map[corev1.NodeConditionType]report {
	return map[corev1.NodeConditionType]report{
		corev1.NodeReady:          {corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"},
		corev1.NodeMemoryPressure: {corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		corev1.NodeDiskPressure:   {corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		corev1.NodePIDPressure:    {corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
	}
}

// boot is the state of a kubelet between a start and a stop of its host.
type boot struct {
	*Kubelet
	id         string
	registered bool
	// posted is when the conditions were last written.
	posted time.Time
	// volumes has the volumes of known claims.
	volumes map[client.ObjectKey]corev1.UniqueVolumeName
	// attached has the volumes that the Node lists as attached.
	attached map[corev1.UniqueVolumeName]bool
	// inUse has the volumes that the pods need.
	inUse []corev1.UniqueVolumeName
}

// comeRound does once what a kubelet does again and again.
func (b *boot) comeRound(ctx context.Context) error {
	if !b.registered {
		if err := b.register(ctx); err != nil {
			return err
		}
		b.registered = true
	}
	if err := b.renewLease(ctx); err != nil {
		return err
	}
	return errors.Join(b.tendPods(ctx), b.postStatus(ctx))
}

// register creates the Node, already Ready. It leaves a Node of an earlier boot as it is.
func (b *boot) register(ctx context.Context) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: b.options.Node, Labels: map[string]string{
			corev1.LabelHostname: b.options.Node, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}, Annotations: map[string]string{attachedByController: "true"}},
		Spec: corev1.NodeSpec{ProviderID: b.options.ProviderID, Taints: b.options.Taints},
	}
	maps.Copy(node.Labels, b.options.Labels)
	node.Status = b.status(node.Status, time.Now())
	if err := b.client.Create(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register node %s: %w", b.options.Node, err)
	}
	return nil
}

func (b *boot) renewLease(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: b.options.Node}}
	unknown := client.MergeFrom(lease.DeepCopy())
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To(b.options.Node),
		LeaseDurationSeconds: ptr.To[int32](leaseSeconds),
		RenewTime:            ptr.To(metav1.NowMicro()),
	}
	err := b.client.Patch(ctx, lease.DeepCopy(), unknown)
	if apierrors.IsNotFound(err) {
		err = b.client.Create(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("renew the lease of node %s: %w", b.options.Node, err)
	}
	return nil
}

// postStatus writes the status if it has changed or the heartbeat is due.
//
// The patch is a strategic merge patch without a resource version: the API server merges conditions by type, so the kubelet and
// kube-controller-manager, which write to the same Node, neither overwrite each other nor conflict.
func (b *boot) postStatus(ctx context.Context) error {
	node := &corev1.Node{}
	err := b.client.Get(ctx, client.ObjectKey{Name: b.options.Node}, node)
	if apierrors.IsNotFound(err) {
		return nil // it was deleted, and only another boot creates it again
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", b.options.Node, err)
	}
	b.attached = map[corev1.UniqueVolumeName]bool{}
	for _, volume := range node.Status.VolumesAttached {
		b.attached[volume.Name] = true
	}
	now := time.Now()
	before := node.DeepCopy()
	node.Status = b.status(node.Status, now)
	due := !now.Before(b.posted.Add(heartbeat))
	if !due && equality.Semantic.DeepEqual(gist(before.Status), gist(node.Status)) {
		return nil
	}
	if err := b.client.Status().Patch(ctx, node, client.StrategicMergeFrom(before)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("post the status of node %s: %w", b.options.Node, err))
	}
	b.posted = now
	return nil
}

// gist returns a status without what is not worth a write: heartbeats and the order of conditions.
func gist(status corev1.NodeStatus) corev1.NodeStatus {
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	slices.SortFunc(status.Conditions, func(a, b corev1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) })
	return status
}

// status returns the status of the node with what the kubelet reports; it keeps the conditions of others.
func (b *boot) status(was corev1.NodeStatus, now time.Time) corev1.NodeStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := *was.DeepCopy()
	is.Conditions = nil
	for _, condition := range was.Conditions {
		if _, ours := b.reports[condition.Type]; !ours {
			is.Conditions = append(is.Conditions, condition)
		}
	}
	for condition, r := range b.reports {
		is.Conditions = append(is.Conditions, r.condition(condition, was, now))
	}

	is.VolumesInUse = b.inUse
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	is.Capacity, is.Allocatable = capacity, capacity
	is.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: b.options.Node}}
	is.NodeInfo = corev1.NodeSystemInfo{
		MachineID: b.options.Node, SystemUUID: b.options.Node, BootID: b.id,
		KubeletVersion: KubernetesVersion, OSImage: "simulated", OperatingSystem: "linux", Architecture: "amd64",
		ContainerRuntimeVersion: "simulated://1", KernelVersion: "6.1.0",
	}
	return is
}

// condition keeps the time of the last transition if the status has not changed.
func (r report) condition(kind corev1.NodeConditionType, was corev1.NodeStatus, now time.Time) corev1.NodeCondition {
	condition := corev1.NodeCondition{
		Type: kind, Status: r.status, Reason: r.reason, Message: r.message,
		LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
	}
	for _, before := range was.Conditions {
		if before.Type == kind && before.Status == r.status {
			condition.LastTransitionTime = before.LastTransitionTime
		}
	}
	return condition
}
