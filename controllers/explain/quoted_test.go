package explain

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
)

// The messages are those that Cluster API v1.14.2 and CAPM3 write.
func TestWhatPartnersSayIsQuoted(t *testing.T) {
	for name, tc := range map[string]struct {
		edit       func(*capacity.Story)
		text, todo string
	}{
		"a control plane that cannot scale up": {
			func(s *capacity.Story) {
				s.Reason, s.Todo, s.Owner = capacity.OwnerBlocked, capacity.UnblockOwner, capacity.Object{Kind: "KubeadmControlPlane", Name: "cp"}
				s.Args.Message = "Scaling up from 2 to 3 replicas is blocked because:\n* waiting for control plane components to become healthy\n* waiting for etcd cluster to become healthy"
			},
			"Machine w1 is gone, and KubeadmControlPlane cp cannot make another one: Scaling up from 2 to 3 replicas is blocked because: " +
				"waiting for control plane components to become healthy; waiting for etcd cluster to become healthy",
			"end what keeps KubeadmControlPlane cp from making a machine",
		},
		"a node that is not found by its provider ID": {
			func(s *capacity.Story) {
				s.Reason, s.Todo, s.WaitsFor = capacity.NoNode, capacity.LookAtConsole, capacity.Object{Kind: "BareMetalHost", Name: "h4"}
				s.Args.Reason, s.Args.Message = "InspectionFailed", "Waiting for a Node with spec.providerID metal3://default/h4/w4 to exist"
			},
			"Machine w4 is provisioned, and no node with its provider ID has registered (InspectionFailed): Waiting for a Node with spec.providerID metal3://default/h4/w4 to exist",
			"look at the console of BareMetalHost h4: its kubelet has not reached the API server, or has registered a node with another spec.providerID",
		},
		"a node of which nothing is reported": {
			func(s *capacity.Story) { s.Reason, s.Args.Reason, s.Args.Message = capacity.NoNode, "", "" },
			"Machine w4 is provisioned, and no node has registered", "",
		},
		"a connection that is down": {
			func(s *capacity.Story) {
				s.Reason, s.Todo, s.Args.Message = capacity.Disconnected, capacity.RestoreConnection, "Last successful probe at 2026-01-01T11:40:00Z"
			},
			"Cluster API has no connection to the workload cluster of Cluster c1, and Machine w4 waits for that: Last successful probe at 2026-01-01T11:40:00Z",
			"make the API server of Cluster c1 reachable for Cluster API: its endpoint, its certificates, its kubeconfig",
		},
		"a node that was deleted": {
			func(s *capacity.Story) {
				s.Reason, s.Todo, s.WaitsFor = capacity.NodeGone, capacity.RestartKubelet, capacity.Object{Kind: "Node", Name: "n4"}
			},
			"Node n4 of Machine w4 was deleted from the workload cluster, and the machine was not",
			"restart the kubelet of Machine w4, which registers only when it starts, or delete the Machine",
		},
		"infrastructure that was deleted": {
			func(s *capacity.Story) {
				s.Reason, s.Todo, s.WaitsFor = capacity.InfrastructureGone, capacity.DeleteMachine, capacity.Object{Kind: "Metal3Machine", Name: "w4"}
			},
			"Metal3Machine w4, the infrastructure of Machine w4, was deleted, and the machine was not", "delete Machine w4: its infrastructure is not made again",
		},
		"data that a host needs": {
			func(s *capacity.Story) {
				s.Reason, s.Todo, s.WaitsFor = capacity.InfrastructureNotReady, capacity.LookAtInfrastructure, capacity.Object{Kind: "Metal3Machine", Name: "w4"}
				s.Args.Reason, s.Args.Message = "WaitingForMetal3Data", "Waiting for Metal3Data to become ready"
			},
			"Metal3Machine w4, the infrastructure of Machine w4, is not ready (WaitingForMetal3Data): Waiting for Metal3Data to become ready", "look at Metal3Machine w4 and its provider",
		},
		"a drain of a machine of a topology": {
			func(s *capacity.Story) {
				s.Reason, s.Todo, s.Args.Topology = capacity.Draining, capacity.SetDrainTimeout, "c1"
			},
			"the node of Machine w4 is being drained: as it says: one; two",
			"free the node of Machine w4 from the pods that are left, or set nodeDrainTimeoutSeconds in spec.topology.workers.machineDeployments[].deletion of Cluster c1",
		},
		"and of its control plane": {
			func(s *capacity.Story) {
				s.Reason, s.Todo, s.Args.Topology, s.Owner.Kind = capacity.VolumesAttached, capacity.DetachVolumes, "c1", "KubeadmControlPlane"
			},
			"volumes are attached to the node of Machine w4: as it says: one; two",
			"look at the storage driver that does not detach, or set nodeVolumeDetachTimeoutSeconds in spec.topology.controlPlane.deletion of Cluster c1",
		},
		"a control plane that does not remove a member of etcd": {
			func(s *capacity.Story) {
				s.Reason, s.Todo, s.Owner = capacity.PreTerminateHook, capacity.RepairControlPlane, capacity.Object{Kind: "KubeadmControlPlane", Name: "cp"}
				s.WaitsFor, s.Args.Hooks = s.Owner, []capacity.Hook{{Name: "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup"}}
				s.Args.Ailing = capacity.Condition{Reason: "NotHealthy", Message: "* Machine cp-2:\n  * EtcdMemberHealthy: Etcd member reports alarms: NOSPACE"}
			},
			"the deletion of Machine w4 waits before its infrastructure is deleted for the owner of the annotation pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup; " +
				"KubeadmControlPlane cp reports (NotHealthy): Machine cp-2: EtcdMemberHealthy: Etcd member reports alarms: NOSPACE",
			"look at the control plane of KubeadmControlPlane cp",
		},
		"infrastructure whose deletion fails": {
			func(s *capacity.Story) {
				s.Reason, s.WaitsFor = capacity.InfrastructureDeletion, capacity.Object{Kind: "Metal3Machine", Name: "w4"}
				s.Args.Ailing = capacity.Condition{Reason: "NotReady", Message: "* AssociateMetal3MachineMetaData: failed to dissociate Metadata: no answer"}
			},
			"Metal3Machine w4, the infrastructure of Machine w4, is being deleted, with the finalizer example.com/hold (added by holder); " +
				"it reports (NotReady): AssociateMetal3MachineMetaData: failed to dissociate Metadata: no answer", "",
		},
		"a node of a machine that was stopped": {
			func(s *capacity.Story) {
				s.Reason, s.WaitsFor = capacity.NodeNotReadyReason, capacity.Object{Kind: "Node", Name: "n4"}
				s.Args.Reason, s.Args.Message = "NodeReadyUnknown", "* Node.Ready: Kubelet stopped posting node status."
				s.Args.Ailing = capacity.Condition{Reason: "InstanceStopped", Message: "instance i-1 is stopped"}
			},
			"Node n4 of Machine w4 is not Ready (NodeReadyUnknown): Node.Ready: Kubelet stopped posting node status; its infrastructure reports (InstanceStopped): instance i-1 is stopped", "",
		},
		"an owner that does not answer": {
			func(s *capacity.Story) { s.Reason, s.Todo = capacity.WaitsForOwner, capacity.LookAtOwner },
			"MachineDeployment md-0 was asked to replace Machine w4, and has not answered", "look at MachineDeployment md-0 and its controller",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := whole()
			tc.edit(s)
			if diff := cmp.Diff([]string{tc.text, tc.todo}, []string{Capacity(s), CapacityTodo(s).Text}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOfHostsThatFitAnyIsTaken(t *testing.T) {
	s := whole()
	s.Reason, s.Next, s.Args.Fitting = capacity.HostChosen, capacity.HostIsTaken, []string{"h1", "h2"}
	want := []string{"any of 2 BareMetalHosts fits Machine w4: h1, h2", "the provider takes one of these BareMetalHosts for Machine w4"}
	if diff := cmp.Diff(want, []string{Capacity(s), CapacityNext(s).Text}); diff != "" {
		t.Error(diff)
	}
	s.Args.Fitting = []string{"h1"}
	want = []string{"BareMetalHost h1 fits Machine w4", "the provider takes BareMetalHost h1 for Machine w4"}
	if diff := cmp.Diff(want, []string{Capacity(s), CapacityNext(s).Text}); diff != "" {
		t.Error(diff)
	}
}

func TestAControlPlaneReplacesOneMachineAtATime(t *testing.T) {
	s := whole()
	s.Reason, s.Owner, s.Args.KubeadmAnswer = capacity.KubeadmDefers, capacity.Object{Kind: "KubeadmControlPlane", Name: "cp"}, kubeadm.Answer{Reason: kubeadm.OtherReplaced, Others: []string{"w3"}}
	want := "its owner, KubeadmControlPlane cp, replaces one machine at a time: it has not made the one for Machine w3"
	if got := CapacityNext(s).Text; got != want {
		t.Errorf("got %q", got)
	}
}

// hostile are what a tenant may write into a condition, an annotation or an error.
var hostile = map[string]string{
	"megabytes in a line":      strings.Repeat("x", 4<<20),
	"megabytes of lines":       strings.Repeat("* x\n", 1<<20),
	"megabytes of characters":  strings.Repeat("ü", 1<<20),
	"what is no text":          strings.Repeat("\xff", 1<<20),
	"what clears a screen":     "\x1b[2J\x1b[H all is done",
	"what writes over a line":  "failed\r all is done",
	"what turns the direction": "\u202ella si enod",
	"a line separator":         "failed\u2028Next: nothing",
}

func TestHostileTextsAreBoundedAndShown(t *testing.T) {
	for name, text := range hostile {
		for _, reason := range constantsOf(t, "capacity/story.go", "Reason") {
			s := whole()
			s.Reason = capacity.Reason(reason)
			s.Args.Reason, s.Args.Message = text, text
			s.Args.Host = &capacity.Host{Name: "h1", State: text, Error: text, ErrorType: text}
			s.Args.Hooks, s.Args.Finalizers = []capacity.Hook{{Name: "hook/a", Owner: text}}, []capacity.Finalizer{{Name: "example.com/hold", By: text}}
			s.Args.Volumes = []capacity.Volume{{Name: text, Attachment: "csi", Attacher: text, Error: text}}
			for _, why := range []capacity.HostReason{capacity.HostNotSelected, capacity.HostReserved, capacity.HostInUse, capacity.HostHasError, capacity.HostNotAvailable} {
				s.Args.Hosts = []capacity.HostAnswer{{Name: "h1", Why: why, Detail: text}}
				got := Capacity(s)
				if len(got) > 4*mostQuoted || !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\r\n\u202e\u2028") {
					t.Fatalf("%s, %s: %d bytes, %.80q", name, reason, len(got), got)
				}
			}
		}
	}
}

func TestATextIsCutBetweenCharacters(t *testing.T) {
	for text, want := range map[string]string{"abcdefgh": "abcdefgh", "abcdefghi": "abcde…", "abcdüfghi": "abcd…", "abcdeüghi": "abcde…"} {
		if got := bounded(text, 8); got != want {
			t.Errorf("%s is cut to %s", text, got)
		}
	}
}
