package capacity

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

func TestEachMachineSeesTheHostsThatItWants(t *testing.T) {
	zone := func(name, zone string) *unstructured.Unstructured {
		return metal3Machine(name, "", map[string]any{"hostSelector": map[string]any{"matchLabels": map[string]any{"zone": zone}}})
	}
	e := anEnvironment(func(e *environment) {
		for name, age := range map[string]time.Duration{"w4": 10 * time.Minute, "w5": 2 * time.Minute, "w6": time.Minute} {
			m := e.machine(name, age)
			m.Status.NodeRef.Name, m.Status.Conditions = "", nil
		}
	}, with(zone("w4", "9"), zone("w5", "1"), zone("w6", "1"), hostNamed("h1", "1")))
	for name, want := range map[string]capacity.Reason{"w4": capacity.NoHost, "w5": capacity.HostChosen, "w6": capacity.HostChosen} {
		f, err := e.observer(t).Observe(t.Context(), Of(e.machines[name], noon), noon)
		if err != nil {
			t.Fatal(err)
		}
		if s := capacity.Follow(f); s.Reason != want {
			t.Errorf("%s: %s, want %s; of the hosts %+v", name, s.Reason, want, s.Args.Hosts)
		}
	}
}

func TestHowAMachineDeploymentRollsOutIsRead(t *testing.T) {
	for name, tc := range map[string]struct {
		edit             func(*clusterv1.MachineDeployment)
		paused, onDelete bool
	}{
		"by itself":                    {func(*clusterv1.MachineDeployment) {}, false, false},
		"not while its spec pauses it": {func(md *clusterv1.MachineDeployment) { md.Spec.Paused = new(true) }, true, false},
		"not while it is annotated": {func(md *clusterv1.MachineDeployment) {
			md.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}, true, false},
		"when users delete its machines": {func(md *clusterv1.MachineDeployment) {
			md.Spec.Rollout.Strategy.Type = clusterv1.OnDeleteMachineDeploymentStrategyType
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := anEnvironment(func(e *environment) { tc.edit(e.md) })
			f, err := e.observer(t).Observe(t.Context(), Of(e.machines["w1"], noon), noon)
			if err != nil || f.Owner.RolloutPaused != tc.paused || f.Owner.OnDelete != tc.onDelete {
				t.Errorf("%+v, %v", f.Owner, err)
			}
		})
	}
}
