package machines

import (
	"fmt"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
)

// said returns what a machine's condition says, in both flavours, as one string: "False/UnhealthyNode False/UnhealthyNode".
// A flavour that is missing is "-".
func (s *environment) said(machine, kind string) func() string {
	return func() string { return flavours(s.get(machine), kind) }
}

func (s *environment) health(machine string) func() string {
	return s.said(machine, clusterv1.MachineHealthCheckSucceededCondition)
}

func (s *environment) owner(machine string) func() string {
	return s.said(machine, clusterv1.MachineOwnerRemediatedCondition)
}

// external is what ExternallyRemediated says; there is no v1beta1 flavour of it.
func (s *environment) external(machine string) func() string {
	return func() string {
		c := conditions.Get(s.get(machine), clusterv1.MachineExternallyRemediatedCondition)
		if c == nil {
			return "-"
		}
		return fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
}

func flavours(o interface {
	conditions.Getter
	v1beta1conditions.Getter
}, kind string) string {
	now, before := "-", "-"
	if c := conditions.Get(o, kind); c != nil {
		now = fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
	if c := v1beta1conditions.Get(o, clusterv1.ConditionType(kind)); c != nil {
		before = fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
	return now + " " + before
}

// What is said of machines.
const (
	well           = "True/HealthCheckSucceeded True/"
	silent         = "False/UnhealthyNode False/UnhealthyNode"
	nothing        = "- -"
	ownerRequested = "False/WaitingForRemediation False/WaitingForRemediation"
)

// of returns a condition of a check as "Status/Reason".
func (s *environment) of(check, kind string) func() string {
	return func() string {
		c := conditions.Get(s.getCheck(check), kind)
		if c == nil {
			return "-"
		}
		return fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
}

// both is what a condition of a check says in both flavours.
func (s *environment) both(check, kind string) func() string {
	return func() string { return flavours(s.getCheck(check), kind) }
}

func (s *environment) message(check, kind string) func() string {
	return func() string { return conditions.GetMessage(s.getCheck(check), kind) }
}

// allowed is what RemediationAllowed says.
func (s *environment) allowed(check string) func() string {
	return s.of(check, clusterv1.MachineHealthCheckRemediationAllowedCondition)
}

// counts are a check's numbers: expected, healthy, remediations allowed.
func (s *environment) counts(check string) func() []int32 {
	return func() []int32 {
		status := s.getCheck(check).Status
		return []int32{ptr.Deref(status.ExpectedMachines, -1), ptr.Deref(status.CurrentHealthy, -1), ptr.Deref(status.RemediationsAllowed, -1)}
	}
}

// events counts the events of a reason about an object.
func (s *environment) events(object, reason string) func() int {
	return func() int {
		n := 0
		for _, e := range s.allEvents() {
			if e.Regarding.Name == object && e.Reason == reason {
				n++
			}
		}
		return n
	}
}
