package machines

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	// m2 is overdue for longer than m1, so it is remediated first even if it fails later.
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

// orders are sets of happenings; each set is tried in every order.
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
			all, tried := slices.Collect(faults.Orders(set.events)), 0
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

// isRight checks the conditions of the machines that a check acts on and can judge, and that as many are remediated as may be.
func (e *environment) isRight() {
	e.t.Helper()
	if e.cache.Late() || !e.there.cutAt.IsZero() || e.clock.Now().Sub(e.there.backAt) < 10*time.Second {
		return
	}
	bad, flying := 0, 0
	var check *clusterv1.MachineHealthCheck
	for _, m := range e.allMachines() {
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
			continue // its timeout has not expired, so its conditions do not change
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

// expires returns when the timeout of a node that is not Ready ends. For a status from before an outage the timeout counts from when its
// kubelet must have reported again.
func (e *environment) expires(node *corev1.Node) time.Time {
	since := node.Status.Conditions[0].LastTransitionTime.Time
	if since.Before(e.there.backAt) {
		since = e.there.backAt.Add(health.Settling)
	}
	return since.Add(timeout)
}

// afterOutages lets the time pass until statuses from before an outage count again, if there was one.
func (e *environment) afterOutages() {
	if e.there.cutAt.IsZero() && e.there.backAt.After(noon) {
		e.settle(health.Settling + timeout)
	}
}

// flies reports whether a machine is being remediated in the way that its check specifies.
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
	if check.Labels[atOnce] != "" {
		want = min(bad, 1)
	}
	if limit := check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo; limit != nil && bad > limit.IntValue() {
		want = 0 // a remediation that has begun goes on
	}
	if flying < want {
		e.t.Errorf("%d machines are unhealthy, %d may be remediated, and %d are: %s", bad, want, flying, e.record.history())
	}
}

// calmsDown makes everything healthy again, and checks that nothing is left.
func (e *environment) calmsDown() {
	e.t.Helper()
	e.catchUp()
	e.reconnect()
	e.pauseCluster(false)
	e.edit(unpaused)
	for _, m := range e.allMachines() {
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

// wait is long enough for all retries, and shorter than the timeouts of a check.
const wait = 45 * time.Second

// tale is what happens outside of the program. The program settles after each event.
type tale struct {
	name   string
	begin  func(*environment)
	events []func(*environment)
}

// tales are played once undisturbed, and then with every failing write and every crash.
var tales = []tale{
	{"three things at once: a machine recovers, another one fails, and a new check asks an owner",
		func(e *environment) {
			e.unknown = true
			e.machines("recovers", "breaks", "wavers")
			e.machineOf("owned", "owned")
			e.fail("recovers", "owned")
			e.check("check", byTemplate)
		}, []func(*environment){func(e *environment) {
			e.recover("recovers")
			e.fail("breaks")
			e.there.sets("wavers", corev1.ConditionUnknown, 0)
			e.check("owned", ofPool("owned"))
		}}},
	{"the owner replaces a machine",
		func(e *environment) { e.machines("m1", "m2"); e.check("check") },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			(*environment).ownerActs,
		}},
	{"a machine recovers before its owner acts, and fails again",
		func(e *environment) { e.machines("m1", "m2"); e.check("check") },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			func(e *environment) { e.recover("m1") },
			func(e *environment) { e.fail("m1") },
			(*environment).ownerActs,
		}},
	{"a provider succeeds",
		func(e *environment) { e.machines("m1", "m2"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			(*environment).providerTakes,
			func(e *environment) { e.recover("m1") },
			func(e *environment) { e.finalize("m1") },
		}},
	{"a provider fails, and the owner replaces the machine",
		func(e *environment) { e.machines("m1", "m2"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			(*environment).providerTakes,
			func(e *environment) { e.providerGivesUp("m1") },
			func(e *environment) { e.finalize("m1"); e.ownerActs() },
		}},
	{"a template is missing, and is made",
		func(e *environment) {
			e.machines("m1", "m2")
			e.must(e.api.Delete(e.ctx, aTemplate(e.namespace, "reboot")))
			e.check("check", byTemplate)
		}, []func(*environment){
			func(e *environment) { e.fail("m1") },
			func(e *environment) { e.must(e.api.Create(e.ctx, aTemplate(e.namespace, "reboot"))) },
			func(e *environment) { e.recover("m1") },
		}},
	{"too many machines fail, and some recover",
		func(e *environment) { e.machines("m1", "m2", "m3", "m4"); e.check("check", upTo("50%")) },
		[]func(*environment){
			func(e *environment) { e.fail("m1", "m2", "m3") },
			func(e *environment) { e.recover("m2") },
			(*environment).ownerActs,
		}},
	{"three machines fail of which one may be remediated at a time, by their owner",
		func(e *environment) { e.machines("m1", "m2", "m3", "m4"); e.check("check", oneAtATime) },
		[]func(*environment){
			func(e *environment) { e.fail("m1", "m2", "m3") },
			(*environment).ownerActs,
			(*environment).ownerActs,
			(*environment).ownerActs,
		}},
	{"three machines fail of which one may be remediated at a time, by a provider",
		func(e *environment) {
			e.machines("m1", "m2", "m3", "m4")
			e.check("check", byTemplate, oneAtATime)
		}, []func(*environment){
			func(e *environment) { e.fail("m1", "m2", "m3") },
			func(e *environment) { e.recoverRemediated("m1", "m2", "m3") },
			func(e *environment) { e.recoverRemediated("m1", "m2", "m3") },
			func(e *environment) { e.recoverRemediated("m1", "m2", "m3") },
		}},
	{"a machine fails again while its request is being deleted",
		func(e *environment) { e.machines("m1", "m2"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			(*environment).providerTakes,
			func(e *environment) { e.recover("m1") },
			func(e *environment) { e.fail("m1") },
			func(e *environment) { e.finalize("m1") },
		}},
	{"two checks select the same machine, and the older one is deleted",
		func(e *environment) {
			e.machines("m1", "m2")
			e.check("a-older", byTemplate)
			e.check("b-younger", byTemplate, upTo("0")) // it may begin nothing, so the order of the two does not matter
		},
		[]func(*environment){
			func(e *environment) { e.fail("m1") }, undisturbed, // a check whose write has failed waits a minute for the other check
			func(e *environment) { e.deleteCheck("a-older") },
			func(e *environment) { e.recover("m1") },
		}},
	{"a person marks a healthy machine, and then an unhealthy one is to be left alone",
		func(e *environment) { e.machines("m1", "m2"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.annotate("m1", clusterv1.RemediateMachineAnnotation); e.fail("m2") },
			func(e *environment) { e.annotate("m2", clusterv1.MachineSkipRemediationAnnotation) },
			func(e *environment) { e.unannotate("m1", clusterv1.RemediateMachineAnnotation) },
			func(e *environment) { e.unannotate("m2", clusterv1.MachineSkipRemediationAnnotation) },
		}},
	{"a check is deleted while a request is under way and an owner is asked",
		func(e *environment) {
			e.machines("m1")
			e.machineOf("owned", "m2")
			e.check("check", byTemplate)
			e.check("owned", ofPool("owned"))
		}, []func(*environment){
			func(e *environment) { e.fail("m1", "m2") },
			func(e *environment) { e.deleteCheck("check"); e.deleteCheck("owned") },
		}},
	{"the workload cluster is out of reach for a short time, in which a timeout expires",
		func(e *environment) { e.machines("m1", "m2", "m3"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			func(e *environment) {
				e.there.sets("m3", corev1.ConditionUnknown, timeout-20*time.Second)
				e.enqueueAll()
				e.settle(time.Second)
				e.cut()
				e.settle(25 * time.Second)
				e.recover("m1", "m3")
				e.fail("m2")
				e.reconnect()
			},
		}},
	{"the workload cluster is out of reach for long",
		func(e *environment) { e.machines("m1", "m2", "m3"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.fail("m1"); e.there.sets("m3", corev1.ConditionUnknown, 0) },
			func(e *environment) { e.cut() },
			func(e *environment) { e.settle(2 * timeout); e.recover("m1", "m3"); e.fail("m2") },
			func(e *environment) { e.annotate("m3", clusterv1.RemediateMachineAnnotation) },
			func(e *environment) { e.unannotate("m3", clusterv1.RemediateMachineAnnotation); e.reconnect() },
		}},
	{"a check remediates by requests no more, and is paused",
		func(e *environment) { e.machines("m1", "m2"); e.check("check", byTemplate) },
		[]func(*environment){
			func(e *environment) { e.fail("m1") },
			func(e *environment) { e.edit(byOwner) },
			func(e *environment) { e.edit(paused); e.recover("m1"); e.fail("m2") },
			func(e *environment) { e.edit(unpaused, byTemplate) },
		}},
	{"requests without a mark are adopted, of an unhealthy machine and of a healthy one",
		func(e *environment) {
			e.machines("m1", "m2")
			e.fail("m1")
			for _, name := range []string{"m1", "m2"} {
				req := aRequest(e.namespace, name)
				req.SetAnnotations(map[string]string{
					clusterv1.TemplateClonedFromNameAnnotation:      "reboot",
					clusterv1.TemplateClonedFromGroupKindAnnotation: templateKind.GroupKind().String(),
				})
				m := &clusterv1.Machine{}
				e.must(e.api.Get(e.ctx, client.ObjectKeyFromObject(req), m))
				req.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name,
					UID: m.UID}})
				e.must(e.api.Create(e.ctx, req))
			}
			e.check("check", byTemplate)
		}, []func(*environment){
			func(e *environment) { e.recover("m1") },
		}},
}
