package badinput

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// annotation is one of a Machine, or of its MachineHealthCheck, that a person writes, with a value that may not do what they meant by it.
type annotation struct {
	kind, key, value string
	// says is what the check says of it, or of the Machine, as `kubectl mend explain` prints it.
	says string
	// remediated is whether the machine is, with it.
	remediated bool
}

var annotations = []annotation{
	{"Machine", clusterv1.MachineSkipRemediationAnnotation, "", "The machine has the annotation cluster.x-k8s.io/skip-remediation", false},
	{"Machine", clusterv1.MachineSkipRemediationAnnotation, "false", "The machine has the annotation cluster.x-k8s.io/skip-remediation", false},
	{"Machine", clusterv1.PausedAnnotation, "false", "The machine has the annotation cluster.x-k8s.io/paused", false},
	{"Machine", clusterv1.PausedAnnotation, "kubemend", "The machine has the annotation cluster.x-k8s.io/paused", false},
	{"Machine", clusterv1.RemediateMachineAnnotation, "false", "marked for remediation via cluster.x-k8s.io/remediate-machine annotation", true},
	{"Machine", clusterv1.RemediateMachineAnnotation, "tomorrow", "marked for remediation via cluster.x-k8s.io/remediate-machine annotation", true},
	{"MachineHealthCheck", clusterv1.PausedAnnotation, "", `The check has the annotation cluster.x-k8s.io/paused: ""`, false},
	{"MachineHealthCheck", clusterv1.PausedAnnotation, "false", `The check has the annotation cluster.x-k8s.io/paused: "false"`, false},
	{"MachineHealthCheck", clusterv1.PausedAnnotation, "Kubemend",
		`The check has the annotation cluster.x-k8s.io/paused: "Kubemend", which pauses it for all; "kubemend" claims it`, false},
	{"MachineHealthCheck", clusterv1.PausedAnnotation, " kubemend",
		`The check has the annotation cluster.x-k8s.io/paused: " kubemend", which pauses it for all; "kubemend" claims it`, false},
}

func TestAnAnnotationIsReportedWhateverItsValueUntilItIsRemoved(t *testing.T) {
	for _, row := range annotations {
		t.Run(row.kind+" "+row.key+" "+written(row.value), func(t *testing.T) {
			f := newFixture(t)
			f.annotate("Machine", clusterv1.RemediateMachineAnnotation, nil)
			if !row.remediated {
				f.annotate("Machine", clusterv1.RemediateMachineAnnotation, new(string))
			}
			f.annotate(row.kind, row.key, &row.value)
			for range 2 {
				f.reconcile("bad")
				f.reconcile("good")
			}
			if f.asked("bad") != row.remediated || !f.asked("good") {
				t.Errorf("remediated: the machine %t, that of another check %t; want %t and true", f.asked("bad"), f.asked("good"), row.remediated)
			}
			if said := f.said("bad"); !strings.Contains(said, row.says) {
				t.Errorf("it is said:\n%s\nwant %s", said, row.says)
			}
			if row.remediated {
				return // an owner remediation request of a machine is not removed
			}
			f.annotate(row.kind, row.key, nil)
			f.reconcile("bad")
			if !f.asked("bad") {
				t.Errorf("without the annotation the machine is not remediated: %s", f.said("bad"))
			}
		})
	}
}

// annotate sets an annotation of the object of that kind with the name bad, or removes it if the value is nil.
func (f *fixture) annotate(kind, key string, value *string) {
	f.t.Helper()
	var obj client.Object = &clusterv1.Machine{}
	if kind == "MachineHealthCheck" {
		obj = &clusterv1.MachineHealthCheck{}
	}
	if err := f.api.Get(f.t.Context(), client.ObjectKey{Namespace: "ns", Name: "bad"}, obj); err != nil {
		f.t.Fatal(err)
	}
	all := map[string]string{}
	for k, v := range obj.GetAnnotations() {
		all[k] = v
	}
	delete(all, key)
	if value != nil {
		all[key] = *value
	}
	obj.SetAnnotations(all)
	if err := f.api.Update(f.t.Context(), obj); err != nil {
		f.t.Fatal(err)
	}
}

// said is all that a check says of itself and of its machine, as `kubectl mend explain` asks it.
func (f *fixture) said(check string) string {
	f.t.Helper()
	is, err := f.Explain(f.t.Context(), client.ObjectKey{Namespace: "ns", Name: check}, f.clock.Now())
	if err != nil {
		f.t.Fatal(err)
	}
	said := []string{is.ModeMessage, is.Message}
	for _, target := range is.Targets {
		said = append(said, target.Skipped)
		for _, finding := range target.Findings {
			said = append(said, finding.Message)
		}
	}
	for _, c := range is.Conditions {
		if c.Status != metav1.ConditionTrue {
			said = append(said, c.Message)
		}
	}
	return strings.Join(said, "\n")
}
