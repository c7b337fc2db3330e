package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// noon is when every scene plays.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(ago time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-ago)) }

var inC1 = client.ObjectKey{Namespace: "default", Name: "c1"}

// scene is a management cluster with a cluster c1 of five healthy workers, their check, and the manager that acts on it. Each test states
// only what is special about it.
type scene struct {
	cluster  *clusterv1.Cluster
	check    *clusterv1.MachineHealthCheck
	machines map[string]*clusterv1.Machine
	nodes    map[string]*corev1.Node
	set      *clusterv1.MachineSet // nil if its kind was not read
	manager  *coordinationv1.Lease
	says     managerlease.Announcement
	others   []client.Object
	kinds    []schema.GroupVersionKind // installed, besides those of objects
	unseen   string
	lacks    map[string]string
	barred   []schema.GroupVersionKind // may not be read
	only     string                    // the machine that was read, of all
	leasesIn []string                  // where leases were read; everywhere if empty
	reports  bool                      // the manager has written the status of the check
}

func aScene(edits ...func(*scene)) *scene {
	s := &scene{
		cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c1", UID: "c1"}},
		check: &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "workers", UID: "check", CreationTimestamp: at(24 * time.Hour),
			Annotations: map[string]string{clusterv1.PausedAnnotation: mendv1.Claim},
		}},
		set: &clusterv1.MachineSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "md-0", UID: "md-0"}, Spec: clusterv1.MachineSetSpec{ClusterName: "c1", Replicas: ptr.To[int32](5)},
		},
		machines: map[string]*clusterv1.Machine{}, nodes: map[string]*corev1.Node{}, lacks: map[string]string{},
		manager: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kubemend-system", Name: managerlease.LeaseName}},
		says:    managerlease.Announcement{Version: "v0.1.0", Unclaimed: "observe"},
	}
	s.manager.Spec.HolderIdentity, s.manager.Spec.LeaseDurationSeconds = ptr.To("kubemend-0"), ptr.To[int32](60)
	s.manager.Spec.RenewTime = &metav1.MicroTime{Time: noon.Add(-5 * time.Second)}
	for _, is := range []string{clusterv1.ClusterControlPlaneInitializedCondition, clusterv1.ClusterInfrastructureReadyCondition} {
		s.cluster.Status.Conditions = append(s.cluster.Status.Conditions, metav1.Condition{Type: is, Status: metav1.ConditionTrue, LastTransitionTime: at(20 * time.Hour)})
	}
	s.check.Spec.ClusterName, s.check.Spec.Selector.MatchLabels = "c1", map[string]string{"pool": "workers"}
	s.check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](300)},
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, TimeoutSeconds: ptr.To[int32](300)},
	}
	s.check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromString("40%"))
	for i := 1; i <= 5; i++ {
		s.machine(fmt.Sprintf("w%d", i))
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

// machine adds a healthy worker.
func (s *scene) machine(name string) {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: at(10 * time.Hour),
		Labels:          map[string]string{"pool": "workers", clusterv1.ClusterNameLabel: "c1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "md-0", UID: "md-0", Controller: ptr.To(true)}},
	}}
	m.Spec.ClusterName, m.Status.NodeRef.Name = "c1", "node-"+name
	m.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue, LastTransitionTime: at(9 * time.Hour),
	}}
	s.machines[name] = m
	s.nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name, UID: types.UID("node-" + name)}}
	s.ready(name, corev1.ConditionTrue, "KubeletReady", 8*time.Hour)
}

// ready gives a worker's node the condition Ready, which it has had for that long.
func (s *scene) ready(name string, status corev1.ConditionStatus, reason string, ago time.Duration) {
	s.nodes[name].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason, LastTransitionTime: at(ago)}}
}

// silent makes workers' nodes silent for that long.
func silent(ago time.Duration, names ...string) func(*scene) {
	return func(s *scene) {
		for _, name := range names {
			s.ready(name, corev1.ConditionUnknown, "NodeStatusUnknown", ago)
		}
	}
}

// said gives a worker a condition.
func (s *scene) said(name, kind string, status metav1.ConditionStatus, reason, message string, ago time.Duration) {
	m := s.machines[name]
	m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: at(ago)})
}

// asker is one who asks about the scene.
func (s *scene) asker(t *testing.T) *inspect.Asker {
	t.Helper()
	a, err := inspect.New(context.Background(), s.snapshot(t), noon)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// snapshot is the scene as it is read.
func (s *scene) snapshot(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	w := snapshot.New()
	w.Taken = noon
	healthy := int32(0)
	for _, m := range s.machines {
		if conditions.IsTrue(m, clusterv1.MachineHealthCheckSucceededCondition) && conditions.Get(m, mendv1.Remediation) == nil {
			healthy++
		}
	}
	for _, obj := range append([]client.Object{s.check}, s.others...) {
		if check, ok := obj.(*clusterv1.MachineHealthCheck); ok && s.reports && check.Status.ExpectedMachines == nil {
			check.Status.ExpectedMachines, check.Status.CurrentHealthy = ptr.To(int32(len(s.machines))), &healthy
		}
	}
	objs := append([]client.Object{s.cluster, s.check}, s.others...)
	if s.set != nil {
		objs = append(objs, s.set)
	}
	if s.only != "" {
		w.SetCounted(inC1, 0)
	}
	for _, name := range slices.Sorted(maps.Keys(s.machines)) {
		if s.only == "" || s.only == name {
			objs = append(objs, s.machines[name])
		}
	}
	if s.manager != nil {
		said, err := json.Marshal(s.says)
		if err != nil {
			t.Fatal(err)
		}
		s.manager.Annotations = map[string]string{mendv1.ManagerAnnotation: string(said)}
		objs = append(objs, s.manager)
	}
	for _, kind := range s.kinds {
		w.Install(kind, strings.ToLower(kind.Kind)+"s", true)
	}
	for _, namespace := range s.leasesIn {
		w.Forbid(coordinationv1.SchemeGroupVersion.WithKind("Lease"), "leases", true, namespace, nil)
	}
	if err := w.Add(objs...); err != nil {
		t.Fatal(err)
	}
	var nodes []corev1.Node
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		nodes = append(nodes, *s.nodes[name])
	}
	w.SetNodes(inC1, nodes)
	if s.unseen != "" {
		w.SetUnseen(inC1, s.unseen, time.Time{})
	}
	for _, kind := range s.barred {
		plural := strings.ToLower(kind.Kind) + "s"
		w.Forbid(kind, plural, true, "", apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: plural}, "", errors.New("you may not")))
		w.Lacks(kind.Kind+"s in all namespaces", "forbidden")
	}
	for what, why := range s.lacks {
		w.Lacks(what, why)
	}
	return w
}
