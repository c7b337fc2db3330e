package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/policy"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory"
)

const (
	namespace = "remediators"
	elsewhere = "leases"
	// timeout is the timeout of each escalation step.
	timeout = 4 * time.Minute
	keep    = "test.kubemend.io/keep"
)

// The kinds of requests. Requests of the infrastructure provider have the name of the node's Machine.
var (
	reboot  = schema.GroupVersionKind{Group: "test.kubemend.io", Version: "v1", Kind: "Reboot"}
	replace = schema.GroupVersionKind{Group: "test.kubemend.io", Version: "v1", Kind: "Replace"}
	global  = schema.GroupVersionKind{Group: "test.kubemend.io", Version: "v1", Kind: "Global"}
	cycle   = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "Cycle"}

	remediations = []schema.GroupVersionKind{reboot, replace, global, cycle}
)

func templateOf(kind schema.GroupVersionKind) schema.GroupVersionKind {
	return kind.GroupVersion().WithKind(kind.Kind + "Template")
}

// environment is a cluster with the controller. The test plays all others.
type environment struct {
	*testing.T
	server  *inmemory.Server
	program *inmemory.Program
	safety  *safety
	late    bool // whether the controller's cache is stale
	// policies are the policies that a manager finds at its start: at most one node is remediated at a time.
	policies []*policy.Policy
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	var kinds []inmemory.Kind
	for _, kind := range remediations {
		kinds = append(kinds,
			inmemory.Kind{GroupVersionKind: kind, Global: kind == global},
			inmemory.Kind{GroupVersionKind: templateOf(kind), Global: kind == global})
	}
	server, err := Server(clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)), kinds...)
	must.Do(t, err)
	e := &environment{T: t, server: server}
	e.program = Program(server, Options{
		Leases: elsewhere, Recorder: &events.FakeRecorder{}, Logger: logr.Discard(),
		Policies: func() []*policy.Policy { return e.policies },
	})
	e.program.Restarts = true
	e.safety = &safety{environment: e, seen: map[string]bool{}, stopped: map[string]string{}, steps: map[string]int{}}
	e.program.AfterReconcile = e.safety.check
	for _, name := range []string{namespace, elsewhere} {
		e.makes(builders.Namespace(name))
	}
	return e
}

func (e *environment) must(err error) {
	e.Helper()
	must.Do(e, err)
}

func (e *environment) makes(objects ...client.Object) {
	e.Helper()
	for _, obj := range objects {
		e.must(e.server.Create(context.Background(), obj))
	}
}

// node creates a node that has been Ready for an hour.
func (e *environment) node(name string, labels map[string]string) *corev1.Node {
	e.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "workers"}}}
	for key, value := range labels {
		n.Labels[key] = value
	}
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(e.server.Clock.Now().Add(-time.Hour)),
	}}
	e.makes(n)
	return n
}

// turns sets the Ready condition of a node, with a transition some time ago.
func (e *environment) turns(name string, status corev1.ConditionStatus, ago time.Duration) {
	e.Helper()
	n := e.getNode(name)
	if n == nil {
		return
	}
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(e.server.Clock.Now().Truncate(time.Second)),
	}}
	e.must(e.server.Status().Update(context.Background(), n))
	e.must(e.program.Step(ago)) // the controller would not believe a transition from before it saw the node Ready
}

func (e *environment) fails(name string)    { e.turns(name, corev1.ConditionUnknown, 10*time.Minute) }
func (e *environment) recovers(name string) { e.turns(name, corev1.ConditionTrue, 0) }

// get reads obj, and reports whether it exists.
func (e *environment) get(obj client.Object) bool {
	err := e.server.Get(context.Background(), client.ObjectKeyFromObject(obj), obj)
	e.must(client.IgnoreNotFound(err))
	return err == nil
}

// getNode returns a node, or nil if it does not exist.
func (e *environment) getNode(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if !e.get(n) {
		return nil
	}
	return n
}

func (e *environment) loses(name string) {
	e.deletes(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// template creates a template, whose remediator supports one request for a node, or several.
func (e *environment) template(kind schema.GroupVersionKind, name string, several bool) corev1.ObjectReference {
	e.Helper()
	t := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"size": int64(42)}}}}}
	t.SetGroupVersionKind(templateOf(kind))
	t.SetName(name)
	if kind != global {
		t.SetNamespace(namespace)
	}
	if several {
		t.SetAnnotations(map[string]string{nhcv1.MultipleTemplatesAnnotation: "true"})
	}
	e.makes(t)
	return corev1.ObjectReference{APIVersion: t.GetAPIVersion(), Kind: t.GetKind(), Namespace: t.GetNamespace(), Name: name}
}

// refOf returns a reference to an existing template.
func refOf(s step) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: s.kind.GroupVersion().String(), Kind: templateOf(s.kind).Kind, Namespace: namespace, Name: s.name}
}

// nodeCheck creates a check of the workers.
func (e *environment) nodeCheck(name string, edits ...func(*nhcv1.NodeHealthCheck)) {
	e.Helper()
	c := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
	for _, edit := range edits {
		edit(c)
	}
	e.makes(c)
}

// one makes a check use one template, escalating makes it use several as escalation steps.
func one(ref corev1.ObjectReference) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.RemediationTemplate, c.Spec.EscalatingRemediations = &ref, nil }
}

func escalating(refs ...corev1.ObjectReference) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) {
		for i, ref := range refs {
			c.Spec.EscalatingRemediations = append(c.Spec.EscalatingRemediations, nhcv1.EscalatingRemediation{
				RemediationTemplate: ref, Order: i, Timeout: metav1.Duration{Duration: timeout},
			})
		}
	}
}

// getCheck returns a check, or nil if it does not exist.
func (e *environment) getCheck(name string) *nhcv1.NodeHealthCheck {
	c := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if !e.get(c) {
		return nil
	}
	return c
}

func (e *environment) changes(check string, change func(*nhcv1.NodeHealthCheck)) {
	e.Helper()
	c := e.getCheck(check)
	change(c)
	e.must(e.server.Update(context.Background(), c))
}

// requests returns all requests, oldest first.
func (e *environment) requests() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, kind := range remediations {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		e.must(e.server.List(context.Background(), list))
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int {
		return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time)
	})
	return all
}

// named returns a request in the form of the tables: "Reboot/soft".
func named(req *unstructured.Unstructured) string {
	return req.GetKind() + "/" + req.GetAnnotations()[nhcv1.TemplateNameAnnotation]
}

// about returns the node of a request.
func about(req *unstructured.Unstructured) string {
	return req.GetAnnotations()[nhcv1.NodeNameAnnotation]
}

// leases returns the holders of the leases on nodes, by node.
func (e *environment) leases() map[string]string {
	list := &coordinationv1.LeaseList{}
	e.must(e.server.List(context.Background(), list, client.InNamespace(elsewhere)))
	held := map[string]string{}
	for i := range list.Items {
		held[strings.TrimPrefix(list.Items[i].Name, nhcv1.LeasePrefix)] = ptr.Deref(list.Items[i].Spec.HolderIdentity, "")
	}
	return held
}

// takes makes another holder take the lease on a node for some time.
func (e *environment) takes(node, holder string, length time.Duration) {
	e.Helper()
	now := metav1.NewMicroTime(e.server.Clock.Now())
	e.makes(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: nhcv1.LeasePrefix + node},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(length / time.Second)), AcquireTime: &now, RenewTime: &now,
		},
	})
}

// says makes the remediator of a request set a condition.
func (e *environment) says(req *unstructured.Unstructured, kind string, status metav1.ConditionStatus) {
	e.Helper()
	u := e.again(req)
	if u == nil {
		return
	}
	conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	e.must(err)
	conditions = slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == kind })
	conditions = append(conditions, map[string]any{
		"type": kind, "status": string(status), "lastTransitionTime": e.server.Clock.Now().UTC().Format(time.RFC3339),
	})
	e.must(unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions"))
	e.must(e.server.Status().Update(context.Background(), u))
}

// again reads a request again; nil if it no longer exists.
func (e *environment) again(req *unstructured.Unstructured) *unstructured.Unstructured {
	u := req.DeepCopy()
	if !e.get(u) || u.GetUID() != req.GetUID() {
		return nil
	}
	return u
}

// holds makes a remediator add a finalizer to its request, or remove it.
func (e *environment) holds(req *unstructured.Unstructured, does bool) {
	e.Helper()
	u := e.again(req)
	if u == nil {
		return
	}
	u.SetFinalizers(nil)
	if does {
		u.SetFinalizers([]string{keep})
	}
	e.must(e.server.Update(context.Background(), u))
}

func (e *environment) deletes(obj client.Object) {
	e.Helper()
	e.must(client.IgnoreNotFound(e.server.Delete(context.Background(), obj)))
}

// awaits lets time pass until is returns true.
func (e *environment) awaits(what string, is func() bool) {
	e.Helper()
	const most = controlplane.ReplacementPatience + 10*time.Minute // how long a deleted node counts unless replaced
	for until := e.server.Clock.Now().Add(most); ; {
		e.must(e.program.Settle())
		if is() {
			return
		}
		if !e.server.Clock.Now().Before(until) {
			e.Fatalf("%s: awaited for %s\n%s", what, most, e.state())
		}
		e.must(e.program.Walk(5 * time.Second))
	}
}

func (e *environment) elapse(d time.Duration) {
	e.Helper()
	e.must(e.program.Walk(d))
}

// state returns everything that may explain a failure.
func (e *environment) state() string {
	var b strings.Builder
	done, struck := e.program.Writes.Done()
	now := e.server.Clock.Now().Format(time.TimeOnly)
	fmt.Fprintf(&b, "it is %s, after %d reconciles of %d instances, struck: %v\n", now, e.program.Reconciles, e.program.Starts, struck)
	for _, w := range done {
		fmt.Fprintf(&b, "  %s\n", w)
	}
	for _, r := range e.requests() {
		fmt.Fprintf(&b, "request %v %v\n", r.Object["metadata"], r.Object["status"])
	}
	checks := &nhcv1.NodeHealthCheckList{}
	e.must(e.server.List(context.Background(), checks))
	for i := range checks.Items {
		fmt.Fprintf(&b, "check %s: %+v\n", checks.Items[i].Name, checks.Items[i].Status)
	}
	fmt.Fprintf(&b, "leases: %v\n", e.leases())
	return b.String()
}
