package capacity

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
)

// Decide returns what the capacity of f.Old waits for.
func Decide(f Facts) Story {
	s := Story{Old: f.Old.Name, Machine: f.Old.Name, Owner: f.Owner.object()}
	s.Args.Machines, s.Args.Ready, s.Args.Replicas = f.count()
	s.Replacement = replacementOf(&f)
	by, end := f.machine(s.Replacement.Name), f.end()
	switch {
	case slices.Contains(f.Unread, MachinesUnread):
		f.unread(&s)
	case recovered(&f.Old):
		s.Stage, s.Reason, s.Next, s.Since = Back, Recovered, Nothing, f.Old.NodeReady.Since
	case by != nil && (end == "" || ready(by) && !by.Unhealthy && by.Deleting.IsZero()):
		f.follow(&s, by)
	case end != "":
		s.Stage, s.Reason, s.Next = NotReplaced, end, Nothing
	case !f.Old.Gone && f.Old.Deleting.IsZero():
		f.notDeleted(&s)
	case f.surplus():
		f.enough(&s)
	case !f.Old.Gone:
		f.deletion(&s, &f.Old)
	default:
		f.noReplacement(&s)
	}
	f.overdue(&s)
	return s
}

// DeletionOf returns what the deletion of f.Old waits for, whether it is replaced or not. It is about a Machine that is being deleted.
func DeletionOf(f Facts) Story {
	s := Story{Old: f.Old.Name, Machine: f.Old.Name, Owner: f.Owner.object()}
	f.deletion(&s, &f.Old)
	after := s.Next == ReplacementIsMade || s.Next == MachineGoes
	switch {
	case after && (f.end() != "" || f.surplus()):
		s.Next = MachineIsGone
	case after:
		s.Next = MachineGoes
	}
	f.overdue(&s)
	return s
}

// overdue says whether the deadline of s has passed.
func (f *Facts) overdue(s *Story) {
	s.Overdue = !s.Deadline.IsZero() && !f.Now.Before(s.Deadline)
}

// recovered reports whether m is healthy again, and was never deleted.
func recovered(m *Machine) bool {
	return !m.Gone && m.Deleting.IsZero() && !m.Unhealthy && ready(m)
}

// ready reports whether the node of m is Ready.
func ready(m *Machine) bool { return m.Node != "" && m.NodeReady.True() }

// end is why no machine is made; empty if one is.
func (f *Facts) end() Reason {
	switch {
	case !f.NamespaceDeleting.IsZero():
		return NamespaceDeleted
	case !f.ClusterDeleting.IsZero():
		return ClusterDeleted
	case f.Owner.Known && (f.Owner.Gone || !f.Owner.Deleting.IsZero()):
		return OwnerDeleted
	case f.Owner.Kind == "" && (f.Old.Gone || !f.Old.Deleting.IsZero()):
		return NoOwner
	}
	return ""
}

// count is how many machines the owner has that are not being deleted, how many of these have a Ready node, and how many it is to have.
func (f *Facts) count() (all, withNode, wanted int) {
	for i := range f.Others {
		all, withNode = tally(&f.Others[i], all, withNode)
	}
	if !f.Old.Gone {
		all, withNode = tally(&f.Old, all, withNode)
	}
	return all, withNode, f.Owner.Replicas
}

func tally(m *Machine, all, withNode int) (int, int) {
	switch {
	case !m.Deleting.IsZero():
		return all, withNode
	case ready(m):
		return all + 1, withNode + 1
	}
	return all + 1, withNode
}

// surplus reports whether the owner has all the machines that it is to have, so that it makes none for one that is deleted.
func (f *Facts) surplus() bool {
	all, _, wanted := f.count()
	return f.Owner.Known && !f.Owner.Uncounted && all >= wanted
}

// MachinesUnread is what Facts.Unread has if the machines of the owner could not be read.
const MachinesUnread = "Machines"

// enough is a story of an owner that has all its machines: since it was scaled down, or since a rollout has made the new one before.
func (f *Facts) enough(s *Story) {
	all, withNode, wanted := f.count()
	switch next := f.unreadyOfRollout(); {
	case !f.Owner.familiar() && withNode >= wanted && wanted > 0:
		s.Stage, s.Reason, s.Next = Back, OwnerComplete, Nothing
	case !f.Owner.familiar() && next != nil:
		s.Replacement = Replacement{Name: next.Name, By: ByOrder}
		f.follow(s, next)
	case !f.Owner.RollingOut:
		s.Stage, s.Reason, s.Next = NotReplaced, ScaledDown, Nothing
	case withNode >= wanted || all == 0 || next == nil:
		s.Stage, s.Reason, s.Next = Back, RolledOut, Nothing
	default:
		s.Replacement = Replacement{Name: next.Name, By: ByOrder}
		f.follow(s, next)
	}
}

// unreadyOfRollout is the first machine whose node is not Ready, those of the current revision first; nil if there is none.
func (f *Facts) unreadyOfRollout() *Machine {
	var found *Machine
	for _, m := range f.byCreation() {
		if !m.Deleting.IsZero() || ready(m) {
			continue
		}
		if m.Set == f.Owner.Set {
			return m
		}
		if found == nil {
			found = m
		}
	}
	return found
}

// machine is the other machine of that name; nil if there is none.
func (f *Facts) machine(name string) *Machine {
	i := slices.IndexFunc(f.Others, func(m Machine) bool { return m.Name == name })
	if name == "" || i < 0 {
		return nil
	}
	return &f.Others[i]
}

// byCreation are the other machines, the oldest one first.
func (f *Facts) byCreation() []*Machine {
	all := make([]*Machine, 0, len(f.Others))
	for i := range f.Others {
		all = append(all, &f.Others[i])
	}
	slices.SortFunc(all, func(a, b *Machine) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) })
	return all
}

// notDeleted is the story of a machine that is unhealthy, and not being deleted.
func (f *Facts) notDeleted(s *Story) {
	s.WaitsFor = s.Owner
	if f.Old.Asked.Status != "False" { // it is to become healthy by itself, or by a remediation of its host
		f.sameAgain(s)
		return
	}
	asked := f.Old.Asked
	s.Stage, s.Since, s.Next = OwnerActs, asked.Since, OwnerReplaces
	s.Args.Reason, s.Args.Message = asked.Reason, asked.Message
	switch {
	case f.Owner.Kind == "":
		s.Reason, s.Todo, s.WaitsFor = NoOwner, CreateMachine, Object{}
	case f.Owner.Paused || f.ClusterPaused:
		f.paused(s, f.maker())
	case asked.Reason == "RemediationDeferred" || asked.Reason == "CannotBeRemediated":
		f.deferred(s)
	case asked.Reason == "MachineDeleting":
		s.Reason = OwnerDeletes
	default:
		f.unanswered(s)
	}
	if (s.Reason == WaitsForOwner || s.Reason == OwnerDeletes) && f.late(s.Since, ownerTakes) {
		s.Todo = LookAtOwner
	}
}

// unanswered is the story of an owner that was asked to replace the machine, and has said nothing of it. A KubeadmControlPlane says nothing of others while it
// replaces one, and picks one of several to answer for. (Cluster API, its remediation.go: getMachineToBeRemediated.)
func (f *Facts) unanswered(s *Story) {
	s.Reason = WaitsForOwner
	if f.Owner.Kubeadm == nil {
		return
	}
	if kubeadm.Decide(*f.Owner.Kubeadm).Reason == kubeadm.OtherReplaced {
		f.deferred(s)
	} else if other := f.answered(); other != nil {
		s.Reason, s.WaitsFor = OtherFirst, Object{Kind: "Machine", Name: other.Name}
	}
}

// answered is an unhealthy machine, other than f.Old, of which its owner has said that it does not replace it now; nil if there is none.
func (f *Facts) answered() *Machine {
	for _, m := range f.byCreation() {
		if m.Unhealthy && m.Deleting.IsZero() && (m.Asked.Reason == "RemediationDeferred" || m.Asked.Reason == "CannotBeRemediated") {
			return m
		}
	}
	return nil
}

// deferred is the story of an owner that has put the remediation off, or refused it.
func (f *Facts) deferred(s *Story) {
	refused := f.Old.Asked.Reason == "CannotBeRemediated"
	s.Reason = OwnerDeferred
	if refused {
		s.Reason, s.Todo = OwnerRefuses, AnswerOwner
	}
	switch k := f.Owner.Kubeadm; {
	case k != nil:
		answer := kubeadm.Decide(*k)
		if answer.Reason == "" {
			return
		}
		s.Reason, s.Args.Kubeadm, s.Args.KubeadmAnswer, s.NotBefore, s.Todo = KubeadmDefers, k, answer, answer.Until, ""
		switch answer.Reason {
		case kubeadm.RetriesExhausted:
			s.Todo = RaiseRetries
		case kubeadm.OnlyMachine:
			s.Todo = RepairMachine
		case kubeadm.OthersProvisioning, kubeadm.OthersDeleting:
			s.WaitsFor = Object{Kind: "Machine", Name: answer.Others[0]}
		case kubeadm.OtherReplaced:
			if f.machine(answer.Others[0]) != nil {
				s.WaitsFor = Object{Kind: "Machine", Name: answer.Others[0]}
			}
		}
	case !refused && !lists(f.Old.Asked.Message):
		f.inFlight(s)
	case refused && f.Owner.RollingOut && f.Old.Set != f.Owner.Set:
		f.rollsOut(s)
	}
}

// rollsOut is the story of a machine of an earlier revision, which its MachineSet does not remediate: the rollout deletes it, unless that is paused, or left to
// a person. (Cluster API, core/reconcilers/machineset: reconcileUnhealthyMachines; it does not ask whether the rollout goes on.)
func (f *Facts) rollsOut(s *Story) {
	s.Reason, s.Todo = OwnerRollsOut, ""
	switch {
	case f.Owner.RolloutPaused:
		f.paused(s, s.Owner)
	case f.Owner.OnDelete:
		s.Reason, s.Todo, s.Next, s.WaitsFor = RolledOutOnDelete, DeleteMachine, ReplacementIsMade, Object{Kind: "Machine", Name: f.Old.Name}
	}
}

// inFlight is the story of a machine that waits for others of its MachineSet that are being replaced (spec.remediation.maxInFlight).
func (f *Facts) inFlight(s *Story) {
	for _, m := range f.byCreation() {
		if !m.Deleting.IsZero() && m.Asked.Reason == "MachineDeleting" && m.Set == f.Old.Set {
			s.WaitsFor = Object{Kind: "Machine", Name: m.Name}
			return
		}
	}
}

// lists reports whether a message of Cluster API lists what hinders: each in a line of its own that begins with a bullet.
func lists(message string) bool {
	return strings.HasPrefix(message, "* ") || strings.Contains(message, "\n* ")
}

// sameAgain is the story of a machine that is to become healthy as it is.
func (f *Facts) sameAgain(s *Story) {
	f.nodeNotReady(s, &f.Old)
	if s.Todo == LookAtNode { // its remediation is to do that
		s.Todo = ""
	}
	switch {
	case f.Old.infrastructureGone() && !ready(&f.Old):
		f.infrastructureGone(s, &f.Old)
	case f.Old.Node == "":
		s.Stage, s.Reason, s.Next, s.WaitsFor = Booting, NoNode, NodeRegisters, Object{}
		s.Since, s.Todo = f.Old.Infrastructure.Since, ""
	case ready(&f.Old):
		f.stillUnhealthy(s, &f.Old)
	}
}

// maker is what makes the machines: of a MachineDeployment its MachineSet, which goes on when the MachineDeployment is paused.
func (f *Facts) maker() Object {
	if f.Owner.Deployment != "" && f.Owner.Set != "" {
		return Object{Kind: "MachineSet", Name: f.Owner.Set}
	}
	return f.Owner.object()
}

// paused is that what o does is paused: by its own annotation, or with its Cluster.
func (f *Facts) paused(s *Story, o Object) {
	s.Reason, s.Todo, s.Next, s.WaitsFor = ObjectPaused, Unpause, GoesOn, o
	if f.ClusterPaused {
		s.Reason, s.WaitsFor = PausedReason, Object{Kind: "Cluster", Name: f.Cluster}
	}
}

// unread is the story of a machine of which no more is known than what could not be read.
func (f *Facts) unread(s *Story) {
	s.Stage, s.Reason, s.Next, s.WaitsFor = Unread, NotReadable, "", s.Owner
	s.Args.Names = slices.Sorted(slices.Values(f.Unread))
}

// preflightFails is the reason of a MachineSet that waits for the control plane, which is upgraded or provisioned, before it makes a machine. (Cluster API,
// core/reconcilers/machineset/machineset_preflight.go.)
const preflightFails = "PreflightCheckFailed"

// noReplacement is the story of a machine that is gone, and of which no new one was made.
func (f *Facts) noReplacement(s *Story) {
	s.Stage, s.Next, s.WaitsFor, s.Since = NoReplacement, ReplacementIsMade, s.Owner, f.Old.GoneAt
	scales := f.Owner.ScalingUp
	if scales.True() || f.Owner.Blocked {
		s.Since = firstKnown(s.Since, scales.Since)
	}
	switch {
	case !f.Owner.Known:
		f.unread(s)
	case f.Owner.Paused || f.ClusterPaused:
		f.paused(s, f.maker())
	case f.Owner.NoCreation:
		s.Reason, s.Todo = CreationDisabled, AllowCreation
	case f.Owner.Blocked:
		s.Reason, s.Args.Reason, s.Args.Message = OwnerBlocked, scales.Reason, scales.Message
		if scales.Reason != preflightFails || f.late(s.Since, machineTakes) {
			s.Todo = UnblockOwner
		}
	case !f.Owner.familiar():
		s.Reason = OwnerUnfamiliar
	case scales.True() && lists(scales.Message):
		f.cannotScaleUp(s)
	default:
		s.Reason = OwnerCreates
		if f.late(s.Since, ownerTakes) {
			s.Todo = LookAtOwner
		}
	}
}

// cannotScaleUp is the story of an owner whose condition ScalingUp lists what it waits for. It usually passes: etcd becomes healthy, say.
func (f *Facts) cannotScaleUp(s *Story) {
	s.Reason, s.Args.Reason, s.Args.Message = OwnerBlocked, f.Owner.ScalingUp.Reason, f.Owner.ScalingUp.Message
	switch k := f.Owner.Kubeadm; {
	case k != nil && len(k.Deleting) > 0: // it makes none before that machine is gone
		s.WaitsFor = Object{Kind: "Machine", Name: k.Deleting[0]}
	case f.late(s.Since, ownerTakes):
		s.Todo = UnblockOwner
	}
}
