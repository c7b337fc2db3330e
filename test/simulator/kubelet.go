package simulator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	defaultEvery = time.Second
	// heartbeat is how often conditions that have not changed are posted again, as a real kubelet does.
	heartbeat = 5 * time.Minute
)

// KubeletOptions describe one kubelet and its node.
type KubeletOptions struct {
	// Node is the name of the Node.
	Node string
	// ProviderID says which host the node is; the Machine of the same provider ID finds it by this.
	ProviderID string
	Labels     map[string]string
	Taints     []corev1.Taint
	// Every is how often the lease is renewed and the Node read; 1 s if zero.
	Every time.Duration
}

// Kubelet keeps one node alive in a workload cluster, for as long as it runs, and the pods that are bound to it.
//
// Like a real one, it registers its Node only when it starts: a Node that is deleted meanwhile comes back with the next
// boot of the host.
type Kubelet struct {
	client  client.Client
	options KubeletOptions

	// mu guards what the knobs change while the loop reads it.
	mu       sync.Mutex
	reports  map[corev1.NodeConditionType]report
	stop     context.CancelFunc
	stopped  chan struct{}
	retired  bool
	knobUsed chan struct{}
}

// report is what a kubelet says about one condition.
type report struct {
	status          corev1.ConditionStatus
	reason, message string
}

// NewKubelet makes a kubelet that does not run yet. The client must write directly: a cached one would see the Node too
// late.
func NewKubelet(c client.Client, o KubeletOptions) *Kubelet {
	if o.Every == 0 {
		o.Every = defaultEvery
	}
	return &Kubelet{
		client:   c,
		options:  o,
		reports:  healthyReports(),
		knobUsed: make(chan struct{}, 1),
	}
}

// Node is the name of the Node that this kubelet registers.
func (k *Kubelet) Node() string { return k.options.Node }

// Start boots the host: the kubelet registers its Node if there is none, and is Ready from then on. It does nothing if
// the kubelet runs, or was retired.
func (k *Kubelet) Start() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stop != nil || k.retired {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.stop, k.stopped = cancel, make(chan struct{})
	boot := &boot{Kubelet: k, id: string(uuid.NewUUID()), volumes: map[client.ObjectKey]corev1.UniqueVolumeName{}}
	go k.run(ctx, boot, k.stopped)
}

// Stop is a power cut: the kubelet posts nothing more, not even that it stops. It returns when the last request has ended.
func (k *Kubelet) Stop() { k.end(false) }

// Retire stops the kubelet for good: its host was wiped, and a later Start has no effect.
func (k *Kubelet) Retire() { k.end(true) }

func (k *Kubelet) end(forGood bool) {
	k.mu.Lock()
	stop, stopped := k.stop, k.stopped
	k.stop = nil
	k.retired = k.retired || forGood
	k.mu.Unlock()
	if stop != nil {
		stop()
	}
	if stopped != nil {
		<-stopped
	}
}

// Report makes the kubelet post this condition, one of its own or another one, until the next call changes it. The kubelet
// posts it at once if it runs, and otherwise as soon as it does.
func (k *Kubelet) Report(condition corev1.NodeConditionType, status corev1.ConditionStatus, reason string) {
	k.turn(func() {
		k.reports[condition] = report{status: status, reason: reason, message: "reported by the simulated kubelet"}
	})
}

// turn changes a setting and starts the loop's next turn.
func (k *Kubelet) turn(change func()) {
	k.mu.Lock()
	change()
	k.mu.Unlock()
	select {
	case k.knobUsed <- struct{}{}:
	default: // the loop has not yet noticed the last one
	}
}

// run comes round until it is stopped. An API server that does not answer is tried again the next time, as a kubelet
// does; that is also why nothing is returned.
func (k *Kubelet) run(ctx context.Context, b *boot, stopped chan<- struct{}) {
	defer close(stopped)
	for {
		_ = b.comeRound(ctx)
		select {
		case <-ctx.Done():
			return
		case <-k.knobUsed:
		case <-time.After(k.options.Every):
		}
	}
}

// csiVolumes is how node and controllers call the volumes of CSI drivers: this, the driver, a caret and the handle.
const csiVolumes = "kubernetes.io/csi/"

// tendPods brings the pods of the node on: one that is new runs as soon as its volumes are attached, and one that is to
// go is gone at once. A kubelet that does not run leaves every pod as it is.
func (b *boot) tendPods(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := b.client.List(ctx, pods, client.MatchingFields{"spec.nodeName": b.options.Node}); err != nil {
		return fmt.Errorf("list the pods of node %s: %w", b.options.Node, err)
	}
	var errs []error
	inUse := map[corev1.UniqueVolumeName]bool{}
	for i := range pods.Items {
		volumes, err := b.tend(ctx, &pods.Items[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("tend pod %s of node %s: %w", pods.Items[i].Name, b.options.Node, err))
		}
		for _, volume := range volumes {
			inUse[volume] = true
		}
	}
	b.inUse = b.inUse[:0:0]
	for volume := range inUse {
		b.inUse = append(b.inUse, volume)
	}
	slices.Sort(b.inUse)
	return errors.Join(errs...)
}

// tend brings one pod on, and returns the volumes that it uses from then on.
func (b *boot) tend(ctx context.Context, pod *corev1.Pod) ([]corev1.UniqueVolumeName, error) {
	if !pod.DeletionTimestamp.IsZero() {
		now := client.GracePeriodSeconds(0)
		return nil, client.IgnoreNotFound(b.client.Delete(ctx, pod, now, client.Preconditions{UID: &pod.UID}))
	}
	volumes, err := b.volumesOf(ctx, pod)
	if err != nil || pod.Status.Phase != corev1.PodPending && pod.Status.Phase != corev1.PodRunning || runs(pod) {
		return volumes, err
	}
	for _, volume := range volumes {
		if !b.attached[volume] {
			return volumes, nil
		}
	}
	before := pod.DeepCopy()
	run(pod)
	return volumes, client.IgnoreNotFound(b.client.Status().Patch(ctx, pod, client.StrategicMergeFrom(before)))
}

// runs reports whether the pod is said to run; node-lifecycle takes Ready away from the pods of a silent node.
func runs(pod *corev1.Pod) bool {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	return pod.Status.Phase == corev1.PodRunning && ready
}

func run(pod *corev1.Pod) {
	now := metav1.Now()
	pod.Status.Phase = corev1.PodRunning
	if pod.Status.StartTime == nil {
		pod.Status.StartTime = &now
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now,
		})
	}
	pod.Status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
}

// volumesOf are the volumes of CSI drivers that a pod uses; others need nothing from anybody. A claim that is not bound
// is an error, as it is for a real kubelet: it tries again.
func (b *boot) volumesOf(ctx context.Context, pod *corev1.Pod) ([]corev1.UniqueVolumeName, error) {
	var volumes []corev1.UniqueVolumeName
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		name, err := b.volume(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: volume.PersistentVolumeClaim.ClaimName})
		if err != nil {
			return nil, err
		}
		if name != "" {
			volumes = append(volumes, name)
		}
	}
	return volumes, nil
}

func (b *boot) volume(ctx context.Context, key client.ObjectKey) (corev1.UniqueVolumeName, error) {
	if name, known := b.volumes[key]; known {
		return name, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := b.client.Get(ctx, key, claim); err != nil {
		return "", fmt.Errorf("read claim %s: %w", key, err)
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return "", fmt.Errorf("use claim %s: it is not bound", key)
	}
	volume := &corev1.PersistentVolume{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume); err != nil {
		return "", fmt.Errorf("read the volume of claim %s: %w", key, err)
	}
	var name corev1.UniqueVolumeName
	if csi := volume.Spec.CSI; csi != nil {
		name = corev1.UniqueVolumeName(csiVolumes + csi.Driver + "^" + csi.VolumeHandle)
	}
	b.volumes[key] = name
	return name, nil
}

// leaseSeconds is what a real kubelet writes; node-lifecycle goes by the renewals and not by this.
const leaseSeconds = 40

// attachedByController is how a kubelet says that it leaves the attaching of volumes to kube-controller-manager, which
// else does not.
const attachedByController = "volumes.kubernetes.io/controller-managed-attach-detach"

// healthyReports are the conditions of a healthy node, in a kubelet's own words.
func healthyReports() map[corev1.NodeConditionType]report {
	return map[corev1.NodeConditionType]report{
		corev1.NodeReady:          {corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"},
		corev1.NodeMemoryPressure: {corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		corev1.NodeDiskPressure:   {corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		corev1.NodePIDPressure:    {corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
	}
}

// boot is a kubelet from one start of its host to the next stop.
type boot struct {
	*Kubelet
	id         string
	registered bool
	// posted is when conditions were last written.
	posted time.Time
	// volumes are those of the claims that were seen; attached is what the node was last seen to have, and inUse what
	// it needs.
	volumes  map[client.ObjectKey]corev1.UniqueVolumeName
	attached map[corev1.UniqueVolumeName]bool
	inUse    []corev1.UniqueVolumeName
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

// register creates the Node, already Ready; one that is there from an earlier boot is taken over as it is.
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

// postStatus writes the status if it says something new, or has not been written for a heartbeat's time.
//
// The patch is a strategic one without a resource version: the API server merges conditions by type, and so
// kube-controller-manager, which writes to the same Node at the same time, is neither overwritten nor in the way.
func (b *boot) postStatus(ctx context.Context) error {
	node := &corev1.Node{}
	err := b.client.Get(ctx, client.ObjectKey{Name: b.options.Node}, node)
	if apierrors.IsNotFound(err) {
		return nil // deleted while we run: only another boot brings it back
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

// gist is what of a status is worth a write: neither heartbeats nor the order of conditions.
func gist(status corev1.NodeStatus) corev1.NodeStatus {
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	slices.SortFunc(status.Conditions, func(a, b corev1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) })
	return status
}

// status is what the kubelet has to say, on top of what others say about the node.
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

// condition carries on the time of the last change if there is none.
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
