package page

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/test/golden"
)

// recordKind is the kind of records.
var recordKind = mendv1.GroupVersion.WithKind("RemediationRecord")

// lost adds a record of a worker that is gone since so long, and of what its capacity waits for.
func lost(name string, ago time.Duration, reason, message string, edits ...func(*mendv1.RemediationRecord)) func(*scene) {
	return func(s *scene) {
		is := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name + "-1", UID: types.UID(name + "-1"), Labels: map[string]string{mendv1.RecordOpenLabel: "true"},
		}}
		is.Spec.Decided, is.Spec.Due = at(ago), new(at(ago))
		is.Spec.Target = mendv1.RecordTarget{ClusterName: "c1", Machine: &mendv1.RecordRef{Kind: "Machine", Namespace: "default", Name: name, UID: "old-" + name}}
		is.Spec.Requester.Check = &mendv1.RecordRef{Kind: "MachineHealthCheck", Namespace: "default", Name: "workers"}
		is.Status.Begun = new(at(ago))
		if reason != "" {
			is.Status.Conditions = []metav1.Condition{{Type: mendv1.RecordCapacityBack, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
			is.Status.Steps = []mendv1.RecordStep{{Time: metav1.NewMicroTime(at(ago / 2).Time), Reason: reason}}
		}
		for _, edit := range edits {
			edit(is)
		}
		s.others = append(s.others, is)
	}
}

// askedFor is what asked for the remediation of a record; nothing if kind is empty.
func askedFor(kind, namespace, name string) func(*mendv1.RemediationRecord) {
	return func(is *mendv1.RemediationRecord) {
		is.Spec.Requester.Check = nil
		if kind != "" {
			is.Spec.Requester.Check = &mendv1.RecordRef{Kind: kind, Namespace: namespace, Name: name}
		}
	}
}

func anotherRecord(is *mendv1.RemediationRecord) { is.Name += "-2" }

func ended(is *mendv1.RemediationRecord) { is.Status.Ended = new(at(time.Minute)) }

func ofAnotherCluster(is *mendv1.RemediationRecord) {
	is.Namespace, is.Spec.Target.ClusterName, is.Spec.Target.Machine.Namespace = "edge", "c9", "edge"
	is.Spec.Requester.Check = &mendv1.RecordRef{Kind: "MachineHealthCheck", Namespace: "edge", Name: "workers"}
}

var (
	noHost  = lost("w7", 40*time.Minute, "NoHost", "Machine w17 waits for a host: none of 3 fits")
	drained = lost("w8", 10*time.Minute, "DrainBlockedByBudget", "Machine w8 is being drained: PodDisruptionBudget shop/db allows no disruption of pod shop/db-0")
	closed  = lost("w9", 2*time.Hour, "Replaced", "", ended)
)

// A replacement that is not Ready is not there yet for the check, whose targets are all healthy.
func TestAStatusSaysWhichCapacityIsNotBack(t *testing.T) {
	golden.Stories(t, "missing", map[string]*scene{
		"two of which one waits longer":          aScene(drained, noHost),
		"one of which nothing was read":          aScene(lost("w7", time.Minute, "", "")),
		"one beside machines that are unhealthy": aScene(noHost, silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3")),
		"one that no check asked for":            aScene(lost("w7", time.Hour, "OwnerCreates", "MachineSet md-0 is to create a Machine", askedFor("", "", ""))),
		"one that names a check of another namespace": aScene(lost("w7", time.Hour, "NoHost", "No host fits", func(is *mendv1.RemediationRecord) {
			is.Namespace = "elsewhere"
		})),
		"one that two checks asked for":              aScene(noHost, lost("w7", 30*time.Minute, "NoHost", "", anotherRecord, askedFor("MachineHealthCheck", "default", "workers-2")), secondCheck),
		"none since all are over":                    aScene(closed),
		"records that the user may not read":         aScene(barred(recordKind)),
		"a node of a check that has no capacity yet": aScene(ownNodes(6*time.Minute), lost("n1", 5*time.Minute, "RemediationInProgress", "Reboot n1 has not ended", askedFor("NodeHealthCheck", "", "own-nodes"), ofTemplates)),
	}, func(t *testing.T, s *scene) string {
		return printedAs(t, standing(t, s), text.Layout{Width: 80, NotOK: true}, text.Layout{Width: 200})
	})
}

// ofTemplates puts a record where the requests of a NodeHealthCheck are.
func ofTemplates(is *mendv1.RemediationRecord) {
	is.Namespace, is.Spec.Target = "templates", mendv1.RecordTarget{Node: &mendv1.RecordRef{Kind: "Node", Name: "n1"}}
}

func TestWhatIsMissingIsCountedWithinTheScope(t *testing.T) {
	far := lost("f1", 3*time.Hour, "NoHost", "", ofAnotherCluster)
	node := lost("n1", 5*time.Minute, "RemediationInProgress", "", askedFor("NodeHealthCheck", "", "own-nodes"), ofTemplates)
	for name, tc := range map[string]struct {
		namespace, cluster string
		total              int
		oldest             string
	}{
		"all there is":                           {"", "", 3, "f1"},
		"a namespace, and nodes of no namespace": {"default", "", 2, "w7"},
		"a cluster":                              {"", "c1", 1, "w7"},
		"a cluster where nothing is missing":     {"default", "c2", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := Of(t.Context(), aScene(noHost, far, node, closed, ownNodes(6*time.Minute)).asker(t), tc.namespace, tc.cluster)
			if err != nil {
				t.Fatal(err)
			}
			d := all.Document()
			if d.CapacityMissing == nil || d.CapacityMissing.Remediations != tc.total {
				t.Fatalf("missing is %+v", d.CapacityMissing)
			}
			if of := d.CapacityMissing.Oldest; (of == nil) != (tc.oldest == "") || of != nil && of.Name != tc.oldest {
				t.Errorf("the oldest is %+v, want %q", of, tc.oldest)
			}
		})
	}
	partly := aScene(noHost, ownNodes(6*time.Minute)).snapshot(t)
	partly.Forbid(recordKind, "remediationrecords", true, "templates", errors.New("you may not"))
	a, err := inspect.New(t.Context(), partly, noon)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Of(t.Context(), a, "default", ""); err != nil || !anyMissing(s.Document().CapacityMissing) {
		t.Errorf("records of one namespace are hidden, and those of the other are not counted: %v", err)
	}
	all := standing(t, aScene())
	if d := all.Document(); d.CapacityMissing != nil || d.Items[0].CapacityMissing != nil {
		t.Errorf("without records it says %+v", d.CapacityMissing)
	}
}

// counting is a scene of which w1 was read, and the status of its check, which counts that many machines and healthy ones.
func counting(expected, healthy int32, edits ...func(*scene)) *scene {
	s := aScene(silent(6*time.Minute, "w1"))
	s.only = "w1"
	s.check.Status.ExpectedMachines, s.check.Status.CurrentHealthy = ptr.To(expected), ptr.To(healthy)
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func TestOneMachineOfThousands(t *testing.T) {
	golden.Stories(t, "counted", map[string]*scene{
		"it is healthy": counting(5000, 4998, reported, func(s *scene) { s.ready("w1", "True", "KubeletReady", time.Hour) }),
		"its owner is asked": counting(5000, 4998, reported, askedOwner("w1", "WaitingForRemediation", ""),
			wrote("True", mendv1.OwnerAskedReason, "Its owner, MachineSet md-0, was asked to remediate it: see RemediationRecord w1-1@default")),
		"too many are unhealthy": counting(5000, 1000, tooManySaid, reported, wrote("False", "TooManyUnhealthy",
			"Too many machines are not healthy: the condition RemediationAllowed of MachineHealthCheck workers has the numbers")),
		"there is a queue": counting(5000, 4998, reported, func(s *scene) { s.check.Annotations[mendv1.MaxInFlightAnnotation] = "1" },
			wrote("False", "RemediationsInProgress", "* It waits for its turn: other remediations are in flight (kubemend.io/max-in-flight of "+
				"MachineHealthCheck workers)\n* No request can be made: HostRemediationTemplate default/reboot does not exist. To do: Make it")),
		"it waits for a spare host": counting(5000, 4998, waitsForSpare(0), reported, wrote("False", "NoSpareHost", "It waits until a free host fits "+
			"its replacement: the condition SpareHostAvailable says what is free. This ends at 2026-01-01T12:59:00Z at the latest")),
		"it has no owner": counting(5000, 4998, ownedBy("w1", "", ""), reported, wrote("False", "NoOwner", "Its owner is to remediate it, and it has "+
			"none: see to it by hand. To do: Delete it by hand, or give the check a template")),
		"it has no node yet":              counting(5000, 4998, awaiting("w1"), reported),
		"it was not judged yet":           counting(5000, 4998),
		"the clock of the manager is off": counting(5000, 0, reported, func(s *scene) { s.says.ClockAheadSeconds = 3600 }),
	}, func(t *testing.T, s *scene) string {
		e, err := Machine(t.Context(), s.asker(t), client.ObjectKey{Namespace: "default", Name: "w1"})
		return page80and200(t, e, err)
	})
}

func tooManySaid(s *scene) {
	s.check.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineHealthCheckTooManyUnhealthyReason, Message: "Remediation is not allowed, as the manager wrote",
	}}
}

// waitsForSpare puts all workers on hosts, has the check wait for spare hosts, and adds so many that are free.
func waitsForSpare(free int) func(*scene) {
	return func(s *scene) {
		s.check.Annotations[mendv1.WaitForSpareAnnotation] = "true"
		for _, m := range s.machines {
			s.onHost(m)
		}
		for i := range free {
			name := "spare-" + string(rune('1'+i))
			h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
			h.Status.Provisioning.State = bmov1alpha1.StateAvailable
			s.others = append(s.others, h)
		}
	}
}

// hostless takes the host of a worker away.
func hostless(name string) func(*scene) {
	return func(s *scene) {
		for _, obj := range s.others {
			if h, is := obj.(*bmov1alpha1.BareMetalHost); is && h.Name == "rack-"+name {
				h.Spec.ConsumerRef, h.Status.ErrorMessage = nil, "it has burnt"
			}
		}
	}
}

// evidence are stories of what is known of a machine, by which controller and since when.
func evidence() map[string]story {
	hostDead := condition("InfrastructureReady", metav1.ConditionFalse, "HostDead", 2*time.Hour)
	notReady := condition(clusterv1.MachineNodeReadyCondition, metav1.ConditionFalse, "NodeNotReady", 2*time.Hour)
	pausedFor := func(status metav1.ConditionStatus, ago time.Duration) func(*scene) {
		return func(s *scene) { s.said("w1", clusterv1.PausedCondition, status, "ItSays", "", ago) }
	}
	return map[string]story{
		"a machine that Cluster API has not reconciled since a pause":         {aScene(judgedBy("InfrastructureReady"), hostDead, pausedFor("True", time.Hour)), machine("w1")},
		"a machine that Cluster API reconciles again since a pause":           {aScene(judgedBy("InfrastructureReady"), hostDead, pausedFor("False", 30*time.Second)), machine("w1")},
		"a machine of which Cluster API says what its node does not say":      {aScene(judgedBy(clusterv1.MachineNodeReadyCondition), notReady), machine("w1")},
		"a machine of a cluster that is paused, and its conditions of before": {aScene(judgedBy("InfrastructureReady"), hostDead, func(s *scene) { s.cluster.Spec.Paused = ptr.To(true) }), machine("w1")},
		"a machine whose first node is waited for since before a pause":       {aScene(awaiting("w1"), pausedFor("True", time.Minute)), machine("w1")},
		"a machine whose node was silent before an outage":                    {aScene(silent(6*time.Minute, "w1"), reachedAgain(2*time.Minute)), machine("w1")},
		"a machine whose node has a clock that is ahead":                      {aScene(silent(-6*time.Hour, "w1")), machine("w1")},
		"a machine that is updated in place":                                  {aScene(silent(6*time.Minute, "w1"), condition(clusterv1.MachineUpdatingCondition, metav1.ConditionTrue, "InPlaceUpdating", time.Minute)), machine("w1")},
		"a machine that has failed for good":                                  {aScene(failedForGood), machine("w1")},
	}
}

// judgedBy gives the check a rule about a condition of machines.
func judgedBy(kind string) func(*scene) {
	return func(s *scene) {
		s.check.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{{Type: kind, Status: metav1.ConditionFalse, TimeoutSeconds: ptr.To[int32](300)}}
	}
}

func condition(kind string, status metav1.ConditionStatus, reason string, ago time.Duration) func(*scene) {
	return func(s *scene) {
		for i := range s.machines["w1"].Status.Conditions {
			if c := &s.machines["w1"].Status.Conditions[i]; c.Type == kind {
				c.Status, c.Reason, c.LastTransitionTime = status, reason, at(ago)
				return
			}
		}
		s.said("w1", kind, status, reason, "", ago)
	}
}

func reachedAgain(ago time.Duration) func(*scene) {
	return func(s *scene) {
		s.check.Status.Conditions = append(s.check.Status.Conditions, metav1.Condition{
			Type: mendv1.WorkloadClusterReachable, Status: metav1.ConditionTrue, Reason: mendv1.ReachableAgainReason, LastTransitionTime: at(ago),
		})
	}
}

func failedForGood(s *scene) {
	s.ready("w1", corev1.ConditionTrue, "KubeletReady", time.Hour)
	const status = `{"status":{"deprecated":{"v1beta1":{"failureReason":"CreateError","failureMessage":"no host is left"}}}}`
	if err := json.Unmarshal([]byte(status), s.machines["w1"]); err != nil {
		panic(err)
	}
}
