package claims

import (
	"maps"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestAChangeOfACheckIsReconciledIfADecisionDependsOnIt(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*clusterv1.MachineHealthCheck)
		want bool
	}{
		"its claim":       {func(c *clusterv1.MachineHealthCheck) { delete(c.Annotations, clusterv1.PausedAnnotation) }, true},
		"its mark":        {func(c *clusterv1.MachineHealthCheck) { delete(c.Annotations, mendv1.ClaimedByAnnotation) }, true},
		"its shard":       {func(c *clusterv1.MachineHealthCheck) { c.Labels = map[string]string{clusterv1.WatchLabel: ""} }, true},
		"it is made anew": {func(c *clusterv1.MachineHealthCheck) { c.UID = "new" }, true},
		"its spec":        {func(c *clusterv1.MachineHealthCheck) { c.Generation++ }, false},
		"another label":   {func(c *clusterv1.MachineHealthCheck) { c.Labels = map[string]string{"a": "b"} }, false},
	} {
		was, is := check("a", maps.Clone(byCluster)), check("a", maps.Clone(byCluster))
		tc.edit(is)
		if got := checkChanges().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != tc.want {
			t.Errorf("%s: it is reconciled: %t", name, got)
		}
	}
	if !checkChanges().Create(event.CreateEvent{Object: check("a", nil)}) {
		t.Error("a new check is not reconciled")
	}
}

func TestAChangeOfAClusterIsReconciledIfALabelChanges(t *testing.T) {
	labelled := func(with ...string) *clusterv1.Cluster {
		c := &clusterv1.Cluster{}
		c.Labels = map[string]string{"other": "x"}
		if len(with) > 0 {
			c.Labels[with[0]] = with[1]
		}
		return c
	}
	p := labelChanges(mendv1.ClaimLabel, clusterv1.WatchLabel)
	for name, tc := range map[string]struct {
		was, is *clusterv1.Cluster
		want    bool
	}{
		"the label is given":     {labelled(), labelled(mendv1.ClaimLabel, "act"), true},
		"an empty one is given":  {labelled(), labelled(mendv1.ClaimLabel, ""), true},
		"it is removed":          {labelled(mendv1.ClaimLabel, "act"), labelled(), true},
		"it is changed":          {labelled(mendv1.ClaimLabel, "act"), labelled(mendv1.ClaimLabel, "yes"), true},
		"the shard's is changed": {labelled(clusterv1.WatchLabel, "east"), labelled(clusterv1.WatchLabel, "west"), true},
		"nothing of this":        {labelled(), labelled("another", "x"), false},
	} {
		if got := p.Update(event.UpdateEvent{ObjectOld: tc.was, ObjectNew: tc.is}); got != tc.want {
			t.Errorf("%s: it is reconciled: %t", name, got)
		}
	}
	if p.Create(event.CreateEvent{Object: labelled()}) || !p.Create(event.CreateEvent{Object: labelled(mendv1.ClaimLabel, "act")}) {
		t.Error("of new Clusters those with a label are reconciled, and no others")
	}
}
