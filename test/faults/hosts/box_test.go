package hosts

import (
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/test/partners/bmo"
)

// How long each thing takes.
const (
	renewsLease = 10 * time.Second
	takesPower  = 5 * time.Second  // to power off or on
	takesBoot   = 30 * time.Second // from power on until the kubelet runs
	takesPods   = 2 * time.Second  // the eviction of the pods of a tainted node, and after that the detaching of their volumes
	takesOrphan = 40 * time.Second // the garbage collection of the pods of a deleted node
	takesSilent = 40 * time.Second // until a node with a silent kubelet is no longer Ready
)

// box is the real state of a host with its BMC and its disk, whatever its BareMetalHost says. Package bmo simulates BMO and Ironic, with
// their real waits.
type box struct {
	e     *environment
	model bmo.Host

	// looks says when BMO reconciles the BareMetalHost.
	looks bmo.Looks
	// history has all power changes.
	history []bmo.Power

	mute   int // how many boots bring up no kubelet; negative means all
	boot   time.Time
	starts int
	runs   bool // whether the kubelet runs
	silent time.Time
	// up is true if the host has booted and everything except the kubelet runs, such as an API server. upUntil is when it was last up.
	up      bool
	upUntil time.Time
	// cutOff means that the running kubelet cannot reach its API server.
	cutOff bool
	// byHand means that a person has powered the host on and it has not booted yet: no program knows until Ironic reads the BMC.
	byHand bool
	// writes is true if something on the host writes to the volume.
	writes bool
}

// step lets everything happen that is due, and BMO reconcile. It reports whether anything has changed.
func (b *box) step(now time.Time) bool {
	changed := b.follow(now)
	if !b.boot.IsZero() && !now.Before(b.boot) {
		b.boot, changed = time.Time{}, true
		b.start()
	}
	return b.operate(now) || changed
}

// follow applies the power changes of the model.
func (b *box) follow(now time.Time) bool {
	b.model.Advance(now)
	changes := b.model.Changes()
	for _, c := range changes {
		b.history = append(b.history, c.To)
		b.byHand = b.byHand && b.model.Powered()
		if c.To != bmo.On || c.Ramdisk {
			b.writes = false
			if b.up {
				b.up, b.upUntil = false, now
			}
			if b.runs {
				b.runs, b.silent = false, now
			}
		}
		b.boot = time.Time{}
		switch {
		case !b.model.Powered() || c.Ramdisk:
		case b.mute != 0:
			b.mute = max(b.mute-1, -1)
		default:
			b.boot = now.Add(takesBoot)
		}
	}
	return len(changes) > 0
}

// next returns when the next thing is due; zero if nothing is.
func (b *box) next() time.Time { return earliest(b.boot, b.looks.Next(), b.model.Next()) }

// busy reports whether the host will change by itself: after an error BMO may not reconcile it for hours.
func (b *box) busy() bool {
	h := b.e.host()
	if h == nil || !b.model.Next().IsZero() {
		return !b.model.Next().IsZero()
	}
	return b.model.Faults == bmo.Faults{} && h.Spec.Online && !bmo.RebootAsked(h.Annotations) && !h.Status.PoweredOn
}

// start starts the kubelet with a new boot ID.
func (b *box) start() {
	b.starts++
	b.byHand, b.up = false, true
	if b.e.plane != nil {
		return // the plane decides when its kubelet reports
	}
	if b.cutOff { // it will ask for its pods when it reaches the API server
		b.runs = false
		return
	}
	b.serve()
}

// serve makes the kubelet reach its API server: the node is Ready, and the pods that are bound to it run.
func (b *box) serve() {
	b.runs, b.silent = true, time.Time{}
	b.e.registers(b.starts)
	pods, _ := b.e.pods.left()
	b.writes = b.writes || len(pods) > 0
}

// renewed returns when the kubelet last renewed the lease of its node, which it does every ten seconds; false if there is no lease.
func (b *box) renewed(now time.Time) (time.Time, bool) {
	switch {
	case b.starts == 0:
		return time.Time{}, false
	case b.runs:
		return now.Truncate(renewsLease), true
	}
	return b.silent.Truncate(renewsLease), true
}

// lastUp returns when the host was last up.
func (b *box) lastUp(now time.Time) time.Time {
	if b.up {
		return now
	}
	return b.upUntil
}

// hang makes the kubelet silent.
func (b *box) hang() { b.runs, b.silent = false, b.e.clock.Now().Add(-takesSilent) }

// recover makes a silent kubelet report again, if the host is on, with the same boot ID.
func (b *box) recover() {
	if b.model.Powered() && !b.runs && b.boot.IsZero() && !b.cutOff && !b.model.InRamdisk() {
		b.serve()
	}
}

// revive ends all faults.
func (b *box) revive() { b.model.Faults = bmo.Faults{} }

// operate lets BMO reconcile if the host has changed or a requeue is due. It reports whether BMO has written.
func (b *box) operate(now time.Time) bool {
	h := b.e.host()
	if h == nil {
		b.looks.Forget()
		return false
	}
	if !b.looks.Due(h, now) {
		return false
	}
	is := h.DeepCopy()
	done := b.model.Reconcile(is, now)
	b.looks.Note(done, now)
	// As in BMO, the answer to the update of the metadata would overwrite the status in memory.
	status := is.Status
	if done.Object {
		b.e.do(b.e.management.Update(b.e.t.Context(), is))
		is = b.e.host().DeepCopy()
	}
	if done.Status {
		is.Status = status
		b.e.do(b.e.management.Status().Update(b.e.t.Context(), is))
	}
	return done.Object || done.Status || done.Again || b.follow(now)
}

// pin keeps the host in a provisioning state; an empty state ends that.
func (b *box) pin(state bmov1alpha1.ProvisioningState) {
	if b.model.Pinned = &state; state == "" {
		pinned := bmov1alpha1.StateProvisioned
		b.model.Pinned = &pinned
	}
	b.looks.Now(b.e.clock.Now())
}

// earliest returns the earliest time that is not zero.
func earliest(moments ...time.Time) time.Time {
	var first time.Time
	for _, at := range moments {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// pods simulates the controllers of the workload cluster: node lifecycle, taint eviction, the garbage collection of pods, and the attacher
// of the CSI driver.
type pods struct {
	e *environment
	// stuck means that nothing leaves the node; unreachable means that kubemend cannot reach the cluster.
	stuck, unreachable bool
	// since is when pods began to have to leave the node; volumes is when they had left.
	since, volumes time.Time
}

// step lets everything happen that is due, and reports whether anything has changed.
func (p *pods) step(now time.Time) bool {
	changed := p.notice(now)
	pods, volumes := p.left()
	gone := p.e.node() == nil
	switch {
	case !gone && !outOfService(p.e.node()) || p.stuck || len(pods)+len(volumes) == 0:
		p.since, p.volumes = time.Time{}, time.Time{}
		return changed
	case p.since.IsZero():
		p.since = now
	}
	patience := takesPods
	if gone {
		patience = takesOrphan
	}
	left := pods
	at := p.since.Add(patience)
	if len(pods) == 0 {
		if p.volumes.IsZero() {
			p.volumes = now
		}
		left, at = volumes, p.volumes.Add(takesPods)
	}
	if now.Before(at) {
		return changed
	}
	for _, o := range left {
		if _, detached := o.(*storagev1.VolumeAttachment); detached && p.e.box.writes && !p.e.lies() {
			p.e.fault("a volume is attached elsewhere while a pod on the host, which runs, writes to it")
		}
		p.e.do(p.e.work.Delete(p.e.t.Context(), o))
	}
	return true
}

// next returns when the next thing is due; zero if nothing is.
func (p *pods) next() time.Time {
	var at, silent time.Time
	switch {
	case p.since.IsZero():
	case !p.volumes.IsZero():
		at = p.volumes.Add(takesPods)
	case p.e.node() == nil:
		at = p.since.Add(takesOrphan)
	default:
		at = p.since.Add(takesPods)
	}
	if node := p.e.node(); node != nil && !p.e.box.runs && ready(node) == corev1.ConditionTrue {
		silent = p.e.box.silent.Add(takesSilent)
	}
	return earliest(at, silent)
}

// notice sets Ready to Unknown for a node whose kubelet is silent.
func (p *pods) notice(now time.Time) bool {
	node := p.e.node()
	if node == nil || p.e.box.runs || ready(node) == corev1.ConditionUnknown || now.Before(p.e.box.silent.Add(takesSilent)) {
		return false
	}
	edit(p.e, p.e.work, node, true, func(n *corev1.Node) { readiness(n, corev1.ConditionUnknown, now) })
	return true
}

// left returns the pods and volumes on the node.
func (p *pods) left() (pods, volumes []client.Object) {
	return p.e.work.Of(corev1.SchemeGroupVersion.WithKind("Pod")), p.e.work.Of(storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"))
}

// registers creates the node of a kubelet that has started, and makes it Ready.
func (e *environment) registers(boot int) {
	e.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.nodeName, Labels: map[string]string{corev1.LabelHostname: e.nodeName}}}
	err := e.work.Create(e.t.Context(), e.named(node))
	switch {
	case err == nil && boot == 1: // a provider labels the new node
		edit(e, e.work, e.node(), false, func(n *corev1.Node) {
			n.Labels["example.org/rack"] = "7"
			n.Annotations["example.org/note"] = "keep"
		})
	case !apierrors.IsAlreadyExists(err):
		e.do(err)
	}
	edit(e, e.work, e.node(), true, func(n *corev1.Node) {
		n.Status.NodeInfo.BootID = fmt.Sprintf("boot-%d", boot)
		readiness(n, corev1.ConditionTrue, e.clock.Now())
	})
}

func readiness(n *corev1.Node, status corev1.ConditionStatus, now time.Time) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(now)}}
}

func ready(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == infrav1.OutOfServiceTaintKey })
}
