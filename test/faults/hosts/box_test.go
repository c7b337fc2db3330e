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

// How long everything takes.
const (
	renewsLease = 10 * time.Second
	takesPower  = 5 * time.Second  // to power off, or on
	takesBoot   = 30 * time.Second // from when the power is on until the kubelet runs
	takesPods   = 2 * time.Second  // the eviction of the pods of a tainted node, and then the detaching of their volumes
	takesOrphan = 40 * time.Second // the collection of the pods of a node that is gone
	takesSilent = 40 * time.Second // until a node whose kubelet is silent is not Ready any more
)

// box is a host with its BMC and with what is on its disk: what is really so, whatever its BareMetalHost says. The Bare Metal Operator and
// Ironic, with the waits that they really have, are those of package bmo.
type box struct {
	e     *environment
	model bmo.Host

	// looks are the moments at which the Bare Metal Operator reconciles the BareMetalHost.
	looks bmo.Looks
	// history is all that has happened to the power.
	history []bmo.Power

	mute   int // how many boots bring up no kubelet; negative for all
	boot   time.Time
	starts int
	runs   bool // the kubelet
	silent time.Time
	// up says that the host has booted, and that what is no kubelet's to start runs; upUntil when that ended the last time.
	up      bool
	upUntil time.Time
	// cutOff says that the kubelet, which runs, cannot reach its API server.
	cutOff bool
	// byHand says that a person has pressed the button of the host that was off, and nothing runs on it yet: that is unknown until Ironic
	// reads the BMC the next time.
	byHand bool
	// writes says that something on the host writes to the volume.
	writes bool
}

// step lets happen what is due, and what the Bare Metal Operator does about it. It reports whether anything has changed.
func (b *box) step(now time.Time) bool {
	changed := b.follow(now)
	if !b.boot.IsZero() && !now.Before(b.boot) {
		b.boot, changed = time.Time{}, true
		b.start()
	}
	return b.operate(now) || changed
}

// follow does what comes of what has happened to the power.
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

// next is the next moment at which something is due; zero if nothing is.
func (b *box) next() time.Time { return earliest(b.boot, b.looks.Next(), b.model.Next()) }

// busy reports whether the host is about to change without a request: after an error the Bare Metal Operator may not read it for hours.
func (b *box) busy() bool {
	h := b.e.host()
	if h == nil || !b.model.Next().IsZero() {
		return !b.model.Next().IsZero()
	}
	asked, _ := bmo.RebootAsked(h.Annotations, false)
	return b.model.Faults == bmo.Faults{} && h.Spec.Online && !asked && !h.Status.PoweredOn
}

// start starts the kubelet, under a boot of its own.
func (b *box) start() {
	b.starts++
	b.byHand, b.up = false, true
	if b.e.plane != nil {
		return // its kubelet reports when it can
	}
	if b.cutOff { // it asks for its pods when it can
		b.runs = false
		return
	}
	b.serve()
}

// serve is a kubelet that can reach its API server: the node is Ready, and the pods that are bound to it run.
func (b *box) serve() {
	b.runs, b.silent = true, time.Time{}
	b.e.registers(b.starts)
	pods, _ := b.e.pods.left()
	b.writes = b.writes || len(pods) > 0
}

// renewed is when the kubelet has renewed the lease of its node last; false if there is none. It does so every ten seconds.
func (b *box) renewed(now time.Time) (time.Time, bool) {
	switch {
	case b.starts == 0:
		return time.Time{}, false
	case b.runs:
		return now.Truncate(renewsLease), true
	}
	return b.silent.Truncate(renewsLease), true
}

func (b *box) lastUp(now time.Time) time.Time {
	if b.up {
		return now
	}
	return b.upUntil
}

// hang makes the kubelet say no more.
func (b *box) hang() { b.runs, b.silent = false, b.e.clock.Now().Add(-takesSilent) }

// recover makes a kubelet that hangs on a host that is on report again, under the same boot.
func (b *box) recover() {
	if b.model.Powered() && !b.runs && b.boot.IsZero() && !b.cutOff && !b.model.InRamdisk() {
		b.serve()
	}
}

func (b *box) revive() { b.model.Faults = bmo.Faults{} }

// operate is a reconcile of the Bare Metal Operator, if the host has changed or a requeue is due.
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
	// The status in memory is lost with the answer to an update of the metadata.
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

// pin keeps the host in a provisioning state, or releases it if that is empty.
func (b *box) pin(state bmov1alpha1.ProvisioningState) {
	if b.model.Pinned = &state; state == "" {
		pinned := bmov1alpha1.StateProvisioned
		b.model.Pinned = &pinned
	}
	b.looks.Now(b.e.clock.Now())
}

// earliest is the first of these moments that is one; zero if none is.
func earliest(moments ...time.Time) time.Time {
	var first time.Time
	for _, at := range moments {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// pods plays the controllers of the workload cluster: node-lifecycle, taint eviction, the collection of orphaned pods, and the CSI driver's
// attacher.
type pods struct {
	e *environment
	// stuck says that nothing leaves the node; unreachable, that the cluster cannot be reached by kubemend.
	stuck, unreachable bool
	// since is since when what is on the node has to leave it, volumes since when the pods are gone.
	since, volumes time.Time
}

// step lets happen what is due. It reports whether anything has changed.
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

// next is the next moment at which something is due; zero if nothing is.
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

// notice calls a node unknown whose kubelet is silent.
func (p *pods) notice(now time.Time) bool {
	node := p.e.node()
	if node == nil || p.e.box.runs || ready(node) == corev1.ConditionUnknown || now.Before(p.e.box.silent.Add(takesSilent)) {
		return false
	}
	edit(p.e, p.e.work, node, true, func(n *corev1.Node) { readiness(n, corev1.ConditionUnknown, now) })
	return true
}

// left is what is left on the node.
func (p *pods) left() (pods, volumes []client.Object) {
	return p.e.work.Of(corev1.SchemeGroupVersion.WithKind("Pod")), p.e.work.Of(storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"))
}

// registers is what a kubelet does that has started: its node is there, and Ready.
func (e *environment) registers(boot int) {
	e.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.nodeName, Labels: map[string]string{corev1.LabelHostname: e.nodeName}}}
	err := e.work.Create(e.t.Context(), e.named(node))
	switch {
	case err == nil && boot == 1: // the provider has labelled the new node
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
