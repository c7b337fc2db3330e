package simulator

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
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

// Running reports whether the kubelet was started and not stopped.
func (k *Kubelet) Running() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stop != nil
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
