package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/golden"
)

var recordKind = mendv1.GroupVersion.WithKind("RemediationRecord")

// lost adds the record of a worker that was remediated ago, with what its capacity waits for.
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

// askedFor sets the check that requested a remediation; none if kind is empty.
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

// The check counts no target for a replacement that is not Ready yet, so all its targets may be healthy while capacity is missing.
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

// ofTemplates puts a record into the namespace of a NodeHealthCheck's templates and requests.
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
	partly.Forbid(recordKind, "templates", errors.New("you may not"))
	a := inspect.New(t.Context(), partly, noon)
	if s, err := Of(t.Context(), a, "default", ""); err != nil || !anyMissing(s.Document().CapacityMissing) {
		t.Errorf("records of one namespace are hidden, and those of the other are not counted: %v", err)
	}
	all := standing(t, aScene())
	if d := all.Document(); d.CapacityMissing != nil || d.Items[0].CapacityMissing != nil {
		t.Errorf("without records it says %+v", d.CapacityMissing)
	}
}

// counting returns a scene of which only w1 was read. The status of the check counts the machines.
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
		"there is no place for it": counting(5000, 4998, reported,
			wrote("False", "GroupInFlight", "* The limit rack of RemediationPolicy kubemend-system/racks is reached\n"+
				"* No request can be made: HostRemediationTemplate default/reboot does not exist. To do: Make it")),
		"it waits for a spare host": counting(5000, 4998, waitsForSpare(0), reported, wrote("False", "NoSpareHost", "It waits until a free host fits "+
			"its replacement: the condition SpareHostAvailable says what is free. This ends at 2026-01-01T12:59:00Z at the latest")),
		"it has no owner": counting(5000, 4998, ownedBy("w1", "", ""), reported, wrote("False", "NoOwner", "The check asks the owner of a machine to "+
			"remediate it, and this machine has no owner. To do: Repair or delete it by hand, or give the check a template")),
		"it has no node yet":              counting(5000, 4998, awaiting("w1"), reported),
		"it was not judged yet":           counting(5000, 4998),
		"the clock of the manager is off": counting(5000, 0, reported, func(s *scene) { s.says.ClockAheadSeconds = 3600 }),
	}, func(t *testing.T, s *scene) string {
		e, err := Machine(t.Context(), s.asker(t), client.ObjectKey{Namespace: "default", Name: "w1"})
		return page80and200(t, e, err)
	})
}

// limited adds a policy for which w1 waits, as the manager wrote, and an override that holds w1.
func limited(s *scene) {
	racks, swap := &mendv1.RemediationPolicy{}, &mendv1.RemediationOverride{}
	racks.Namespace, racks.Name, swap.Namespace, swap.Name, swap.CreationTimestamp = "fleet", "racks", "default", "swap", at(time.Hour)
	racks.Spec.Windows = []mendv1.PolicyWindow{{Action: mendv1.WindowDeny, Schedule: "0 11 * * *", DurationSeconds: 7200}}
	racks.Status.Selected, racks.Status.Waiting = mendv1.PolicySelected{Checks: 2, Targets: 45, Ungrouped: 5}, 1
	racks.Status.Groups = []mendv1.PolicyGroup{
		{Limit: "rack", Group: "b07", Targets: 40, Unavailable: 9, InFlight: 1, Waiting: 1, Reason: "SlowStart"},
		{Limit: "fleet", Targets: 45, Unavailable: 9, InFlight: 1, Waiting: 1},
	}
	swap.Spec = mendv1.RemediationOverrideSpec{Action: mendv1.OverrideHold, Until: at(-time.Hour), Reason: "CHG-4711", By: "alice"}
	swap.Spec.TargetRef, swap.Status.Targets, swap.Status.Blocked = mendv1.OverrideTarget{Kind: "Machine", Name: "w1"}, 1, 1
	s.others = append(s.others, racks, swap)
	wrote("False", "HeldByOverride", "* It is held by alice: CHG-4711 (RemediationOverride default/swap). This ends at 2026-01-01T13:00:00Z at "+
		"the latest\n* The limit rack of RemediationPolicy fleet/racks in b07 is reached. This ends at 2026-01-01T12:05:00Z at the latest")(s)
}

func TestPoliciesAndOverrides(t *testing.T) {
	ofPolicy, ofHold := asks("fleet", Policy)("racks"), asks("default", Override)("swap")
	observes := func(s *scene) {
		racks := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "racks"}}
		racks.Spec.Mode = mendv1.PolicyObserves
		s.others = append(s.others, racks)
	}
	// w1 waits for a window for live nodes and for nodes in maintenance. w2 belongs to another policy.
	signalled := func(s *scene) {
		racks := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "racks"}}
		racks.Namespace, racks.Status.Waiting = managerlease.UsualNamespace, 1
		racks.Spec.Selector.Targets = &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "b07"}}
		racks.Spec.BlockWhile = []mendv1.Signal{mendv1.SignalNodeMaintenance, mendv1.SignalClusterRollout}
		racks.Spec.Windows = []mendv1.PolicyWindow{
			{Action: mendv1.WindowDeny, Schedule: "0 11 * * *", DurationSeconds: 7200, Scope: mendv1.WindowLiveNodes},
		}
		s.others = append(s.others, racks)
		for _, name := range []string{"w1", "w2"} {
			s.said(name, mendv1.Remediation, metav1.ConditionFalse, "NodeInMaintenance",
				"Its node is in maintenance: condition MaintenanceInProgress since 2026-01-01T11:00:00Z", time.Hour)
		}
		s.machines["w1"].Labels["rack"] = "b07"
	}
	ofSignalled := asks(managerlease.UsualNamespace, Policy)("racks")
	ofNodes := func(s *scene) {
		signalled(s)
		s.machines["w1"].Status.Conditions, s.others[len(s.others)-1].(*mendv1.RemediationPolicy).Spec.Windows = nil, nil
	}
	golden.Stories(t, "policies", map[string]story{
		"a policy by signals":                        {aScene(reported, signalled), ofSignalled},
		"a policy by signals, of which a node waits": {aScene(reported, ofNodes), ofSignalled},
		"the status under policies":                  {aScene(reported, limited, signalled), nil},
		"a policy":                                   {aScene(reported, limited), ofPolicy}, "a hold": {aScene(reported, limited), ofHold},
		"a policy that observes": {aScene(reported, observes), ofPolicy},
	}, answered)
}

func tooManySaid(s *scene) {
	s.check.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineHealthCheckTooManyUnhealthyReason, Message: "Remediation is not allowed, as the manager wrote",
	}}
}

// waitsForSpare puts all workers on hosts, and adds a policy that waits for spare hosts, and free hosts.
func waitsForSpare(free int) func(*scene) {
	return func(s *scene) {
		policy := &mendv1.RemediationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spares"}}
		policy.Spec.WaitForSpare = &mendv1.PolicyWaitForSpare{}
		s.others = append(s.others, policy)
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

// hostless removes the consumer of a worker's host, and sets an error on the host.
func hostless(name string) func(*scene) {
	return func(s *scene) {
		for _, obj := range s.others {
			if h, is := obj.(*bmov1alpha1.BareMetalHost); is && h.Name == "rack-"+name {
				h.Spec.ConsumerRef, h.Status.ErrorMessage = nil, "it has burnt"
			}
		}
	}
}

// evidence has stories about the age and the source of findings about a machine.
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

// judgedBy adds a rule about a condition of machines to the check.
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

// aFleet returns a scene with a check whose targets are healthy, a check with unhealthy targets, and a check that is not claimed.
func aFleet() *scene {
	return aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3"), func(s *scene) {
		for name, machines := range map[string][]string{"control-plane": {"w4", "w5"}, "storage": {"w3"}} {
			other := s.check.DeepCopy()
			other.Name, other.UID, other.CreationTimestamp = name, "", at(12*time.Hour)
			other.Spec.Selector.MatchLabels = map[string]string{"pool": name}
			for _, m := range machines {
				s.machines[m].Labels["pool"] = name
			}
			if name == "storage" {
				other.Annotations = nil
			} else {
				other.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromInt32(1))
			}
			s.others = append(s.others, other)
		}
	})
}

func TestTheStatusOfAFleet(t *testing.T) {
	golden.Stories(t, "fleet", map[string]text.Layout{
		"all checks":             {},
		"checks that are not OK": {NotOK: true},
		"with all reasons":       {Wide: true, NotOK: true},
	}, func(t *testing.T, l text.Layout) string {
		s := aFleet()
		kindNotServed(s)
		narrow, wide := l, l
		narrow.Width, narrow.Namespaces, wide.Width, wide.Namespaces = 80, true, 200, true
		return printedAs(t, standing(t, s), narrow, wide)
	})
}

// Names that are too long for the terminal are cut in the middle. -o wide does not cut them.
func TestTheStatusOfSeveralClusters(t *testing.T) {
	golden.Stories(t, "clusters", map[string]text.Layout{"of all namespaces": {Namespaces: true}}, func(t *testing.T, l text.Layout) string {
		s := standing(t, aFleet())
		s.Checks[1].Cluster, s.Checks[1].Name = "edge-7-in-the-north-of-the-country", "workers-with-graphics-cards-of-last-year"
		nodes := cliv1.Check{Reference: explain.Ref{Kind: "NodeHealthCheck", Name: "own-nodes"}, Mode: cliv1.ModeActing, Limits: cliv1.Limits{AtMost: new(0)}}
		s.Checks = append(s.Checks, explain.Check{Check: nodes})
		narrow, wide, whole := l, l, l
		narrow.Width, wide.Width, whole.Width, whole.Wide = 80, 200, 40, true
		return printedAs(t, s, narrow, wide, whole)
	})
}

func TestAPageHasOneClock(t *testing.T) {
	east := noon.In(time.FixedZone("EAST", 2*60*60))
	p := &page{Page: text.Page{Layout: text.Layout{Now: east}}}
	for stored, want := range map[string]string{
		"out of reach since 2026-01-01T11:56:00Z; machines":   "out of reach since 13:56:00; machines",
		"(until 2026-01-02T11:56:00.5Z)":                      "(until 2026-01-02 13:56:00)",
		`annotation a/b="2026-01-01T11:56:00Z"`:               `annotation a/b="2026-01-01T11:56:00Z"`,
		"kubectl annotate machine/m a/b=2026-01-01T11:56:00Z": "kubectl annotate machine/m a/b=2026-01-01T11:56:00Z",
		"since 2026-99-01T11:56:00Z":                          "since 2026-99-01T11:56:00Z",
	} {
		if got := p.local(stored); got != want {
			t.Errorf("%q is %q, want %q", stored, got, want)
		}
	}
}

// indented returns a document as -o json prints it.
func indented(t *testing.T, document any) string {
	t.Helper()
	content, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(content) + "\n"
}

func TestDocuments(t *testing.T) {
	golden.Stories(t, "json", map[string]story{
		"a machine within its timeout":       {aScene(silent(2*time.Minute, "w1")), machine("w1")},
		"a machine whose remediation begins": {aScene(silent(6*time.Minute, "w1")), machine("w1")},
		"a machine that is short-circuited":  {aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3")), machine("w1")},
		"a machine that no check selects":    {aScene(func(s *scene) { s.machines["w1"].Labels["pool"] = "gpu" }), machine("w1")},
		"a machine to be skipped":            {aScene(annotated("w1", clusterv1.MachineSkipRemediationAnnotation)), machine("w1")},
		"a cluster out of sight":             {aScene(silent(6*time.Minute, "w1"), outOfSight), machine("w1")},
		"a host that is being powered off":   {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.PoweringOff)), host("rack-w1")},
		"a check of which all are healthy":   {aScene(), check("workers")},
		"a check that is short-circuited":    {aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3")), check("workers")},
		"a node after a storm":               {aScene(ownNodes(6*time.Minute, cooling)), node("n1")},
	}, func(t *testing.T, s story) string {
		e, err := s.ask(t.Context(), s.scene.asker(t))
		if err != nil {
			t.Fatal(err)
		}
		d := e.Document()
		reasoned(t, d)
		return indented(t, d)
	})
}

// reasoned fails the test if a step has no reason, or if a field for programs has a sentence.
func reasoned(t *testing.T, d *cliv1.Explanation) {
	t.Helper()
	steps, words := []cliv1.Step{d.Next}, []string{d.Reason}
	for i := range d.Checks {
		steps, words = append(steps, d.Checks[i].Next), append(words, d.Checks[i].Reason)
		for j := range d.Checks[i].Targets {
			target := &d.Checks[i].Targets[j]
			steps, words = append(steps, target.Next), append(words, target.Reason)
			for _, b := range target.Blockers {
				words = append(words, b.Reason, b.Cause)
			}
		}
	}
	for i := range d.Remediations {
		steps, words = append(steps, d.Remediations[i].Next), append(words, d.Remediations[i].Reason)
	}
	for _, s := range steps {
		if words = append(words, s.Reason); s.Reason == "" && s != (cliv1.Step{}) {
			t.Errorf("a step has no reason: %s", s.Text)
		}
	}
	for _, word := range words {
		if strings.ContainsAny(word, " :.") {
			t.Errorf("%q is a sentence in place of a reason", word)
		}
	}
}

func TestTheDocumentOfAStatus(t *testing.T) {
	for file, s := range map[string]*scene{
		"the-status.json":                           aScene(silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3"), secondCheck, kindNotServed),
		"the-status-of-an-unlimited-check.json":     aScene(ownNodes(6 * time.Minute)),
		"the-status-of-a-cluster-out-sight.json":    aScene(outOfSight),
		"the-status-while-capacity-is-missing.json": aScene(drained, noHost),
	} {
		all := standing(t, s)
		d := indented(t, all.Document())
		golden.Compare(t, "testdata/json/"+file, d)
		decoder := json.NewDecoder(bytes.NewBufferString(d))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&cliv1.Status{}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// sample is the file with which readers of the docs can try --from.
var sample = filepath.Join("..", "..", "..", "docs", "cli", "samples", "three-of-five.json")

// shortCircuited returns the scene of the sample: three of five nodes are silent, and the limit is two.
func shortCircuited() *scene {
	return aScene(silent(6*time.Minute, "w1", "w2", "w3"), func(s *scene) {
		for _, name := range []string{"w1", "w2", "w3"} {
			s.event(corev1.ObjectReference{Kind: "Machine", Namespace: "default", Name: name}, "MachineMarkedUnhealthy",
				"Machine default/"+name+" has been marked as unhealthy by default/workers: Condition Ready on Node is reporting status Unknown with reason NodeStatusUnknown for more than 5m0s")
		}
		s.event(corev1.ObjectReference{Kind: "MachineHealthCheck", Namespace: "default", Name: "workers"}, "RemediationRestricted",
			"Remediation is not allowed, the number of not started or unhealthy machines exceeds unhealthyLessThanOrEqualTo (total: 5, unhealthy: 3, unhealthyLessThanOrEqualTo: 40%)")
	})
}

// event adds an event of a minute ago.
func (s *scene) event(about corev1.ObjectReference, reason, note string) {
	about.APIVersion = clusterv1.GroupVersion.String()
	s.others = append(s.others, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: about.Name + "." + reason}, EventTime: metav1.NewMicroTime(noon.Add(-time.Minute)),
		Regarding: about, Reason: reason, Note: note, Type: corev1.EventTypeNormal, ReportingController: "kubemend",
	})
}

func TestSampleRecordingsAreDocumented(t *testing.T) {
	var recording bytes.Buffer
	if err := shortCircuited().snapshot(t).Save(&recording); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, sample, recording.String())

	loaded, err := snapshot.Load(&recording)
	if err != nil {
		t.Fatal(err)
	}
	e, err := check("workers")(t.Context(), inspect.New(t.Context(), loaded, loaded.Taken))
	golden.Story(t, "stories", "a check that is short-circuited by the unhealthy", page80and200(t, e, err))
}
