package hosts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/partners/bmo"
)

// safety is what has to be remembered to see whether something was unsafe.
type safety struct {
	// moving says that the remediation is just being replaced by one of another UID.
	moving bool
	fenced bool
	// gaveUp says that the remediation has ended while its node could not be unfenced. It does that as soon as it can.
	gaveUp bool
	// held says that the host is kept off, wasOn that it was on when it was asked to power off.
	held, wasOn bool
	// lostPower says that the host is off because it has lost its power.
	lostPower bool
	// holds says that a remediation acts on its power.
	holds bool
	// lied says that the BMC has told the power as it was, and that what is said of the host is still that.
	lied bool
}

// check fails the test if something is true that must never be. It is called after every change of an object.
func (e *environment) check(at place) {
	h, n := e.host(), e.node()
	switch {
	case e.box.model.Faults.Stale:
		e.safety.lied = true
	case h != nil && h.Status.PoweredOn == e.box.model.Powered():
		e.safety.lied = false
	}
	if at.key.Name == theNeighbour {
		e.fault("%s %s belongs to another client, and was changed", at.kind.Kind, at.key.Name)
	}
	isFenced, isGone := n != nil && fencedByUs(n), n == nil && at.kind == nodeKind
	safe := e.lies() || h != nil && heldOff(h) && (!e.box.model.Powered() || e.box.byHand)
	if (isFenced && !e.safety.fenced || isGone) && !safe {
		e.fault("the node was fenced while its host was on, or not kept powered off")
	}
	e.safety.fenced = isFenced
	if rem := e.remediation(); rem != nil && e.unreachable() && !e.kept() {
		e.safety.gaveUp = true
	}
	if holds := h != nil && held(h) || isFenced && !e.unreachable() && !e.safety.gaveUp; holds && !e.kept() && !e.safety.moving {
		e.fault("something is held, and the remediation is not kept by its finalizer")
	}
	if n := len(e.records()); n > 1 || n == 0 && (h != nil && held(h) || e.asksOwner()) {
		e.fault("there are %d records of the remediation, also before its host or the owner of its machine is asked", n)
	}
	if rem := e.remediation(); rem != nil && h != nil && held(h) &&
		builders.ReportOf(rem).Conditions[nhcv1.SucceededCondition] == "False/TimedOutByCheck" {
		e.fault("the remediation reports that it was stopped, so that another remediation may start, and still holds its host")
	}
	if holds := h != nil && heldOff(h); holds != e.safety.held {
		e.safety.held, e.safety.wasOn = holds, e.box.model.Powered()
	}
	if e.as.remembers && e.safety.held && e.safety.wasOn && memoryOf(e.remediation()).WasOff {
		e.fault("it was forgotten that the host was on when it was asked")
	}
	if off := e.cycles(); off > memoryOf(e.remediation()).Attempt && e.remediation() != nil && !e.as.mayRecycle && !e.safety.moving {
		e.fault("the host was powered off or reset %d times in %d attempts", off, memoryOf(e.remediation()).Attempt)
	}
}

// asksOwner reports whether the owner of the machine is asked to replace it.
func (e *environment) asksOwner() bool {
	m := e.machine()
	return m != nil && conditions.IsFalse(m, clusterv1.MachineOwnerRemediatedCondition)
}

// lies reports whether the BMC may say "off" of a host that runs, and whose node is silent: that is beyond any proof. What it has said is
// believed until it is asked the next time, which Ironic does not while it waits for the end of an order.
func (e *environment) lies() bool { return (e.box.model.Faults.Stale || e.safety.lied) && !e.box.runs }

// blocksMove checks, when all actors are at rest, that clusterctl does not move a remediation that keeps its host powered off.
func (e *environment) blocksMove() {
	h, rem := e.host(), e.remediation()
	if h == nil || rem == nil || !heldOff(h) || e.last != nil || e.writes.Crashed() || e.management.cache.Late() {
		return
	}
	if _, blocks := rem.GetAnnotations()[clusterctlv1.BlockMoveAnnotation]; !blocks {
		e.fault("the remediation keeps its host powered off, and may be moved")
	}
}

func (e *environment) fault(text string, of ...any) {
	e.unsafe = append(e.unsafe, fmt.Sprintf("after %s: %s", e.clock.Now().Sub(noon), fmt.Sprintf(text, of...)))
}

// kept reports whether the finalizer keeps the remediation.
func (e *environment) kept() bool {
	rem := e.remediation()
	return rem != nil && slices.Contains(rem.GetFinalizers(), e.Finalizer)
}

// cycles is how often the host was powered off or reset.
func (e *environment) cycles() int {
	cycles := 0
	for _, to := range e.box.history {
		if to != bmo.On {
			cycles++
		}
	}
	return cycles
}

// heldOff reports whether a remediation keeps the host off; held, whether one acts on its power in any way.
func heldOff(h *bmov1alpha1.BareMetalHost) bool {
	for key := range h.Annotations {
		if strings.HasPrefix(key, infrav1.PowerOffAnnotationPrefix) {
			return true
		}
	}
	return false
}

func held(h *bmov1alpha1.BareMetalHost) bool {
	_, rebooted := h.Annotations[mendv1.RebootedForAnnotation]
	return rebooted || heldOff(h)
}

func fencedByUs(n *corev1.Node) bool {
	_, ours := n.Annotations[fence.FencedByAnnotation]
	return ours && outOfService(n)
}

// outcome is all that is to be seen when a remediation has ended.
type outcome struct {
	Gone       bool // the remediation
	State      string
	Attempt    int
	Reported   builders.RemediationReport
	Host       []string // the keys of its annotations
	Power      []bmo.Power
	Powered    bool
	Node       map[string]string // its labels and annotations; nil if there is none
	Ready      corev1.ConditionStatus
	Taints     []string
	Conditions map[string]string // of the machine
	Pods       int
	Orphans    []string
	Records    int
	Recorded   bool // the remediation names its record
}

func (e *environment) outcome() outcome {
	o := outcome{Power: e.box.history, Powered: e.box.model.Powered(), Conditions: map[string]string{}, Orphans: e.orphans()}
	o.Records, o.Recorded = len(e.records()), e.namesRecord()
	if rem := e.remediation(); rem == nil {
		o.Gone = true
	} else {
		o.State, o.Attempt, o.Reported = e.memory(), memoryOf(rem).Attempt, builders.ReportOf(rem)
	}
	if h := e.host(); h != nil {
		o.Host = slices.Sorted(maps.Keys(h.Annotations))
	}
	if n := e.node(); n != nil {
		o.Node, o.Ready = maps.Clone(n.Labels), ready(n)
		maps.Copy(o.Node, n.Annotations)
		for _, t := range n.Spec.Taints {
			o.Taints = append(o.Taints, t.Key)
		}
	}
	if m := e.machine(); m != nil {
		for _, c := range m.Status.Conditions {
			o.Conditions[c.Type] = string(c.Status) + "/" + c.Reason
		}
		for _, c := range m.GetV1Beta1Conditions() {
			o.Conditions["v1beta1 "+string(c.Type)] = string(c.Status) + "/" + c.Reason
		}
	}
	pods, volumes := e.pods.left()
	o.Pods = len(pods) + len(volumes)
	return o
}

// orphans are what a remediation may have left on host, node and itself.
func (e *environment) orphans() (left []string) {
	if h := e.host(); h != nil {
		for key := range h.Annotations {
			if strings.HasPrefix(key, infrav1.PowerOffAnnotationPrefix) || key == infrav1.RebootAnnotation ||
				key == mendv1.RebootedForAnnotation {
				left = append(left, "host "+key)
			}
		}
	}
	if n := e.node(); n != nil {
		if fencedByUs(n) {
			left = append(left, "node "+infrav1.OutOfServiceTaintKey)
		}
		if _, marked := n.Annotations[fence.FencedByAnnotation]; marked {
			left = append(left, "node "+fence.FencedByAnnotation)
		}
	}
	if rem := e.remediation(); rem != nil {
		left = append(left, orphansOn(rem)...)
	}
	return left
}

// orphansOn are those on the remediation itself.
func orphansOn(rem client.Object) []string {
	left := slices.Clone(rem.GetFinalizers())
	if _, has := rem.GetAnnotations()[clusterctlv1.BlockMoveAnnotation]; has {
		left = append(left, "remediation "+clusterctlv1.BlockMoveAnnotation)
	}
	return left
}
