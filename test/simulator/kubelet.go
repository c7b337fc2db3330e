package simulator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	defaultEvery = time.Second
	// heartbeat is how often unchanged conditions are posted again, as by a real kubelet.
	heartbeat = 5 * time.Minute
)

// KubeletOptions are the options of a kubelet and its node.
type KubeletOptions struct {
	// Node is the name of the Node.
	Node string
	// ProviderID is the ID by which Cluster API finds the Machine of the node.
	ProviderID string
	Labels     map[string]string
	Taints     []corev1.Taint
	// Every is how often the kubelet renews its lease and reads its Node; 1 s if zero.
	Every time.Duration
}

// Kubelet simulates the kubelet of one node in a workload cluster: while it runs, it keeps the node and its pods alive.
//
// Like a real kubelet it registers its Node only when it starts: a deleted Node comes back with the next boot of the host.
type Kubelet struct {
	client  client.Client
	options KubeletOptions

	// mu guards the settings that tests change while the loop reads them.
	mu       sync.Mutex
	reports  map[corev1.NodeConditionType]report
	stop     context.CancelFunc
	stopped  chan struct{}
	retired  bool
	knobUsed chan struct{}
}

// report is the reported status of one condition.
type report struct {
	status          corev1.ConditionStatus
	reason, message string
}

// NewKubelet returns a kubelet that does not run yet. The client must not use a cache, which would have the Node too late.
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

// Node returns the name of the kubelet's Node.
func (k *Kubelet) Node() string { return k.options.Node }

// Start starts the kubelet: it registers its Node if there is none, and reports Ready. It does nothing if the kubelet runs or was retired.
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

// Stop simulates a power cut: the kubelet posts nothing more. It returns when the last request has ended.
func (k *Kubelet) Stop() { k.end(false) }

// Retire stops the kubelet for good, because its host was wiped: a later Start does nothing.
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

// Report makes the kubelet post this condition until the next call: at once if it runs, else when it starts.
func (k *Kubelet) Report(condition corev1.NodeConditionType, status corev1.ConditionStatus, reason string) {
	k.turn(func() {
		k.reports[condition] = report{status: status, reason: reason, message: "reported by the simulated kubelet"}
	})
}

// turn changes a setting and wakes the loop.
func (k *Kubelet) turn(change func()) {
	k.mu.Lock()
	change()
	k.mu.Unlock()
	select {
	case k.knobUsed <- struct{}{}:
	default: // the loop will wake up anyway
	}
}

// run repeats the work of the kubelet until it is stopped. It ignores errors, because it tries again the next time, as a real kubelet does.
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

// csiVolumes is the prefix of the unique names of CSI volumes; the driver, a caret and the handle follow.
const csiVolumes = "kubernetes.io/csi/"

// tendPods updates the pods of the node: a new pod runs as soon as its volumes are attached, and a pod with a deletion timestamp is deleted
// at once. If no kubelet runs, all pods stay as they are.
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

// tend updates one pod, and returns the volumes that it uses from now on.
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

// runs reports whether the pod is Running and Ready; the node-lifecycle controller sets Ready to False for pods of a silent node.
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

// volumesOf returns the CSI volumes of a pod; other volumes need nothing. An unbound claim is an error, as for a real kubelet, which tries
// again.
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
