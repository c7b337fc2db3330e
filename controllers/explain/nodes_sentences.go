package explain

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// nodeSentence is what there is to say of a blocker. {node} and {check} are the names of these, {0} the first argument of the blocker.
type nodeSentence struct {
	text, person, ends string
	// event is the reason of the event on the check that says so; empty if none does, as the check says it once for all nodes. Quiet says that none is
	// sent, since it is over soon.
	event string
	quiet bool
}

const (
	skippedNode = "Remediation skipped on node {node}: "
	skippedOf   = "Skipped remediation of node: {node}, because "
	quorumLoss  = "Skipping remediation of {node} for preventing control plane / etcd quorum loss, going to retry in a minute: "
)

// nodeSentences have the words of medik8s where it says the same: documents of others quote them.
var nodeSentences = map[nodes.Reason]nodeSentence{
	nodes.TemplateUnread: {text: "A remediation template could not be read for the moment"},
	nodes.Paused: {
		text: "Postponing potential remediations because of pause requests", person: "remove the entries of spec.pauseRequests: {all}",
		ends: "spec.pauseRequests is empty",
	},
	nodes.KubeletsAwaited: {
		text: "Kubelets have not had time to report since the manager was started, or since the API server could be reached again",
		ends: "kubelets have had time to report",
	},
	nodes.WithinTimeout: {text: "Its timeout of {0} has not expired: Node condition {1} is {2} ({3})"},
	nodes.NotSelected:   {text: "The check does not select the node any more"},
	nodes.NodeExcluded: {
		text: skippedNode + "node has Exclude from Remediation label", person: "remove the label " + nhcv1.ExcludeLabel + " from the node",
		ends: "the label " + nhcv1.ExcludeLabel + " is removed from the node", event: nhcv1.EventRemediationSkipped,
	},
	nodes.NodeDeleting: {
		text: skippedNode + "it is being deleted", ends: "the Node is gone", event: nhcv1.EventRemediationSkipped, quiet: true,
	},
	nodes.NodeStuck: {
		text:   skippedNode + "it is being deleted for more than an hour, and kept by the finalizers {0}",
		person: "find out why what put the finalizers {0} on the Node does not end it", ends: "the Node is gone",
		event: nhcv1.EventRemediationSkipped,
	},
	nodes.MachineUnread: {text: skippedNode + "its Machine could not be read", event: nhcv1.EventRemediationSkipped},
	nodes.ClusterPaused: {text: skippedNode + "its Cluster is paused", person: "unpause Cluster {0}", event: nhcv1.EventRemediationSkipped},
	nodes.MachinePaused: {
		text: skippedNode + "its Machine is paused by the annotation " + clusterv1.PausedAnnotation, person: "remove the annotation from Machine {0}",
		event: nhcv1.EventRemediationSkipped,
	},
	nodes.MachineSkipped: {
		text:   skippedNode + "its Machine has the annotation " + clusterv1.MachineSkipRemediationAnnotation,
		person: "remove the annotation from Machine {0}", event: nhcv1.EventRemediationSkipped,
	},
	nodes.MachineDeleting: {text: skippedNode + "its Machine is being deleted", event: nhcv1.EventRemediationSkipped},
	nodes.LeaseTaken: {
		text: skippedOf + "node lease is already taken by {0}", ends: "the lease that {0} has on the node runs out",
		event: nhcv1.EventRemediationSkipped,
	},
	nodes.OverlappingCheck: {
		text:   skippedOf + "MachineHealthCheck {0} watches its Machine {1}",
		person: "let only one of the two checks watch it: take it out of the selector of MachineHealthCheck {0}, or pause that one",
		event:  nhcv1.EventRemediationSkipped,
	},
	nodes.MachineUpdating: {
		text: skippedOf + "its Machine {0} is being updated in place", ends: "the update of its Machine is over", event: nhcv1.EventRemediationSkipped,
	},
	nodes.TemplateOfMachines: {
		text:   skippedOf + "{0} is about Machines of Cluster API, and the node belongs to none of this cluster",
		person: "have the check name a template that is about this node", event: nhcv1.EventRemediationSkipped,
	},
	nodes.TemplateElsewhere: {
		text:   skippedOf + "{0} must be in the {1} namespace, that of the Machine. It is configured to be in namespace: {2}",
		person: "have the check name a template that is about this node", event: nhcv1.EventRemediationSkipped,
	},
	nodes.OrphanedRequest: {
		text: skippedOf + "{0}, orphaned by a deleted NodeHealthCheck of the same name, is not gone yet", ends: "{0} is gone",
		event: nhcv1.EventRemediationSkipped,
	},
	nodes.ForeignRequest: {
		text: skippedOf + "{0} exists and was not made by this NodeHealthCheck", person: "delete {0} when it is not needed any more",
		ends: "{0} is gone", event: nhcv1.EventRemediationSkipped,
	},
	nodes.OtherTemplate: {
		text: skippedOf + "{0} exists and was made from another template: " +
			"using multiple templates of same kind is not supported for this template",
		person: "have the steps of the check name templates of different kinds", event: nhcv1.EventRemediationSkipped,
	},
	nodes.SameTemplate: {
		text:   skippedOf + "two steps of the check have the same template, {0}, and {1} of the first one exists",
		person: "have the two steps of the check name two templates", event: nhcv1.EventRemediationSkipped,
	},
	nodes.ControlPlaneSearched: {
		text: quorumLoss + "the control plane could not be read: {0}", ends: spared, event: nhcv1.EventRemediationSkipped, quiet: true,
	},
	nodes.ControlPlaneUnread: {
		text: quorumLoss + "the control plane could not be read: {0}", ends: spared, event: nhcv1.EventRemediationSkipped,
	},
	nodes.MemberRemediated: {text: quorumLoss + "{0} is being remediated ({1})", ends: spared, event: nhcv1.EventRemediationSkipped},
	nodes.MajorityAtRisk: {
		text: quorumLoss + "without it {0} of {1} control-plane nodes are healthy, and {2} are needed", ends: spared,
		event: nhcv1.EventRemediationSkipped,
	},
	nodes.MembersNotSeen: {
		text: quorumLoss + "it is not known yet which members of the control plane are alive", ends: spared, event: nhcv1.EventRemediationSkipped,
	},
	nodes.NotFirst:   {text: quorumLoss + "{0} is ahead in the queue", ends: "the remediation of {0} is over", event: nhcv1.EventRemediationSkipped},
	nodes.EtcdUnread: {text: quorumLoss + "OpenShift's etcd could not be asked", ends: spared, event: nhcv1.EventRemediationSkipped},
	nodes.EtcdBudgets: {
		text: quorumLoss + "there are {0} PodDisruptionBudgets in openshift-etcd instead of one", ends: spared, event: nhcv1.EventRemediationSkipped,
	},
	nodes.EtcdAtRisk: {
		text: quorumLoss + "PodDisruptionBudget {0} allows no disruption, and guard pod {1} is ready", ends: spared,
		event: nhcv1.EventRemediationSkipped,
	},
	nodes.StillDeleted: {
		text:  skippedOf + "{0} of the last time is still being deleted: its remediator has not released it",
		event: nhcv1.EventRemediationSkipped,
	},
	nodes.JustDeleted: {
		text: "The request for node {node} was deleted a moment ago, it is made again a minute after it was made first",
		ends: "a minute has passed since it was made first",
	},
	nodes.NoTemplateLeft: {
		text: "Remediation timed out, and no template left to try. " +
			"didn't find a template to use for NHC {check} and node {node}",
		person: "find out what is wrong with the node; its requests end when it is healthy", event: nhcv1.EventNoTemplateLeft,
	},
}

// spared ends what the control plane says against a node.
const spared = "the control plane can do without it"

// StormEnds ends what blocks everything after a storm.
const StormEnds = "the cooldown after the storm is over"

// fixes are what a person has to do about a check that is disabled, by the reason of its condition.
var fixes = map[string]string{
	nhcv1.ConflictReason:          "delete the MachineHealthChecks of OpenShift but the one that it brings along",
	nhcv1.TemplateNotFoundReason:  "make the template, or have the check name one that is there",
	nhcv1.TemplateInvalidReason:   "fix the template, or have the check name another one",
	nhcv1.TemplateForbiddenReason: "bind the rights that the remediator's ClusterRole is to bring",
	nhcv1.SelectorInvalidReason:   "fix spec.selector",
	nhcv1.InvalidLimitReason:      "fix spec.minHealthy or spec.maxUnhealthy",
}

// NodeBlocker renders b, which blocks the node called name.
func NodeBlocker(f *nodes.Facts, p *nodes.Plan, name string, b nodes.Blocker) Blocker {
	is := Blocker{Reason: string(b.Reason), Until: b.Until, Object: Ref(b.Object)}
	if b.Reason == nodes.ControlPlaneSearched || b.Reason == nodes.ControlPlaneUnread {
		b.Args = []string{cmp.Or(unreadControlPlane[b.Args[0]], b.Args[0])}
	}
	switch b.Reason {
	case nodes.CheckDisabled:
		is.Text, is.Fix = b.Args[1], fixes[b.Args[0]]
	case nodes.TemplateNotSeen:
		return TemplatesUnread(b.Args[0])
	case nodes.Upgrading:
		is.Text, is.EndsWhen = PostponedByUpgrade+": "+upgrading(b.Args), "the upgrade is over"
	case nodes.TooManyUnhealthy:
		is.Text, is.EndsWhen = arithmetic(p), enoughHealthy(p)
	case nodes.StormNotOver:
		is.Text, is.EndsWhen = "Storm recovery active: skipping creation of new remediations", StormEnds
		if b.Until.IsZero() { // the cooldown has not begun
			is.EndsWhen = "the storm is over, and the cooldown after it"
		}
	default:
		s, words := nodeSentences[b.Reason], wordsOf(f.Check, name, b.Args)
		is.Text, is.Fix, is.EndsWhen = words.Replace(s.text), words.Replace(s.person), words.Replace(s.ends)
		if s.event != "" {
			is.Reason, is.Cause = s.event, is.Reason
		}
	}
	switch {
	case b.Reason == nodes.StillDeleted && b.Until.IsZero():
		is.Fix = "find out why its remediator keeps its finalizers"
	case b.Reason == nodes.StillDeleted:
		is.EndsWhen = b.Args[0] + " is gone, or its time is over"
	}
	return is
}

// unreadControlPlane says why the control plane is unread where that is no error.
var unreadControlPlane = map[string]string{
	nodes.OrphansUnsearched: "orphaned requests could not be searched for",
	nodes.WritesUnread:      "requests that were made a moment ago are not shown yet",
}

func wordsOf(check, node string, args []string) *strings.Replacer {
	pairs := append(make([]string, 0, 6+2*len(args)), "{check}", check, "{node}", node, "{all}", strings.Join(args, ", "))
	for i, arg := range args {
		pairs = append(pairs, "{"+strconv.Itoa(i)+"}", arg)
	}
	return strings.NewReplacer(pairs...)
}

// PostponedByUpgrade is what the event says of an upgrade; the condition says which.
const PostponedByUpgrade = "Postponing potential remediations because of ongoing cluster upgrade"

func upgrading(args []string) string {
	switch args[0] {
	case nodes.NodeChanges:
		return fmt.Sprintf("the configuration of node %s is being changed", args[1])
	case nodes.VersionChanges:
		return "ClusterVersion " + args[1] + " is progressing"
	case nodes.ClusterRolls:
		return fmt.Sprintf("Cluster %s is rolling out", args[1])
	}
	return "whether the cluster is being upgraded could not be found out"
}

// enoughHealthy is what ends that too few are healthy.
func enoughHealthy(p *nodes.Plan) string {
	return fmt.Sprintf("at least %d of %d nodes are healthy (now %d)", p.Minimum(), p.Population.Total(), p.Population.Healthy)
}

// arithmetic is the sum that forbids remediation.
func arithmetic(plan *nodes.Plan) string {
	p, terminating := plan.Population, ""
	if p.Unknown > 0 {
		terminating = fmt.Sprintf(", %d terminating", p.Unknown)
	}
	return fmt.Sprintf("Skipped remediation because the number of healthy nodes selected by the selector is %d and should equal or exceed %d "+
		"(%d nodes: %d healthy, %d unhealthy, %d pending, %d recovering%s)",
		p.Healthy, plan.Minimum(), p.Total(), p.Healthy, p.Unhealthy, p.Pending, p.Recovering, terminating)
}
