package nodehealthcheck

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
)

const us = nhcv1.LeaseHolderPrefix + "nhc"

func leaseFor(holder string, length, acquired, renewed time.Duration) *Lease {
	f := of()
	return f.leaseOn(nil, leaseOf(holder, length, acquired, renewed))
}

const bad, unknown, good = "False", "Unknown", "True"

// ready returns a node whose Ready condition has had the status since epoch+at.
func ready(status string, at time.Duration) Node {
	return Node{Object: &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionStatus(status), LastTransitionTime: metav1.NewTime(epoch.Add(at))},
	}}}}
}

// of returns the facts of a check with one template and without limits, for nodes named a, b, c and so on.
func of(nodes ...Node) Facts {
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nhc"}}
	check.Spec.RemediationTemplate = &corev1.ObjectReference{}
	check.Spec.UnhealthyConditions = []nhcv1.UnhealthyCondition{
		{Type: corev1.NodeReady, Status: unknown, Duration: metav1.Duration{Duration: 5 * time.Minute}},
	}
	f := FactsOf(check, epoch).with(limit("100%"))
	f.Templates = []Template{reboot(0)}
	for i := range nodes {
		nodes[i].Name = string(rune('a' + i))
		if nodes[i].Object != nil {
			nodes[i].Object.UID = types.UID("uid-" + nodes[i].Name)
		}
	}
	f.Nodes = nodes
	return f
}

func (f Facts) with(changes ...func(*Facts)) Facts {
	for _, change := range changes {
		change(&f)
	}
	return f
}

func reboot(timeout time.Duration) Template {
	return templateOf("RebootTemplate", "remediators", "reboot", schema.GroupVersionKind{Group: "example.org", Kind: "Reboot"}, timeout)
}

func hostTemplate() Template {
	return templateOf("HostRemediationTemplate", "metal", "host", schema.GroupVersionKind{Group: mendv1.GroupVersion.Group, Kind: "HostRemediation"}, 0)
}

func templateOf(kind, namespace, name string, request schema.GroupVersionKind, timeout time.Duration) Template {
	t := Template{ObjectReference: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}, Request: request}
	t.Object = &unstructured.Unstructured{Object: map[string]any{"kind": kind}}
	if timeout > 0 {
		t.Step = &nhcv1.EscalatingRemediation{Timeout: metav1.Duration{Duration: timeout}}
	}
	return t
}

// steps gives the check an escalation with a timeout of five minutes for each step.
func steps(templates ...Template) func(*Facts) {
	return func(f *Facts) {
		f.Check.Spec.RemediationTemplate, f.Templates = nil, slices.Clone(templates)
		for i := range f.Templates {
			f.Templates[i].Step = &nhcv1.EscalatingRemediation{Order: i, Timeout: metav1.Duration{Duration: 5 * time.Minute}}
		}
	}
}

// lost returns a node that has been Ready=Unknown for ten minutes.
func lost(changes ...func(*Node)) Node {
	n := ready(unknown, -10*time.Minute)
	n.Selected, n.Machine = true, &Machine{}
	for _, change := range changes {
		change(&n)
	}
	return n
}

func since(ago time.Duration) func(*Node) {
	return func(n *Node) {
		for i := range n.Object.Status.Conditions {
			n.Object.Status.Conditions[i].LastTransitionTime = metav1.NewTime(epoch.Add(-ago))
		}
	}
}

func healthy(changes ...func(*Node)) Node {
	n := ready(good, -time.Hour)
	n.Selected = true
	for _, change := range changes {
		change(&n)
	}
	return n
}

func annotated(key, value string) func(*Node) {
	return func(n *Node) { metav1.SetMetaDataAnnotation(&n.Object.ObjectMeta, key, value) }
}

func labelled(key, value string) func(*Node) {
	return func(n *Node) { metav1.SetMetaDataLabel(&n.Object.ObjectMeta, key, value) }
}

func created(at time.Time) func(*Node) {
	return func(n *Node) { n.Object.CreationTimestamp = metav1.NewTime(at) }
}

func silentMember(n *Node) { n.Object.Status.Conditions = nil }

func terminating(n *Node) {
	n.Object.Status.Conditions = append(n.Object.Status.Conditions, corev1.NodeCondition{Type: "Terminating", Status: corev1.ConditionTrue})
}

func gone(changes ...func(*Node)) Node {
	var n Node
	for _, change := range changes {
		change(&n)
	}
	return n
}

func requestOf(kind, name, uid string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: kind})
	obj.SetNamespace("remediators")
	obj.SetName(name)
	obj.SetUID(types.UID(uid))
	obj.SetAnnotations(map[string]string{nhcv1.TemplateNameAnnotation: "reboot"})
	return obj
}

// asked adds a request that was created a minute ago.
func asked(changes ...func(*Request)) func(*Node) {
	return func(n *Node) {
		r := Request{Object: requestOf("Reboot", "a", "r")}
		startedBefore(time.Minute)(&r)
		for _, change := range changes {
			change(&r)
		}
		n.Requests = append(n.Requests, r)
	}
}

// stamped sets a time in the metadata of a request, to the nanosecond.
func stamped(field string, ago time.Duration) func(*Request) {
	return func(r *Request) {
		r.Object.Object["metadata"].(map[string]any)[field] = epoch.Add(-ago).Format(time.RFC3339Nano)
	}
}

func notedIn(key string, ago time.Duration) func(*Request) {
	return func(r *Request) {
		all := r.Object.GetAnnotations()
		all[key] = epoch.Add(-ago).Format(time.RFC3339Nano)
		r.Object.SetAnnotations(all)
	}
}

func says(kind string, status escalation.Status, ago time.Duration) func(*Request) {
	return func(r *Request) {
		texts := map[escalation.Status]string{escalation.Yes: "True", escalation.No: "False", escalation.Unsure: "Unknown"}
		if texts[status] == "" {
			return
		}
		conditions, _, _ := unstructured.NestedSlice(r.Object.Object, "status", "conditions")
		conditions = append([]any{map[string]any{
			"type": kind, "status": texts[status], "lastTransitionTime": epoch.Add(-ago).Format(time.RFC3339Nano),
		}}, conditions...)
		_ = unstructured.SetNestedSlice(r.Object.Object, conditions, "status", "conditions")
	}
}

func machine(changes ...func(*Machine)) func(*Node) {
	return func(n *Node) {
		n.Machine = &Machine{Object: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: "m"}}, Cluster: &clusterv1.Cluster{}}
		n.Machine.Object.Spec.ClusterName = "home"
		for _, change := range changes {
			change(n.Machine)
		}
	}
}

func in(namespace string) func(*Machine) { return func(m *Machine) { m.Object.Namespace = namespace } }

func marked(key string) func(*Machine) {
	return func(m *Machine) { metav1.SetMetaDataAnnotation(&m.Object.ObjectMeta, key, "") }
}

func watched(m *Machine) { m.WatchedBy = "mhc" }

func updating(m *Machine) {
	m.Object.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineUpdatingCondition, Status: metav1.ConditionTrue}}
}

func updatingSince(ago time.Duration) func(*Machine) {
	return func(m *Machine) {
		updating(m)
		m.Object.Status.Conditions[0].LastTransitionTime = metav1.NewTime(epoch.Add(-ago))
	}
}

func updateFailed(m *Machine) {
	m.Object.Status.Conditions[0].Reason = clusterv1.MachineInPlaceUpdateFailedReason
}

func rollingOut(m *Machine) {
	m.Cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterRollingOutCondition, Status: metav1.ConditionTrue}}
}

func deleting(ago time.Duration) func(*Request) { return stamped("deletionTimestamp", ago) }

func machineThere(r *Request) { r.MachineThere = true }

func confirmed(n *Node) { annotated(nhcv1.ConfirmedHealthyAnnotation, "")(n) }

func kept(r *Request) { r.Object.SetFinalizers([]string{"remediator"}) }

func succeeded(status escalation.Status) func(*Request) {
	return says(nhcv1.SucceededCondition, status, 0)
}

func deletesNode(status escalation.Status) func(*Request) {
	return says(nhcv1.NodeDeletionExpectedCondition, status, 0)
}

func delayedSince(ago time.Duration) func(*Request) {
	return notedIn(nhcv1.HealthyDelayAnnotation, ago)
}

func notified(r *Request) { notedIn(nhcv1.TimedOutAnnotation, 0)(r) }

// inStatus adds the request to the check's status, where it started at epoch+counted.
func inStatus(counted time.Duration) func(*Request) {
	return func(r *Request) { r.Listed = &nhcv1.Remediation{Started: metav1.NewTime(epoch.Add(-counted))} }
}

func reasons(all []Blocker) []Reason {
	var is []Reason
	for _, b := range all {
		is = append(is, b.Reason)
	}
	return is
}

func pausedBy(who string) func(*Facts) {
	return func(f *Facts) { f.Check.Spec.PauseRequests = []string{who} }
}

func limit(maxUnhealthy string) func(*Facts) {
	return func(f *Facts) {
		f.Check.Spec.MinHealthy, f.Check.Spec.MaxUnhealthy = nil, new(intstr.Parse(maxUnhealthy))
	}
}

func cooldown(d time.Duration) func(*Facts) {
	return func(f *Facts) { f.Check.Spec.StormCooldownDuration = &metav1.Duration{Duration: d} }
}

// awaited makes the manager start now, so that kubelets have had no time to report.
func awaited(f *Facts) { f.Since, f.Grace = epoch, 50*time.Second }

func storm(f *Facts) {
	cooldown(time.Hour)(f)
	f.Storm = budget.Storm{Active: true, CoolingSince: epoch}
}

func healthyDelay(d time.Duration) func(*Facts) {
	return func(f *Facts) { f.Check.Spec.HealthyDelay = &metav1.Duration{Duration: d} }
}

func on(step int) func(*Request) { return func(r *Request) { r.Step = step } }

func startedBefore(ago time.Duration) func(*Request) { return stamped("creationTimestamp", ago) }

func failed(r *Request) { succeeded(escalation.No)(r) }

func excluded(n *Node)   { labelled(nhcv1.ExcludeLabel, nhcv1.ExcludeValue)(n) }
func unselected(n *Node) { n.Selected = false }

func ofPlane(n *Node) {
	if n.Object != nil {
		labelled("node-role.kubernetes.io/control-plane", "")(n)
	}
}

// leaving makes a finalizer keep a Node that has been being deleted for d.
func leaving(d time.Duration) func(*Node) {
	return func(n *Node) {
		n.Object.DeletionTimestamp, n.Object.Finalizers = &metav1.Time{Time: epoch.Add(-d)}, []string{"karpenter.sh/termination"}
	}
}

func leased(l *Lease) func(*Node) { return func(n *Node) { n.Lease = l } }

// deleted adds requests that were deleted and are still in the check's status.
func deleted(all ...Listed) func(*Node) { return func(n *Node) { n.Gone = append(n.Gone, all...) } }

func deletedBefore(times int) func(*Node) {
	return func(n *Node) { n.Loop = repeats.Loop{Times: times} }
}

// was returns the status entry of a request on a step.
func was(step int, ago time.Duration) Listed {
	return Listed{Step: step, Remediation: nhcv1.Remediation{Started: metav1.NewTime(epoch.Add(-ago))}}
}

func givenUp(l Listed) Listed {
	l.TimedOut = &metav1.Time{Time: epoch}
	return l
}

// unseen adds a request that cannot be read.
func unseen(n *Node) { n.Unseen = append(n.Unseen, was(0, time.Minute)) }

// orphaned adds a request of a deleted check of the same name.
func orphaned(n *Node) {
	theirs := []*unstructured.Unstructured{requestOf("Reboot", "theirs", "f")}
	n.Orphaned, n.Others = theirs, theirs
}

// statusLists sets since when the node is healthy or gone according to the check's status.
func statusLists(healthySince time.Time) func(*Node) {
	return func(n *Node) {
		n.Listed = &nhcv1.UnhealthyNode{}
		if !healthySince.IsZero() {
			n.Listed.ConditionsHealthyTimestamp = &metav1.Time{Time: healthySince}
		}
	}
}

// listedDelayed does the same, and says that the healthy delay goes on.
func listedDelayed(healthySince time.Time) func(*Node) {
	return func(n *Node) {
		statusLists(healthySince)(n)
		n.Listed.HealthyDelayed = new(true)
	}
}

func seen(name string, ready bool) controlplane.Member {
	m := controlplane.Member{Name: name, Node: controlplane.Silent}
	if ready {
		m.Node = controlplane.Alive
	}
	return m
}

// reboots adds requests for control-plane nodes that exist and are not ready.
func reboots(names ...string) func(*ControlPlane) {
	return func(c *ControlPlane) {
		for _, name := range names {
			c.addRequest(&Request{Object: requestOf("Reboot", name, name)}, name, &corev1.Node{}, time.Time{}, epoch)
		}
	}
}
