package capi

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestWhoJudgesAMachine(t *testing.T) {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", Labels: map[string]string{"a": "b"}}}
	m.Spec.ClusterName = "c"
	for name, tc := range map[string]struct {
		change func(*clusterv1.MachineHealthCheck)
		want   bool
	}{
		"a check of core's":             {func(*clusterv1.MachineHealthCheck) {}, true},
		"one that kubemend has claimed": {func(c *clusterv1.MachineHealthCheck) { c.Annotations[clusterv1.PausedAnnotation] = mendv1.Claim }, true},
		"not one that is paused":        {func(c *clusterv1.MachineHealthCheck) { c.Annotations[clusterv1.PausedAnnotation] = "" }, false},
		"not one of another cluster":    {func(c *clusterv1.MachineHealthCheck) { c.Spec.ClusterName = "d" }, false},
		"not one of other machines":     {func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["a"] = "x" }, false},
		"not one that selects nothing":  {func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels = nil }, false},
		"not one that is being deleted": {func(c *clusterv1.MachineHealthCheck) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)} }, false},
	} {
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "check", Annotations: map[string]string{}}}
		check.Spec.ClusterName, check.Spec.Selector.MatchLabels = "c", map[string]string{"a": "b"}
		tc.change(check)
		must.Is(t, tc.want, Judges(check, m), "%s:", name)
	}
}
