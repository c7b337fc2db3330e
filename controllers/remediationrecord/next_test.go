package remediationrecord

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/record"
)

func reboot(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate", Namespace: "metal", Name: name}
}

// ladder is a NodeHealthCheck of two steps, the later one first, that lists node n1 with requests of these templates.
func ladder(requested ...string) *nhcv1.NodeHealthCheck {
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes", UID: "nhc-uid"}}
	for i, name := range []string{"second", "first"} {
		check.Spec.EscalatingRemediations = append(check.Spec.EscalatingRemediations, nhcv1.EscalatingRemediation{
			RemediationTemplate: reboot(name), Order: 2 - i, Timeout: metav1.Duration{Duration: time.Hour},
		})
	}
	is := nhcv1.UnhealthyNode{Name: "n1"}
	for i, name := range requested {
		was := nhcv1.Remediation{Started: after(time.Second), TemplateName: name, Resource: corev1.ObjectReference{
			APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediation", Namespace: "metal", Name: "w1-" + name,
		}}
		if i < len(requested)-1 {
			was.TimedOut = new(after(time.Minute))
		}
		is.Remediations = append(is.Remediations, was)
	}
	check.Status.UnhealthyNodes = []nhcv1.UnhealthyNode{is}
	return check
}

// cycledBy is a request for w1 that was made from a template.
func cycledBy(template, state string) *mendv1.HostRemediation {
	return &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: "w1-" + template, UID: "r", CreationTimestamp: after(time.Second),
		Annotations: map[string]string{mendv1.RecordAnnotation: "w1-record", mendv1.PowerCycleAnnotation: `{"state":"` + state + `"}`},
	}}
}

// A storm, a limit, a pause or leases hold up the next step of a ladder for longer than a record waits for what nothing asks for any more.
func TestARecordSaysWhetherItsCheckHasAStepLeft(t *testing.T) {
	single := ladder("only")
	ref := reboot("only")
	single.Spec.RemediationTemplate, single.Spec.EscalatingRemediations = &ref, nil
	machines := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "machines", UID: "mhc-uid"}}
	for name, tc := range map[string]struct {
		check   *nhcv1.NodeHealthCheck // nil for the check of Machines
		request *mendv1.HostRemediation
		gone    bool // the check
		want    record.Reason
	}{
		"the second step of a ladder, after the first one failed": {check: ladder("first"), request: cycledBy("first", "Failed"), want: record.AwaitingNextStep},
		"the step that it is on, as its request was deleted":      {check: ladder("second"), want: record.AwaitingNextStep},
		"none after the last one failed":                          {check: ladder("first", "second"), request: cycledBy("second", "Failed"), want: record.RequestsEnded},
		"none of a check that is gone":                            {check: ladder("first"), request: cycledBy("first", "Failed"), gone: true, want: record.RequestsEnded},
		"none after a single one failed":                          {check: single, request: cycledBy("only", "Failed"), want: record.RequestsEnded},
		"a single one anew, as its request was deleted":           {check: single, want: record.AwaitingNextStep},
		"a request anew, as that of a MachineHealthCheck is gone": {want: record.AwaitingNextStep},
		"none of a MachineHealthCheck that is gone":               {gone: true, want: record.Withdrawn},
		"none of a MachineHealthCheck whose request failed":       {request: cycledBy("only", "Failed"), want: record.RequestsEnded},
	} {
		t.Run(name, func(t *testing.T) {
			is := recordOf(func(r *mendv1.RemediationRecord) {
				r.Spec.Target.Node = &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "n1"}
				r.Spec.Requester.Check = &mendv1.RecordRef{Kind: "MachineHealthCheck", Namespace: "metal", Name: "machines"}
				if tc.check != nil {
					r.Spec.Requester.Check = &mendv1.RecordRef{Kind: "NodeHealthCheck", Name: "nodes"}
				}
			})
			m := newManagement(t, append(fleet(), unhealthy(), is)...)
			was := tc.request
			if was == nil {
				was = cycledBy("first", "PoweringOff")
			}
			m.create(was)
			m.reconcile(2 * time.Second)
			if tc.request == nil {
				m.remove(was)
			}
			switch {
			case tc.gone:
			case tc.check != nil:
				m.create(tc.check.DeepCopy())
			default:
				m.create(machines.DeepCopy())
			}
			got := m.reconcile(3 * time.Minute)
			if waits := condition(got, mendv1.RecordCapacityBack); waits != "False "+string(tc.want) {
				t.Errorf("it waits for %q, want %q: %v", waits, tc.want, reasons(got))
			}
			got = m.reconcile(30 * time.Minute)
			if open := tc.want == record.AwaitingNextStep; got.Open() != open {
				t.Errorf("it has ended as %q", got.Status.Outcome)
			}
		})
	}
}

// A step that its check skips for the node is none that the node still has.
func TestAStepIsLeftOnlyIfItsRequestCanBeAboutTheNode(t *testing.T) {
	ref := func(group, namespace string) corev1.ObjectReference {
		return corev1.ObjectReference{APIVersion: group, Kind: "RebootTemplate", Namespace: namespace, Name: "t"}
	}
	const ours, infrastructure, others = "kubemend.io/v1alpha1", "infrastructure.cluster.x-k8s.io/v1beta2", "self-node-remediation.medik8s.io/v1alpha1"
	machine := &mendv1.RecordRef{Kind: "Machine", Namespace: "metal", Name: "w1"}
	for name, tc := range map[string]struct {
		template  corev1.ObjectReference
		machine   *mendv1.RecordRef
		openshift string
		want      bool
	}{
		"one about nodes, without a Machine":                                          {template: ref(others, "any"), want: true},
		"a power cycle of a node with a Machine":                                      {template: ref(ours, "metal"), machine: machine, want: true},
		"a power cycle of a node without one":                                         {template: ref(ours, "metal")},
		"a power cycle from a template in another namespace":                          {template: ref(ours, "other"), machine: machine},
		"one of infrastructure, with a Machine":                                       {template: ref(infrastructure, "metal"), machine: machine, want: true},
		"one of infrastructure, without a Machine":                                    {template: ref(infrastructure, "metal")},
		"one of infrastructure, with a Machine of OpenShift":                          {template: ref(infrastructure, "openshift-machine-api"), openshift: "openshift-machine-api/w1", want: true},
		"one of infrastructure, with a Machine of OpenShift that is somewhere else":   {template: ref(infrastructure, "metal"), openshift: "openshift-machine-api/w1"},
		"a power cycle, which is not about Machines of OpenShift":                     {template: ref(ours, "openshift-machine-api"), openshift: "openshift-machine-api/w1"},
		"one of infrastructure without a namespace, and a node that names no Machine": {template: ref(infrastructure, "")},
	} {
		t.Run(name, func(t *testing.T) {
			o := &observed{record: &mendv1.RemediationRecord{}, openshift: tc.openshift}
			o.record.Spec.Target.Machine = tc.machine
			if got := o.canBeAbout(&nhcv1.EscalatingRemediation{RemediationTemplate: tc.template}); got != tc.want {
				t.Errorf("it can be about the node: %t, want %t", got, tc.want)
			}
		})
	}
}
