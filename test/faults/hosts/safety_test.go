package hosts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

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
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/partners/bmo"
)

// safety is what the safety rules need to remember.
type safety struct {
	// moving is true while the remediation is replaced by one with another UID.
	moving bool
	fenced bool
	// gaveUp is true if the remediation has ended while its node could not be unfenced. kubemend unfences it as soon as it can.
	gaveUp bool
	// held is true while the host is kept off. wasOn is true if it was on when it was asked to power off.
	held, wasOn bool
	// lostPower is true if the host is off because of a power failure.
	lostPower bool
	// holds is true while a remediation acts on the power of the host.
	holds bool
	// lied is true if the BMC reported an old power, which the host's status still has.
	lied bool
}

// check fails the test if a safety rule does not hold. It is called after every change of an object.
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
	if safe := e.lies() || h != nil && heldOff(h) && (!e.box.model.Powered() || e.box.byHand); (isFenced && !e.safety.fenced || isGone) && !safe {
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
	if rem := e.remediation(); rem != nil && h != nil && held(h) && builders.ReportOf(rem).Conditions[nhcv1.SucceededCondition] == "False/TimedOutByCheck" {
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

// lies reports whether the BMC may report "off" for a running host whose node is silent, against which there is no proof. Ironic believes
// the report until it reads the power again, which it does not do while it waits for the end of an order.
func (e *environment) lies() bool { return (e.box.model.Faults.Stale || e.safety.lied) && !e.box.runs }

// blocksMove checks, when no actor has anything to do, that clusterctl cannot move a remediation that keeps its host off.
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

// kept reports whether the remediation has the finalizer.
func (e *environment) kept() bool {
	rem := e.remediation()
	return rem != nil && slices.Contains(rem.GetFinalizers(), e.Finalizer)
}

// cycles returns how often the host was powered off or reset.
func (e *environment) cycles() int {
	cycles := 0
	for _, to := range e.box.history {
		if to != bmo.On {
			cycles++
		}
	}
	return cycles
}

// heldOff reports whether a remediation keeps the host off; held reports whether a remediation acts on its power in any way.
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

// outcome is the visible result of a remediation.
type outcome struct {
	Gone       bool // whether the remediation is deleted
	State      string
	Attempt    int
	Reported   builders.RemediationReport
	Host       []string // the keys of the host's annotations
	Power      []bmo.Power
	Powered    bool
	Node       map[string]string // the labels and annotations of the node; nil if there is none
	Ready      corev1.ConditionStatus
	Taints     []string
	Conditions map[string]string // conditions of the machine
	Pods       int
	Orphans    []string
	Records    int
	Recorded   bool // whether the remediation names its record
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

// orphans returns what a remediation has left on the host, the node and itself.
func (e *environment) orphans() (left []string) {
	if h := e.host(); h != nil {
		for key := range h.Annotations {
			if strings.HasPrefix(key, infrav1.PowerOffAnnotationPrefix) || key == infrav1.RebootAnnotation || key == mendv1.RebootedForAnnotation {
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

// orphansOn returns what it has left on itself.
func orphansOn(rem client.Object) []string {
	left := slices.Clone(rem.GetFinalizers())
	if _, has := rem.GetAnnotations()[clusterctlv1.BlockMoveAnnotation]; has {
		left = append(left, "remediation "+clusterctlv1.BlockMoveAnnotation)
	}
	return left
}

// Behaviour that must be stricter than with CAPM3. everyStandstill tests N2, N3, N11 and the move of N10.

func TestN5AMachineWithoutANodeIsWellOnceOneJoins(t *testing.T) {
	bothKinds(t, settings{noNode: true, box: mute(-1)}, func(_ *testing.T, e *environment) {
		e.stands("Booting")
		e.box.start()
		edit(e, e.management, e.machine(), true, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = e.nodeName })
		e.ends("Succeeded")
		e.power(bmo.Off, bmo.On)
	})
}

func TestN7WhatDoesNotLeaveTheNodeIsNamedAndWaitedForUntilTheDeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		leaves   func(*environment)
		on       time.Duration
		reported string
	}{
		"Pod apps/web":            {(*environment).detach, timeout + 5*time.Second, "False/WorkloadStuck"},
		"VolumeAttachment volume": {(*environment).evict, 2*time.Minute + 11*time.Second, "True/Done"}, // which no pod has or waits for
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, settings{box: stuck}, func(t *testing.T, e *environment) {
				tc.leaves(e)
				e.stands("MovingWorkload")
				e.until(time.Minute)
				e.tells(name)
				e.comesTo(func(e *environment) bool { return e.box.model.Powered() })
				equal(t, "when the host is on again", e.now(), tc.on)
				e.ends("Succeeded")
				e.reports(map[string]string{infrav1.WorkloadMovedCondition: tc.reported})
				e.power(bmo.Off, bmo.On)
			})
		})
	}
}

func blocked(e *environment) bool {
	_, is := e.remediation().GetAnnotations()[clusterctlv1.BlockMoveAnnotation]
	return is
}

func TestN10TheWorkloadMovesBeforeAPauseReleasesTheHost(t *testing.T) {
	bothKinds(t, settings{mayRecycle: true, box: stuck}, func(t *testing.T, e *environment) {
		e.comesTo(func(e *environment) bool { return fencedByUs(e.node()) })
		e.pause(true)
		e.until(time.Minute)
		equal(t, "whether it is held, and must not be moved: the pod could run twice,", blocked(e) && heldOff(e.host()), true)
		e.evict()
		e.detach()
		e.comesTo(func(e *environment) bool { return !blocked(e) })
		equal(t, "whether the host is held", held(e.host()), false)
		e.comesTo(func(e *environment) bool { return !fencedByUs(e.node()) })
		moved(e)
		e.pause(false)
		e.ends("Succeeded")
		e.power(bmo.Off, bmo.On)
	})
}

func TestN12NoPowerAnnotationIsLeftToTheNextOwnerOfAHost(t *testing.T) {
	for version, clearsAll := range map[string]bool{"BMO 0.13 takes all annotations away": true, "BMO 0.14 leaves them": false} {
		t.Run(version, func(t *testing.T) {
			as := settings{
				host: func(h *bmov1alpha1.BareMetalHost) {
					h.Spec.ExternallyProvisioned = false
					builders.Deployed(h)
					h.Status.Provisioning.State, h.Status.Provisioning.Image = bmov1alpha1.StateProvisioned, *h.Spec.Image
				},
				box:     func(b *box) { b.model.ClearsAllReboots, b.e.pods.stuck = clearsAll, true },
				machine: func(m *clusterv1.Machine) { m.Finalizers = []string{"test.kubemend.io/keep"} },
			}
			bothKinds(t, as, func(t *testing.T, e *environment) {
				e.stands("MovingWorkload")
				e.do(e.management.Delete(e.t.Context(), e.machine())) // like Cluster API and CAPM3 do to delete a machine
				e.editHost(false, func(h *bmov1alpha1.BareMetalHost) { h.Spec.Image, h.Spec.Online = nil, false })
				e.ends("Ended")
				equal(t, "the state of the host", e.host().Status.Provisioning.State, bmov1alpha1.StateAvailable)
				e.editHost(false, func(h *bmov1alpha1.BareMetalHost) {
					builders.Deployed(h)
					builders.ConsumedBy("next")(h)
				})
				e.until(time.Hour)
				equal(t, "whether its next owner has it on", e.box.model.Powered(), true)
			})
		})
	}
}

func TestN14OneRemediationWritesAsOftenAsIsStated(t *testing.T) {
	known := settings{machine: func(m *clusterv1.Machine) { m.Spec.ProviderID = "metal3://w" }} // as copied by Cluster API
	bothKinds(t, known, func(t *testing.T, e *environment) {
		e.ends("Succeeded")
		done, _ := e.writes.Done()
		equal(t, "the number of writes", len(done), 17)
		equal(t, "the number of reads past the caches", e.management.Reads+e.work.Reads, 25)
	})
}

func TestW24AMachineOfTheOwnersNameAndAnotherUIDIsNotTouched(t *testing.T) {
	bothKinds(t, settings{}, func(t *testing.T, e *environment) {
		again := e.machine().DeepCopy()
		e.vanish(e.management, e.machine())
		again.UID, again.ResourceVersion = "another", ""
		status := again.Status
		e.do(e.management.Create(t.Context(), again))
		edit(e, e.management, e.machine(), true, func(m *clusterv1.Machine) { m.Status = status })
		e.ends("Ended")
		equal(t, "the number of annotations of the host", len(e.host().Annotations), 0)
		e.power()
	})
}

// N3: a person may register a deleted host again, so kubemend asks a person and does not have its machine replaced.
func TestTheOwnerIsNotAskedForAHostThatIsGone(t *testing.T) {
	for _, state := range []string{"PoweringOff", "MovingWorkload", "PoweringOn", "Booting"} {
		s := standstills[slices.IndexFunc(standstills, func(s standstill) bool { return s.state == state })]
		t.Run(state, func(t *testing.T) {
			bothKinds(t, s.settings, func(t *testing.T, e *environment) {
				e.stands(s.state)
				e.vanish(e.management, e.host())
				e.until(3 * time.Hour)
				if c := conditions.Get(e.machine(), clusterv1.MachineOwnerRemediatedCondition); c != nil || powercycle.State(e.memory()).Final() {
					t.Errorf("it is %s, and its owner: %v\n%s", e.memory(), c, e.story())
				}
				equal(t, "the reason for which a person is asked", memoryOf(e.remediation()).Person, powercycle.HostGoneReason)
				equal(t, "whether the node is fenced", outOfService(e.node()), false)
			})
		})
	}
}
