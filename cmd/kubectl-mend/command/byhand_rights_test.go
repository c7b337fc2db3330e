package command

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubemend/kubemend/controllers/explain"
)

// The example is what docs/cli/remediate.md tells administrators to apply: it has what the commands ask the API server for, and what the policy
// kubemend-memory asks of who removes kubemend's mark from a host.
func TestTheRightsToActByHandAreThoseOfTheExample(t *testing.T) {
	p := aPlace(t)
	f := &byHandFacts{machine: p.machines["w1"], request: requestByHand(p.machines["w1"], nil)}
	b := &byHand{}
	needed := map[right]bool{{"create", "events.k8s.io", "events"}: true, {"patch", "kubemend.io", "hostremediations/status"}: true}
	for _, plan := range []explain.ByHand{{Reason: explain.RequestedMark}, {Reason: explain.RequestedCycle}} {
		add(needed, b.remediation(f, &plan, "").needs)
	}
	add(needed, resetNeeds(hostKind, p.hosts["w1"]))
	add(needed, resetNeeds(machineKind, p.machines["w1"]))
	rights := grantedBy(t, "../../../docs/examples/mend-operator.yaml")
	for is := range rights {
		if !needed[is] {
			t.Errorf("the example grants %s, which no command needs", is)
		}
	}
	for is := range needed {
		if _, granted := rights[is]; !granted {
			t.Errorf("the example does not grant %s", is)
		}
	}
	for is, role := range granted(t) {
		if needed[is] {
			t.Errorf("%s may %s as well", role, is)
		}
	}
}

func add(needed map[right]bool, all []authorizationv1.ResourceAttributes) {
	for _, a := range all {
		needed[right{a.Verb, a.Group, a.Resource}] = true
	}
}
