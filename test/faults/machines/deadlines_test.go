package machines

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/test/builders"
)

// What a check does at a given moment is tested here, with a clock that leaps. The conformance suite tests that time alone causes reconciles.

const (
	healthy      = "True/HealthCheckSucceeded"
	silent       = "False/UnhealthyNode"
	neverStarted = "False/NodeStartupTimeout"
	unsaid       = "-"
	waiting      = "False/WaitingForRemediation"
)

// is checks what a condition of a machine is, like "False/UnhealthyNode".
func (e *environment) is(machine, kind, want string) {
	e.t.Helper()
	if got := brief(e.machine(machine).Status.Conditions, kind); got != want {
		e.t.Errorf("%s of machine %s is %s instead of %s: %s", kind, machine, got, want, e.record.history())
	}
}

func (e *environment) health(machine, want string) {
	e.t.Helper()
	e.is(machine, clusterv1.MachineHealthCheckSucceededCondition, want)
}

func brief(all []metav1.Condition, kind string) string {
	c := meta.FindStatusCondition(all, kind)
	if c == nil {
		return unsaid
	}
	return string(c.Status) + "/" + c.Reason
}

func (e *environment) checkSays(kind, want string) {
	e.t.Helper()
	if got := brief(e.conditionsOfCheck(), kind); got != want {
		e.t.Errorf("%s of the check is %s instead of %s: %s", kind, got, want, e.record.history())
	}
}

func (e *environment) conditionsOfCheck() []metav1.Condition {
	c := &clusterv1.MachineHealthCheck{}
	c.Name, c.Namespace = "check", e.namespace
	e.must(e.api.Get(e.ctx, client.ObjectKeyFromObject(c), c))
	return c.Status.Conditions
}

// requested checks for which machines there are requests.
func (e *environment) requested(want ...string) {
	e.t.Helper()
	var got []string
	for _, req := range e.objectsOf(requestKind) {
		got = append(got, req.GetName())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		e.t.Errorf("requests are for %q instead of %q: %s", got, want, e.record.history())
	}
}

// exports checks a gauge.
func (e *environment) exports(name, label string, want float64) {
	e.t.Helper()
	if got := e.gauge(name, label); got != want {
		e.t.Errorf("%s of %s is %v instead of %v", name, label, got, want)
	}
}

// timeouts are those of the conditions Ready=False and Ready=Unknown.
func timeouts(no, unknown int32) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Checks.UnhealthyNodeConditions[0].TimeoutSeconds = ptr.To(no)
		c.Spec.Checks.UnhealthyNodeConditions[1].TimeoutSeconds = ptr.To(unknown)
	}
}

// judged is an environment with these machines and a check that has judged them.
func judged(t *testing.T, machines []string, edits ...func(*clusterv1.MachineHealthCheck)) *environment {
	t.Helper()
	e := newEnvironment(t)
	e.machines(machines...)
	e.check("check", edits...)
	e.start()
	e.settle(time.Second)
	return e
}

// happens lets something happen, and the program works for that long.
func (e *environment) happens(within time.Duration, events ...func()) {
	e.t.Helper()
	for _, event := range events {
		event()
	}
	e.enqueueAll()
	e.settle(within)
}

func TestW10ATimeoutExpiresToTheSecond(t *testing.T) {
	t.Parallel()
	e := judged(t, []string{"a", "b"}, timeouts(2, 3))
	began := e.clock.Now()
	e.happens(2*time.Second-time.Millisecond, func() {
		e.there.sets("a", corev1.ConditionFalse, 0)
		e.there.sets("b", corev1.ConditionUnknown, 0)
	})
	e.health("a", healthy)
	e.settle(time.Millisecond)
	e.health("a", silent)
	e.health("b", healthy)
	e.settle(time.Second)
	e.health("b", silent)
	for machine, after := range map[string]time.Duration{"a": 2 * time.Second, "b": 3 * time.Second} {
		at := conditions.Get(e.machine(machine), clusterv1.MachineHealthCheckSucceededCondition).LastTransitionTime.Time
		if !at.Equal(began.Add(after)) {
			t.Errorf("machine %s was called unhealthy %s after its node fell silent, instead of %s", machine, at.Sub(began), after)
		}
	}
}

func TestW15ATimeoutExpiresWhileTheCheckIsShortCircuited(t *testing.T) {
	t.Parallel()
	e := judged(t, []string{"a", "b"}, upTo("0"), timeouts(4, 300))
	e.happens(time.Second, func() { e.fail("a") })
	e.health("a", silent)
	e.checkSays("RemediationAllowed", "False/TooManyUnhealthy")
	e.happens(4*time.Second-time.Millisecond, func() { e.there.sets("b", corev1.ConditionFalse, 0) })
	e.health("b", healthy)
	e.settle(time.Millisecond)
	e.health("b", silent)
	e.is("b", clusterv1.MachineOwnerRemediatedCondition, unsaid)
}

func TestTheStartUpTimeoutStartsAtTheLatestOfFourTrueConditions(t *testing.T) {
	t.Parallel()
	const ahead = 3 * time.Second
	at := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: "Test", LastTransitionTime: metav1.NewTime(noon.Add(ahead))}
	}
	ofCluster := func(kind string) func(*environment) {
		return func(e *environment) {
			c := &clusterv1.Cluster{}
			c.Name, c.Namespace = "c1", e.namespace
			e.must(e.api.Get(e.ctx, client.ObjectKeyFromObject(c), c))
			meta.RemoveStatusCondition(&c.Status.Conditions, kind)
			c.Status.Conditions = append(c.Status.Conditions, at(kind, metav1.ConditionTrue))
			e.must(e.api.Status().Update(e.ctx, c))
		}
	}
	ofMachine := func(status metav1.ConditionStatus) func(*environment) {
		return func(e *environment) {
			m := e.machine("a")
			m.Status.Conditions = []metav1.Condition{at(clusterv1.MachineInfrastructureReadyCondition, status)}
			e.must(e.api.Status().Update(e.ctx, m))
		}
	}
	for name, tc := range map[string]struct {
		sets  func(*environment)
		after time.Duration
	}{
		"the machine is made":                              {func(*environment) {}, 0},
		"the Cluster's infrastructure is ready":            {ofCluster(clusterv1.ClusterInfrastructureReadyCondition), ahead},
		"the control plane is initialized":                 {ofCluster(clusterv1.ClusterControlPlaneInitializedCondition), ahead},
		"the machine's infrastructure is ready":            {ofMachine(metav1.ConditionTrue), ahead},
		"not when the machine's infrastructure is unready": {ofMachine(metav1.ConditionFalse), 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnvironment(t)
			e.unknown = true
			e.machines("a")
			e.startsAnew("a")
			tc.sets(e)
			e.check("check", builders.StartsWithin(time.Second))
			e.start()
			e.settle(tc.after + time.Second - time.Millisecond)
			e.health("a", unsaid)
			e.settle(time.Millisecond)
			e.health("a", neverStarted)
		})
	}
}

// startsAnew makes a machine one that has no node yet.
func (e *environment) startsAnew(name string) {
	delete(e.there.nodes, name)
	m := e.machine(name)
	m.Status.NodeRef, m.Status.Conditions = clusterv1.MachineNodeReference{}, nil
	e.must(e.api.Status().Update(e.ctx, m))
}

// says gives a machine a condition of long ago.
func (e *environment) says(machine, kind string, status metav1.ConditionStatus, reason string) {
	m := e.machine(machine)
	m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(e.clock.Now().Add(-long)),
	})
	e.must(e.api.Status().Update(e.ctx, m))
}

// ofMachines selects two conditions of Machines: one that mirrors the connection, and one of their own.
func ofMachines(c *clusterv1.MachineHealthCheck) {
	c.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
		{Type: "NodeReady", Status: metav1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](1)},
		{Type: "GPUHealthy", Status: metav1.ConditionFalse, TimeoutSeconds: ptr.To[int32](1)},
	}
}

func TestW13AnUnreachableClusterMakesMachinesUnknownUntilItIsBack(t *testing.T) {
	t.Parallel()
	names := []string{"good", "bad", "recovers", "dies", "pending", "loses-node", "by-hand", "own-fault"}
	e := judged(t, names, byTemplate, timeouts(300, 20), builders.StartsWithin(20*time.Second), ofMachines)
	e.happens(time.Second, func() { e.fail("bad", "recovers") }, func() { e.there.sets("pending", corev1.ConditionUnknown, 0) })
	e.requested("bad", "recovers")
	e.checkSays("WorkloadClusterReachable", "True/Reachable")

	e.happens(50*time.Second, e.cut, func() {
		e.machines("starting")
		e.startsAnew("starting")
		for _, name := range append(names, "starting") {
			e.says(name, "NodeReady", metav1.ConditionUnknown, "ConnectionDown")
		}
		e.recover("recovers")
		e.fail("dies")
		delete(e.there.nodes, "loses-node")
	})
	e.checkSays("WorkloadClusterReachable", "False/Unreachable")
	lost := meta.FindStatusCondition(e.conditionsOfCheck(), "WorkloadClusterReachable")
	if want := "out of reach since " + lost.LastTransitionTime.UTC().Format(time.RFC3339); !strings.Contains(lost.Message, want) {
		t.Errorf("the check says %q instead of %q", lost.Message, want)
	}
	e.exports("kubemend_workload_cluster_reachable", "c1", 0)
	e.exports("kubemend_machinehealthcheck_targets", "unknown", 9)

	e.happens(10*time.Minute, func() {
		e.annotate("by-hand", clusterv1.RemediateMachineAnnotation)
		e.says("own-fault", "GPUHealthy", metav1.ConditionFalse, "Broken")
	})
	e.requested("bad", "recovers", "by-hand", "own-fault")
	e.health("own-fault", "False/UnhealthyMachine")
	for machine, want := range map[string]string{
		"good": healthy, "bad": silent, "recovers": silent, "dies": healthy, "pending": healthy, "loses-node": healthy, "starting": unsaid,
	} {
		e.health(machine, want)
	}
	e.is("recovers", clusterv1.MachineExternallyRemediatedCondition, waiting)

	e.happens(15*time.Second, func() { e.recover("pending") }, e.reconnect)
	e.checkSays("WorkloadClusterReachable", "True/ReachableAgain")
	e.exports("kubemend_workload_cluster_reachable", "c1", 1)
	e.requested("bad", "loses-node", "by-hand", "own-fault")
	for machine, want := range map[string]string{"dies": healthy, "loses-node": "False/NodeDeleted", "recovers": healthy, "pending": healthy, "starting": unsaid} {
		e.health(machine, want)
	}
	e.settle(10 * time.Second)
	e.health("starting", neverStarted)
	back := meta.FindStatusCondition(e.conditionsOfCheck(), "WorkloadClusterReachable").LastTransitionTime
	if at := conditions.Get(e.machine("starting"), clusterv1.MachineHealthCheckSucceededCondition).LastTransitionTime; at.Time.Before(back.Add(20 * time.Second)) {
		t.Errorf("the machine that starts was given no new start-up time: it is called unhealthy %s after the cluster was back", at.Sub(back.Time))
	}
	e.settle(health.Settling)
	e.requested("bad", "dies", "loses-node", "by-hand", "own-fault", "starting")
	e.health("dies", silent)
	if at := conditions.Get(e.machine("dies"), clusterv1.MachineHealthCheckSucceededCondition).LastTransitionTime; at.Time.Before(back.Add(health.Settling + 20*time.Second)) {
		t.Errorf("what was seen before the outage counts %s after it", at.Sub(back.Time))
	}
	for event, want := range map[string]int{
		"pending MachineMarkedUnhealthy": 0, "check WorkloadClusterUnreachable": 1, "check WorkloadClusterReachable": 1,
	} {
		if e.record.Events[event] != want {
			t.Errorf("event %q came %d times instead of %d", event, e.record.Events[event], want)
		}
	}
}
