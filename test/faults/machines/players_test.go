package machines

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// finalizer is a provider's finalizer: it keeps a request until the provider has finished its work.
const finalizer = "test.kubemend.io/provider"

// timeout is the timeout of the node conditions of every check here; long is longer.
const (
	timeout = 5 * time.Minute
	long    = 30 * time.Minute
)

// machines creates machines with Ready nodes.
func (e *environment) machines(names ...string) {
	e.t.Helper()
	for _, name := range names {
		e.machineOf("workers", name)
	}
}

func (e *environment) machineOf(pool, name string) {
	e.t.Helper()
	e.there.sets(name, corev1.ConditionTrue, time.Hour)
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name, Labels: map[string]string{"pool": pool}}}
	m.Spec.ClusterName = "c1"
	m.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "workers", UID: "owner", Controller: ptr.To(true),
	}}
	e.must(e.api.Create(e.ctx, m))
	m.Status.NodeRef.Name = name
	m.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: "Test",
		LastTransitionTime: metav1.NewTime(noon),
	}}
	if !e.unknown {
		isHealthy(m)
	}
	e.must(e.api.Status().Update(e.ctx, m))
}

// isHealthy sets the conditions that a check sets on a healthy machine.
func isHealthy(m *clusterv1.Machine) {
	m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
		Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionTrue,
		Reason:             clusterv1.MachineHealthCheckSucceededReason,
		ObservedGeneration: m.Generation, LastTransitionTime: metav1.NewTime(noon),
	})
	m.SetV1Beta1Conditions(clusterv1.Conditions{{
		Type: clusterv1.MachineHealthCheckSucceededV1Beta1Condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon),
	}})
}

// check creates a check of the pool workers.
func (e *environment) check(name string, edits ...func(*clusterv1.MachineHealthCheck)) {
	e.t.Helper()
	c := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
	c.Spec.ClusterName = "c1"
	c.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
		c.Spec.Checks.UnhealthyNodeConditions = append(c.Spec.Checks.UnhealthyNodeConditions, clusterv1.UnhealthyNodeCondition{
			Type: corev1.NodeReady, Status: status, TimeoutSeconds: ptr.To(int32(timeout / time.Second)),
		})
	}
	for _, edit := range edits {
		edit(c)
	}
	e.must(e.api.Create(e.ctx, c))
	e.record.checks = append(e.record.checks, name)
}

func byTemplate(c *clusterv1.MachineHealthCheck) {
	c.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
		APIVersion: templateKind.GroupVersion().String(), Kind: templateKind.Kind, Name: "reboot",
	}
}

func byOwner(c *clusterv1.MachineHealthCheck) {
	c.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{}
}

func ofPool(pool string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = pool }
}

func upTo(limit string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.Parse(limit))
	}
}

// atOnce is a label of checks for which a RemediationPolicy allows one remediation at a time.
const atOnce = "at-once"

func oneAtATime(c *clusterv1.MachineHealthCheck) { c.Labels = map[string]string{atOnce: "1"} }

func paused(c *clusterv1.MachineHealthCheck) {
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterv1.PausedAnnotation, "")
}

func unpaused(c *clusterv1.MachineHealthCheck) { delete(c.Annotations, clusterv1.PausedAnnotation) }

func (e *environment) edit(edits ...func(*clusterv1.MachineHealthCheck)) {
	e.t.Helper()
	c := &clusterv1.MachineHealthCheck{}
	e.must(e.api.Get(e.ctx, client.ObjectKey{Namespace: e.namespace, Name: "check"}, c))
	for _, edit := range edits {
		edit(c)
	}
	e.must(e.api.Update(e.ctx, c))
}

func (e *environment) deleteCheck(name string) {
	e.t.Helper()
	c := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
	e.enqueue(work{false, client.ObjectKeyFromObject(c)}, 0)
	e.must(e.api.Delete(e.ctx, c))
}

func (e *environment) pauseCluster(is bool) {
	e.t.Helper()
	c := &clusterv1.Cluster{}
	e.must(e.api.Get(e.ctx, client.ObjectKey{Namespace: e.namespace, Name: "c1"}, c))
	c.Spec.Paused = ptr.To(is)
	e.must(e.api.Update(e.ctx, c))
}

func (e *environment) machine(name string) *clusterv1.Machine {
	m := &clusterv1.Machine{}
	e.must(e.api.Get(e.ctx, client.ObjectKey{Namespace: e.namespace, Name: name}, m))
	return m
}

func (e *environment) allMachines() []*clusterv1.Machine {
	list := &clusterv1.MachineList{}
	e.must(e.api.List(e.ctx, list, client.InNamespace(e.namespace)))
	all := make([]*clusterv1.Machine, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all
}

func (e *environment) annotate(name, key string) {
	e.t.Helper()
	m := e.machine(name)
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, "")
	e.must(e.api.Update(e.ctx, m))
}

func (e *environment) unannotate(name, key string) {
	e.t.Helper()
	m := e.machine(name)
	delete(m.Annotations, key)
	e.must(e.api.Update(e.ctx, m))
}

// fail makes the nodes of machines Unknown for so long that the machines are unhealthy at once.
func (e *environment) fail(names ...string) {
	for _, name := range names {
		e.there.sets(name, corev1.ConditionUnknown, long)
	}
}

// recoverRemediated makes the machine with a request healthy. Which one has a request depends on the failed write: a machine whose request
// could not be created goes to the end of the queue.
func (e *environment) recoverRemediated(machines ...string) {
	e.t.Helper()
	for _, m := range machines {
		if e.requestOf(m).GetUID() != "" {
			e.recover(m)
			return
		}
	}
	e.t.Fatalf("none of %v is being remediated, after %s", machines, e.record.history())
}

func (e *environment) recover(names ...string) {
	for _, name := range names {
		e.there.sets(name, corev1.ConditionTrue, 0)
	}
}

// cut makes the workload cluster unreachable. ClusterCache enqueues the checks after the first failed probe, and when it closes the
// connection.
func (e *environment) cut() {
	if !e.there.cutAt.IsZero() {
		return
	}
	e.there.cutAt = e.clock.Now()
	for _, after := range []time.Duration{11 * time.Second, givenUp * 10 * time.Second} {
		e.enqueueIn(after)
	}
}

// reconnect makes it reachable again. The checks are enqueued when the connection is opened, and for changed nodes when the watches are
// opened.
func (e *environment) reconnect() {
	if e.there.cutAt.IsZero() {
		return
	}
	e.there.cutAt, e.there.backAt = time.Time{}, e.clock.Now()
	e.enqueueIn(catchUp)
}

func (e *environment) enqueueIn(d time.Duration) { e.coming = append(e.coming, e.clock.Now().Add(d)) }

// ownerActs replaces every machine whose owner is asked to remediate it, as a MachineSet does.
func (e *environment) ownerActs() {
	e.t.Helper()
	for _, m := range e.allMachines() {
		if !collections.IsUnhealthyAndOwnerRemediated(m) {
			continue
		}
		delete(e.there.nodes, m.Name)
		e.must(e.api.Delete(e.ctx, m))
		e.machineOf(m.Labels["pool"], m.Name+"-new")
	}
}

func (e *environment) requestOf(name string) *unstructured.Unstructured {
	req := aRequest(e.namespace, name)
	if err := e.api.Get(e.ctx, client.ObjectKey{Namespace: e.namespace, Name: name}, req); err != nil {
		return aRequest("", "")
	}
	return req
}

// providerTakes makes a provider begin to work on the request for m1.
func (e *environment) providerTakes() {
	e.t.Helper()
	e.finalize("m1", finalizer)
	m := e.machine("m1")
	conditions.Set(m, metav1.Condition{
		Type: clusterv1.MachineExternallyRemediatedCondition, Status: metav1.ConditionFalse, Reason: "Rebooting",
		LastTransitionTime: metav1.NewTime(e.clock.Now()),
	})
	e.must(e.api.Status().Update(e.ctx, m))
}

// finalize sets the finalizers of a request; without finalizers a request with a deletion timestamp is deleted.
func (e *environment) finalize(name string, finalizers ...string) {
	e.t.Helper()
	req := e.requestOf(name)
	if req.GetName() == "" {
		e.t.Fatalf("there is no request for machine %s: %s", name, e.record.history())
	}
	req.SetFinalizers(finalizers)
	e.must(e.api.Update(e.ctx, req))
}

// providerGivesUp requests owner remediation, as the controller of Metal3Remediations does.
func (e *environment) providerGivesUp(name string) {
	e.t.Helper()
	m := e.machine(name)
	conditions.Set(m, metav1.Condition{
		Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
		Reason:             clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
		LastTransitionTime: metav1.NewTime(e.clock.Now()),
	})
	e.must(e.api.Status().Update(e.ctx, m))
}

// mayStart fails the test if no remediation of the machine may begin now.
func (e *environment) mayStart(name, what string) {
	e.record.mu.Lock()
	defer e.record.mu.Unlock()
	m := &clusterv1.Machine{}
	if err := e.api.Get(e.ctx, client.ObjectKey{Namespace: e.namespace, Name: name}, m); err != nil {
		e.t.Errorf("%s machine %s: %s", what, name, err)
		return
	}
	e.mayStartLocked(m, what, 1)
}

// mayStartLocked is mayStart for a machine that was read already. It counts more remediations in addition to those in flight.
func (e *environment) mayStartLocked(m *clusterv1.Machine, what string, more int) {
	unsafe := func(why string) { e.t.Errorf("%s machine %s, although %s, after %q", what, m.Name, why, e.record.log) }
	check := e.checkOf(m)
	_, byHand := m.Annotations[clusterv1.RemediateMachineAnnotation]
	_, skipped := m.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	switch {
	case !m.DeletionTimestamp.IsZero():
		unsafe("it is being deleted")
	case skipped:
		unsafe("it is to be left alone")
	case check == nil:
		unsafe("no check acts on it")
	case !byHand && e.lost():
		unsafe("its node is unknown")
	case !byHand && e.ready(m.Name):
		unsafe("it is healthy")
	default:
		e.withinLimits(check, more, unsafe)
	}
}

// lost reports whether a probe of the workload cluster has failed or its watches are not open.
func (e *environment) lost() bool { return e.link.failures() > 0 || e.link.nodes == nil }

// ready reports whether a machine's node is Ready, as far as kubemend can know.
func (e *environment) ready(machine string) bool {
	nodes := e.there.nodes
	if !e.there.cutAt.IsZero() && e.link.nodes != nil {
		nodes = e.link.nodes.shown
	}
	node := nodes[machine]
	return node != nil && node.Status.Conditions[0].Status == corev1.ConditionTrue
}

// checkOf returns the check that acts on m: the oldest one that selects it and is not paused; nil if there is none.
func (e *environment) checkOf(m *clusterv1.Machine) *clusterv1.MachineHealthCheck {
	c := &clusterv1.Cluster{}
	e.must(e.cache.Get(e.ctx, client.ObjectKey{Namespace: e.namespace, Name: "c1"}, c))
	if ptr.Deref(c.Spec.Paused, false) {
		return nil
	}
	checks := &clusterv1.MachineHealthCheckList{}
	e.must(e.cache.List(e.ctx, checks, client.InNamespace(e.namespace)))
	var eldest *clusterv1.MachineHealthCheck
	for i := range checks.Items {
		c := &checks.Items[i]
		if value, annotated := c.Annotations[clusterv1.PausedAnnotation]; annotated && value != mendv1.Claim || !selects(c, m) {
			continue
		}
		if eldest == nil || c.CreationTimestamp.Before(&eldest.CreationTimestamp) ||
			c.CreationTimestamp.Equal(&eldest.CreationTimestamp) && c.Name < eldest.Name {
			eldest = c
		}
	}
	return eldest
}

func selects(c *clusterv1.MachineHealthCheck, m *clusterv1.Machine) bool {
	selector, err := metav1.LabelSelectorAsSelector(&c.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(m.Labels))
}

// withinLimits fails the test if the check may not have its current remediations and more further ones.
func (e *environment) withinLimits(check *clusterv1.MachineHealthCheck, more int, unsafe func(string)) {
	total, bad, flying := 0, 0, 0
	for _, m := range e.allMachines() {
		if _, skipped := m.Annotations[clusterv1.MachineSkipRemediationAnnotation]; skipped || !selects(check, m) {
			continue
		}
		total++
		if !e.ready(m.Name) {
			bad++
		}
		if e.requestOf(m.Name).GetUID() != "" ||
			statusOf(m, clusterv1.MachineOwnerRemediatedCondition) == "False" &&
				statusOf(m, clusterv1.MachineHealthCheckSucceededCondition) == "False" && !e.ready(m.Name) {
			flying++
		}
	}
	if limit := check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo; limit != nil {
		if most, err := intstr.GetScaledValueFromIntOrPercent(limit, total, false); err != nil || bad > most {
			unsafe("more are unhealthy than the check allows")
		}
	}
	if check.Labels[atOnce] != "" && flying+more > 1 {
		unsafe("as many as are allowed are in flight")
	}
}

// mayDelete fails the test if the request may not be deleted now.
func (e *environment) mayDelete(req *unstructured.Unstructured) {
	e.record.mu.Lock()
	defer e.record.mu.Unlock()
	if req.GetUID() == "" {
		return // the request does not exist
	}
	maker, ours := remediationrequest.MadeBy(req)
	if !ours {
		e.t.Errorf("the request for machine %s is deleted, which another client made", req.GetName())
	}
	m := &clusterv1.Machine{}
	if err := e.api.Get(e.ctx, client.ObjectKeyFromObject(req), m); err != nil {
		return
	}
	check := e.checkOf(m)
	_, skipped := m.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	needed := check != nil && check.Name == maker.Name && check.Spec.Remediation.TemplateRef.IsDefined() && !skipped
	if needed && (e.lost() || !e.ready(m.Name)) {
		e.t.Errorf("the request for machine %s is deleted, although it was not seen healthy, after %q", m.Name, e.record.log)
	}
}
