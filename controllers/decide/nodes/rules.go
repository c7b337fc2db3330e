package nodes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// rules are asked in this order, in which blockers are reported. A step starts exactly if none blocks it.
var rules = []Rule{
	{Reason: RequestsUnread, asked: ofState, When: func(c *Case) bool { return len(c.n.Unseen) > 0 }},
	{Reason: NodeGone, asked: ofState, When: func(c *Case) bool { return len(c.n.Unseen) == 0 && !c.n.Exists() }},
	{Reason: NotJudged, asked: ofState, When: func(c *Case) bool { // another controller ends the node
		return len(c.n.Unseen) == 0 && c.n.Exists() && c.Verdict.State == health.Unknown
	}},
	{Reason: NotUnhealthy, asked: ofState, When: func(c *Case) bool {
		return len(c.n.Unseen) == 0 && c.n.Exists() && c.Verdict.State == health.Healthy
	}},
	{
		Reason: NotSelected, asked: beforeFirst, // and its remediation is over
		When:  func(c *Case) bool { return !c.n.Selected },
		Words: func(*Case) Blocker { return notSelected },
	},
	{
		Reason: WithinTimeout, asked: beforeFirst | whileHeld,
		When: func(c *Case) bool { return c.Verdict.State == health.Pending },
		Words: func(c *Case) Blocker {
			b := Blocker{Until: c.Verdict.Recheck}
			due := func(f health.Finding) bool { return f.Due.Equal(c.Verdict.Recheck) }
			if i := slices.IndexFunc(c.Verdict.Findings, due); i >= 0 {
				f := &c.Verdict.Findings[i]
				b.Message = fmt.Sprintf("Its timeout of %s has not expired: Node condition %s is %s (%s)",
					f.Limit, f.Signal.Type, f.Signal.Status, f.Signal.Reason)
			}
			return b
		},
	},
	{
		Reason: NodeExcluded, Event: skipped, asked: always,
		When: func(c *Case) bool {
			excluded, _ := c.n.Excluded()
			return excluded
		},
		Words: func(c *Case) Blocker {
			return Blocker{
				Message:  c.n.skippedOn("node has Exclude from Remediation label"),
				Fix:      "remove the label " + nhcv1.ExcludeLabel + " from the node",
				EndsWhen: "the label " + nhcv1.ExcludeLabel + " is removed from the node",
			}
		},
	},
	{
		Reason: NodeDeleting, Event: skipped, asked: always, // a remediation would bring back what somebody else ends
		When: func(c *Case) bool {
			since := c.n.deleting()
			return !since.IsZero() && c.f.Now.Before(since.Add(stuckFor))
		},
		Words: func(c *Case) Blocker {
			return Blocker{
				Message: c.n.skippedOn("it is being deleted"), EndsWhen: "the Node is gone", Again: c.n.deleting().Add(stuckFor), Quiet: true,
			}
		},
	},
	{
		Reason: NodeStuck, Event: skipped, asked: always,
		When: func(c *Case) bool {
			since := c.n.deleting()
			return !since.IsZero() && !c.f.Now.Before(since.Add(stuckFor))
		},
		Words: func(c *Case) Blocker {
			finalizers := strings.Join(c.n.Object.Finalizers, ", ")
			return Blocker{
				Message:  c.n.skippedOn("it is being deleted for more than an hour, and kept by the finalizers " + finalizers),
				Fix:      "find out why what put the finalizers " + finalizers + " on the Node does not end it",
				EndsWhen: "the Node is gone",
			}
		},
	},
	{
		Reason: MachineUnread, Event: skipped, asked: always,
		When:  func(c *Case) bool { return c.n.Machine != nil && c.n.Machine.Unread },
		Words: func(c *Case) Blocker { return Blocker{Message: c.n.skippedOn("its Machine could not be read")} },
	},
	{
		Reason: ClusterPaused, Event: skipped, asked: always,
		When: func(c *Case) bool {
			m := c.n.Machine
			return m.There() && m.Cluster != nil && ptr.Deref(m.Cluster.Spec.Paused, false)
		},
		Words: func(c *Case) Blocker {
			cluster := c.n.Machine.cluster()
			return Blocker{Message: c.n.skippedOn("its Cluster is paused"), Fix: "unpause " + cluster.String(), Object: cluster}
		},
	},
	{
		Reason: MachinePaused, Event: skipped, asked: always,
		When: func(c *Case) bool { return c.n.Machine.annotated(clusterv1.PausedAnnotation) },
		Words: func(c *Case) Blocker {
			return c.unannotate("its Machine is paused by the annotation " + clusterv1.PausedAnnotation)
		},
	},
	{
		Reason: MachineSkipped, Event: skipped, asked: always,
		When: func(c *Case) bool { return c.n.Machine.annotated(clusterv1.MachineSkipRemediationAnnotation) },
		Words: func(c *Case) Blocker {
			return c.unannotate("its Machine has the annotation " + clusterv1.MachineSkipRemediationAnnotation)
		},
	},
	{
		Reason: MachineDeleting, Event: skipped, asked: always,
		When: func(c *Case) bool { return c.n.Machine.There() && !c.n.Machine.Object.DeletionTimestamp.IsZero() },
		Words: func(c *Case) Blocker {
			return Blocker{Message: c.n.skippedOn("its Machine is being deleted"), Object: c.n.Machine.Ref()}
		},
	},
	{
		Reason: LeaseTaken, Event: skipped, asked: always,
		When: func(c *Case) bool { return c.n.Lease.Held(c.f.Now) },
		Words: func(c *Case) Blocker {
			holder, until := c.n.Lease.Holder, c.n.Lease.expiry()
			return Blocker{
				Message:  c.n.skippedBecause("node lease is already taken by " + holder),
				EndsWhen: "the lease that " + holder + " has on the node runs out", Until: until,
				Again: health.Earliest(c.f.Now.Add(leaseTaken), until.Add(time.Millisecond)),
			}
		},
	},
	{
		Reason: OverlappingCheck, Event: skipped, asked: beforeFirst | ofNodeAlone,
		When: func(c *Case) bool { return c.n.Machine.There() && c.n.Machine.WatchedBy != "" },
		Words: func(c *Case) Blocker {
			machine := c.n.Machine
			check := rule.Ref{Kind: "MachineHealthCheck", Namespace: machine.Object.Namespace, Name: machine.WatchedBy}
			return Blocker{
				Message: c.n.skippedBecause(check.String() + " watches its Machine " + machine.Object.Name), Object: check,
				Fix: "let only one of the two checks watch it: take it out of the selector of " + check.String() + ", or pause that one",
			}
		},
	},
	{
		Reason: MachineUpdating, Event: skipped, asked: beforeFirst | ofNodeAlone,
		When: func(c *Case) bool {
			return c.n.Machine.There() && meta.IsStatusConditionTrue(c.n.Machine.Object.Status.Conditions, clusterv1.MachineUpdatingCondition)
		},
		Words: func(c *Case) Blocker {
			return Blocker{
				Message:  c.n.skippedBecause("its Machine " + c.n.Machine.Object.Name + " is being updated in place"),
				EndsWhen: "the update of its Machine is over", Object: c.n.Machine.Ref(),
			}
		},
	},
	{
		Reason: TemplateOfMachines, Event: skipped, asked: ofStep,
		When:  func(c *Case) bool { return c.unsuitable() == TemplateOfMachines },
		Words: unsuitableWords,
	},
	{
		Reason: TemplateElsewhere, Event: skipped, asked: ofStep,
		When:  func(c *Case) bool { return c.unsuitable() == TemplateElsewhere },
		Words: unsuitableWords,
	},
	{
		Reason: OrphanedRequest, Event: skipped, asked: ofStep,
		When: func(c *Case) bool { return len(c.n.Orphaned) > 0 && c.template() != nil },
		Words: func(c *Case) Blocker {
			request := RefOf(c.n.Orphaned[0])
			return Blocker{
				Message:  c.n.skippedBecause(request.String() + ", orphaned by a deleted NodeHealthCheck of the same name, is not gone yet"),
				EndsWhen: request.String() + " is gone", Object: request, Again: c.f.Now.Add(requestRetry),
			}
		},
	},
	{
		Reason: ForeignRequest, Event: skipped, asked: ofStep,
		When: func(c *Case) bool { return c.foreign() != nil },
		Words: func(c *Case) Blocker {
			request := RefOf(c.foreign())
			return Blocker{
				Message: c.n.skippedBecause(request.String() + " exists and was not made by this NodeHealthCheck"),
				Fix:     "delete " + request.String() + " when it is not needed any more", EndsWhen: request.String() + " is gone",
				Object: request, Again: c.f.Now.Add(requestRetry),
			}
		},
	},
	{
		Reason: OtherTemplate, Event: skipped, asked: ofStep,
		When: func(c *Case) bool { return c.ownNamesake() != nil && !c.namedByTemplate() },
		Words: func(c *Case) Blocker {
			request := RefOf(c.ownNamesake())
			return Blocker{
				Message: c.n.skippedBecause(request.String() + " exists and was made from another template: " +
					"using multiple templates of same kind is not supported for this template"),
				Fix: "have the steps of the check name templates of different kinds", Object: request,
			}
		},
	},
	{
		Reason: SameTemplate, Event: skipped, asked: ofStep,
		When: func(c *Case) bool {
			same := c.ownNamesake()
			return same != nil && c.namedByTemplate() && slices.ContainsFunc(c.n.Requests, func(r Request) bool {
				return r.Object.GetUID() == same.GetUID() && r.Step < c.step
			})
		},
		Words: func(c *Case) Blocker {
			request := RefOf(c.ownNamesake())
			return Blocker{
				Message: c.n.skippedBecause("two steps of the check have the same template, " + c.template().Name + ", and " + request.String() +
					" of the first one exists"),
				Fix: "have the two steps of the check name two templates", Object: request,
			}
		},
	},
	{
		Reason: CheckDisabled, asked: ofCheck | beforeFirst | beforeNext,
		When:  func(c *Case) bool { return c.p.Disabled.Is() },
		Words: func(c *Case) Blocker { return Blocker{Message: c.p.Disabled.Message, Fix: fixes[c.p.Disabled.Reason]} },
	},
	{
		Reason: TemplateNotSeen, asked: ofCheck | beforeFirst | beforeNext,
		When: func(c *Case) bool {
			return !c.p.Disabled.Is() && c.unreadTemplate() != nil && c.unreadTemplate().Unread
		},
		Words: func(c *Case) Blocker {
			kinds := c.unreadTemplate().Request.Kind + "s"
			return Blocker{
				Message: kinds + " and their templates could not be read with your rights, and the manager may read them",
				Fix:     "Ask as a user who may read " + kinds + " and their templates", Detail: kinds,
			}
		},
	},
	{
		Reason: TemplateUnread, asked: ofCheck | beforeFirst | beforeNext,
		When: func(c *Case) bool {
			return !c.p.Disabled.Is() && c.unreadTemplate() != nil && !c.unreadTemplate().Unread
		},
		Words: func(*Case) Blocker {
			return Blocker{Message: "A remediation template could not be read for the moment"}
		},
	},
	{
		Reason: Paused, asked: ofCheck | beforeFirst | beforeNext,
		When: func(c *Case) bool { return len(c.f.Check.Spec.PauseRequests) > 0 },
		Words: func(c *Case) Blocker {
			return Blocker{
				Message:  "Postponing potential remediations because of pause requests",
				Fix:      "remove the entries of spec.pauseRequests: " + strings.Join(c.f.Check.Spec.PauseRequests, ", "),
				EndsWhen: "spec.pauseRequests is empty",
			}
		},
	},
	{
		Reason: Upgrading, asked: ofCheck | beforeFirst | beforeNext,
		When: func(c *Case) bool { return c.view.upgrading != "" },
		Words: func(c *Case) Blocker {
			return Blocker{Message: PostponedByUpgrade + ": " + c.view.upgrading, EndsWhen: "the upgrade is over", Object: c.view.upgraded}
		},
	},
	{
		Reason: KubeletsAwaited, asked: ofCheck | beforeFirst | beforeNext,
		When: func(c *Case) bool { return c.awaitsKubelets },
		Words: func(c *Case) Blocker {
			return Blocker{
				Message:  "Kubelets have not had time to report since the manager was started, or since the API server could be reached again",
				EndsWhen: "kubelets have had time to report", Until: c.settled,
			}
		},
	},
	{
		Reason: TooManyUnhealthy, asked: ofCheck | beforeFirst, // what has begun goes on
		When: func(c *Case) bool { return c.p.Grant.ShortCircuited() },
		Words: func(c *Case) Blocker {
			p, minimum, terminating := c.p.Population, c.p.Minimum(), ""
			if p.Unknown > 0 {
				terminating = fmt.Sprintf(", %d terminating", p.Unknown)
			}
			return Blocker{
				Message: fmt.Sprintf("Skipped remediation because the number of healthy nodes selected by the selector is %d and should equal or "+
					"exceed %d (%d nodes: %d healthy, %d unhealthy, %d pending, %d recovering%s)",
					p.Healthy, minimum, p.Total(), p.Healthy, p.Unhealthy, p.Pending, p.Recovering, terminating),
				EndsWhen: fmt.Sprintf("at least %d of %d nodes are healthy (now %d)", minimum, p.Total(), p.Healthy),
			}
		},
	},
	{
		Reason: StormNotOver, asked: ofCheck | beforeFirst,
		When: func(c *Case) bool { return c.p.Storm.Blocks },
		Words: func(c *Case) Blocker {
			ends := StormEnds
			if c.p.Storm.Recheck.IsZero() { // the cooldown has not begun
				ends = "the storm is over, and the cooldown after it"
			}
			return Blocker{Message: "Storm recovery active: skipping creation of new remediations", EndsWhen: ends, Until: c.p.Storm.Recheck}
		},
	},
	{
		Reason: ControlPlaneSearched, Event: skipped, asked: ofControlPlane,
		When: func(c *Case) bool { return c.f.ControlPlane != nil && c.f.ControlPlane.Searching },
		Words: func(c *Case) Blocker {
			b := c.quorumLoss("the control plane could not be read: "+c.f.ControlPlane.Unread, rule.Ref{})
			b.Quiet = true // it is over soon
			return b
		},
	},
	{
		Reason: ControlPlaneUnread, Event: skipped, asked: ofControlPlane,
		When: func(c *Case) bool { return c.queued() && c.f.ControlPlane.Unread != "" },
		Words: func(c *Case) Blocker {
			return c.quorumLoss("the control plane could not be read: "+c.f.ControlPlane.Unread, rule.Ref{})
		},
	},
	{
		Reason: MembersNotSeen, Event: skipped, asked: ofControlPlane,
		When: func(c *Case) bool {
			if c.f.ControlPlane == nil { // it is not read as long as something else blocks all nodes of the control plane
				return c.free
			}
			return c.objection(controlplane.NotSeen, controlplane.NotFirst) != nil
		},
		Words: func(c *Case) Blocker {
			b := c.quorumLoss("it is not known yet which members of the control plane are alive", rule.Ref{})
			if c.f.ControlPlane == nil {
				b.Again = time.Time{}
			}
			return b
		},
	},
	{
		Reason: MemberRemediated, Event: skipped, asked: ofControlPlane,
		When: func(c *Case) bool {
			return c.objection(controlplane.BeingRemediated, controlplane.BeingReplaced) != nil
		},
		Words: func(c *Case) Blocker {
			o := c.objection(controlplane.BeingRemediated, controlplane.BeingReplaced)
			return c.quorumLoss(o.Member+" is being remediated ("+o.By+")", rule.Ref{Kind: "Node", Name: o.Member})
		},
	},
	{
		Reason: MajorityAtRisk, Event: skipped, asked: ofControlPlane,
		When: func(c *Case) bool { return c.objection(controlplane.MajorityAtRisk) != nil },
		Words: func(c *Case) Blocker {
			o := c.objection(controlplane.MajorityAtRisk)
			return c.quorumLoss(
				fmt.Sprintf("without it %d of %d control-plane nodes are healthy, and %d are needed", o.Votes, o.Total, o.Needed), rule.Ref{})
		},
	},
	{
		Reason: NotFirst, Event: skipped, asked: ofControlPlane,
		When: func(c *Case) bool { return c.f.ControlPlane != nil && c.view.first >= 0 && c.view.first != c.i },
		Words: func(c *Case) Blocker {
			other := c.f.Nodes[c.view.first].Name
			b := c.quorumLoss(other+" is ahead in the queue", rule.Ref{Kind: "Node", Name: other})
			b.EndsWhen = "the remediation of " + other + " is over"
			return b
		},
	},
	{
		Reason: EtcdUnread, Event: skipped, asked: ofControlPlane,
		When:  func(c *Case) bool { return c.etcd() == EtcdUnread },
		Words: func(c *Case) Blocker { return c.quorumLoss("OpenShift's etcd could not be asked", rule.Ref{}) },
	},
	{
		Reason: EtcdBudgets, Event: skipped, asked: ofControlPlane,
		When: func(c *Case) bool { return c.etcd() == EtcdBudgets },
		Words: func(c *Case) Blocker {
			return c.quorumLoss(fmt.Sprintf("there are %d PodDisruptionBudgets in openshift-etcd instead of one", c.f.ControlPlane.Etcd.Budgets), rule.Ref{})
		},
	},
	{
		Reason: EtcdAtRisk, Event: skipped, asked: ofControlPlane,
		When: func(c *Case) bool { return c.etcd() == EtcdAtRisk },
		Words: func(c *Case) Blocker {
			budget, guard := c.f.ControlPlane.Etcd.Budget, c.f.ControlPlane.Etcd.Guards[c.n.Name]
			return c.quorumLoss("PodDisruptionBudget "+budget+" allows no disruption, and guard pod "+guard+" is ready",
				rule.Ref{Kind: "PodDisruptionBudget", Namespace: "openshift-etcd", Name: budget})
		},
	},
	{
		Reason: JustDeleted, asked: beforeNext,
		When: func(c *Case) bool { return c.f.Now.Before(c.remadeAt()) },
		Words: func(c *Case) Blocker {
			return Blocker{
				Message:  "The request for node " + c.n.Name + " was deleted a moment ago, it is made again a minute after it was made first",
				EndsWhen: "a minute has passed since it was made first", Until: c.remadeAt(),
			}
		},
	},
	{Reason: NoTemplate, asked: ofAnswer, When: func(c *Case) bool { return len(c.f.Templates) == 0 }},
	{
		Reason: NoTemplateLeft, Event: nhcv1.EventNoTemplateLeft, asked: ofAnswer,
		When: func(c *Case) bool { return len(c.f.Templates) > 0 && c.answer.Do == escalation.Exhausted },
		Words: func(c *Case) Blocker {
			return Blocker{
				Message: "Remediation timed out, and no template left to try. " +
					"didn't find a template to use for NHC " + c.f.Check.Name + " and node " + c.n.Name,
				Fix: "find out what is wrong with the node; its requests end when it is healthy",
			}
		},
	},
	{
		Reason: StillDeleted, Event: skipped, asked: ofAnswer, // of the last failure
		When: func(c *Case) bool { return c.waits() && c.stillDeleted() != nil },
		Words: func(c *Case) Blocker {
			request := c.stillDeleted().Ref()
			b := Blocker{
				Message: c.n.skippedBecause(request.String() + " of the last time is still being deleted: its remediator has not released it"),
				Object:  request, Until: c.answer.Recheck,
			}
			if b.Until.IsZero() {
				b.Fix = "find out why its remediator keeps its finalizers"
			} else { // the time of the step ends that
				b.EndsWhen = request.String() + " is gone, or its time is over"
			}
			return b
		},
	},
	{Reason: InProgress, asked: ofAnswer, When: func(c *Case) bool { return c.waits() && c.stillDeleted() == nil }},
}
