package hostremediation

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/test/golden"
)

// controlPlane makes the machine a member of a control plane, beside one whose remediation is under way.
func (k *fixture) controlPlane() {
	k.t.Helper()
	k.edits("m", func(m *clusterv1.Machine) {
		m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: "", clusterv1.ClusterNameLabel: "c"}
	})
	other := k.machine(k.t.Context())
	other.Name, other.UID, other.ResourceVersion = "other", "other-uid", ""
	const begun = `{"state":"PoweringOff","attempt":1,"began":"2026-01-01T11:50:00Z"}`
	k.creates(other, remembering("another", "other-uid", ofMachine("other", "other-uid"), begun))
}

func boots(boot string, ready corev1.ConditionStatus) answering {
	n := readyNode(boot)
	n.Name, n.Status.Conditions[0].Status = "node", ready
	return answering{nodes: []*corev1.Node{n}}
}

// explained returns the explanation of the remediation.
func (k *fixture) explained() *explain.Remediation {
	k.t.Helper()
	return Explain(k.r.Kind, mustWrap(k.remediation()))
}

// told returns what Explain says, as text.
func told(is *explain.Remediation) string {
	var b strings.Builder
	line := func(name string, what ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, strings.TrimSpace(fmt.Sprintln(what...)))
	}
	machine := ptr.Deref(is.Machine, explain.Ref{})
	line("it is", is.String(), "of", machine.Kind, machine.Name, "on host", cmp.Or(is.Host, "?"), "with node", cmp.Or(is.Node, "?"))
	line("stands", fmt.Sprintf("in %s (phase %q), attempt %d of %d", is.State, is.RemediationPhase, is.Attempt, is.Attempts))
	line("since", stored(is.StateSince), "began", stored(is.AttemptStarted), "deadline", stored(is.Deadline))
	line("says", is.Reason+":", is.Message)
	for _, e := range is.Evidence {
		line("evidence", e)
	}
	for _, h := range is.Blockers {
		line("hold", h.Reason+":", h.Text)
		line("  until", moments(h.Until), "person:", cmp.Or(h.Fix, "-"))
	}
	line("next", moments(is.Next.At), cmp.Or(is.Next.Text, "-"), map[bool]string{true: "(a person)"}[is.Next.Manual])
	return b.String()
}

func moments(at time.Time) string { return stored(&metav1.Time{Time: at}) }

func stored(at *metav1.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format("15:04:05")
}

func TestWhatAPageSaysOfAPowerCycle(t *testing.T) {
	stories := map[string]func(k *fixture){
		"one that was not reconciled yet": func(*fixture) {},
		"one waits for its turn": func(k *fixture) {
			k.controlPlane()
			k.pass()
		},
		"the host is not ready": func(k *fixture) {
			k.host.Annotations["baremetalhost.metal3.io/paused"] = "metal3.io/capm3"
			k.pass()
		},
		"the host names another machine": func(k *fixture) {
			k.found = &host.Found{Host: host.From(k.host), Is: powercycle.HostForeign, Why: "spec.consumerRef of BareMetalHost ns/h names Metal3Machine ns/x, expected Metal3Machine ns/m"}
			k.pass()
		},
		"the host powers off": func(k *fixture) {
			k.reaches(powercycle.PoweringOff)
		},
		"the BMC is dead": func(k *fixture) {
			k.reaches(powercycle.PoweringOff)
			k.host.Status.ErrorType, k.host.Status.ErrorMessage = bmov1alpha1.PowerManagementError, "no route to host"
			k.pass()
		},
		"the host was off when it was asked": func(k *fixture) {
			k.power(false)
			k.pass()
		},
		"pods are left on the node": func(k *fixture) {
			k.reaches(powercycle.MovingWorkload)
			k.seen.Left, k.seen.Count = []string{"Pod ns/db-0", "Pod ns/web-1"}, 7
			k.pass()
		},
		"the workload cluster is out of reach": func(k *fixture) {
			k.seen, k.refused = fence.Seen{}, errors.New("no route to host")
			k.reaches(powercycle.MovingWorkload)
		},
		"the host powers on": func(k *fixture) {
			k.reaches(powercycle.PoweringOn)
		},
		"somebody else keeps the host off": func(k *fixture) {
			k.reaches(powercycle.PoweringOn)
			k.host.Annotations["reboot.metal3.io/rack-move"] = ""
			k.pass()
		},
		"the machine boots": func(k *fixture) {
			k.r.Clusters = boots("before", corev1.ConditionUnknown)
			k.reaches(powercycle.Booting)
		},
		"the machine boots for the last time": func(k *fixture) {
			k.r.Clusters = boots("before", corev1.ConditionUnknown)
			k.reaches(powercycle.Booting)
			k.wait(10 * time.Minute)
			k.reaches(powercycle.Booting)
		},
		"the owner is asked": func(k *fixture) {
			k.r.Clusters = boots("before", corev1.ConditionUnknown)
			for range 2 {
				k.reaches(powercycle.Booting)
				k.wait(10 * time.Minute)
			}
		},
		"the machine is healthy": func(k *fixture) {
			k.r.Clusters = boots("before", corev1.ConditionUnknown)
			k.reaches(powercycle.Booting)
			k.r.Clusters = boots("after", corev1.ConditionTrue)
			k.pass()
		},
		"the owner switched the host off": func(k *fixture) {
			k.host.Spec.Online = false
			k.pass()
		},
		"it is paused while it waits for its turn": func(k *fixture) {
			k.controlPlane()
			k.pass()
			k.edit(func(rem *mendv1.HostRemediation) { rem.Annotations[clusterv1.PausedAnnotation] = "" })
			k.wait(time.Minute)
		},
		"it names no machine": func(k *fixture) {
			k.edit(func(rem *mendv1.HostRemediation) { rem.OwnerReferences = nil })
			k.pass()
		},
		"it is deleted while the host is held off": func(k *fixture) {
			k.reaches(powercycle.PoweringOff)
			k.edit(func(rem *mendv1.HostRemediation) { rem.Finalizers = append(rem.Finalizers, "example.org/other") })
			k.deletes(k.remediation())
			k.pass()
		},
		"its check times it out": func(k *fixture) {
			k.reaches(powercycle.PoweringOff)
			k.edit(toldToStop)
			k.pass()
		},
		"its fence cannot be seen after the end": func(k *fixture) {
			k.reaches(powercycle.MovingWorkload)
			k.seen, k.refused = fence.Seen{}, errors.New("no route to host")
			k.edit(toldToStop)
			k.wait(10 * time.Minute) // until then its workload is waited for
		},
	}
	golden.Stories(t, "stories", stories, func(t *testing.T, play func(*fixture)) string {
		k := fixtureOf(t)
		k.obeys()
		play(k)
		return told(k.explained())
	})
}
