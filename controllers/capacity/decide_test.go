package capacity

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/test/must"
)

const ten = 10 * time.Minute

func isPausedNow(m *clusterv1.Machine) {
	m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
}

func TestWhatAnOwnerIsWaitedFor(t *testing.T) {
	remediating := metav1.Condition{Type: clusterv1.RemediatingCondition, Status: "True", Reason: "Remediating", Message: "* Machine w2: etcd would lose its quorum"}
	otherUnhealthy := func(f *Facts) {
		says(clusterv1.MachineHealthCheckSucceededCondition, "False", "UnhealthyNode", "", time.Minute)(f.others[0])
	}
	rows{
		"an owner that was just asked answers by itself": {
			[]edit{asksOwner("WaitingForRemediation", "", time.Minute)},
			"OwnerActs WaitingForRemediation w1 waits=MachineDeployment/md-0 since=1m0s next=OwnerReplaces",
		},
		"one that has not answered for minutes is looked at": {
			[]edit{asksOwner("WaitingForRemediation", "", ten)},
			"OwnerActs WaitingForRemediation w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces todo=LookAtOwner",
		},
		"so is one that answers in words of its own": {
			[]edit{asksOwner("Odd", "", ten)}, "OwnerActs WaitingForRemediation w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces todo=LookAtOwner",
		},
		"one that has put it off tries again": {
			[]edit{asksOwner("RemediationDeferred", "as it says", ten)},
			"OwnerActs RemediationDeferred w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces",
		},
		"one that refuses needs a person": {
			[]edit{asksOwner("CannotBeRemediated", "as it says", ten)},
			"OwnerActs CannotBeRemediated w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces todo=LookAtOwner",
		},
		"a refusal for a rollout at the same time ends by itself": {
			[]edit{asksOwner("CannotBeRemediated", "pending removal due to rollout", ten), ofOwner(func(o *owner) { o.rollingOut = true })},
			"OwnerActs CannotBeRemediated w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces",
		},
		"one that is about to delete the machine for minutes is looked at": {
			[]edit{asksOwner("MachineDeleting", "as it says", ten)},
			"OwnerActs MachineDeleting w1 waits=MachineDeployment/md-0 since=10m0s next=OwnerReplaces todo=LookAtOwner",
		},
		"a paused set does nothing": {
			[]edit{asksOwner("WaitingForRemediation", "", ten), ofOwner(func(o *owner) { o.paused = true })},
			"OwnerActs ObjectPaused w1 waits=MachineSet/md-0-a since=10m0s next=GoesOn todo=Unpause",
		},
		"a machine without an owner needs a person": {
			[]edit{asksOwner("WaitingForRemediation", "", ten), func(f *Facts) { f.Owner, f.owner = Owner{}, owner{} }},
			"OwnerActs NoOwner w1 since=10m0s todo=CreateMachine",
		},
		"a machine that no owner was asked to replace is to become Ready": {
			nil, "NodeNotReady NodeNotReady w1 waits=Node/node-w1 since=15m0s todo=LookAtNode",
		},
		"a Ready node does not make a machine healthy that a check marks": {
			[]edit{old(says(clusterv1.MachineNodeReadyCondition, "True", "", "", time.Minute))}, "NodeNotReady StillUnhealthy w1 waits=Machine/w1",
		},
		"a machine that is healthy again has its capacity back": {
			[]edit{asksOwner("RemediationDeferred", "", ten), old(says(clusterv1.MachineNodeReadyCondition, "True", "", "", time.Minute),
				says(clusterv1.MachineHealthCheckSucceededCondition, "True", "", "", time.Minute))},
			"Back Recovered w1 since=1m0s",
		},
	}.run(t)
	for name, tc := range map[string]struct {
		edits []edit
		want  string
	}{
		"a silent control plane is quoted for another machine": {
			[]edit{controlledBy("RKE2ControlPlane", remediating), otherUnhealthy},
			"RKE2ControlPlane cp was asked to replace Machine w1, and has not answered: Machine w2: etcd would lose its quorum",
		},
		"and not for this one alone": {[]edit{controlledBy("RKE2ControlPlane", remediating)}, "RKE2ControlPlane cp was asked to replace Machine w1, and has not answered"},
	} {
		must.Is(t, tc.want, given(append([]edit{asksOwner("WaitingForRemediation", "", ten)}, tc.edits...)...).Story().Message, "%s:", name)
	}
}

func TestWhatADeletionWaitsFor(t *testing.T) {
	const refused = "Drain not completed yet:\n* Pods shop/db-0, shop/db-1: cannot evict pod as it would violate the pod's disruption budget. " +
		"The disruption budget db needs 2 healthy pods and has 2 currently"
	drains := func(timeout int32) editMachine {
		return func(m *clusterv1.Machine) {
			m.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(timeout)
			m.Status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: ago(8 * time.Minute)}
		}
	}
	down := says(clusterv1.MachineNodeReadyCondition, "Unknown", "ConnectionDown", "", ten)
	onHost := func(reason string, edits ...editHost) []edit {
		return []edit{deleting(reason, metal, deleted(9*time.Minute)), hosts(aHost("h1", "deprovisioning", edits...))}
	}
	rows{
		"one that has just begun is not reported on": {
			[]edit{old(deleted(time.Minute))}, "Deleting DeletionBegins w1 waits=Machine/w1 since=1m0s next=DeletionGoesOn",
		},
		"for minutes it should be": {[]edit{deleting("Deleting")}, "Deleting DeletionBegins w1 waits=Machine/w1 since=9m0s next=DeletionGoesOn todo=LookAtController"},
		"a reason that is new is quoted": {
			[]edit{deleting("Odd")}, "Deleting Deleting w1 waits=Machine/w1 since=9m0s next=DeletionGoesOn todo=LookAtController",
		},
		"a hook needs its owner":                   {[]edit{deleting("WaitingForPreDrainHook")}, "Deleting WaitingForPreDrainHook w1 waits=Machine/w1 since=9m0s next=DeletionGoesOn todo=EndHook"},
		"a drain without a timeout":                {[]edit{deleting("DrainingNode")}, "Deleting DrainingNode w1 waits=Node/node-w1 since=9m0s next=DeletionGoesOn todo=FreeNode"},
		"a drain with a timeout ends by itself":    {[]edit{deleting("DrainingNode", drains(600))}, "Deleting DrainingNode w1 waits=Node/node-w1 since=8m0s until=2m0s next=DeletionGivenUp"},
		"a budget that blocks it is named":         {[]edit{deleting("DrainingNode", drains(600), says(clusterv1.MachineDeletingCondition, "True", "DrainingNode", refused, ten))}, "Deleting DrainBlockedByBudget w1 waits=PodDisruptionBudget/db since=8m0s until=2m0s next=DeletionGivenUp todo=FreeBudget"},
		"without a connection no pod is evicted":   {[]edit{deleting("DrainingNode", down)}, "Deleting ConnectionDown w1 waits=Cluster/c1 since=10m0s next=DeletionGoesOn todo=RestoreConnection"},
		"and the drain is given up at its timeout": {[]edit{deleting("DrainingNode", drains(600), down)}, "Deleting ConnectionDown w1 waits=Cluster/c1 since=10m0s until=2m0s next=DeletionGivenUp todo=RestoreConnection"},
		"volumes that are not detached":            {[]edit{deleting("WaitingForVolumeDetach")}, "Deleting WaitingForVolumeDetach w1 waits=Node/node-w1 since=9m0s next=DeletionGoesOn todo=FreeNode"},
		"another hook needs its owner":             {[]edit{deleting("WaitingForPreTerminateHook")}, "Deleting WaitingForPreTerminateHook w1 waits=Machine/w1 since=9m0s next=DeletionGoesOn todo=EndHook"},
		"that of a control plane is not for a person": {
			[]edit{deleting("WaitingForPreTerminateHook", func(m *clusterv1.Machine) { m.Labels[clusterv1.MachineControlPlaneLabel] = "" }), controlledBy(kubeadmKind)},
			"Deleting WaitingForPreTerminateHook w1 waits=KubeadmControlPlane/cp since=9m0s next=DeletionGoesOn todo=LookAtOwner",
		},
		"its infrastructure": {[]edit{deleting("WaitingForInfrastructureDeletion")}, "Deleting WaitingForInfrastructureDeletion w1 waits=DockerMachine/w1 since=9m0s next=MachineGoes"},
		"since the drain was over": {
			[]edit{deleting("WaitingForInfrastructureDeletion", deleted(time.Hour), func(m *clusterv1.Machine) {
				m.Status.Deletion = &clusterv1.MachineDeletionStatus{WaitForNodeVolumeDetachStartTime: ago(21 * time.Minute)}
			})}, "Deleting WaitingForInfrastructureDeletion w1 waits=DockerMachine/w1 since=21m0s next=MachineGoes todo=LookAtProvider",
		},
		"a host that is cleaned":             {onHost("WaitingForInfrastructureDeletion", consumedBy("w1")), "Deleting HostDeprovisioning w1 waits=BareMetalHost/h1 since=9m0s next=MachineGoes"},
		"a host with an error hinders it":    {onHost("WaitingForInfrastructureDeletion", consumedBy("w1"), failing), "Deleting HostHindersDeletion w1 waits=BareMetalHost/h1 since=9m0s next=MachineGoes todo=RepairHost"},
		"a host of another machine does not": {onHost("WaitingForInfrastructureDeletion", consumedBy("w2"), failing), "Deleting WaitingForInfrastructureDeletion w1 waits=Metal3Machine/w1 since=9m0s next=MachineGoes"},
		"its bootstrap config":               {[]edit{deleting("WaitingForBootstrapDeletion")}, "Deleting WaitingForBootstrapDeletion w1 waits=KubeadmConfig/w1 since=9m0s next=MachineGoes todo=LookAtProvider"},
		"a node that cannot be deleted":      {[]edit{deleting("DeletingNode")}, "Deleting DeletingNode w1 waits=Node/node-w1 since=9m0s next=MachineGoes todo=LookAtController"},
		"and is given up":                    {[]edit{deleting("DeletingNode", func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDeletionTimeoutSeconds = ptr.To[int32](600) })}, "Deleting DeletingNode w1 waits=Node/node-w1 since=9m0s until=1m0s next=DeletionGivenUp"},
		"an error needs a person": {
			[]edit{deleting("InternalError")}, "Deleting InternalError w1 waits=Machine/w1 since=9m0s next=DeletionGoesOn todo=LookAtController",
		},
		"a finalizer that is left is a user's": {[]edit{deleting("DeletionCompleted", func(m *clusterv1.Machine) { m.Finalizers = append(m.Finalizers, "x/y") })}, "Deleting ForeignFinalizer w1 waits=Machine/w1 since=9m0s next=MachineGoes todo=EndHook"},
		"without one it is as good as gone": {
			[]edit{deleting("DeletionCompleted")}, "Deleting DeletionCompleted w1 waits=Machine/w1 since=9m0s next=MachineGoes",
		},
		"a paused machine is not deleted": {
			[]edit{deleting("DrainingNode", isPausedNow)}, "Deleting ObjectPaused w1 waits=Machine/w1 since=9m0s next=GoesOn todo=Unpause",
		},
		"one that is made before is another's":  {[]edit{deleting("DrainingNode"), replicas(4), made(worker("w4", time.Minute))}, "Deleting DrainingNode w1 waits=Node/node-w1 since=9m0s next=DeletionGoesOn todo=FreeNode"},
		"that of a replacement is followed too": {[]edit{follows(deleted(time.Minute))}, "Deleting DeletionBegins w4 waits=Machine/w4 since=1m0s next=DeletionGoesOn by=w4/Alone?"},
	}.run(t)
	rows{
		"of one too many nothing comes after it": {[]edit{deleting("WaitingForInfrastructureDeletion"), replicas(2)}, "MachineIsGone"},
		"nor of one whose owner is being deleted": {
			[]edit{deleting("DeletionCompleted"), ofOwner(func(o *owner) { o.gone = true })}, "MachineIsGone",
		},
		"one that is replaced goes":                   {[]edit{deleting("DeletionCompleted")}, "MachineGoes"},
		"a drain goes on, though nothing replaces it": {[]edit{deleting("DrainingNode"), replicas(2)}, "DeletionGoesOn"},
	}.tell(t, func(f *Facts) string {
		s := f.Deletion()
		return s.Next.Reason
	})
}

func TestANewMachineIsFollowed(t *testing.T) {
	rows{
		"as it boots": {[]edit{func(f *Facts) {
			f.old = worker("w1", time.Minute, func(m *clusterv1.Machine) { m.Status = clusterv1.MachineStatus{} })
		}}, "BootstrapNotReady"},
	}.tell(t, func(f *Facts) string {
		s, _ := f.Follow()
		return s.Reason
	})
}

func TestWhatANewMachineWaitsFor(t *testing.T) {
	bootstrap := func(reason string, since time.Duration) editMachine {
		return says(clusterv1.MachineBootstrapConfigReadyCondition, "False", reason, "", since)
	}
	infra := func(reason, message string, since time.Duration) editMachine {
		return says(clusterv1.MachineInfrastructureReadyCondition, "False", reason, message, since)
	}
	node := func(reason string, since time.Duration) editMachine {
		return func(m *clusterv1.Machine) {
			provisioned(m)
			m.Status.NodeRef.Name = "n4"
			says(clusterv1.MachineNodeReadyCondition, "False", reason, "", since)(m)
		}
	}
	boots := func(edits ...editHost) []edit {
		return []edit{follows(metal, provisioned), hosts(aHost("h4", "provisioned", append([]editHost{consumedBy("w4")}, edits...)...))}
	}
	rows{
		"its bootstrap data":                        {[]edit{follows()}, "WaitingForBootstrapData BootstrapNotReady w4 waits=KubeadmConfig/w4 since=4m0s next=InfrastructureComes by=w4/Alone?"},
		"which is looked at when it is late":        {[]edit{follows(bootstrap("NotReady", 6*time.Minute))}, "WaitingForBootstrapData BootstrapNotReady w4 waits=KubeadmConfig/w4 since=6m0s next=InfrastructureComes todo=LookAtProvider by=w4/Alone?"},
		"at once where its provider fails":          {[]edit{follows(bootstrap("ReadyUnknown", time.Minute))}, "WaitingForBootstrapData BootstrapNotReady w4 waits=KubeadmConfig/w4 since=1m0s next=InfrastructureComes todo=LookAtProvider by=w4/Alone?"},
		"its provider":                              {[]edit{follows(bootstrapped)}, "Provisioning InfrastructureNotReady w4 waits=DockerMachine/w4 since=4m0s next=InfrastructureComes by=w4/Alone?"},
		"which is looked at when it fails":          {[]edit{follows(bootstrapped, infra("ObjectDeleted", "", time.Minute))}, "Provisioning InfrastructureNotReady w4 waits=DockerMachine/w4 since=1m0s next=InfrastructureComes todo=LookAtProvider by=w4/Alone?"},
		"of hosts none fits":                        {[]edit{follows(metal), hosts(aHost("h1", "provisioned", consumedBy("w2")))}, "NoHostFits NoHost w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken todo=AddHost by=w4/Alone?"},
		"there is none":                             {[]edit{follows(metal), hosts()}, "NoHostFits NoHost w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken todo=AddHost by=w4/Alone?"},
		"one becomes available":                     {[]edit{follows(metal), hosts(aHost("h1", "deprovisioning"))}, "NoHostFits NoHost w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken by=w4/Alone?"},
		"one fits":                                  {[]edit{follows(metal), hosts(aHost("h1", "available"))}, "Provisioning HostChosen w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken by=w4/Alone?"},
		"and another is kept for it":                {[]edit{follows(metal), hosts(aHost("h1", "available"), aHost("h2", "preparing", keptFor("md-md-0")))}, "NoHostFits NoHost w4 waits=Metal3Machine/w4 since=4m0s next=HostIsTaken by=w4/Alone?"},
		"hosts that could not be read are not none": {[]edit{follows(metal)}, "Provisioning InfrastructureNotReady w4 waits=Metal3Machine/w4 since=4m0s next=InfrastructureComes by=w4/Alone?"},
		"its host is provisioned":                   {[]edit{follows(metal), hosts(aHost("h4", "provisioning", consumedBy("w4")))}, "Provisioning HostProvisioning w4 waits=BareMetalHost/h4 since=4m0s next=InfrastructureComes by=w4/Alone?"},
		"unless something else is missing":          {[]edit{follows(metal, infra("NotReady", "* Metal3DataReady: waiting", 4*time.Minute)), hosts(aHost("h4", "available", consumedBy("w4")))}, "Provisioning InfrastructureNotReady w4 waits=Metal3Machine/w4 since=4m0s next=InfrastructureComes by=w4/Alone?"},
		"its host has an error":                     {[]edit{follows(metal), hosts(aHost("h4", "provisioning", consumedBy("w4"), failing))}, "Provisioning HostTrouble w4 waits=BareMetalHost/h4 since=4m0s next=InfrastructureComes todo=RepairHost by=w4/Alone?"},
		"its node":                                  {[]edit{follows(provisioned, infra("", "", 2*time.Minute))}, "Booting NoNode w4 waits=DockerMachine/w4 since=2m0s next=NodeRegisters by=w4/Alone?"},
		"its host is off, and comes on by itself":   {boots(func(h *bmov1alpha1.BareMetalHost) { h.Status.PoweredOn = false }), "Booting HostPoweredOff w4 waits=BareMetalHost/h4 since=4m0s next=NodeRegisters by=w4/Alone?"},
		"or is kept off":                            {boots(func(h *bmov1alpha1.BareMetalHost) { h.Status.PoweredOn, h.Spec.Online = false, false }), "Booting HostPoweredOff w4 waits=BareMetalHost/h4 since=4m0s next=NodeRegisters todo=RepairHost by=w4/Alone?"},
		"or has an error": {
			boots(failing), "Booting HostTrouble w4 waits=BareMetalHost/h4 since=4m0s next=NodeRegisters todo=RepairHost by=w4/Alone?",
		},
		"or boots": {
			boots(), "Booting NoNode w4 waits=BareMetalHost/h4 since=4m0s next=NodeRegisters by=w4/Alone?",
		},
		"a paused machine does not go on": {
			[]edit{follows(provisioned, isPausedNow)}, "Booting ObjectPaused w4 waits=Machine/w4 next=GoesOn todo=Unpause by=w4/Alone?",
		},
		"its node becomes Ready": {
			[]edit{follows(node("KubeletNotReady", time.Minute))}, "NodeNotReady NodeNotReady w4 waits=Node/n4 since=1m0s by=w4/Alone?",
		},
		"and is looked at when it does not": {[]edit{follows(node("KubeletNotReady", 6*time.Minute))}, "NodeNotReady NodeNotReady w4 waits=Node/n4 since=6m0s todo=LookAtNode by=w4/Alone?"},
		"a connection to it":                {[]edit{follows(node("ConnectionDown", ten))}, "NodeNotReady ConnectionDown w4 waits=Cluster/c1 since=10m0s todo=RestoreConnection by=w4/Alone?"},
		"nothing": {
			[]edit{gone, made(worker("w4", 4*time.Minute))}, "Back Replaced w4 since=4m0s by=w4/Alone?",
		},
		"a check that marks it": {[]edit{gone, made(worker("w4", 4*time.Minute, says(clusterv1.MachineHealthCheckSucceededCondition, "False", "", "", 0)))}, "NodeNotReady StillUnhealthy w4 waits=Machine/w4 by=w4/Alone?"},
		"a check that is paused never counts it": {
			[]edit{follows(), checked(180), func(f *Facts) { f.checks[0].Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }},
			"WaitingForBootstrapData BootstrapNotReady w4 waits=KubeadmConfig/w4 since=4m0s next=InfrastructureComes by=w4/Alone?",
		},
		"until its check counts it, from its making": {[]edit{follows(), checked(180, 600)}, "WaitingForBootstrapData BootstrapNotReady w4 waits=KubeadmConfig/w4 since=4m0s until=-1m0s next=InfrastructureComes by=w4/Alone?"},
		"or from when its Cluster was initialized": {
			[]edit{follows(), checked(180), func(f *Facts) {
				f.cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: "True", LastTransitionTime: ago(time.Minute)}}
			}}, "WaitingForBootstrapData BootstrapNotReady w4 waits=KubeadmConfig/w4 since=4m0s until=2m0s next=InfrastructureComes by=w4/Alone?",
		},
	}.run(t)
}

func TestThereIsNoReplacement(t *testing.T) {
	scaling := func(message string) edit {
		return ofOwner(func(o *owner) {
			o.conditions = []metav1.Condition{{Type: clusterv1.ScalingUpCondition, Status: "True", Reason: "ScalingUp", Message: message, LastTransitionTime: ago(7 * time.Minute)}}
		})
	}
	rollsOut := ofOwner(func(o *owner) { o.rollingOut, o.maker.Name = true, "md-0-b" })
	unready := worker("w4", 12*time.Minute, says(clusterv1.MachineNodeReadyCondition, "False", "KubeletNotReady", "", time.Minute), func(m *clusterv1.Machine) { m.OwnerReferences[0].Name = "md-0-b" })
	unread := func(f *Facts) { f.owner.known, f.Unread = false, []string{"MachineDeployments"} }
	rows{
		"its owner makes one": {
			[]edit{gone}, "NoReplacement OwnerCreates w1 waits=MachineDeployment/md-0 since=5m0s next=ReplacementIsMade todo=LookAtOwner",
		},
		"its owner is paused":            {[]edit{gone, ofOwner(func(o *owner) { o.paused = true })}, "NoReplacement ObjectPaused w1 waits=MachineSet/md-0-a since=5m0s next=GoesOn todo=Unpause"},
		"its Cluster is paused":          {[]edit{gone, func(f *Facts) { f.cluster.Spec.Paused = ptr.To(true) }}, "NoReplacement Paused w1 waits=Cluster/c1 since=5m0s next=GoesOn todo=Unpause"},
		"its owner reports what hinders": {[]edit{gone, scaling("Scaling up is blocked because:\n* one"), controlledBy("K3sControlPlane", metav1.Condition{Type: "ScalingUp", Status: "True", Message: "* one"})}, "NoReplacement ScalingUpBlocked w1 waits=K3sControlPlane/cp since=5m0s next=ReplacementIsMade"},
		"its owner only counts":          {[]edit{gone, scaling("Scaling up from 2 to 3 replicas")}, "NoReplacement OwnerCreates w1 waits=MachineDeployment/md-0 since=5m0s next=ReplacementIsMade todo=LookAtOwner"},
		"one is missing, by its owner":   {[]edit{gone, scaling("Scaling up"), func(f *Facts) { f.Name, f.Gone = "", time.Time{} }}, "NoReplacement OwnerCreates  waits=MachineDeployment/md-0 since=7m0s next=ReplacementIsMade todo=LookAtOwner"},
		"its owner could not be read":    {[]edit{gone, unread}, "Unread NotReadable w1 waits=MachineDeployment/md-0 since=5m0s"},
		"the machines could not be read": {
			[]edit{func(f *Facts) { f.Unread = []string{machinesUnread} }}, "Unread NotReadable w1 waits=MachineDeployment/md-0",
		},
		"its owner was scaled down":      {[]edit{deleting("DrainingNode"), replicas(2)}, "NotReplaced ScaledDown w1"},
		"its owner is gone":              {[]edit{gone, ofOwner(func(o *owner) { o.gone = true })}, "NotReplaced OwnerDeleted w1"},
		"its namespace is being deleted": {[]edit{deleting("DrainingNode"), func(f *Facts) { f.namespaceDeleted, f.clusterDeleted = true, true }}, "NotReplaced NamespaceDeleted w1"},
		"its Cluster is being deleted": {
			[]edit{deleting("DrainingNode"), func(f *Facts) { f.clusterDeleted = true }}, "NotReplaced ClusterDeleted w1",
		},
		"it had no owner": {
			[]edit{deleting("DrainingNode"), func(f *Facts) { f.Owner, f.owner = Owner{}, owner{} }}, "NotReplaced NoOwner w1",
		},
		"but one that is there counts": {[]edit{gone, made(worker("w4", 4*time.Minute)), ofOwner(func(o *owner) { o.gone = true })}, "Back Replaced w4 since=4m0s by=w4/Alone?"},
		"a rollout has made it before": {
			[]edit{deleting("DrainingNode"), rollsOut, made(worker("w4", 12*time.Minute))}, "Back RolledOut w1",
		},
		"which is followed until it is Ready": {[]edit{deleting("DrainingNode"), rollsOut, made(unready)}, "NodeNotReady NodeNotReady w4 waits=Node/node-w4 since=1m0s by=w4/ByOrder?"},
		"another project may do so always": {
			[]edit{deleting("DrainingNode"), controlledBy("K3sControlPlane"), made(worker("w4", 4*time.Minute))}, "Back OwnerComplete w1",
		},
		"and says how many it is to have or not": {[]edit{gone, controlledBy("K3sControlPlane"), ofOwner(func(o *owner) { o.replicas = nil })}, "NoReplacement OwnerCreates w1 waits=K3sControlPlane/cp since=5m0s next=ReplacementIsMade todo=LookAtOwner"},
		"and may be scaled down to nothing": {
			[]edit{gone, controlledBy("K3sControlPlane"), replicas(0), func(f *Facts) { f.others = nil }}, "NotReplaced ScaledDown w1",
		},
	}.run(t)
}

func TestPartnersAreQuoted(t *testing.T) {
	stopped := func(f *Facts) {
		follows(provisioned, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "n4" },
			says(clusterv1.MachineNodeReadyCondition, "Unknown", "NodeReadyUnknown", "* Node.Ready: Kubelet stopped posting node status.", time.Minute),
			says(clusterv1.MachineInfrastructureReadyCondition, "False", "InstanceStopped", "instance i-1 is stopped", time.Minute))(f)
	}
	hinders := []edit{deleting("WaitingForInfrastructureDeletion", metal, deleted(time.Minute)), hosts(aHost("h1", "deprovisioning", consumedBy("w1"), failing))}
	rows{
		"a list is one line": {
			[]edit{asksOwner("RemediationDeferred", "as it says:\n* one\n* two.", time.Minute)},
			"MachineDeployment md-0 has put off the replacement of Machine w1: as it says: one; two",
		},
		"an answer without words": {[]edit{asksOwner("Odd", "", time.Minute)}, "MachineDeployment md-0 was asked to replace Machine w1, and has not replaced it (Odd)"},
		"a node, and its infrastructure": {
			[]edit{stopped},
			"Node n4 of Machine w4 is not Ready (NodeReadyUnknown): Node.Ready: Kubelet stopped posting node status; its infrastructure reports (InstanceStopped): instance i-1 is stopped",
		},
		"an error of a host": {hinders, "the deletion of Machine w1 waits: BareMetalHost h1 has an error: no power"},
		"hosts that fit":     {[]edit{follows(metal), hosts(aHost("h1", "available"), aHost("h2", "ready"))}, "any of the BareMetalHosts h1, h2 fits Machine w4"},
		"hosts that do not": {
			[]edit{follows(metal), hosts(aHost("h1", "available", failing), aHost("h2", "provisioned", consumedBy("w2")), aHost("h3", "available", keptFor("md-x")))},
			"Machine w4 waits for a BareMetalHost, and none fits: h1 has an error: no power, h2 is in use by Metal3Machine w2, h3 is kept for machines of md-x (node reuse)",
		},
	}.tell(t, func(f *Facts) string { return f.Story().Message })
}

var placeholder = regexp.MustCompile(`[{}]`)

func TestNoWordIsLeftOut(t *testing.T) {
	known := strings.NewReplacer(
		"{machine}", "", "{owner}", "", "{object}", "", "{old}", "", "{lost}", "", "{said}", "", "{reported}", "", "{ailing}", "", "{hosts}", "", "{host}", "",
		"{state}", "", "{trouble}", "", "{pause}", "", "{machines}", "", "{ready}", "", "{finalizers}", "", "{unread}", "")
	waits := []wait{
		asked, putOff, deletes, refused, ownerless, paused, deletionBegins, hostIsCleaned, hostHinders, otherFinalizer, creates, blocked,
		bootstrapNotReady, noHost, hostFits, hostWorks, hostTrouble, notReady, noNode, hostOff, nodeNotReady, stillUnhealthy, replaced, recovered, complete, scaledDown, notReadable,
	}
	for _, deletion := range deletions {
		waits = append(waits, deletion)
	}
	for _, w := range waits {
		text := known.Replace(w.message + w.next.text + w.hint.text)
		if w.message == "" || placeholder.MatchString(text) || (w.hint.reason == "") != (w.hint.text == "") {
			t.Errorf("%s: %s", w.reason, text)
		}
	}
}

// A tenant may write such texts into a condition, or cause them in an error of a host.
func TestHostileTextsAreBoundedAndShown(t *testing.T) {
	for name, text := range map[string]string{
		"megabytes in a line":      strings.Repeat("x", 4<<20),
		"megabytes of lines":       strings.Repeat("* x\n", 1<<20),
		"megabytes of characters":  strings.Repeat("ü", 1<<20),
		"what is no text":          strings.Repeat("\xff", 1<<20),
		"characters that are cut":  strings.Repeat("\a", 1<<20),
		"what clears a screen":     "\x1b[2J\x1b[H all is done",
		"what writes over a line":  "failed\r all is done",
		"what turns the direction": "\u202ella si enod",
		"a line separator":         "failed\u2028Next: nothing",
		"a name of another":        "{owner}{machine}",
	} {
		s := given(asksOwner(text, text, time.Minute), hosts(aHost("h1", "available"))).Story()
		if len(s.Message) > mostQuoted || !utf8.ValidString(s.Message) || strings.ContainsAny(s.Message, "\x1b\r\n\u202e\u2028") {
			t.Errorf("%s: %d bytes, %.80q", name, len(s.Message), s.Message)
		}
	}
}
