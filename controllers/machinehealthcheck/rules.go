package machinehealthcheck

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// rules are evaluated in this order, the blockers that matter most to a person first. A remediation starts exactly if no rule blocks it.
var rules = slices.Concat([]Rule{
	{
		Reason: MachineDeleting,
		When:   func(c *Case) bool { return Deleting(c.Target.Machine) },
		Words: says(rule.Blocker{
			Text: "The machine is being deleted: there is nothing left to remediate", EndsWhen: "it is gone",
		}),
	},
	{
		Reason: OlderCheckActs,
		When:   func(c *Case) bool { return c.Target.OlderCheck != "" },
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{
				Reason: mendv1.OverlapReason, Detail: "older check " + c.Target.OlderCheck,
				Text: fmt.Sprintf("MachineHealthCheck %s selects the machine too: that check is older, and kubemend does not act on it",
					c.Target.OlderCheck),
				Fix:    "If this check is to act on it, claim the other one too, or change its selector",
				Object: rule.Ref{Kind: "MachineHealthCheck", Namespace: c.Check.Namespace, Name: c.Target.OlderCheck},
			}
		},
	},
	{
		Reason: OtherCheckRemediates, asked: unlessBegun,
		When: func(c *Case) bool { return c.Target.remediatedBy() != nil },
		Words: func(c *Case) rule.Blocker {
			other := c.Target.remediatedBy().Check
			return rule.Blocker{
				Detail: "MachineHealthCheck " + other, EndsWhen: "that remediation is over",
				Text: "MachineHealthCheck " + other + " selects the machine too and has asked for its remediation: " +
					"one is in progress at a time",
				Object: rule.Ref{Kind: "MachineHealthCheck", Namespace: c.Check.Namespace, Name: other},
			}
		},
	},
	{
		Reason: NotActing,
		When:   func(c *Case) bool { return c.Mode != Active },
		Words: func(c *Case) rule.Blocker {
			_, text, detail := c.Acting()
			return rule.Blocker{Text: text, Fix: c.Enable(), Detail: detail}
		},
	},
	{
		Reason: ControlPlaneNotInitialized, unjudged: true,
		When: gated(health.ControlPlaneNotInitialized),
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{
				EndsWhen: "the control plane of Cluster " + c.Check.Spec.ClusterName + " is initialized",
				Text: "The control plane of Cluster " + c.Check.Spec.ClusterName + " is not initialized: " +
					"kubemend judges only control plane machines until it is",
			}
		},
	},
	{
		Reason: InfrastructureNotReady, Else: true, unjudged: true,
		When: gated(health.InfrastructureNotReady),
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{
				EndsWhen: "the infrastructure of Cluster " + c.Check.Spec.ClusterName + " is ready",
				Text: "The infrastructure of Cluster " + c.Check.Spec.ClusterName +
					" is not ready: kubemend judges no machine until it is",
			}
		},
	},
	{
		Reason: ManagerClockWrong, Else: true, unjudged: true,
		When: gated(health.ClockWrong),
		Words: func(c *Case) rule.Blocker {
			direction := " ahead"
			if c.ClockAhead < 0 {
				direction = " behind"
			}
			return rule.Blocker{
				Detail: c.ClockAhead.Abs().String() + direction, EndsWhen: "the clocks agree",
				Text: "The clock of the manager differs from that of an API server by more than the shortest timeout of the check: " +
					"kubemend judges no machine until the clocks agree",
				Fix: "Find out from kubemend_clock_error_seconds which clock is wrong, and set it",
			}
		},
	},
	{
		Reason: ClusterUnreachable, Else: true, unjudged: true,
		When: func(c *Case) bool {
			return c.Verdict.State == health.Unknown && c.plan.Reach.Status != metav1.ConditionTrue
		},
		Words: unreachable,
	},
	{
		Reason: AwaitsClusterAPI, Else: true, unjudged: true,
		When: func(c *Case) bool {
			return (c.Verdict.State == health.Unknown || c.Verdict.State == health.Starting) && c.Verdict.Doubted(health.NotSincePause)
		},
		Words: func(c *Case) rule.Blocker {
			text := "kubemend waits for Cluster API to reconcile the machine after the pause, because its conditions may be outdated"
			if c.Mode >= Observed { // no deadline: only core writes newer conditions
				text += ". If that takes longer than a minute, check whether Cluster API core runs"
			}
			return rule.Blocker{Text: text, EndsWhen: "Cluster API sets the condition Paused of the machine to False"}
		},
	},
	{
		Reason: NodeNotSeen, Else: true, unjudged: true, // kubemend does not look for the node of a machine being deleted
		When: func(c *Case) bool { return c.Verdict.State == health.Unknown && !Deleting(c.Target.Machine) },
		Words: func(c *Case) rule.Blocker {
			if other := c.Target.Health.Other; other.Name != "" {
				return rule.Blocker{Detail: "Node " + other.Name, Text: other.Text()}
			}
			node := "Node " + c.Target.Health.NodeName
			text := node + " is not in the cache, and the API server of the workload cluster has not answered whether it exists"
			return rule.Blocker{Detail: node, Text: text}
		},
	},
	{
		Reason: WithinTimeout, // or the first node is awaited without a timeout
		When: func(c *Case) bool {
			if c.Verdict.State == health.Starting {
				return !c.Verdict.Doubted(health.NotSincePause)
			}
			return c.Verdict.State != health.Unhealthy && !c.Verdict.Recheck.IsZero()
		},
		Words: withinTimeout,
	},
	{
		Reason: MachineUpdating, asked: unlessBegun, // the annotation is the way out of an endless update
		When: updateHolds,
		Words: func(c *Case) rule.Blocker {
			b := rule.Blocker{
				EndsWhen: "its update is over, or has made no progress for two hours",
				Text: "The machine is being updated in place (its condition Updating is True): kubemend does not remediate it, " +
					"unless a person marks it with the annotation " + clusterv1.RemediateMachineAnnotation,
			}
			if until := health.UpdatingUntil(c.Target.Machine, c.Now); c.Now.Before(until) {
				b.Until = until
			}
			return b
		},
	},
	{
		Reason: NoOwner, asked: unlessBegun,
		When: func(c *Case) bool {
			return !c.Template.External && !owned(c.Target.Machine) && c.Verdict.State != health.Healthy && !Deleting(c.Target.Machine)
		},
		Words: says(rule.Blocker{
			Text: "The check asks the owner of a machine to remediate it, and this machine has no owner",
			Fix:  "Repair or delete it by hand, or give the check a template",
		}),
	},
	{
		Reason: HostExternal, asked: unlessBegun,
		When: func(c *Case) bool { return !c.Template.External && c.Target.Host != nil && c.Target.Host.External },
		Words: func(c *Case) rule.Blocker {
			name := "BareMetalHost " + c.Target.Host.Name
			return rule.Blocker{
				Text:   name + " is externally provisioned: its owner could not provision another machine on it",
				Fix:    "Repair the host by hand, or give the check a template for power cycles",
				Detail: name,
			}
		},
	},
	{
		Reason: HostPaused, asked: unlessBegun,
		When: func(c *Case) bool { return !c.Template.External && c.Target.Host != nil && c.Target.Host.Paused },
		Words: says(rule.Blocker{
			Text:     "Its Metal3Machine is paused: kubemend starts no remediation",
			EndsWhen: "the annotation " + clusterv1.PausedAnnotation + " is removed from the Metal3Machine",
		}),
	},
	{
		Reason: PowerCycleInProgress, asked: unlessBegun, // another one than this check's own request
		When:  func(c *Case) bool { return c.Target.Cycle != nil && !Deleting(c.Target.Machine) },
		Words: inCycle,
	},
	{
		Reason: PowerCyclesUnread, asked: unlessBegun, Else: true,
		When: func(c *Case) bool {
			return OnHost(c.Target.Machine) && !Deleting(c.Target.Machine) && c.Now.Before(c.unreadUntil())
		},
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{
				Reason: NotRead, Text: "kubemend cannot read the power cycles in progress, or the host of the machine",
				Until:    c.unreadUntil(),
				EndsWhen: "kubemend can read them, or " + CyclesUnreadFor.String() + " after the first failed attempt",
			}
		},
	},
	{
		Reason: RemediationLoop, asked: unlessBegun,
		When: func(c *Case) bool {
			_, until := c.loop()
			return c.Now.Before(until)
		},
		Words: inLoop,
	},
	{
		Reason: FailureContradicted, asked: ofAll,
		When: func(c *Case) bool { return c.AwaitsTurn },
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{
				Detail: "Node " + c.Target.Health.NodeName + " is Ready",
				Text: "The provider of the machine reported a final failure, but the node is Ready. kubemend remediates such machines " +
					"one at a time, and the next one only when the capacity of the previous one is back",
				Fix: "Find out why the provider reported it, such as a wrong credential. To have the machine replaced anyway, " +
					"mark it with the annotation " + clusterv1.RemediateMachineAnnotation,
				EndsWhen: "the capacity of " + cmp.Or(c.Capacity.Target, "the previous machine") + " is back",
			}
		},
	},
	{
		Reason: JustSeen, asked: ofAll, When: putOffFor(JustSeen),
		Words: whilePutOff("kubemend waits "+Settling.String()+", because more machines may fail or recover at the same moment",
			"kubemend has seen the other changes"),
	},
	{
		Reason: OtherCheckUnheard, asked: ofAll, When: putOffFor(OtherCheckUnheard),
		Words: whilePutOff("MachineHealthCheck {check} has not judged the machine since the manager was started, and may have asked for "+
			"its remediation before", "it has judged the machine"),
	},
	{
		Reason: OtherCheckGoesFirst, asked: ofAll, When: putOffFor(OtherCheckGoesFirst),
		Words: whilePutOff("The last attempt of this check to start the remediation failed. Another check that finds the machine "+
			"unhealthy may start first", "a minute has passed since that attempt"),
	},
	{
		Reason: ClusterNotFound, asked: ofLimits,
		When: func(c *Case) bool { return c.Mode == NoCluster },
		Words: func(c *Case) rule.Blocker {
			cluster := c.Check.Spec.ClusterName
			return rule.Blocker{
				Text: notAllowed + ", spec.clusterName: there is no Cluster " + cluster + " in namespace " + c.Check.Namespace,
				Fix:  "Make Cluster " + cluster + ", or a check of another one in place of this: spec.clusterName cannot be changed",
			}
		},
	},
	{
		Reason: InvalidSelector, asked: ofLimits, Else: true,
		When: func(c *Case) bool { return c.Mode == BadSelector },
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{
				Text: notAllowed + ", spec.selector: " + c.SelectorErr.Error() + "; the operators are In, NotIn, Exists and DoesNotExist",
				Fix:  "Correct spec.selector",
			}
		},
	},
	{
		Reason: InvalidLimit, asked: ofLimits, Else: true,
		When: func(c *Case) bool { return c.Invalid != nil },
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{Text: notAllowed + ", " + c.Invalid.Error(), Fix: "Correct " + c.Invalid.Field, Detail: c.Invalid.Field}
		},
	},
	{
		Reason: TooManyUnhealthy, asked: ofLimits, Else: true,
		When: func(c *Case) bool { return c.plan.Grant.Reason == budget.TooMany },
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{
				Text: notAllowed + ", " + c.arithmetic(), EndsWhen: "at most " + c.notHealthy(max(c.Limits.AtMost, 0)),
				Brief: "Too many machines are not healthy: " + c.counts(),
			}
		},
	},
	{
		Reason: TooFewUnhealthy, asked: ofLimits, Else: true, // Cluster API has one reason for both
		When: func(c *Case) bool { return c.plan.Grant.Reason == budget.TooFew },
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{
				Reason: string(TooManyUnhealthy), Cause: string(TooFewUnhealthy), Text: notAllowed + ", " + c.arithmetic(),
				EndsWhen: "at least " + c.notHealthy(c.Limits.AtLeast), Brief: "Too few machines are not healthy: " + c.counts(),
			}
		},
	},
	{
		Reason: RequestInTheWay, asked: unlessBegun,
		When: func(c *Case) bool { return c.Target.Ownership == ForeignRequest },
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{
				Text: c.foreignRequest(c.Target), Detail: c.Template.Kind + " " + c.Target.Request.Name,
				Object: rule.Ref{Kind: c.Template.Kind, Namespace: c.Check.Namespace, Name: c.Target.Request.Name},
				Fix:    "Find out who made it and whether it is still needed. When it is gone, kubemend makes its own",
			}
		},
	},
	{
		Reason: TemplateRefused, asked: unlessBegun,
		When: func(c *Case) bool { return c.Template.Refused },
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{Text: c.noTemplate(), Fix: c.Template.Fix, Detail: c.template(), Object: c.templateRef()}
		},
	},
	{
		Reason: TemplateMissing, asked: unlessBegun, Else: true,
		When: func(c *Case) bool { return c.Template.Missing != "" },
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{
				Reason: mendv1.TemplateNotFoundReason, Text: c.noTemplate(), Detail: c.template(), Object: c.templateRef(),
				Fix: cmp.Or(c.Template.Fix, "Make it") + ", or name another template in spec.remediation.templateRef",
			}
		},
	},
	{
		Reason: RequestsUnread, asked: unlessBegun, Else: true,
		When: func(c *Case) bool { return !c.Template.Known },
		Words: func(c *Case) rule.Blocker {
			if c.Explains { // the reader may lack the right to read them
				return rule.Unreadable(c.Template.Kind)
			}
			return rule.Blocker{Reason: NotRead, Text: "kubemend has not been able to list the remediation requests"}
		},
	},
	{
		Reason: TemplateUnusable, asked: ofAll, // for this machine
		When: func(c *Case) bool { return c.Target.Unusable != nil },
		Words: func(c *Case) rule.Blocker {
			return rule.Blocker{
				Reason: requestCreationFailed, Text: c.Target.Unusable.Error(), Object: c.templateRef(),
				Fix: "Fix the template, or name another one in spec.remediation.templateRef",
			}
		},
	},
	{
		Reason: NoSpareHost, asked: ofAll,
		When:  func(c *Case) bool { return c.Spare.blocks() && c.Spare.Lacks == NoSpareHost },
		Words: func(c *Case) rule.Blocker { return c.awaitsSpare(c.noSpare(), "a free host fits its replacement") },
	},
	{
		Reason: SpareHostsUnread, asked: ofAll,
		When: func(c *Case) bool { return c.Spare.blocks() && c.Spare.Lacks == SpareHostsUnread },
		Words: func(c *Case) rule.Blocker {
			why := cmp.Or(c.Spares.Unread, c.Spares.Failed[c.Target.UID])
			return c.awaitsSpare("Whether a spare host fits its replacement is not known: "+why,
				"the hosts can be read and one fits its replacement")
		},
	},
}, ofPolicies(), []Rule{{
	Reason: NotUnhealthy, asked: unlessBegun, // the machine is not unhealthy, and no other rule says why
	When: func(c *Case) bool { return c.Verdict.State != health.Unhealthy && len(c.Blockers) == 0 },
}})

// ofPolicies returns the rules of RemediationPolicies: a remediation begins only with a place.
func ofPolicies() []Rule {
	rules := make([]Rule, len(place.Reasons))
	for i, reason := range place.Reasons {
		rules[i] = Rule{
			Reason: Reason(reason), asked: ofAll,
			When:  func(c *Case) bool { return place.Of(reason, c.Placeless[c.Target.UID]).Reason != "" },
			Words: func(c *Case) rule.Blocker { return place.Of(reason, c.Placeless[c.Target.UID]) },
		}
	}
	return rules
}
