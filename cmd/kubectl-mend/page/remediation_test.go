package page

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	hostremediation "github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/test/golden"
)

// What a step is decided on is printed with -o wide alone.
func TestAWidePageHasTheEvidence(t *testing.T) {
	golden.Stories(t, "wide", map[string]powercycle.State{
		"a host that boots": powercycle.Booting,
	}, func(t *testing.T, state powercycle.State) string {
		e, err := host("rack-w1")(t.Context(), aScene(silent(6*time.Minute, "w1"), powerCycled(state)).asker(t))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := e.Print(&out, text.Layout{Width: 120, Wide: true}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	})
}

func TestARemediationThatEndedAtNoKnownTimeIsAFact(t *testing.T) {
	e := &Explanation{Remediations: []explain.Remediation{{HostRemediation: cliv1.HostRemediation{State: string(powercycle.Succeeded)}}}}
	e.remediatedBefore(aScene().asker(t), func(*mendv1.RecordTarget) bool { return false })
	if len(e.Remediations) > 0 || len(e.Facts) != 1 || e.Facts[0].Name != "ended" {
		t.Errorf("there are %v, and the facts are %v", e.Remediations, e.Facts)
	}
}

// A host that cannot be held off is rebooted: the page says that it was not proven off.
func TestAStepThatWasNotDoneIsNotSaidToBeDone(t *testing.T) {
	rem := aRemediation("w1", powercycle.Booting)
	for _, kind := range []string{infrav1.PoweredOffCondition, infrav1.WorkloadMovedCondition} {
		cond := conditions.Get(rem, kind)
		cond.Status, cond.Reason = metav1.ConditionFalse, "CannotBeProven"
		conditions.Set(rem, *cond)
	}
	cycle := &explain.Remediation{Conditions: rem.Status.Conditions}
	cycle.State, cycle.StateSince = "Booting", cliv1.Moment(noon.Add(-time.Second))
	rows := (&page{Page: text.Page{Layout: text.Layout{Now: noon}}}).cycle(cycle)
	want := [][]string{
		{"  power off", "-", "-", "CannotBeProven"}, {"  fence, move", "-", "-", "CannotBeProven"}, {"  power on", "11:59:00", "0s"}, {"> Ready", "11:59:59", "1s"},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	cycle.StateSince = cliv1.Moment(noon.Add(5 * time.Second)) // by the clock of a manager that is ahead
	if last := (&page{Page: text.Page{Layout: text.Layout{Now: noon}}}).cycle(cycle)[3]; last[2] != "0s" {
		t.Errorf("a step that begins in a moment: %v", last)
	}
}

// held is the annotation by which a remediation holds a host off.
func held(by types.UID) string {
	return bmov1alpha1.RebootAnnotationPrefix + "/metal3-remediation-" + string(by)
}

// powerCycled puts workers on hosts, and has the check ask for power cycles; w1's is in that state for a minute, if it is not empty.
func powerCycled(state powercycle.State, edits ...func(*bmov1alpha1.BareMetalHost, *mendv1.HostRemediation)) func(*scene) {
	return func(s *scene) {
		template := &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reboot"}}
		s.others = append(s.others, template)
		s.check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
			APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Name: "reboot",
		}
		rem := aRemediation("w1", state)
		for _, m := range s.machines {
			host := s.onHost(m)
			if m.Name != "w1" {
				continue
			}
			if state == powercycle.PoweringOff {
				host.Annotations = map[string]string{held(rem.UID): ""}
			}
			for _, edit := range edits {
				edit(host, rem)
			}
		}
		if state != "" {
			s.others = append(s.others, rem)
		}
	}
}

// onHost puts a machine on a host of its own, that is on.
func (s *scene) onHost(m *clusterv1.Machine) *bmov1alpha1.BareMetalHost {
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: m.Name}
	between := &unstructured.Unstructured{}
	between.SetAPIVersion(infrav1.GroupVersion.String())
	between.SetKind("Metal3Machine")
	between.SetNamespace("default")
	between.SetName(m.Name)
	between.SetAnnotations(map[string]string{infrav1.HostAnnotation: "default/rack-" + m.Name})
	between.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID}})
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rack-" + m.Name, UID: types.UID("rack-" + m.Name)}}
	host.Spec.Online, host.Status.PoweredOn, host.Status.Provisioning.State = true, true, bmov1alpha1.StateProvisioned
	host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Namespace: "default", Name: m.Name}
	s.others = append(s.others, between, host)
	return host
}

// aRemediation is that of a worker, in its first attempt of two.
func aRemediation(worker string, state powercycle.State) *mendv1.HostRemediation {
	rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: worker, UID: types.UID("rem-" + worker), CreationTimestamp: at(3 * time.Minute), Finalizers: []string{mendv1.HostRemediationFinalizer},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: worker, UID: types.UID(worker)}},
		Labels:          map[string]string{mendv1.MadeByUIDLabel: "check"},
	}}
	rem.Spec.Strategy = &mendv1.HostRemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: ptr.To[int32](1), TimeoutSeconds: 600}
	memory := powercycle.Memory{State: state, Since: noon.Add(-time.Minute), StartedUnhealthy: true}
	if state != powercycle.Pending {
		memory.Attempt, memory.Began, memory.Asked, memory.Touched = 1, noon.Add(-2*time.Minute), noon.Add(-time.Minute), true
	}
	for i, kind := range []string{infrav1.PoweredOffCondition, infrav1.WorkloadMovedCondition, infrav1.PoweredOnCondition} {
		if state == powercycle.Booting || state == powercycle.PoweringOn && i < 2 || state == powercycle.MovingWorkload && i == 0 {
			rem.Status.Conditions = append(rem.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Done", LastTransitionTime: at(time.Minute)})
		}
	}
	rem.Annotations = map[string]string{mendv1.MadeByAnnotation: "workers"}
	remembers(rem, memory)
	says(rem, map[powercycle.State]powercycle.Reason{
		powercycle.Pending: powercycle.WaitingInQueueReason, powercycle.PoweringOff: powercycle.PoweringOffReason,
		powercycle.MovingWorkload: powercycle.WorkloadMovingReason, powercycle.PoweringOn: powercycle.PoweringOnReason,
		powercycle.Booting: powercycle.BootingReason, powercycle.OwnerRequested: powercycle.OwnerRequestedReason,
		powercycle.Succeeded: powercycle.MachineHealthyReason,
	}[state], powercycle.Cycle{Ahead: []powercycle.Ahead{{Text: "w2 is being remediated (HostRemediation w2)"}}})
	return rem
}

// remembers writes down what a remediation remembers.
func remembers(rem *mendv1.HostRemediation, memory powercycle.Memory) {
	worker := rem.OwnerReferences[0].Name
	content, err := hostremediation.Record{Memory: memory, Host: "rack-" + worker, Node: "node-" + worker}.Encode()
	if err != nil {
		panic(err) // a record is made to be stored
	}
	rem.Annotations[mendv1.PowerCycleAnnotation] = content
}

// says writes the condition of a remediation as a whole, as the manager does when it waits for that reason.
func says(rem *mendv1.HostRemediation, reason powercycle.Reason, cycle powercycle.Cycle) {
	cycle.After, cycle.Policy = hostremediation.Remembered(rem).Memory, powercycle.Policy{Retries: 1}
	step := powercycle.Step{Do: powercycle.Wait, From: cycle.After.State, Next: cycle.After.State, Reason: reason}
	conditions.Set(rem, metav1.Condition{
		Type: nhcv1.ProcessingCondition, Status: metav1.ConditionTrue, Reason: string(reason), Message: cycle.Message("", step),
		LastTransitionTime: at(time.Minute),
	})
}

// controlPlane makes w1 and w2 machines of the control plane, whose hosts are remediated one after the other: w2's is under way.
func controlPlane(s *scene) {
	for _, name := range []string{"w1", "w2"} {
		s.machines[name].Labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	s.others = append(s.others, aRemediation("w2", powercycle.PoweringOff))
}
