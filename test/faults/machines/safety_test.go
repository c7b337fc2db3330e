package machines

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// mayStart fails the test if a remediation of that machine must not begin now.
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

// mayStartLocked is mayStart of a machine as it was read. What begins counts as so many that are not in flight yet.
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

// lost reports whether a probe of the workload cluster has failed, or its watches are not made again yet.
func (e *environment) lost() bool { return e.link.failures() > 0 || e.link.nodes == nil }

// ready reports whether a machine's node is Ready, as far as that can be known.
func (e *environment) ready(machine string) bool {
	nodes := e.there.nodes
	if !e.there.cutAt.IsZero() && e.link.nodes != nil {
		nodes = e.link.nodes.shown
	}
	node := nodes[machine]
	return node != nil && node.Status.Conditions[0].Status == corev1.ConditionTrue
}

// checkOf is the check that acts on m: the oldest that selects it and is not paused; nil if there is none.
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

// withinLimits fails the test if check must not have as many remediations as there are, and so many more.
func (e *environment) withinLimits(check *clusterv1.MachineHealthCheck, more int, unsafe func(string)) {
	machines := &clusterv1.MachineList{}
	e.must(e.api.List(e.ctx, machines, client.InNamespace(e.namespace)))
	total, bad, flying := 0, 0, 0
	for i := range machines.Items {
		m := &machines.Items[i]
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
	if limit, set := check.Annotations[mendv1.MaxInFlightAnnotation]; set {
		if allowed := intstr.Parse(limit); flying+more > allowed.IntValue() {
			unsafe("as many as are allowed are in flight")
		}
	}
}

// mayDelete fails the test if that request must not be deleted now.
func (e *environment) mayDelete(req *unstructured.Unstructured) {
	e.record.mu.Lock()
	defer e.record.mu.Unlock()
	if req.GetUID() == "" {
		return // it is gone
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
