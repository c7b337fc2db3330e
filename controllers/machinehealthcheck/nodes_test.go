package machinehealthcheck

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/workload"
)

// judging is one machine in a healthy cluster, a check with one rule about it, and what is seen of its node. It is judged at noon.
type judging struct {
	w       *observed
	machine *clusterv1.Machine
	link    workload.Link
	nodes   toolscache.Store
}

// judged returns what is observed of a machine that was made long ago, of which Cluster API says since then what the rule is about.
func judged(kind string, status metav1.ConditionStatus, reason string, since, timeout time.Duration) *judging {
	w := aCheck(a("m", health.Healthy))
	w.check.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
		{Type: kind, Status: status, TimeoutSeconds: ptr.To(int32(timeout / time.Second))}}
	w.cluster.Status.Conditions = []metav1.Condition{
		saidAt(clusterv1.ClusterControlPlaneInitializedCondition, "True", "Initialized", 24*time.Hour),
		saidAt(clusterv1.ClusterInfrastructureReadyCondition, "True", "Ready", 24*time.Hour)}
	j := &judging{w: w, machine: w.targets[0].machine, link: workload.Up, nodes: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)}
	j.machine.CreationTimestamp = metav1.NewTime(ago(23 * time.Hour))
	j.machine.Status.NodeRef.Name = "n"
	j.machine.Status.Conditions = []metav1.Condition{saidAt(kind, status, reason, since)}
	return j
}

func saidAt(kind string, status metav1.ConditionStatus, reason string, since time.Duration) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(ago(since))}
}

// node is what our own cache shows of the machine's node.
func (j *judging) node(ready corev1.ConditionStatus, since time.Duration) *judging {
	_ = j.nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(ago(since))}}}})
	return j
}

// paused is what Cluster API says of the machine and of a pause, since when.
func (j *judging) paused(status metav1.ConditionStatus, since time.Duration) *judging {
	j.machine.Status.Conditions = append(j.machine.Status.Conditions, saidAt(clusterv1.PausedCondition, status, "ItSays", since))
	return j
}

// outage lets the workload cluster be out of reach for an hour until then.
func (j *judging) outage(ended time.Duration) *judging {
	j.w.before.reach = &machines.Report{Status: "True", Reason: mendv1.ReachableAgainReason, Since: ago(ended)}
	return j
}

func (j *judging) verdict() health.Verdict {
	w := j.w.having(target{machine: j.machine})
	t := w.targets[0]
	if j.w.link = workload.Seen(j.link, j.nodes); j.link == workload.Up {
		t.node = j.w.link.Node(j.machine.Status.NodeRef.Name)
	}
	t.known = knownOf(w, t, nil)
	return w.decide().Decisions[0].Verdict
}

func TestEvidenceHasAnAuthorAndATime(t *testing.T) {
	const m, h = time.Minute, time.Hour
	notReady := func(since time.Duration) *judging {
		return judged(clusterv1.MachineNodeReadyCondition, "False", clusterv1.MachineNodeNotReadyReason, since, 5*m)
	}
	noInfra := func(since time.Duration) *judging {
		return judged(clusterv1.MachineInfrastructureReadyCondition, "False", "HostDead", since, 5*m)
	}
	unread := func(since time.Duration) *judging {
		return judged(clusterv1.MachineNodeReadyCondition, "Unknown", clusterv1.MachineNodeReadyUnknownReason, since, 5*m)
	}
	for name, tc := range map[string]struct {
		given *judging
		want  health.State
	}{
		"a node that is ready now, after a pause in which Cluster API said nothing":   {notReady(2*h).node("True", h).paused("False", 0), health.Healthy},
		"also while Cluster API core does not run":                                    {notReady(2*h).node("True", h), health.Healthy},
		"a node that is not ready":                                                    {notReady(2*h).node("False", 2*h), health.Unhealthy},
		"a cluster that is out of reach before Cluster API says so":                   {notReady(6 * m).outOfReach(), health.Unknown},
		"a provider's word of before a pause that Cluster API has not taken note of":  {noInfra(2*h).node("True", h).paused("True", h), health.Unknown},
		"that word when Cluster API has just looked":                                  {noInfra(2*h).node("True", h).paused("False", time.Second), health.Pending},
		"that word when it had the time to be written anew":                           {noInfra(2*h).node("True", h).paused("False", 6*m), health.Unhealthy},
		"a provider's word that is newer than the pause":                              {noInfra(5*m).node("True", h).paused("False", h), health.Unhealthy},
		"a machine that never was paused":                                             {noInfra(23*h).node("True", h).paused("False", 23*h-time.Second), health.Unhealthy},
		"a machine that was restored from a backup with what was said before":         {noInfra(48*h).node("True", m).paused("False", 72*h).made(30 * time.Second), health.Pending},
		"that word when it is as old as the machine that was restored":                {noInfra(48*h).node("True", m).paused("False", 72*h).made(7 * m), health.Unhealthy},
		"a Cluster that is paused":                                                    {noInfra(2*h).node("True", h).pausedCluster(), health.Unknown},
		"a node that is silent since the end of an outage in which nothing was known": {unread(55*m).node("Unknown", 10*time.Second).outage(15 * time.Second), health.Pending},
		"a node that could not report during an outage that it is healthy":            {unread(0).node("Unknown", 61*m).nodeRule("Unknown", 5*m).outage(5 * time.Second), health.Pending},
		"a worker that has waited for its control plane to be initialized":            {notAwaited(25 * m), health.Starting},
		"a first node for which the time of a pause was waited":                       {noInfra(2*h).awaited(3*h).paused("False", m).withInfra(), health.Starting},
		"a first node that is awaited while the machine is paused":                    {noInfra(2*h).awaited(3*h).paused("True", m).withInfra(), health.Starting},
		"a first node that was late before anybody paused anything":                   {noInfra(2*h).awaited(3*h).paused("False", 3*h-time.Second).withInfra(), health.Unhealthy},
		"a failure that is final":                                                     {noInfra(0).node("True", h).failed("CreateError", ""), health.Unhealthy},
		"one of which there is only a message":                                        {noInfra(0).node("True", h).failed("", "no such host"), health.Unhealthy},
	} {
		t.Run(name, func(t *testing.T) {
			if v := tc.given.verdict(); v.State != tc.want {
				t.Errorf("%s, want %s: %+v", v.State, tc.want, v.Findings)
			}
		})
	}
}

// made makes the machine one that was made that long ago.
func (j *judging) made(since time.Duration) *judging {
	j.machine.CreationTimestamp = metav1.NewTime(ago(since))
	return j
}

func (j *judging) outOfReach() *judging {
	j.link = workload.Down
	return j
}

func (j *judging) pausedCluster() *judging {
	j.w.cluster.Spec.Paused = ptr.To(true)
	return j
}

// nodeRule gives the check a rule about the node.
func (j *judging) nodeRule(ready corev1.ConditionStatus, timeout time.Duration) *judging {
	j.w.check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: corev1.NodeReady, Status: ready, TimeoutSeconds: ptr.To(int32(timeout / time.Second))}}
	return j
}

// notAwaited is a worker that was made that long ago, whose control plane is initialized since a second.
func notAwaited(since time.Duration) *judging {
	j := judged(clusterv1.MachineNodeReadyCondition, "Unknown", clusterv1.MachineNodeInspectionFailedReason, since, 20*time.Minute).awaited(since)
	j.w.cluster.Status.Conditions[0].LastTransitionTime = metav1.NewTime(ago(time.Second))
	return j
}

// awaited makes the machine one that was made that long ago and has no node yet.
func (j *judging) awaited(since time.Duration) *judging {
	j.machine.Status.NodeRef.Name = ""
	j.machine.CreationTimestamp = metav1.NewTime(ago(since))
	return j
}

// withInfra makes the machine's infrastructure ready, since before anything else.
func (j *judging) withInfra() *judging {
	j.machine.Status.Conditions[0].Status, j.machine.Status.Conditions[0].LastTransitionTime = "True", metav1.NewTime(ago(3*time.Hour))
	return j
}

// failed has the machine fail for good, as core writes it.
func (j *judging) failed(reason, message string) *judging {
	status := map[string]any{}
	if reason != "" {
		status["failureReason"] = reason
	}
	if message != "" {
		status["failureMessage"] = message
	}
	content, err := json.Marshal(map[string]any{"status": map[string]any{"deprecated": map[string]any{"v1beta1": status}}})
	if err == nil {
		err = json.Unmarshal(content, j.machine)
	}
	if err != nil {
		panic(err) // a map of strings can be encoded
	}
	return j
}

// asks is a workload cluster that notes which nodes it is asked for, and has none of them.
type asks struct {
	Clusters
	names []string
}

func (a *asks) NodesExist(_ context.Context, _ client.ObjectKey, names []string) (map[string]bool, error) {
	a.names = append(a.names, names...)
	return nil, nil
}

// A rollout deletes every machine of a cluster, and each takes its node along.
func TestTheNodeOfAMachineThatIsBeingDeletedIsNotAskedFor(t *testing.T) {
	w := aCheck(a("going", health.Healthy, beingDeleted, onNode), a("stays", health.Healthy, onNode))
	w.link = workload.Seen(workload.Up, toolscache.NewStore(toolscache.MetaNamespaceKeyFunc))
	there := &asks{}
	r := &Reconciler{Clusters: there}
	w.fresh, w.sighting = w.targets, &sighting{targets: w.targets}
	r.observeNodes(t.Context(), w)
	verdicts := w.decide().Decisions
	if !slices.Equal(there.names, []string{"node-stays"}) {
		t.Errorf("the workload cluster is asked for %v", there.names)
	}
	if state := verdicts[0].Verdict.State; state != health.Unknown {
		t.Errorf("the machine that is being deleted is %s", state)
	}
	if state := verdicts[1].Verdict.State; state != health.Unhealthy {
		t.Errorf("the machine whose node was deleted is %s", state)
	}
}

func onNode(t *target) { t.machine.Status.NodeRef.Name = "node-" + t.machine.Name }

func TestAFailureThatIsFinalReachesTheCacheAndEnqueuesTheCheck(t *testing.T) {
	was := judged("A", "True", "B", 0, 0).machine
	is := judged("A", "True", "B", 0, 0).failed("CreateError", "no host\nis left").machine
	slim, err := SlimMachine(is.DeepCopy())
	if want := "FailureReason: CreateError, FailureMessage: no host is left"; err != nil || finalFailure(slim.(*clusterv1.Machine)) != want {
		t.Errorf("the cache has %q, want %q", finalFailure(slim.(*clusterv1.Machine)), want)
	}
	if !machineChanges().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}) {
		t.Error("the check is not enqueued when it fails")
	}
}

func TestTheStartUpTimeoutOfACheck(t *testing.T) {
	for name, tc := range map[string]struct {
		seconds *int32
		want    time.Duration
	}{"ten minutes by default": {nil, 10 * time.Minute}, "0 waits for ever": {ptr.To[int32](0), 0}, "what it says": {ptr.To[int32](90), 90 * time.Second}} {
		if got := policyOf(clusterv1.MachineHealthCheckChecks{NodeStartupTimeoutSeconds: tc.seconds}).NodeStartup; got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
