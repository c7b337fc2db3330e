package machinestatus

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// own reports whether cond is of a type that only kubemend sets on a Machine.
func own(cond metav1.Condition) bool {
	return cond.Type == mendv1.Remediation || cond.Type == mendv1.SpareHostAvailable
}

// HasOwn reports whether m has a condition that only kubemend sets.
func HasOwn(m *clusterv1.Machine) bool { return slices.ContainsFunc(m.Status.Conditions, own) }

// DropOwn removes those conditions from m, which no cache may share.
func DropOwn(m *clusterv1.Machine) { m.Status.Conditions = slices.DeleteFunc(m.Status.Conditions, own) }
