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

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/golden"
)

// noon is the time of every scene.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(ago time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-ago)) }

var inC1 = client.ObjectKey{Namespace: "default", Name: "c1"}

// scene is a management cluster with a cluster c1 of five healthy workers, their check, and the manager that acts on it. Tests edit it.
type scene struct {
	cluster  *clusterv1.Cluster
	check    *clusterv1.MachineHealthCheck
	machines map[string]*clusterv1.Machine
	nodes    map[string]*corev1.Node
	set      *clusterv1.MachineSet // nil if MachineSets were not read
	manager  *coordinationv1.Lease
	says     managerlease.Announcement
	others   []client.Object
	kinds    []schema.GroupVersionKind // installed besides the kinds of the objects
	unseen   string
	barred   []schema.GroupVersionKind // kinds that the user may not read
	only     string                    // the only machine that was read
	leasesIn []string                  // the namespaces whose leases were read; all if empty
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
		machines: map[string]*clusterv1.Machine{}, nodes: map[string]*corev1.Node{},
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

// ready sets the condition Ready of a worker's node.
func (s *scene) ready(name string, status corev1.ConditionStatus, reason string, ago time.Duration) {
	s.nodes[name].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason, LastTransitionTime: at(ago)}}
}

// silent makes workers' nodes Ready=Unknown.
func silent(ago time.Duration, names ...string) func(*scene) {
	return func(s *scene) {
		for _, name := range names {
			s.ready(name, corev1.ConditionUnknown, "NodeStatusUnknown", ago)
		}
	}
}

// said adds a condition to a worker.
func (s *scene) said(name, kind string, status metav1.ConditionStatus, reason, message string, ago time.Duration) {
	m := s.machines[name]
	m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: at(ago)})
}

func (s *scene) asker(t *testing.T) *inspect.Asker {
	return inspect.New(context.Background(), s.snapshot(t), noon)
}

// snapshot returns a snapshot of the scene.
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
		w.Install(kind)
	}
	for _, namespace := range s.leasesIn {
		w.Forbid(coordinationv1.SchemeGroupVersion.WithKind("Lease"), namespace, nil)
		w.Forbid(coordinationv1.SchemeGroupVersion.WithKind("Lease"), "", apierrors.NewForbidden(
			schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}, "", errors.New("you may not")))
	}
	if err := w.Add(objs...); err != nil {
		t.Fatal(err)
	}
	var nodes []corev1.Node
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		nodes = append(nodes, *s.nodes[name])
	}
	w.SetNodes(inC1, nodes)
	if s.only != "" {
		w.SetCounted(inC1, 0)
	}
	if s.unseen != "" {
		w.SetUnseen(inC1, s.unseen, time.Time{})
	}
	for _, kind := range s.barred {
		plural := strings.ToLower(kind.Kind) + "s"
		w.Forbid(kind, "", apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: plural}, "", errors.New("you may not")))
	}
	return w
}

// saying edits the manager's announcement.
func saying(edit func(*managerlease.Announcement)) func(*scene) {
	return func(s *scene) { edit(&s.says) }
}

func filtered(a *managerlease.Announcement) { a.WatchFilter = "blue" }
func leaving(a *managerlease.Announcement)  { a.Teardown = true }
func ahead(a *managerlease.Announcement)    { a.ClockAheadSeconds = 900 }

// outside makes the manager run outside of the cluster, without bindings.
func outside(s *scene) {
	s.says.Outside = true
	s.kinds = append(s.kinds, rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"))
}

// unserved makes the manager announce that it does not serve a kind.
func unserved(crd, reason, because string) func(*scene) {
	return saying(func(a *managerlease.Announcement) {
		a.Kinds = []managerlease.Kind{{CRD: crd, Reason: reason, Because: because}}
	})
}

// unclaimed removes the claim from the check.
func unclaimed(s *scene) { s.check.Annotations = nil }

// forged adds the lease of a tenant who pretends to be a manager, and the binding of the real manager.
func forged(s *scene) {
	lease := s.manager.DeepCopy()
	lease.Namespace, lease.Spec.HolderIdentity = "tenant", ptr.To("me")
	lease.Annotations = map[string]string{mendv1.ManagerAnnotation: `{"version":"v0.1.0","unclaimed":"act"}`}
	s.others = append(s.others, lease, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubemend-manager", Labels: managerlease.BindingLabels},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: managerlease.ClusterRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "kubemend-system", Name: managerlease.ServiceAccount}},
	})
	s.kinds = append(s.kinds, rbacv1.SchemeGroupVersion.WithKind("RoleBinding"))
}

func TestExplanationsOfWhoActs(t *testing.T) {
	bad := silent(6*time.Minute, "w1")
	off := powerCycled(powercycle.PoweringOff)
	const due = 6 * time.Minute
	never := func(s *scene) { s.manager = nil } // no manager has ever run
	golden.Stories(t, "managers", map[string]story{
		"a node and no manager":                                    {aScene(ownNodes(due), managerGone), node("n1")},
		"a node that is being rebooted and no manager":             {aScene(ownNodes(due), rebooting("n1", time.Minute), managerGone), node("n1")},
		"a node and a manager that leaves":                         {aScene(ownNodes(due), saying(leaving)), node("n1")},
		"a node of another operator's check":                       {aScene(ownNodes(due), unserved(crdgate.NodeCheckCRD, "Foreign", "its CustomResourceDefinition belongs to operator node-healthcheck-operator, whose controller serves it")), node("n1")},
		"a check of nodes of a kind that is switched off":          {aScene(ownNodes(due), unserved(crdgate.NodeCheckCRD, "Off", "it is switched off by a flag")), nodeCheck("own-nodes")},
		"a check of nodes of a kind that cannot be served":         {aScene(ownNodes(due), unserved(crdgate.NodeCheckCRD, "Waiting", "these are not installed: leases.coordination.k8s.io")), nodeCheck("own-nodes")},
		"a machine of a check of a kind that cannot be served":     {aScene(bad, unserved(crdgate.MachineCheckCRD, "Failed", "it was not started: no")), machine("w1")},
		"a machine and a manager that may be elsewhere":            {aScene(bad, leasesHere, never), machine("w1")},
		"a machine and a manager that is dead, or elsewhere":       {aScene(bad, leasesHere, managerGone), machine("w1")},
		"a node and a manager beside which others may be":          {aScene(ownNodes(due), leasesHere), node("n1")},
		"a manager with another filter":                            {aScene(bad, saying(filtered)), machine("w1")},
		"a manager that leaves":                                    {aScene(bad, saying(leaving)), machine("w1")},
		"a manager with another filter, and no claim":              {aScene(bad, saying(filtered), unclaimed), machine("w1")},
		"a check of a kind that is not served, and no claim":       {aScene(bad, unserved(crdgate.MachineCheckCRD, "Failed", "it was not started: no"), unclaimed), machine("w1")},
		"the status with a forged lease":                           {aScene(bad, ownNodes(due), forged), nil},
		"a machine and nothing but a forged lease":                 {aScene(bad, managerGone, forged), machine("w1")},
		"the status with a manager outside":                        {aScene(bad, outside), nil},
		"a machine and a manager outside":                          {aScene(bad, outside), machine("w1")},
		"a machine that is remediated and no manager ever":         {aScene(bad, askedOwner("w1", "WaitingForRemediation", ""), never), machine("w1")},
		"the status with a manager whose clock is wrong":           {aScene(bad, ownNodes(due), saying(ahead)), nil},
		"a machine and a manager whose clock is wrong":             {aScene(bad, saying(ahead)), machine("w1")},
		"a node and a manager whose clock is wrong":                {aScene(ownNodes(due), saying(ahead)), node("n1")},
		"the status under another filter":                          {aScene(bad, ownNodes(due), saying(filtered)), nil},
		"a power cycle and a manager with another filter":          {aScene(bad, off, saying(filtered)), remediation("w1")},
		"a power cycle and a manager that leaves":                  {aScene(bad, off, saying(leaving)), remediation("w1")},
		"a power cycle before its begin and a manager that leaves": {aScene(bad, powerCycled(powercycle.Pending), untouched, saying(leaving)), remediation("w1")},
	}, answered)
}

// untouched removes all marks of a beginning from w1's remediation.
func untouched(s *scene) {
	for _, o := range s.others {
		if o.GetName() == "w1" && o.GetUID() == "rem-w1" {
			o.SetAnnotations(nil)
			o.SetFinalizers(nil)
			o.(*mendv1.HostRemediation).Status.Conditions = nil
		}
	}
}

// leasesHere lets the user read leases only in the manager's namespace, so that other managers may run.
func leasesHere(s *scene) { s.leasesIn = []string{"kubemend-system", nhcv1.DefaultLeaseNamespace} }

// barred takes the right to read kinds from the user.
func barred(kinds ...schema.GroupVersionKind) func(*scene) {
	return func(s *scene) { s.barred = append(s.barred, kinds...) }
}

// barredFromRequests takes the right to read templates and requests from the user.
var barredFromRequests = barred(
	schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "Metal3Remediation"},
	schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "Metal3RemediationTemplate"},
	schema.GroupVersionKind{Group: "remediation.example.com", Version: "v1", Kind: "Reboot"},
	schema.GroupVersionKind{Group: "remediation.example.com", Version: "v1", Kind: "RebootTemplate"},
)

// saysForbidden adds the manager's condition that it may not read the template.
func saysForbidden(check *nhcv1.NodeHealthCheck, _ []*corev1.Node) {
	check.Status.Conditions = append(check.Status.Conditions, metav1.Condition{
		Type: nhcv1.DisabledCondition, Status: metav1.ConditionTrue, Reason: nhcv1.TemplateForbiddenReason, LastTransitionTime: at(time.Hour),
		Message: "RebootTemplate may not be read",
	})
}

// replacedBefore adds a remediation to the check's status whose kind the check does not name any more.
func replacedBefore(check *nhcv1.NodeHealthCheck, _ []*corev1.Node) {
	check.Status.UnhealthyNodes = []nhcv1.UnhealthyNode{{Name: "n1", Remediations: []nhcv1.Remediation{{
		Resource: corev1.ObjectReference{APIVersion: "remediation.example.com/v1", Kind: "Replace", Namespace: "templates", Name: "n1", UID: "replace"},
		Started:  at(time.Minute),
	}}}}
}

// unreadRequests takes the right to read HostRemediations from the user.
func unreadRequests(s *scene) {
	s.others = slices.DeleteFunc(s.others, func(obj client.Object) bool { _, req := obj.(*mendv1.HostRemediation); return req })
	barred(mendv1.GroupVersion.WithKind("HostRemediation"), mendv1.GroupVersion.WithKind("HostRemediationTemplate"))(s)
}

// unreadHosts takes the right to read Metal3Machines from the user.
func unreadHosts(s *scene) {
	s.others = slices.DeleteFunc(s.others, func(obj client.Object) bool { return obj.GetObjectKind().GroupVersionKind().Kind == "Metal3Machine" })
	barred(infrav1.GroupVersion.WithKind("Metal3Machine"))(s)
}

// barredFromClusters takes the right to read Clusters from the user.
func barredFromClusters(s *scene) {
	s.cluster.Name = "unread"
	barred(clusterv1.GroupVersion.WithKind("Cluster"))(s)
}

func TestWhatAUserMayNotReadIsNotSaidOfTheManager(t *testing.T) {
	const due, soon = 6 * time.Minute, 2 * time.Minute
	golden.Stories(t, "rights", map[string]story{
		"a machine that is due":                                 {aScene(silent(due, "w1"), byTemplate, barredFromRequests), machine("w1")},
		"a machine within its timeout":                          {aScene(silent(soon, "w1"), byTemplate, barredFromRequests), machine("w1")},
		"a node that is due":                                    {aScene(ownNodes(due), barredFromRequests), node("n1")},
		"a check of nodes that says itself that it is disabled": {aScene(ownNodes(due, saysForbidden), barredFromRequests), nodeCheck("own-nodes")},
		"a machine that says itself that it is being remediated": {aScene(silent(due, "w1"), byTemplate, barredFromRequests, func(s *scene) {
			s.said("w1", clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, clusterv1.MachineExternallyRemediatedWaitingForRemediationReason, "", time.Minute)
		}, reported, wrote("True", mendv1.RequestedReason, "Metal3Remediation w1 is in progress for the machine")), machine("w1")},
		"a machine of a Cluster that the user may not read":            {aScene(silent(6*time.Minute, "w1"), wrote(metav1.ConditionFalse, "TooManyUnhealthy", "* Too many machines are not healthy"), barredFromClusters), machine("w1")},
		"a check of a Cluster that the user may not read":              {aScene(silent(6*time.Minute, "w1"), barredFromClusters), check("workers")},
		"the status of a Cluster that the user may not read":           {aScene(silent(6*time.Minute, "w1"), barredFromClusters), nil},
		"a cluster of which the user may not read what makes machines": {aScene(func(s *scene) { s.set = nil }, barred(clusterv1.GroupVersion.WithKind("MachineSet"))), func(ctx context.Context, a *inspect.Asker) (*Explanation, error) { return OfCluster(ctx, a, inC1) }},
		"a machine that a NodeHealthCheck may select":                  {aScene(selectsNothing, barred(nhcv1.GroupVersion.WithKind("NodeHealthCheck"))), machine("w1")},
		"a host of a remediation that the user may not read":           {aScene(silent(6*time.Minute, "w1"), powerCycled(powercycle.PoweringOff), unreadRequests), host("rack-w1")},
		"a machine whose host the user may not read": {aScene(silent(6*time.Minute, "w1"), hosted(func(*bmov1alpha1.BareMetalHost) {}), unreadHosts, reported,
			wrote(metav1.ConditionFalse, "HostExternallyProvisioned", "BareMetalHost rack-w1 is externally provisioned: its owner could not provision "+
				"another machine on it. To do: Repair the host by hand, or give the check a template for power cycles")), machine("w1")},
		"a remediation whose checks the user may not read": {aScene(silent(due, "w1"), powerCycled(powercycle.Booting), machineChecksBarred), remediation("w1")},
		"a node within its time":                           {aScene(ownNodes(soon), barredFromRequests), node("n1")},
		"a node that was remediated otherwise before": {
			aScene(ownNodes(due, replacedBefore), barred(schema.GroupVersionKind{Group: "remediation.example.com", Version: "v1", Kind: "Replace"})),
			node("n1"),
		},
	}, answered)
}
