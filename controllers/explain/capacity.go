package explain

import (
	"fmt"
	"strconv"
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
	text := capacityTexts[s.Reason]
	switch {
	case text == "":
		return string(s.Reason)
	case s.Reason == capacity.HostChosen && len(s.Args.Fitting) > 1:
		return fmt.Sprintf("any of %d BareMetalHosts fits %s: %s", len(s.Args.Fitting), machineText(s), few(s.Args.Fitting))
	case s.Reason == capacity.NoNode && s.Args.Message != "":
		text = "{machine} is provisioned, and no node with its provider ID has registered{reported}"
	}
	return inStory(s, text)
}

// inStory is a text with the names and the clauses of a story in it.
func inStory(s *capacity.Story, text string) string {
	h, hook, finalizer := s.Args.Host, "", ""
	if h == nil {
		h = &capacity.Host{}
	}
	if len(s.Args.Hooks) > 0 {
		hook = s.Args.Hooks[0].Name
	}
	if len(s.Args.Finalizers) > 0 {
		finalizer = s.Args.Finalizers[0].Name
	}
	return strings.NewReplacer(
		"{machine}", machineText(s), "{owner}", objectText(s.Owner), "{object}", objectText(s.WaitsFor), "{old}", s.Old, "{lost}", lost(s),
		"{said}", said(s), "{reported}", reported(s), "{finalizers}", finalizersText(s.Args.Finalizers), "{finalizer}", finalizer,
		"{drain}", drainText(s), "{volumes}", volumesText(s), "{hooks}", hooksText(s.Args.Hooks), "{hook}", hook, "{where}", where(s),
		"{ailing owner}", ailing(s, objectText(s.Owner)), "{ailing it}", ailing(s, "it"), "{hosts}", hostsText(s.Args.Hosts),
		"{ailing infrastructure}", ailing(s, "its infrastructure"), "{unread}", strings.Join(s.Args.Names, ", "),
		"{host}", h.Name, "{state}", stateText(h.State), "{power}", power(h), "{trouble}", troubleText(h), "{unpause}", unpauseText(s),
		"{machines}", strconv.Itoa(s.Args.Machines), "{ready}", strconv.Itoa(s.Args.Ready), "{replicas}", strconv.Itoa(s.Args.Replicas),
		"{rule}", string(s.Args.KubeadmAnswer.Reason),
		"{kubeadm}", Clause(ByKubeadm(s.Owner.Name, s.Args.Kubeadm, s.Args.KubeadmAnswer).Text),
	).Replace(text)
}

// capacityTexts has one sentence for each reason. inStory fills it in.
var capacityTexts = map[capacity.Reason]string{
	capacity.WaitsForOwner: "{owner} was asked to replace {machine}, and has not answered",
	capacity.OwnerDeferred: "{owner} has put off the replacement of {machine}{said}",
	capacity.KubeadmDefers: "{owner} does not replace {machine} yet ({rule})",
	capacity.OwnerRefuses:  "{owner} cannot replace {machine}{said}",
	capacity.OwnerRollsOut: "{owner} is rolling out, and replaces {machine} by that",
	capacity.RolledOutOnDelete: "{owner} is rolling out, and replaces {machine} only after a user has deleted it " +
		"(its strategy is OnDelete)",
	capacity.OtherFirst:   "{owner} replaces one unhealthy machine at a time, and has answered for {object} and not for {machine}",
	capacity.OwnerDeletes: "{owner} is about to delete {machine}",
	capacity.NoOwner:      "{machine} has no owner that could replace it",

	capacity.DeletionBegins: "{machine} is being deleted, and its controller has not reported how far that is",
	capacity.PreDrainHook:   "the deletion of {machine} waits before the drain for the owner of the annotation {hooks}{ailing owner}",
	capacity.PreTerminateHook: "the deletion of {machine} waits before its infrastructure is deleted for the owner of the annotation " +
		"{hooks}{ailing owner}",
	capacity.Draining:             "{drain}",
	capacity.DrainBlockedByBudget: "{drain}",
	capacity.VolumesAttached:      "{volumes}",

	capacity.InfrastructureDeletion:  "{object}, the infrastructure of {machine}, is being deleted{finalizers}{ailing it}",
	capacity.InfrastructureFinalizer: "{object}, the infrastructure of {machine}, cannot go{finalizers}",
	capacity.HostDeprovisioning:      "BareMetalHost {host} of {machine} is being deprovisioned (state {state}, power {power})",
	capacity.HostHindersDeletion:     "the deletion of {machine} waits: {trouble}",
	capacity.BootstrapDeletion:       "{object}, which has the bootstrap data of {machine}, is being deleted{finalizers}",
	capacity.NodeDeletion:            "{object} cannot be deleted from the workload cluster{said}",
	capacity.ForeignFinalizer:        "Cluster API has deleted what belongs to {machine}, which remains{finalizers}",
	capacity.DeletionFails:           "the deletion of {machine} fails{said}",
	capacity.DeletionCompletes:       "the deletion of {machine} is complete",

	capacity.OwnerUnfamiliar:  "{lost}, and when {owner} makes another one is not known: kubemend does not know the rules of its kind",
	capacity.OwnerCreates:     "{lost}, and {owner} has not made another one",
	capacity.OwnerBlocked:     "{lost}, and {owner} cannot make another one{said}",
	capacity.CreationDisabled: "{lost}, and an annotation forbids {owner} to make another one",
	capacity.PausedReason:     "{object} is paused, and nothing goes on",
	capacity.ObjectPaused:     "{object} is paused, and nothing goes on",

	capacity.NotInitialized:         "{machine} gets no bootstrap data before the control plane of {object} is initialized",
	capacity.BootstrapNotReady:      "{machine} waits for the bootstrap data of {object}{reported}",
	capacity.NoHost:                 "{machine} waits for a BareMetalHost, and {hosts}",
	capacity.HostFrees:              "{machine} waits for BareMetalHost {host}, which is being made available (state {state})",
	capacity.HostChosen:             "BareMetalHost {host} fits {machine}",
	capacity.HostWorks:              "BareMetalHost {host} of {machine} is being provisioned (state {state}, power {power})",
	capacity.HostTrouble:            "{machine} waits: {trouble}",
	capacity.InfrastructureNotReady: "{object}, the infrastructure of {machine}, is not ready{reported}",
	capacity.NoNode:                 "{machine} is provisioned, and no node has registered",
	capacity.HostOff:                "{machine} is provisioned, and its BareMetalHost {host} is powered off",
	capacity.NodeNotReadyReason:     "{object} of {machine} is not Ready{reported}{ailing infrastructure}",
	capacity.NodeGone:               "{object} of {machine} was deleted from the workload cluster, and the machine was not",
	capacity.InfrastructureGone:     "{object}, the infrastructure of {machine}, was deleted, and the machine was not",
	capacity.Disconnected: "Cluster API has no connection to the workload cluster of {object}, and {machine} " +
		"waits for that{said}",
	capacity.StillUnhealthy: "the node of {machine} is Ready, and a health check marks the machine as unhealthy",

	capacity.Replaced:  "the capacity is back: the node of {machine} is Ready",
	capacity.Recovered: "the capacity is back: {machine} is healthy again",
	capacity.RolledOut: "the capacity is back: of a rollout {owner} has {ready} of {replicas} machines with a Ready node",
	capacity.OwnerComplete: "the capacity is back: {owner} has {ready} of {replicas} machines with a Ready node; " +
		"which of them replaces Machine {old} is not known",
	capacity.ScaledDown:       "Machine {old} is not replaced: {owner} has {machines} of {replicas} machines without it",
	capacity.OwnerDeleted:     "Machine {old} is not replaced: {owner} is being deleted, or gone",
	capacity.ClusterDeleted:   "Machine {old} is not replaced: its Cluster is being deleted, or gone",
	capacity.NamespaceDeleted: "Machine {old} is not replaced: its namespace is being deleted",
	capacity.NotReadable:      "what Machine {old} waits for could not be read with your rights: {unread}",
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

func hooksText(all []capacity.Hook) string {
	names := make([]string, 0, len(all))
	for _, h := range all {
		if h.Owner != "" {
			names = append(names, fmt.Sprintf("%s (%s)", h.Name, word(h.Owner)))
		} else {
			names = append(names, h.Name)
		}
	}
	return few(names)
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
