package explain

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// plainly formats a time as its time of day.
func plainly(at time.Time) string { return at.Format(time.TimeOnly) }

var (
	request = Ref{Kind: "HostRemediation", Namespace: "ns", Name: "m"}
	tooMany = Blocker{Reason: clusterv1.MachineHealthCheckTooManyUnhealthyReason, Text: "9 of 9"}
	away    = &cliv1.NodesUnknown{Reason: mendv1.UnreachableReason, Since: cliv1.Moment(noon), Message: "It is away"}
	limited = checkOf(cliv1.ModeActing, "", 2, nil, 2, 3)
)

// checkOf returns a check that allows most targets to be unhealthy.
func checkOf(mode cliv1.Mode, reason string, most int, away *cliv1.NodesUnknown, healthy, unhealthy int, targets ...Target) Check {
	return Check{
		Check:  cliv1.Check{Mode: mode, Reason: reason, NodesUnknown: away, Limits: cliv1.Limits{AtMost: &most}},
		Counts: budget.Population{Healthy: healthy, Unhealthy: unhealthy}, Targets: targets,
	}
}

// inState returns a remediation in a state.
func inState(state powercycle.State, reason string, remediation cliv1.HostRemediation) Remediation {
	remediation.State, remediation.Reason = string(state), reason
	return Remediation{HostRemediation: remediation}
}

// blocked returns an unhealthy target with these blockers.
func blocked(all ...Blocker) Target {
	return Target{Target: cliv1.Target{State: cliv1.StateUnhealthy, Blockers: all}}
}

// pending returns a target that counts as unhealthy at that time.
func pending(expires time.Time) Target {
	return Target{Target: cliv1.Target{State: cliv1.StatePending, Findings: []Finding{
		{Reason: string(health.NodeCondition), Expires: cliv1.Moment(expires), Unless: "Ready"},
	}}}
}

// cycled returns a target whose host is power-cycled, at a step.
func cycled(state powercycle.State, reason powercycle.Reason, blockers ...Blocker) Target {
	return Target{Target: cliv1.Target{State: cliv1.StateUnhealthy, InFlight: true, Requests: []Ref{request}}, Cycle: &Remediation{
		HostRemediation: cliv1.HostRemediation{Reference: request, State: string(state), Reason: string(reason), Blockers: blockers},
	}}
}

// The golden pages of kubectl mend cover more answers.
func TestTheFirstLineAndThePhaseAreOfOneAnswer(t *testing.T) {
	unmanaged := cycled(powercycle.PoweringOff, powercycle.PoweringOffReason)
	unmanaged.Blockers = []Blocker{{Reason: NoManager}}
	for want, tc := range map[string]struct {
		check  Check
		given  Target
		phase  cliv1.Phase
		reason string
	}{
		"HEALTHY": {limited, Target{Target: cliv1.Target{State: cliv1.StateHealthy}}, cliv1.Healthy, ""},
		"UNHEALTHY, NOT REMEDIATED: ClosedWindow, until 12:00:00": {
			limited, blocked(Blocker{Reason: "ClosedWindow", Until: noon}), cliv1.Blocked, "ClosedWindow",
		},
		"UNHEALTHY, NOT REMEDIATED: NodeExcluded": {
			limited, blocked(Blocker{Reason: "RemediationSkipped", Cause: "NodeExcluded"}), cliv1.Blocked, "NodeExcluded",
		},
		"UNHEALTHY, ACTION UNKNOWN: NoManager": {Check{Check: cliv1.Check{Mode: cliv1.ModeUnknown}}, blocked(Blocker{Reason: NoManager}), cliv1.Blocked, NoManager},
		"UNHEALTHY, REMEDIATION BLOCKED: HostRemediation ns/m (HostGone)": {
			limited, cycled(powercycle.Failed, powercycle.HostGoneReason), cliv1.Blocked, "HostGone",
		},
		"UNHEALTHY, REMEDIATION BLOCKED: HostRemediation ns/m (NoneFollows)": {limited, Target{
			Target: cliv1.Target{State: cliv1.StateUnhealthy, InFlight: true, Requests: []Ref{request}, Next: Step{Reason: "NoneFollows", Manual: true}},
		}, cliv1.Blocked, "NoneFollows"},
		"UNHEALTHY, BEING REMEDIATED: HostRemediation ns/m": { // a user has requested the power cycle
			limited, blocked(Blocker{Reason: RemediationUnderWay, Object: request}), cliv1.Remediating, RemediationUnderWay,
		},
		"UNHEALTHY, NOT REMEDIATED: NoManager (HostRemediation ns/m)": {limited, unmanaged, cliv1.Blocked, NoManager},
		"UNHEALTHY, REMEDIATION STARTS NOW: MachineSet md": {
			limited, Target{Target: cliv1.Target{State: cliv1.StateUnhealthy, StartsNow: true}, Remediator: "MachineSet md"}, cliv1.Remediating, RemediationStarts,
		},
		"HEALTHY, REMEDIATION ENDS: HostRemediation ns/m (MachineHealthy)": {limited, Target{
			Target: cliv1.Target{State: cliv1.StateHealthy, InFlight: true, Requests: []Ref{request}},
			Cycle:  &Remediation{HostRemediation: cliv1.HostRemediation{Reference: request, Reason: "MachineHealthy"}},
		}, cliv1.Healthy, "MachineHealthy"},
		"UNHEALTHY, PUT OFF BY ITS OWNER: RemediationDeferred (KubeadmControlPlane cp)": {limited, Target{
			Target: cliv1.Target{State: cliv1.StateUnhealthy, InFlight: true, Deferred: true}, OwnerReason: "RemediationDeferred", Owner: "KubeadmControlPlane cp",
		}, cliv1.Blocked, "RemediationDeferred"},
		"UNHEALTHY, BEING DELETED":                    {limited, blocked(Blocker{Reason: MachineBeingDeleted}), cliv1.Remediating, MachineBeingDeleted},
		"PENDING: unhealthy at 12:00:00 unless Ready": {limited, pending(noon), cliv1.Pending, "NodeCondition"},
		"SKIPPED: the machine has an annotation":      {limited, Target{Target: cliv1.Target{Skipped: "The machine has an annotation"}}, cliv1.NotChecked, Skipped},
	} {
		a := tc.check.AnswerOn(&tc.given)
		if got := a.Text(plainly); got != want || a.Phase() != tc.phase || a.Reason != tc.reason {
			t.Errorf("%s %s: %q, want %s %s: %q", a.Phase(), a.Reason, got, tc.phase, tc.reason, want)
		}
	}
}

// flawed returns check with a flaw that its controller has reported.
func flawed(reason string, check Check) Check {
	check.Conditions = append(check.Conditions, metav1.Condition{Type: mendv1.Effective, Status: metav1.ConditionFalse, Reason: reason})
	return check
}

func TestTheWorstTargetOfACheckDecidesItsFirstLineAndItsPhase(t *testing.T) {
	named := func(name string, is Target) Target {
		is.Name = name
		return is
	}
	healthy := Target{Target: cliv1.Target{State: cliv1.StateHealthy}}
	skipped := Target{Target: cliv1.Target{Skipped: "It is skipped"}}
	moving := cycled(powercycle.MovingWorkload, powercycle.WorkloadMovingReason)
	starts := Target{Target: cliv1.Target{State: cliv1.StateUnhealthy, StartsNow: true}, Remediator: "MachineSet md"}
	template := Blocker{Reason: mendv1.TemplateNotFoundReason, Detail: "RebootTemplate t"}
	unread := Target{Target: cliv1.Target{State: cliv1.StateUnknown, Blockers: []Blocker{{Reason: mendv1.UnreachableReason}}}}
	const tooManyReason = clusterv1.MachineHealthCheckTooManyUnhealthyReason
	for want, tc := range map[string]struct {
		check  Check
		phase  cliv1.Phase
		reason string
	}{
		"HEALTHY: 2 of 2":                      {checkOf(cliv1.ModeActing, "", 1, nil, 2, 0, healthy, healthy, skipped), cliv1.Healthy, ""},
		"NOT CHECKED: NoRules; 2 of 2 healthy": {flawed(mendv1.NoRulesReason, checkOf(cliv1.ModeActing, "", 1, nil, 2, 0, healthy, healthy)), cliv1.NotChecked, mendv1.NoRulesReason},
		"HEALTHY, NOT REMEDIATED BY KUBEMEND: Cluster API core acts on it; 2 of 2 healthy": {
			checkOf(cliv1.ModeCore, "", 0, nil, 2, 0, healthy, healthy), cliv1.Healthy, NotActing,
		},
		"UNHEALTHY, NOT REMEDIATED: TooManyUnhealthy (2 of 2, limit 1); 1 being remediated": {
			checkOf(cliv1.ModeActing, tooManyReason, 1, nil, 0, 2, moving, blocked(tooMany)), cliv1.Blocked, tooManyReason,
		},
		"UNHEALTHY, BEING REMEDIATED: a: HostRemediation ns/m (step fence, move); 2 of 2 not healthy": {
			checkOf(cliv1.ModeActing, tooManyReason, 0, nil, 0, 2, named("a", moving), pending(noon)), cliv1.Remediating, "WorkloadMoving",
		},
		"UNHEALTHY, NOT REMEDIATED: b: RemediationTemplateNotFound (RebootTemplate t); 3 of 4 not healthy, 1 being remediated, 1 remediated now": {
			checkOf(cliv1.ModeActing, "", 0, nil, 1, 3, starts, named("b", blocked(template)), moving, healthy),
			cliv1.Blocked, mendv1.TemplateNotFoundReason,
		},
		"PENDING: b: unhealthy at 12:00:00 unless Ready; 2 of 3 not healthy": {
			checkOf(cliv1.ModeActing, "", 0, nil, 1, 2, named("a", pending(noon.Add(time.Minute))), named("b", pending(noon)), healthy), cliv1.Pending, "NodeCondition",
		},
		"PENDING, NOT REMEDIATED: TooManyUnhealthy (2 of 3, limit 1)": {
			checkOf(cliv1.ModeActing, tooManyReason, 1, nil, 1, 2, pending(noon), pending(noon), healthy), cliv1.Pending, tooManyReason,
		},
		"UNHEALTHY, NOT REMEDIATED: a: RemediationTemplateNotFound (RebootTemplate t); 2 of 2 not healthy": {
			checkOf(cliv1.ModeActing, "", 0, away, 0, 2, named("a", blocked(template)), unread), cliv1.Blocked, mendv1.TemplateNotFoundReason,
		},
		"UNKNOWN, NOT REMEDIATED: ClusterNotFound": {
			Check{Check: cliv1.Check{Mode: cliv1.ModeNone, ModeMessage: "There is none", Reason: mendv1.ClusterNotFoundReason}}, cliv1.Unknown, mendv1.ClusterNotFoundReason,
		},
		"UNKNOWN: CannotBeExplained": {Unexplained(Ref{}, ErrUnread), cliv1.Unknown, NotExplained},
	} {
		a := tc.check.Answer()
		if got := a.Text(plainly); got != want || a.Phase() != tc.phase || a.Reason != tc.reason {
			t.Errorf("%s %s: %q, want %s %s: %q", a.Phase(), a.Reason, got, tc.phase, tc.reason, want)
		}
	}
}

func TestTheAnswerAboutARemediationIsItsStateAndItsReason(t *testing.T) {
	for want, tc := range map[string]struct {
		given Remediation
		phase cliv1.Phase
	}{
		"IN PROGRESS: step power off": {
			inState(powercycle.PoweringOff, "AwaitingReceipt", cliv1.HostRemediation{Blockers: []Blocker{{}}}), cliv1.Remediating,
		},
		"BLOCKED: PowerOnFailed":    {inState(powercycle.PoweringOn, "PowerOnFailed", cliv1.HostRemediation{Blockers: []Blocker{{}}}), cliv1.Blocked},
		"BLOCKED: HostUnmanaged":    {inState(powercycle.Pending, "HostUnmanaged", cliv1.HostRemediation{Next: Step{Manual: true}}), cliv1.Blocked},
		"SUCCEEDED: MachineHealthy": {inState(powercycle.Succeeded, "MachineHealthy", cliv1.HostRemediation{}), cliv1.Healthy},
		"FAILED: HostGone":          {inState(powercycle.Failed, "HostGone", cliv1.HostRemediation{Next: Step{Manual: true}}), cliv1.Blocked},
		"OWNER REQUESTED":           {inState(powercycle.OwnerRequested, "OwnerRequested", cliv1.HostRemediation{Next: Step{Manual: true}}), cliv1.Remediating},
	} {
		a := tc.given.Answer()
		if got := a.Text(plainly); got != want || a.Phase() != tc.phase || a.Reason != tc.given.Reason {
			t.Errorf("%s %s: %q, want %s %s: %q", a.Phase(), a.Reason, got, tc.phase, tc.given.Reason, want)
		}
	}
}

func TestTimeoutsAreWrittenWithoutUnitsOfNothing(t *testing.T) {
	for d, want := range map[time.Duration]string{
		5 * time.Minute: "5m", time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Second: "10s", 30 * time.Hour: "30h", 0: "0s", 70 * time.Minute: "1h10m",
	} {
		must.Is(t, want, Brief(d), "%s is", d)
	}
}
