package explain

import (
	"fmt"
	"strings"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

// named objects of a story.
func objectText(o capacity.Object) string {
	if o.Namespace == "" || o.Kind != "PodDisruptionBudget" && o.Kind != "Pod" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

func machineText(s *capacity.Story) string { return "Machine " + s.Machine }

// Capacity is what the capacity of a machine waits for, or how the wait has ended, as a clause. It holds no age.
func Capacity(s *capacity.Story) string {
	if text := capacityTexts[s.Reason]; text != nil {
		return text(s)
	}
	return string(s.Reason)
}

// capacityTexts has one function for each reason.
var capacityTexts = map[capacity.Reason]func(*capacity.Story) string{
	capacity.WaitsForOwner: func(s *capacity.Story) string {
		return objectText(s.Owner) + " was asked to replace " + machineText(s) + ", and has not answered"
	},
	capacity.OwnerDeferred: func(s *capacity.Story) string {
		return objectText(s.Owner) + " has put off the replacement of " + machineText(s) + said(s)
	},
	capacity.KubeadmDefers: func(s *capacity.Story) string {
		return fmt.Sprintf("%s does not replace %s yet (%s)", objectText(s.Owner), machineText(s), s.Args.KubeadmAnswer.Reason)
	},
	capacity.OwnerRefuses: func(s *capacity.Story) string {
		return objectText(s.Owner) + " cannot replace " + machineText(s) + said(s)
	},
	capacity.OwnerRollsOut: func(s *capacity.Story) string {
		return objectText(s.Owner) + " is rolling out, and replaces " + machineText(s) + " by that"
	},
	capacity.RolledOutOnDelete: func(s *capacity.Story) string {
		return objectText(s.Owner) + " is rolling out, and replaces " + machineText(s) + " only after a user has deleted it (its strategy is OnDelete)"
	},
	capacity.OtherFirst: func(s *capacity.Story) string {
		return fmt.Sprintf("%s replaces one unhealthy machine at a time, and has answered for %s and not for %s",
			objectText(s.Owner), objectText(s.WaitsFor), machineText(s))
	},
	capacity.OwnerDeletes: func(s *capacity.Story) string { return objectText(s.Owner) + " is about to delete " + machineText(s) },
	capacity.NoOwner: func(s *capacity.Story) string {
		return machineText(s) + " has no owner that could replace it"
	},

	capacity.DeletionBegins: func(s *capacity.Story) string {
		return machineText(s) + " is being deleted, and its controller has not reported how far that is"
	},
	capacity.PreDrainHook:         func(s *capacity.Story) string { return hookText(s, "before the drain") },
	capacity.PreTerminateHook:     func(s *capacity.Story) string { return hookText(s, "before its infrastructure is deleted") },
	capacity.Draining:             drainText,
	capacity.DrainBlockedByBudget: drainText,
	capacity.VolumesAttached:      volumesText,
	capacity.InfrastructureDeletion: func(s *capacity.Story) string {
		return objectText(s.WaitsFor) + ", the infrastructure of " + machineText(s) + ", is being deleted" + finalizersText(s.Args.Finalizers) + ailing(s, "it")
	},
	capacity.InfrastructureFinalizer: func(s *capacity.Story) string {
		return objectText(s.WaitsFor) + ", the infrastructure of " + machineText(s) + ", cannot go" + finalizersText(s.Args.Finalizers)
	},
	capacity.HostDeprovisioning: func(s *capacity.Story) string {
		return fmt.Sprintf("BareMetalHost %s of %s is being deprovisioned (%s)", s.Args.Host.Name, machineText(s), hostState(s.Args.Host))
	},
	capacity.HostHindersDeletion: func(s *capacity.Story) string {
		return "the deletion of " + machineText(s) + " waits: " + troubleText(s.Args.Host)
	},
	capacity.BootstrapDeletion: func(s *capacity.Story) string {
		return objectText(s.WaitsFor) + ", which has the bootstrap data of " + machineText(s) + ", is being deleted" + finalizersText(s.Args.Finalizers)
	},
	capacity.NodeDeletion: func(s *capacity.Story) string {
		return objectText(s.WaitsFor) + " cannot be deleted from the workload cluster" + said(s)
	},
	capacity.ForeignFinalizer: func(s *capacity.Story) string {
		return "Cluster API has deleted what belongs to " + machineText(s) + ", which remains" + finalizersText(s.Args.Finalizers)
	},
	capacity.DeletionFails:     func(s *capacity.Story) string { return "the deletion of " + machineText(s) + " fails" + said(s) },
	capacity.DeletionCompletes: func(s *capacity.Story) string { return "the deletion of " + machineText(s) + " is complete" },

	capacity.OwnerUnfamiliar: func(s *capacity.Story) string {
		return lost(s) + ", and when " + objectText(s.Owner) + " makes another one is not known: kubemend does not know the rules of its kind"
	},
	capacity.OwnerCreates: func(s *capacity.Story) string {
		return lost(s) + ", and " + objectText(s.Owner) + " has not made another one"
	},
	capacity.OwnerBlocked: func(s *capacity.Story) string {
		return lost(s) + ", and " + objectText(s.Owner) + " cannot make another one" + said(s)
	},
	capacity.CreationDisabled: func(s *capacity.Story) string {
		return lost(s) + ", and an annotation forbids " + objectText(s.Owner) + " to make another one"
	},
	capacity.PausedReason: pausedText,
	capacity.ObjectPaused: pausedText,

	capacity.NotInitialized: func(s *capacity.Story) string {
		return machineText(s) + " gets no bootstrap data before the control plane of " + objectText(s.WaitsFor) + " is initialized"
	},
	capacity.BootstrapNotReady: func(s *capacity.Story) string {
		return machineText(s) + " waits for the bootstrap data of " + objectText(s.WaitsFor) + reported(s)
	},
	capacity.NoHost: func(s *capacity.Story) string {
		return machineText(s) + " waits for a BareMetalHost, and " + hostsText(s.Args.Hosts)
	},
	capacity.HostFrees: func(s *capacity.Story) string {
		return fmt.Sprintf("%s waits for BareMetalHost %s, which is being made available (state %s)",
			machineText(s), s.Args.Host.Name, stateText(s.Args.Host.State))
	},
	capacity.HostChosen: func(s *capacity.Story) string {
		if all := s.Args.Fitting; len(all) > 1 {
			return fmt.Sprintf("any of %d BareMetalHosts fits %s: %s", len(all), machineText(s), few(all))
		}
		return fmt.Sprintf("BareMetalHost %s fits %s", s.Args.Host.Name, machineText(s))
	},
	capacity.HostWorks: func(s *capacity.Story) string {
		return fmt.Sprintf("BareMetalHost %s of %s is being provisioned (%s)", s.Args.Host.Name, machineText(s), hostState(s.Args.Host))
	},
	capacity.HostTrouble: func(s *capacity.Story) string { return machineText(s) + " waits: " + troubleText(s.Args.Host) },
	capacity.InfrastructureNotReady: func(s *capacity.Story) string {
		return objectText(s.WaitsFor) + ", the infrastructure of " + machineText(s) + ", is not ready" + reported(s)
	},
	capacity.NoNode: func(s *capacity.Story) string {
		if s.Args.Message == "" {
			return machineText(s) + " is provisioned, and no node has registered"
		}
		return machineText(s) + " is provisioned, and no node with its provider ID has registered" + reported(s)
	},
	capacity.HostOff: func(s *capacity.Story) string {
		return fmt.Sprintf("%s is provisioned, and its BareMetalHost %s is powered off", machineText(s), s.Args.Host.Name)
	},
	capacity.NodeNotReadyReason: func(s *capacity.Story) string {
		return objectText(s.WaitsFor) + " of " + machineText(s) + " is not Ready" + reported(s) + ailing(s, "its infrastructure")
	},
	capacity.NodeGone: func(s *capacity.Story) string {
		return objectText(s.WaitsFor) + " of " + machineText(s) + " was deleted from the workload cluster, and the machine was not"
	},
	capacity.InfrastructureGone: func(s *capacity.Story) string {
		return objectText(s.WaitsFor) + ", the infrastructure of " + machineText(s) + ", was deleted, and the machine was not"
	},
	capacity.Disconnected: func(s *capacity.Story) string {
		return "Cluster API has no connection to the workload cluster of " + objectText(s.WaitsFor) + ", and " + machineText(s) + " waits for that" + said(s)
	},
	capacity.StillUnhealthy: func(s *capacity.Story) string {
		return "the node of " + machineText(s) + " is Ready, and a health check marks the machine as unhealthy"
	},

	capacity.Replaced: func(s *capacity.Story) string {
		return "the capacity is back: the node of " + machineText(s) + " is Ready"
	},
	capacity.Recovered: func(s *capacity.Story) string {
		return "the capacity is back: " + machineText(s) + " is healthy again"
	},
	capacity.RolledOut: func(s *capacity.Story) string {
		return fmt.Sprintf("the capacity is back: of a rollout %s has %d of %d machines with a Ready node", objectText(s.Owner), s.Args.Ready, s.Args.Replicas)
	},
	capacity.OwnerComplete: func(s *capacity.Story) string {
		return fmt.Sprintf("the capacity is back: %s has %d of %d machines with a Ready node; which of them replaces Machine %s is not known",
			objectText(s.Owner), s.Args.Ready, s.Args.Replicas, s.Old)
	},
	capacity.ScaledDown: func(s *capacity.Story) string {
		return fmt.Sprintf("Machine %s is not replaced: %s has %d of %d machines without it", s.Old, objectText(s.Owner), s.Args.Machines, s.Args.Replicas)
	},
	capacity.OwnerDeleted: func(s *capacity.Story) string {
		return fmt.Sprintf("Machine %s is not replaced: %s is being deleted, or gone", s.Old, objectText(s.Owner))
	},
	capacity.ClusterDeleted: func(s *capacity.Story) string {
		return "Machine " + s.Old + " is not replaced: its Cluster is being deleted, or gone"
	},
	capacity.NamespaceDeleted: func(s *capacity.Story) string {
		return "Machine " + s.Old + " is not replaced: its namespace is being deleted"
	},
	capacity.NotReadable: func(s *capacity.Story) string {
		return "what Machine " + s.Old + " waits for could not be read with your rights: " + strings.Join(s.Args.Names, ", ")
	},
}

// said is what another controller says, as it goes on behind a colon; nothing if it says nothing.
func said(s *capacity.Story) string {
	if text := oneLine(s.Args.Message); text != "" {
		return ": " + text
	}
	if s.Args.Reason != "" {
		return " (" + word(s.Args.Reason) + ")"
	}
	return ""
}

// reported is the condition that another controller has set.
func reported(s *capacity.Story) string {
	text := oneLine(s.Args.Message)
	switch {
	case s.Args.Reason == "" && text == "":
		return ""
	case text == "":
		return " (" + word(s.Args.Reason) + ")"
	case s.Args.Reason == "":
		return ": " + text
	}
	return " (" + word(s.Args.Reason) + "): " + text
}

// few are the first of names, and how many more there are.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// ailing is what who reports of its health, as it goes on behind a semicolon; nothing if that is nothing.
func ailing(s *capacity.Story, who string) string {
	is := s.Args.Ailing
	if is.Reason == "" {
		return ""
	}
	return "; " + who + " reports" + reported(&capacity.Story{Args: capacity.Args{Reason: is.Reason, Message: is.Message}})
}

func hookText(s *capacity.Story, when string) string {
	names := make([]string, 0, len(s.Args.Hooks))
	for _, h := range s.Args.Hooks {
		if h.Owner != "" {
			names = append(names, fmt.Sprintf("%s (%s)", h.Name, word(h.Owner)))
		} else {
			names = append(names, h.Name)
		}
	}
	text := fmt.Sprintf("the deletion of %s waits %s for the owner of the annotation %s", machineText(s), when, few(names))
	return text + ailing(s, objectText(s.Owner))
}

func drainText(s *capacity.Story) string {
	if len(s.Args.Pods) == 0 { // the workload cluster was not read, or has none any more: Cluster API says what it found
		return "the node of " + machineText(s) + " is being drained" + said(s)
	}
	groups := []string{
		"pods that may not be evicted", "pods that are being deleted", "pods that have to complete", "other pods", "pods that are evicted after these",
	}
	pods := make([][]string, len(groups))
	for _, p := range s.Args.Pods {
		name, group := p.Namespace+"/"+p.Name, 3
		switch {
		case !p.Deleting.IsZero():
			group = 1
		case p.Later:
			group = 4
		case p.Completes:
			group = 2
		case p.Blocked():
			name, group = fmt.Sprintf("%s (PodDisruptionBudget %s allows no disruption)", name, p.Budget), 0
		}
		pods[group] = append(pods[group], name)
	}
	var parts []string
	for i, names := range pods {
		if len(names) > 0 {
			parts = append(parts, groups[i]+": "+few(names))
		}
	}
	return "the node of " + machineText(s) + " is being drained; " + strings.Join(parts, "; ")
}

func volumesText(s *capacity.Story) string {
	if len(s.Args.Volumes) == 0 {
		return "volumes are attached to the node of " + machineText(s) + said(s)
	}
	names := make([]string, 0, len(s.Args.Volumes))
	for _, v := range s.Args.Volumes {
		name := word(v.Name)
		if v.Attachment != "" {
			name += fmt.Sprintf(" (VolumeAttachment %s, %s)", v.Attachment, word(v.Attacher))
		}
		if v.Error != "" {
			name += ": " + oneLine(v.Error)
		}
		names = append(names, strings.TrimSpace(name))
	}
	return "volumes are attached to the node of " + machineText(s) + ": " + few(names)
}

// finalizersText is which finalizers are left, as it goes on behind a comma.
func finalizersText(all []capacity.Finalizer) string {
	if len(all) == 0 {
		return ""
	}
	names := make([]string, 0, len(all))
	for _, f := range all {
		if f.By != "" {
			names = append(names, fmt.Sprintf("%s (added by %s)", f.Name, word(f.By)))
		} else {
			names = append(names, f.Name)
		}
	}
	if len(all) == 1 {
		return ", with the finalizer " + names[0]
	}
	return ", with the finalizers " + few(names)
}

func stateText(state string) string {
	if state == "" {
		return "none"
	}
	return word(state)
}

func power(h *capacity.Host) string {
	if h.PoweredOn {
		return "on"
	}
	return "off"
}

// hostState is the state of a host and its power.
func hostState(h *capacity.Host) string { return "state " + stateText(h.State) + ", power " + power(h) }

// troubleText is what is wrong with a host.
func troubleText(h *capacity.Host) string {
	switch {
	case h.Error != "":
		kind := ""
		if h.ErrorType != "" {
			kind = " (" + word(h.ErrorType) + ")"
		}
		return "BareMetalHost " + h.Name + " has an error" + kind + ": " + oneLine(h.Error)
	case h.Paused:
		return "BareMetalHost " + h.Name + " is paused"
	}
	return "BareMetalHost " + h.Name + " is detached"
}

// fewHosts is how many hosts a sentence has room for.
const fewHosts = 3

// hostsText is why none of the hosts is taken. Of many it is only said how many there are: HostAnswers has them all.
func hostsText(all []capacity.HostAnswer) string {
	switch n := len(all); {
	case n == 0:
		return "there is none in the namespace"
	case n > fewHosts:
		return fmt.Sprintf("none of the %d in the namespace fits", n)
	}
	names := make([]string, 0, len(all))
	for _, h := range all {
		names = append(names, h.Name+" "+HostAnswer(h))
	}
	return "none fits: " + strings.Join(names, ", ")
}

// HostAnswers are why none of the hosts is taken, one sentence each, where Capacity does not have them.
func HostAnswers(s *capacity.Story) []string {
	if s.Reason != capacity.NoHost || len(s.Args.Hosts) <= fewHosts {
		return nil
	}
	all := make([]string, 0, len(s.Args.Hosts))
	for _, h := range s.Args.Hosts {
		all = append(all, h.Name+" "+HostAnswer(h))
	}
	return all
}

// HostAnswer is why a host is not taken for a machine, as a clause that follows its name.
func HostAnswer(h capacity.HostAnswer) string {
	switch h.Why {
	case capacity.HostNotSelected:
		return "does not match the hostSelector (" + word(h.Detail) + ")"
	case capacity.HostReserved:
		return "is kept for machines of " + word(h.Detail) + " (node reuse)"
	case capacity.HostInUse:
		return "is in use by " + word(h.Detail)
	case capacity.HostIsDeleting:
		return "is being deleted"
	case capacity.HostHasError:
		return "has an error: " + oneLine(h.Detail)
	case capacity.HostPaused:
		return "is paused"
	case capacity.HostDetached:
		return "is detached"
	case capacity.HostUnhealthy:
		return "has the annotation that marks it as unhealthy"
	case capacity.HostNotAvailable:
		return "is not available (state " + stateText(h.Detail) + ")"
	}
	return "fits"
}
