package machines

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/test/faults"
)

// happening is something that others do.
type happening struct {
	name string
	do   func(*environment)
}

var (
	m1Fails = happening{"m1 fails", func(e *environment) { e.fail("m1") }}
	// m2 is overdue for longer than m1, so that its turn comes first even if it fails later.
	m2Fails    = happening{"m2 fails", func(e *environment) { e.there.sets("m2", corev1.ConditionUnknown, 2*long) }}
	m1Recovers = happening{"m1 recovers", func(e *environment) { e.recover("m1") }}
	linkDown   = happening{"the link goes down", (*environment).cut}
	linkUp     = happening{"the link comes back", (*environment).reconnect}
	restart    = happening{"the manager is restarted", (*environment).start}
	ownerActs  = happening{"the owner acts", (*environment).ownerActs}
	taken      = happening{"the provider takes up the request", func(e *environment) {
		if e.requestOf("m1").GetUID() != "" {
			e.providerTakes()
		}
	}}
	requestGone = happening{"the request is gone", func(e *environment) {
		if req := e.requestOf("m1"); req.GetUID() != "" {
			e.finalize("m1")
			e.must(client.IgnoreNotFound(e.api.Delete(e.ctx, req)))
		}
	}}
	checkPaused   = happening{"the check is paused", func(e *environment) { e.edit(paused) }}
	checkUnpaused = happening{"the check is unpaused", func(e *environment) { e.edit(unpaused) }}
	clusterPaused = happening{"the Cluster is paused", func(e *environment) { e.pauseCluster(true) }}
	clusterActive = happening{"the Cluster is unpaused", func(e *environment) { e.pauseCluster(false) }}
	fewer         = happening{"the check allows no more than one", func(e *environment) { e.edit(upTo("1")) }}
	toOwner       = happening{"the check is edited to ask owners", func(e *environment) { e.edit(byOwner) }}
	cacheStops    = happening{"the caches show nothing new", (*environment).lag}
	cacheGoesOn   = happening{"the caches catch up", (*environment).catchUp}
	marked        = happening{"a person marks m1", func(e *environment) { e.annotate("m1", clusterv1.RemediateMachineAnnotation) }}
	leftAlone     = happening{"m1 is to be left alone",
		func(e *environment) { e.annotate("m1", clusterv1.MachineSkipRemediationAnnotation) }}
)

// orders are sets of happenings, each of which is tried in every order.
var orders = []struct {
	name   string
	check  []func(*clusterv1.MachineHealthCheck)
	events []happening
}{
	{"two machines fail, one recovers, and the link goes down and comes back",
		[]func(*clusterv1.MachineHealthCheck){byTemplate, oneAtATime}, []happening{m1Fails, m2Fails, m1Recovers, linkDown, linkUp}},
	{"a provider takes up a request, which is gone, and the manager is restarted",
		[]func(*clusterv1.MachineHealthCheck){byTemplate}, []happening{m1Fails, taken, m1Recovers, requestGone, restart}},
	{"an owner acts, a check becomes strict, and the manager is restarted",
		[]func(*clusterv1.MachineHealthCheck){oneAtATime}, []happening{m1Fails, m2Fails, ownerActs, fewer, restart}},
	{"a check is paused and unpaused, and the manager is restarted",
		[]func(*clusterv1.MachineHealthCheck){byTemplate}, []happening{m1Fails, checkPaused, checkUnpaused, restart}},
	{"a Cluster is paused and unpaused while a machine recovers",
		nil, []happening{m1Fails, m1Recovers, clusterPaused, clusterActive}},
	{"the caches miss own writes, and the request is gone",
		[]func(*clusterv1.MachineHealthCheck){byTemplate, oneAtATime}, []happening{m1Fails, m2Fails, cacheStops, requestGone}},
	{"the caches miss own writes, and a machine recovers",
		[]func(*clusterv1.MachineHealthCheck){oneAtATime}, []happening{m1Fails, m2Fails, cacheStops, m1Recovers, cacheGoesOn}},
	{"a check with a template is edited twice",
		[]func(*clusterv1.MachineHealthCheck){byTemplate}, []happening{m1Fails, m2Fails, fewer, toOwner}},
	{"a person marks a machine, and wants it left alone",
		[]func(*clusterv1.MachineHealthCheck){byTemplate}, []happening{marked, leftAlone, linkDown, restart}},
}

func TestEveryOrderOfEventsIsSafeAndEndsRight(t *testing.T) {
	t.Parallel()
	for _, set := range orders {
		t.Run(set.name, func(t *testing.T) {
			t.Parallel()
			all, tried := permutations(set.events), 0
			for _, order := range all {
				names := make([]string, 0, len(order))
				for _, h := range order {
					names = append(names, h.name)
				}
				if !faults.Tries(names) {
					continue
				}
				t.Run(strings.Join(names, ", then "), func(t *testing.T) {
					e := newEnvironment(t)
					e.machines("m1", "m2")
					e.check("check", set.check...)
					e.start()
					e.settle(time.Second)
					for _, h := range order {
						h.do(e)
						e.enqueueAll()
						e.settle(12 * time.Second)
						e.isRight()
					}
					e.afterOutages()
					e.isRight()
					e.calmsDown()
					tried++
				})
			}
			t.Logf("%d orders of %d", tried, len(all))
		})
	}
}

func permutations(of []happening) [][]happening {
	if len(of) == 0 {
		return [][]happening{nil}
	}
	var all [][]happening
	for i, first := range of {
		for _, rest := range permutations(slices.Delete(slices.Clone(of), i, i+1)) {
			all = append(all, append([]happening{first}, rest...))
		}
	}
	return all
}

// isRight checks what is said of the machines that a check acts on and knows about, and that as many are remediated as may be.
func (e *environment) isRight() {
	e.t.Helper()
	if e.cache.Late() || !e.there.cutAt.IsZero() || e.clock.Now().Sub(e.there.backAt) < 10*time.Second {
		return
	}
	machines, bad, flying := &clusterv1.MachineList{}, 0, 0
	e.must(e.api.List(e.ctx, machines, client.InNamespace(e.namespace)))
	var check *clusterv1.MachineHealthCheck
	for i := range machines.Items {
		m := &machines.Items[i]
		if check = e.checkOf(m); check == nil {
			return
		}
		_, byHand := m.Annotations[clusterv1.RemediateMachineAnnotation]
		if _, skipped := m.Annotations[clusterv1.MachineSkipRemediationAnnotation]; skipped {
			if e.requestOf(m.Name).GetUID() != "" || statusOf(m, clusterv1.MachineHealthCheckSucceededCondition) == "False" {
				e.t.Errorf("machine %s is to be left alone and is not: %s", m.Name, e.record.history())
			}
			continue
		}
		if node := e.there.nodes[m.Name]; !byHand && node != nil && !e.ready(m.Name) && e.clock.Now().Before(e.expires(node)) {
			continue // its timeout has not expired, and its conditions stay
		}
		want := "True"
		if byHand || !e.ready(m.Name) {
			want = "False"
			bad++
		}
		if is := statusOf(m, clusterv1.MachineHealthCheckSucceededCondition); is != want {
			e.t.Errorf("machine %s is said to be healthy: %s instead of %s: %s", m.Name, is, want, e.record.history())
		}
		if e.flies(check, m) {
			flying++
		}
	}
	e.asManyAsAllowed(check, bad, flying)
}

// expires is when the timeout of a node that is not ready is over: what it said before an outage counts from when its kubelet has surely
// spoken since.
func (e *environment) expires(node *corev1.Node) time.Time {
	since := node.Status.Conditions[0].LastTransitionTime.Time
	if since.Before(e.there.backAt) {
		since = e.there.backAt.Add(health.Settling)
	}
	return since.Add(timeout)
}

// afterOutages lets the time reconcile until what was said before an outage counts again, if there was one.
func (e *environment) afterOutages() {
	if e.there.cutAt.IsZero() && e.there.backAt.After(noon) {
		e.settle(health.Settling + timeout)
	}
}

// flies reports whether a machine is remediated in the way that its check names.
func (e *environment) flies(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine) bool {
	if check.Spec.Remediation.TemplateRef.IsDefined() {
		return e.requestOf(m.Name).GetUID() != ""
	}
	return statusOf(m, clusterv1.MachineHealthCheckSucceededCondition) == "False" &&
		statusOf(m, clusterv1.MachineOwnerRemediatedCondition) == "False"
}

func (e *environment) asManyAsAllowed(check *clusterv1.MachineHealthCheck, bad, flying int) {
	e.t.Helper()
	want := bad
	if check.Annotations[mendv1.MaxInFlightAnnotation] != "" {
		want = min(bad, 1)
	}
	if limit := check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo; limit != nil && bad > limit.IntValue() {
		want = 0 // what has started before goes on
	}
	if flying < want {
		e.t.Errorf("%d machines are unhealthy, %d may be remediated, and %d are: %s", bad, want, flying, e.record.history())
	}
}

// calmsDown makes everything healthy again, and checks that nothing is left of the trouble.
func (e *environment) calmsDown() {
	e.t.Helper()
	e.catchUp()
	e.reconnect()
	e.pauseCluster(false)
	e.edit(unpaused)
	machines := &clusterv1.MachineList{}
	e.must(e.api.List(e.ctx, machines, client.InNamespace(e.namespace)))
	for i := range machines.Items {
		m := &machines.Items[i]
		e.recover(m.Name)
		if req := e.requestOf(m.Name); req.GetUID() != "" {
			e.finalize(m.Name)
		}
		m.Annotations = nil
		e.must(e.api.Update(e.ctx, m))
	}
	e.enqueueAll()
	e.settle(2 * timeout)
	for name, said := range e.outcome().Machines {
		for _, line := range said {
			if strings.Contains(line, "ExternallyRemediated") || strings.HasPrefix(line, "HealthCheckSucceeded False") {
				e.t.Errorf("machine %s is healthy, and its condition is %q: %s", name, line, e.record.history())
			}
		}
	}
	if left := e.outcome().Requests; len(left) > 0 {
		e.t.Errorf("requests are left: %q: %s", left, e.record.history())
	}
}
