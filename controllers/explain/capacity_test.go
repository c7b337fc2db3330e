package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
	"github.com/kubemend/kubemend/controllers/decide/kubeadm"
)

// constantsOf are the values of the constants of a type, in a file below controllers/decide.
func constantsOf(t *testing.T, name, kind string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../decide/"+name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is {
			return true
		}
		if typed, is := spec.Type.(*ast.Ident); is && typed.Name == kind {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, value)
		}
		return true
	})
	if len(all) < 10 {
		t.Fatalf("only %d constants of the type %s", len(all), kind)
	}
	return all
}

// whole is a story that has everything a sentence may need.
func whole() *capacity.Story {
	return &capacity.Story{
		Old: "w1", Machine: "w4", Owner: capacity.Object{Kind: "MachineDeployment", Name: "md-0"}, WaitsFor: capacity.Object{Kind: "Cluster", Name: "c1"},
		Args: capacity.Args{
			Reason: "Odd", Message: "as it says:\n* one\n* two.", Names: []string{"Machines"}, Finalizers: []capacity.Finalizer{{Name: "example.com/hold", By: "holder"}},
			Hooks: []capacity.Hook{{Name: "hook/a", Owner: "velero"}}, Host: &capacity.Host{Name: "h1", State: "deprovisioning", Error: "no power", ErrorType: "power management error"},
			Kubeadm: &kubeadm.Facts{}, KubeadmAnswer: kubeadm.Answer{Reason: kubeadm.OnlyMachine},
			Machines: 3, Ready: 3, Replicas: 3,
		},
	}
}

func TestEachReasonStepAndTodoOfACapacityHasItsSentence(t *testing.T) {
	for _, reason := range constantsOf(t, "capacity/story.go", "Reason") {
		if s := whole(); capacityTexts[capacity.Reason(reason)] == "" {
			t.Errorf("the reason %s has no sentence", reason)
		} else if s.Reason = capacity.Reason(reason); Capacity(s) == "" {
			t.Errorf("the sentence of %s is empty", reason)
		}
	}
	for _, todo := range constantsOf(t, "capacity/story.go", "Todo") {
		if s := whole(); todoTexts[capacity.Todo(todo)] == "" {
			t.Errorf("the thing to do %s has no sentence", todo)
		} else if s.Todo = capacity.Todo(todo); !CapacityTodo(s).Manual || CapacityTodo(s).Text == "" {
			t.Errorf("the sentence of %s is %+v", todo, CapacityTodo(s))
		}
	}
	for _, next := range constantsOf(t, "capacity/story.go", "Next") {
		s := whole()
		s.Next = capacity.Next(next)
		if step, todo := CapacityNext(s), NodeTodo(s); (step == Step{} && todo == Step{}) != (s.Next == capacity.Nothing) {
			t.Errorf("the step of %s is %+v, and to do is %+v", next, step, todo)
		}
	}
}

func TestSentencesOfACapacity(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		edit             func(*capacity.Story)
		text, next, todo string
	}{
		"a drain that a budget blocks": {
			func(s *capacity.Story) {
				s.Reason, s.Next, s.Todo, s.Machine = capacity.DrainBlockedByBudget, capacity.DrainGoesOn, capacity.FreeBudget, "w1"
				s.WaitsFor = capacity.Object{Kind: "PodDisruptionBudget", Namespace: "shop", Name: "db"}
				s.Args.Pods = []capacity.Pod{{Namespace: "shop", Name: "db-0", Budget: "db"}, {Namespace: "shop", Name: "web", Deleting: noon}}
			},
			"the node of Machine w1 is being drained; pods that may not be evicted: shop/db-0 (PodDisruptionBudget db allows no disruption); pods that are being deleted: shop/web",
			"the deletion of Machine w1 goes on as soon as the pods have left its node; the drain has no timeout",
			"make PodDisruptionBudget shop/db allow a disruption (more ready replicas, or another limit), or delete the pod yourself",
		},
		"a drain of which only Cluster API knows": {
			func(s *capacity.Story) { s.Reason = capacity.Draining },
			"the node of Machine w4 is being drained: as it says: one; two", "", "",
		},
		"hosts of which none fits": {
			func(s *capacity.Story) {
				s.Reason, s.Next, s.Todo, s.Args.Host = capacity.NoHost, capacity.HostIsTaken, capacity.AddHost, nil
				s.WaitsFor = capacity.Object{Kind: "Metal3Machine", Name: "w4"}
				s.Args.Hosts = []capacity.HostAnswer{
					{Name: "h1", Why: capacity.HostNotSelected, Detail: "rack=2"}, {Name: "h2", Why: capacity.HostUnhealthy},
					{Name: "h3", Why: capacity.HostInUse, Detail: "Metal3Machine w2"},
				}
			},
			"Machine w4 waits for a BareMetalHost, and none fits: h1 does not match the hostSelector (rack=2), " +
				"h2 has the annotation that marks it as unhealthy, h3 is in use by Metal3Machine w2",
			"the provider takes the first BareMetalHost that fits for Machine w4",
			"make a BareMetalHost available that the hostSelector of Metal3Machine w4 selects",
		},
		"a finalizer that is left": {
			func(s *capacity.Story) {
				s.Reason, s.Next, s.Todo = capacity.ForeignFinalizer, capacity.ReplacementIsMade, capacity.RemoveFinalizer
				s.WaitsFor = capacity.Object{Kind: "Machine", Name: "w4"}
			},
			"Cluster API has deleted what belongs to Machine w4, which remains, with the finalizer example.com/hold (added by holder)",
			"MachineDeployment md-0 makes a new Machine as soon as Machine w4 is gone",
			"make the owner of the finalizer example.com/hold finish, or remove it from Machine w4",
		},
		"a connection that is down": {
			func(s *capacity.Story) {
				s.Reason, s.Next, s.Todo, s.Args.Message = capacity.Disconnected, capacity.GoesOn, capacity.RestoreConnection, "Last successful probe at 2026-01-01T11:40:00Z"
			},
			"Cluster API has no connection to the workload cluster of Cluster c1, and Machine w4 waits for that: Last successful probe at 2026-01-01T11:40:00Z",
			"the deletion of Machine w4 goes on as soon as Cluster API has a connection again; this wait has no timeout",
			"make the API server of Cluster c1 reachable for Cluster API: its endpoint, its certificates, its kubeconfig",
		},
		"a deletion of a host with an error": {
			func(s *capacity.Story) {
				s.Reason, s.Next, s.Todo = capacity.HostHindersDeletion, capacity.MachineGoes, capacity.RepairHost
			},
			"the deletion of Machine w4 waits: BareMetalHost h1 has an error (power management error): no power",
			"once the deletion of Machine w4 goes on, MachineDeployment md-0 makes the machines that it lacks", "repair BareMetalHost h1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := whole()
			tc.edit(s)
			got := []string{Capacity(s), CapacityNext(s).Text, CapacityTodo(s).Text}
			if diff := cmp.Diff([]string{tc.text, tc.next, tc.todo}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyATimeoutOfADeletionHasItsMoment(t *testing.T) {
	s := whole()
	s.Stage, s.Next, s.Deadline = capacity.Deleting, capacity.DrainGivenUp, time.Date(2026, 1, 1, 12, 6, 0, 0, time.UTC)
	if step := CapacityNext(s); !step.At.Equal(s.Deadline) {
		t.Errorf("the drain ends at %s", step.At)
	}
	if s.Overdue = true; !CapacityNext(s).At.IsZero() {
		t.Error("a moment that has passed is no next one")
	}
	if s.Stage, s.Overdue, s.Next = capacity.Booting, false, capacity.NodeRegisters; !CapacityNext(s).At.IsZero() || CapacityDeadline(s) == "" {
		t.Error("a node does not register at the timeout of a check")
	}
	if s.Overdue = true; CapacityDeadline(s) != "a health check counts Machine w4 as unhealthy since then" {
		t.Errorf("of a deadline that has passed it says %q", CapacityDeadline(s))
	}
}

func TestAGuessIsCalledOne(t *testing.T) {
	for by, want := range map[capacity.Evidence]string{
		capacity.Recorded:   "Machine w4 replaces Machine w1",
		capacity.Remembered: "Machine w4 probably replaces Machine w1 (by the RemediationRecord of that machine)",
		capacity.SameHost:   "Machine w4 probably replaces Machine w1 (it has the same host)",
		capacity.Alone:      "Machine w4 probably replaces Machine w1 (it is the only one that its owner has made since)",
		capacity.ByOrder:    "Machine w4 probably replaces Machine w1 (by the order in which machines were lost and made)",
	} {
		if got := Replacement("w1", capacity.Replacement{Name: "w4", By: by}); got != want {
			t.Errorf("%s: %q", by, got)
		}
	}
	if Replacement("w1", capacity.Replacement{}) != "" || !slices.Contains(constantsOf(t, "capacity/story.go", "Reason"), "Replaced") {
		t.Error("without a replacement there is nothing to say")
	}
}

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
