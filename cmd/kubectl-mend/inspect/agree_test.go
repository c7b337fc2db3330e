package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// These tests inspect a scene, then have the controller reconcile the very same scene, and compare the explanation with what the reconcile has
// done. They know of both no more than users do: what is printed, and what objects and events say.

// noon is when every scene begins.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(ago time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-ago)) }

// quiet is a context in which controllers do not log.
func quiet() context.Context { return log.IntoContext(context.Background(), logr.Discard()) }

// reporter is what *testing.T and *rapid.T have in common.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

var (
	_ reporter = &testing.T{}
	_ reporter = &rapid.T{}
)

// told is an event.
type told struct{ kind, name, reason, text string }

// recorder keeps the events of a reconcile.
type recorder struct{ events []told }

// Eventf implements events.EventRecorder.
func (r *recorder) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	obj := about.(client.Object)
	r.events = append(r.events, told{about.GetObjectKind().GroupVersionKind().Kind, obj.GetName(), reason, fmt.Sprintf(note, args...)})
}

// of are the texts of the events about an object, for a reason.
func (r *recorder) of(kind, name, reason string) []string {
	var texts []string
	for _, e := range r.events {
		if e.kind == kind && e.name == name && e.reason == reason {
			texts = append(texts, e.text)
		}
	}
	return texts
}

// play is a scene that is inspected and reconciled.
type play struct {
	reporter
	snapshot *snapshot.Snapshot
	clock    *clocktesting.FakePassiveClock
	asker    *Asker
	*recorder
}

// played is a play in w, in which a manager runs that says this of itself.
func played(t reporter, w *snapshot.Snapshot, says managerlease.Announcement) *play {
	t.Helper()
	said, err := json.Marshal(says)
	if err != nil {
		t.Fatalf("%v", err)
	}
	manager := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kubemend-system", Name: managerlease.LeaseName, Annotations: map[string]string{mendv1.ManagerAnnotation: string(said)},
	}}
	manager.Spec.HolderIdentity, manager.Spec.LeaseDurationSeconds = ptr.To("kubemend-0"), ptr.To[int32](60)
	manager.Spec.RenewTime = &metav1.MicroTime{Time: noon}
	if err := w.Add(manager); err != nil {
		t.Fatalf("%v", err)
	}
	p := &play{reporter: t, snapshot: w, clock: clocktesting.NewFakePassiveClock(noon), recorder: &recorder{}}
	w.Clock = p.clock
	if p.asker, err = New(quiet(), w, noon); err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

// at makes it that moment.
func (p *play) at(now time.Time) {
	p.clock.SetTime(now)
	p.asker.Now = now
}

// sameConditions reports whether two lists have the same conditions, but for when those turned that turned at now.
func (p *play) sameConditions(what string, said, stored []metav1.Condition) {
	p.Helper()
	byType := func(a, b metav1.Condition) int { return slices.Compare([]byte(a.Type), []byte(b.Type)) }
	clean := func(all []metav1.Condition) []metav1.Condition {
		all = slices.Clone(all)
		for i := range all {
			all[i].LastTransitionTime = metav1.NewTime(all[i].LastTransitionTime.UTC().Truncate(time.Second))
		}
		slices.SortFunc(all, byType)
		return all
	}
	if diff := cmp.Diff(clean(said), clean(stored)); diff != "" {
		p.Errorf("the conditions of %s (-said +stored):\n%s", what, diff)
	}
}

// sameMoment reports whether two moments are the same, to the millisecond by which a reconcile is put off at least.
func sameMoment(a, b time.Time) bool { return a.Sub(b).Abs() <= time.Millisecond }

// texts are those of the findings that count.
func texts(findings []explain.Finding) []string {
	var all []string
	for _, f := range findings {
		if f.Expired {
			all = append(all, f.Message)
		}
	}
	return all
}

// pick is one of several.
func pick[T any](t *rapid.T, what string, of ...T) T { return rapid.SampledFrom(of).Draw(t, what) }

// odds is true once in so many times.
func odds(t *rapid.T, what string, n int) bool { return rapid.IntRange(1, n).Draw(t, what) == n }

// ago is a time ago that lies around the usual timeouts: a second before, at, and after their end.
func ago(t *rapid.T, what string) metav1.Time {
	return at(time.Duration(pick(t, what, 0, 1, 29, 30, 59, 60, 61, 120, 299, 300, 301, 599, 600, 601, 3600)) * time.Second)
}

// machineScene is a management cluster with clusters, machines and the checks that watch them.
type machineScene struct {
	unclaimed machinehealthcheck.Unclaimed
	clusters  []*clusterv1.Cluster
	checks    []*clusterv1.MachineHealthCheck
	machines  []*clusterv1.Machine
	nodes     map[string][]corev1.Node // by cluster
	others    []client.Object
	// unseen are the clusters that the manager cannot see, hidden those that the user cannot see either.
	unseen, hidden map[string]bool
}

// snapshot is the scene as it is inspected. Of the kinds that checks may name, one is not installed and one may not be read.
func (s *machineScene) snapshot(t reporter) *snapshot.Snapshot {
	t.Helper()
	w := snapshot.New()
	w.Taken = noon
	for _, kind := range []string{"HostRemediation", "OddRemediation"} {
		w.Install(mendv1.GroupVersion.WithKind(kind), "plural-of-"+kind, true)
		w.Install(mendv1.GroupVersion.WithKind(kind+remediationrequest.TemplateSuffix), "plural-of-templates-of-"+kind, true)
	}
	for _, kind := range []string{"SecretRemediation", "SecretRemediationTemplate"} {
		w.Forbid(mendv1.GroupVersion.WithKind(kind), "secrets", true, "",
			apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", nil))
	}
	objs := s.others
	for _, c := range s.clusters {
		objs = append(objs, c)
		key := client.ObjectKeyFromObject(c)
		w.SetNodes(key, s.nodes[c.Name])
		if s.hidden[c.Name] {
			w.SetUnseen(key, "there is no way", time.Time{})
		}
	}
	for _, c := range s.checks {
		objs = append(objs, c)
	}
	for _, m := range s.machines {
		objs = append(objs, m)
	}
	if err := w.Add(objs...); err != nil {
		t.Fatalf("%v", err)
	}
	return w
}

// older reports whether another check acts on the machine, by what docs/coexistence.md says: it is older, and selects it.
func (s *machineScene) older(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine) bool {
	for _, other := range s.checks {
		first := other.CreationTimestamp.Before(&check.CreationTimestamp) ||
			other.CreationTimestamp.Equal(&check.CreationTimestamp) && other.Name < check.Name
		if other.Name != check.Name && first && capi.Judges(other, m) {
			return true
		}
	}
	return false
}

// retried is how soon a reconcile reads a template again that it could not read.
func (s *machineScene) retried(said *explain.Check) time.Duration {
	for _, check := range s.checks {
		kind := check.Spec.Remediation.TemplateRef.Kind
		if check.Name == said.Name && kind == "GoneRemediationTemplate" {
			return 30 * time.Second
		}
	}
	return 0
}

// aMachineScene is a cluster c1 with a claimed check of its workers, of which there are none yet.
func aMachineScene(edits ...func(*machineScene)) *machineScene {
	s := &machineScene{
		unclaimed: machinehealthcheck.Observe, nodes: map[string][]corev1.Node{}, unseen: map[string]bool{}, hidden: map[string]bool{},
		clusters: []*clusterv1.Cluster{aCluster("c1")}, checks: []*clusterv1.MachineHealthCheck{aMachineCheck("check-a", "c1")},
		others: []client.Object{template("HostRemediation", "reboot", "HostRemediation"), template("OddRemediation", "reboot", "HostRemediation")},
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func aCluster(name string) *clusterv1.Cluster {
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	say(c, clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionTrue, "Initialized", at(2*time.Hour))
	say(c, clusterv1.ClusterInfrastructureReadyCondition, metav1.ConditionTrue, "Ready", at(2*time.Hour))
	return c
}

// aMachineCheck is a claimed check of all machines with the label pool=a, whose nodes may not be ready for five minutes.
func aMachineCheck(name, cluster string) *clusterv1.MachineHealthCheck {
	c := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: at(3 * time.Hour), Generation: 2,
		Annotations: map[string]string{clusterv1.PausedAnnotation: mendv1.Claim},
	}}
	c.Spec.ClusterName, c.Spec.Selector.MatchLabels = cluster, map[string]string{"pool": "a"}
	c.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](300)},
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, TimeoutSeconds: ptr.To[int32](300)},
	}
	return c
}

// aMachine is a worker of the pool a whose node is ready.
func (s *machineScene) aMachine(name string) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: at(time.Hour), Generation: 2,
		Labels:          map[string]string{"pool": "a", clusterv1.ClusterNameLabel: "c1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "md-0", UID: "md-0", Controller: ptr.To(true)}},
	}}
	m.Spec.ClusterName, m.Status.NodeRef.Name = "c1", "node-"+name
	s.machines = append(s.machines, m)
	return m
}

// aNode is the node of a machine, with the condition Ready since then.
func (s *machineScene) aNode(m *clusterv1.Machine, status corev1.ConditionStatus, since metav1.Time) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + m.Name, UID: types.UID("uid-of-node-" + m.Name)}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Kubelet", LastTransitionTime: since}}
	s.nodes[m.Spec.ClusterName] = append(s.nodes[m.Spec.ClusterName], node)
}

// say gives an object a condition that it has had since then.
func say(obj conditions.Setter, kind string, status metav1.ConditionStatus, reason string, since metav1.Time) {
	obj.SetConditions(append(obj.GetConditions(), metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: since}))
}

func template(kind, name, makes string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{
		"apiVersion": mendv1.GroupVersion.String(), "kind": makes, "spec": map[string]any{},
	}}}}
	u.SetGroupVersionKind(mendv1.GroupVersion.WithKind(kind + remediationrequest.TemplateSuffix))
	u.SetNamespace("ns")
	u.SetName(name)
	return u
}

// aRequest is a request for a machine that was made from the template reboot, by an unknown maker.
func aRequest(kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(mendv1.GroupVersion.WithKind(kind))
	u.SetNamespace("ns")
	u.SetName(name)
	u.SetCreationTimestamp(at(10 * time.Minute))
	u.SetAnnotations(map[string]string{
		clusterv1.TemplateClonedFromNameAnnotation:      "reboot",
		clusterv1.TemplateClonedFromGroupKindAnnotation: mendv1.GroupVersion.WithKind(kind + remediationrequest.TemplateSuffix).GroupKind().String(),
	})
	return u
}

// madeBy marks a request.
func madeBy(u *unstructured.Unstructured, check string, uid types.UID) *unstructured.Unstructured {
	annotations := u.GetAnnotations()
	annotations[mendv1.MadeByAnnotation] = check
	u.SetAnnotations(annotations)
	u.SetLabels(map[string]string{mendv1.MadeByUIDLabel: string(uid)})
	return u
}

func leaving(obj client.Object) {
	obj.SetFinalizers([]string{"test/keeps"})
	obj.SetDeletionTimestamp(ptr.To(at(time.Minute)))
}
