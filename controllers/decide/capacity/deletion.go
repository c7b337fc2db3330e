package capacity

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Finalizers and hooks of Cluster API.
const (
	machineFinalizer = "machine.cluster.x-k8s.io"
	kubeadmHook      = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup"
)

// providers are the groups of which the finalizers are those of the providers themselves.
var providers = []string{"infrastructure.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io"}

// phases are the phases of a deletion, by the reason of the condition Deleting. (reconcileDelete of the Machine controller.) Of a reason that is not here,
// the deletion has just begun, as far as is known.
var phases = map[string]func(f *Facts, m *Machine, s *Story){
	"WaitingForPreDrainHook":           preDrain,
	"DrainingNode":                     draining,
	"WaitingForVolumeDetach":           volumes,
	"WaitingForPreTerminateHook":       preTerminate,
	"WaitingForInfrastructureDeletion": infrastructureDeletion,
	"WaitingForBootstrapDeletion":      bootstrapDeletion,
	"DeletingNode":                     nodeDeletion,
	"InternalError":                    deletionFails,
	"DeletionCompleted":                completed,
}

// deletion is the story of m, which is being deleted.
func (f *Facts) deletion(s *Story, m *Machine) {
	s.Stage, s.Machine, s.Since, s.Next = Deleting, m.Name, m.Deleting, ReplacementIsMade
	s.WaitsFor = Object{Kind: "Machine", Name: m.Name}
	s.Args.Reason, s.Args.Message = m.Deletion.Condition.Reason, m.Deletion.Condition.Message
	if f.Owner.Topology {
		s.Args.Topology = f.Cluster
	}
	if m.Paused || f.ClusterPaused {
		f.paused(s, s.WaitsFor)
		return
	}
	if phase := phases[m.Deletion.Condition.Reason]; phase != nil {
		phase(f, m, s)
		return
	}
	s.Reason, s.Next = DeletionBegins, DeletionGoesOn
	if f.late(s.Since, ownerTakes) {
		s.Todo = LookAtController
	}
}

// cutOff reports that Cluster API does not reach the workload cluster, without which nothing that it does there goes on. A deadline holds all the same.
func (f *Facts) cutOff(s *Story, m *Machine) bool {
	if m.Connection.Reason == "" {
		return false
	}
	f.disconnected(s, m.Connection)
	if s.Deadline.IsZero() {
		s.Next = GoesOn
	}
	return true
}

func preDrain(_ *Facts, m *Machine, s *Story) {
	d := &m.Deletion
	s.Reason, s.Next, s.Args.Hooks, s.Todo = PreDrainHook, DrainBegins, d.PreDrainHooks, EndHook
	s.Since = firstKnown(d.PreDrainSince, m.Deleting)
}

func draining(f *Facts, m *Machine, s *Story) {
	d := &m.Deletion
	s.Reason, s.Next, s.Args.Pods = Draining, DrainGoesOn, d.Pods
	s.WaitsFor = Object{Kind: "Node", Name: m.Node}
	s.Since = firstKnown(d.DrainSince, m.Deleting)
	bound(s, d.DrainSince, d.DrainTimeout, DrainGivenUp)
	if f.cutOff(s, m) {
		return
	}
	late := f.late(s.Since, drainTakes)
	if late && s.Deadline.IsZero() {
		s.Todo = SetDrainTimeout
	}
	for _, p := range d.Pods {
		if p.Blocked() {
			if s.Reason = DrainBlockedByBudget; late {
				s.Todo = FreeBudget
			}
			s.WaitsFor = Object{Kind: "PodDisruptionBudget", Namespace: p.Namespace, Name: p.Budget}
			return
		}
	}
	if budget := d.quotedBudget(); budget.Name != "" {
		if s.Reason, s.WaitsFor = DrainBlockedByBudget, budget; late {
			s.Todo = FreeBudget
		}
		return
	}
	if len(d.Pods) > 0 {
		s.WaitsFor = Object{Kind: "Pod", Namespace: d.Pods[0].Namespace, Name: d.Pods[0].Name}
	}
}

func volumes(f *Facts, m *Machine, s *Story) {
	d := &m.Deletion
	s.Reason, s.Next, s.Args.Volumes = VolumesAttached, InfrastructureGoes, d.Volumes
	s.WaitsFor = Object{Kind: "Node", Name: m.Node}
	s.Since = firstKnown(d.VolumesSince, m.Deleting)
	bound(s, d.VolumesSince, d.VolumeTimeout, VolumesGivenUp)
	if f.cutOff(s, m) {
		return
	}
	if f.late(s.Since, drainTakes) {
		s.Todo = DetachVolumes
	}
	for _, v := range d.Volumes {
		if v.Attachment != "" {
			s.WaitsFor = Object{Kind: "VolumeAttachment", Name: v.Attachment}
			return
		}
	}
}

// bound gives s the deadline of a timeout that began at since, if there is one.
func bound(s *Story, since time.Time, timeout time.Duration, next Next) {
	if timeout <= 0 || since.IsZero() {
		return
	}
	s.Deadline, s.Args.Timeout, s.Next = since.Add(timeout), timeout, next
}

func preTerminate(f *Facts, m *Machine, s *Story) {
	s.Reason, s.Next = PreTerminateHook, InfrastructureGoes
	s.Since = firstKnown(m.Deletion.PreTerminateSince, m.Deleting)
	s.Args.Hooks = slices.Clone(m.Deletion.PreTerminateHooks)
	slices.SortStableFunc(s.Args.Hooks, func(a, b Hook) int { // that of the KubeadmControlPlane is the last to go, and not for a person
		return cmp.Compare(kubeadmLast(a), kubeadmLast(b))
	})
	if slices.ContainsFunc(s.Args.Hooks, func(h Hook) bool { return h.Name != kubeadmHook }) {
		s.Todo = EndHook
		return
	}
	s.WaitsFor = s.Owner // the KubeadmControlPlane removes its own hook after the member of etcd
	late := f.late(s.Since, ownerTakes)
	switch first := f.leavesBefore(m); {
	case f.Owner.Paused:
		f.paused(s, f.maker())
	case first != nil:
		s.WaitsFor = Object{Kind: "Machine", Name: first.Name}
	case f.Owner.Ailing.Reason != "":
		if s.Args.Ailing = f.Owner.Ailing; late {
			s.Todo = RepairControlPlane
		}
	case late:
		s.Todo = LookAtOwner
	}
}

func kubeadmLast(h Hook) int {
	if h.Name == kubeadmHook {
		return 1
	}
	return 0
}

// leavesBefore is a machine of the control plane that has to be gone before its hook is removed from m: one that is being deleted without that hook, or since
// longer. Nil if there is none. (Cluster API, reconcilePreTerminateHook of the KubeadmControlPlane.)
func (f *Facts) leavesBefore(m *Machine) *Machine {
	var first *Machine
	for _, o := range f.byCreation() {
		hooked := slices.ContainsFunc(o.Deletion.PreTerminateHooks, func(h Hook) bool { return h.Name == kubeadmHook })
		switch {
		case o.Deleting.IsZero() || o.Name == m.Name:
		case !hooked:
			return o
		case o.Deleting.Before(m.Deleting) && (first == nil || o.Deleting.Before(first.Deleting)):
			first = o
		}
	}
	return first
}

func infrastructureDeletion(f *Facts, m *Machine, s *Story) {
	remains := &m.Deletion.Infra
	s.Reason, s.WaitsFor, s.Next, s.Since = InfrastructureDeletion, m.Infra, MachineGoes, remains.Deleting
	if remains.Paused {
		f.paused(s, m.Infra)
		return
	}
	// A host with another consumer was released, and is not what is left.
	if host := f.host(m.Host); m.Metal3 && host != nil && host.Consumer == m.Infra.Kind+" "+m.Infra.Name {
		s.Reason, s.Args.Host, s.WaitsFor = HostDeprovisioning, host, Object{Kind: "BareMetalHost", Name: host.Name}
		s.Since = latest(host.Since, remains.Deleting) // the state of a host that is not worked on yet is older
		if host.trouble() != "" {
			s.Reason, s.Todo = HostHindersDeletion, todoOf(host.trouble())
		} else if f.late(s.Since, cleaningTakes) {
			s.Todo = LookAtInfrastructure
		}
		return
	}
	s.Args.Ailing = m.ailing()
	if f.late(s.Since, machineTakes) {
		s.Todo = LookAtInfrastructure
	}
	hindered(s, remains, InfrastructureFinalizer)
}

func bootstrapDeletion(f *Facts, m *Machine, s *Story) {
	remains := &m.Deletion.Bootstrap
	s.Reason, s.WaitsFor, s.Next, s.Since = BootstrapDeletion, m.BootstrapConfig, MachineGoes, remains.Deleting
	switch {
	case remains.Paused:
		f.paused(s, m.BootstrapConfig)
		return
	case f.late(s.Since, bootstrapTakes):
		s.Todo = LookAtBootstrap
	}
	hindered(s, remains, BootstrapDeletion)
}

// hindered says which finalizers are left, and that a person has to see to them if none of them is that of a provider.
func hindered(s *Story, remains *Remains, reason Reason) {
	all := remains.Finalizers
	s.Args.Finalizers = all
	if len(all) == 0 || slices.ContainsFunc(all, func(f Finalizer) bool { return ofProvider(f, remains.Group) }) {
		return
	}
	s.Reason, s.Todo = reason, RemoveFinalizer
}

// ofProvider reports whether a finalizer is that of the provider of an object of group. Providers may have groups of their own, such as Rancher's
// rke-machine.cattle.io with the finalizers of wrangler.cattle.io; who removes such a finalizer leaves a virtual machine behind.
func ofProvider(finalizer Finalizer, group string) bool {
	domain, _, _ := strings.Cut(finalizer.Name, "/")
	if slices.ContainsFunc(providers, func(group string) bool { return strings.HasSuffix(domain, group) }) {
		return true
	}
	site := siteOf(group)
	return site != "" && site != kubernetesSite && site == siteOf(domain)
}

// kubernetesSite is the domain of projects of Kubernetes, which are many.
const kubernetesSite = "x-k8s.io"

// siteOf is the domain that a group is below.
func siteOf(group string) string {
	labels := strings.Split(group, ".")
	if len(labels) < 2 {
		return ""
	}
	return strings.Join(labels[len(labels)-2:], ".")
}

func nodeDeletion(f *Facts, m *Machine, s *Story) {
	s.Reason, s.WaitsFor, s.Next = NodeDeletion, Object{Kind: "Node", Name: m.Node}, MachineGoes
	bound(s, m.Deleting, m.Deletion.NodeTimeout, NodeGivenUp)
	if !f.cutOff(s, m) && s.Deadline.IsZero() {
		s.Todo = LookAtController
	}
}

func deletionFails(_ *Facts, _ *Machine, s *Story) {
	s.Reason, s.Todo, s.Next = DeletionFails, LookAtController, GoesOn
}

func completed(_ *Facts, m *Machine, s *Story) {
	s.Reason, s.Since = DeletionCompletes, time.Time{}
	s.Args.Finalizers = slices.DeleteFunc(slices.Clone(m.Deletion.Finalizers), func(f Finalizer) bool { return f.Name == machineFinalizer })
	if len(s.Args.Finalizers) > 0 {
		s.Reason, s.Todo, s.Since = ForeignFinalizer, RemoveFinalizer, m.Deleting
	}
}
