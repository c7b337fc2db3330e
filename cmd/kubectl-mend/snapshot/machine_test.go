package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// aLargeCluster has workers, a control-plane machine, their nodes, and a check whose status counts them.
func aLargeCluster(t testing.TB, edits ...func(*Snapshot)) *Snapshot {
	t.Helper()
	over, _ := newSnapshot(t)
	from := aManagementCluster(t, map[string]*Snapshot{"c1": over})
	from.Remove(nhcv1.GroupVersion.WithKind("NodeHealthCheck"), client.ObjectKey{Name: "nodes"})
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "workers", Generation: 2}}
	check.Annotations = map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
	check.Spec.ClusterName, check.Spec.Selector.MatchLabels = "c1", map[string]string{"pool": "a"}
	check.Status.ObservedGeneration, check.Status.ExpectedMachines, check.Status.CurrentHealthy = 2, ptr.To[int32](4), ptr.To[int32](3)
	objs := []client.Object{check, aMachine("plane", func(m *clusterv1.Machine) {
		m.Labels["pool"], m.Labels[clusterv1.MachineControlPlaneLabel] = "plane", ""
	})}
	for i := range 3 {
		objs = append(objs, aMachine(fmt.Sprintf("w%d", i)))
	}
	for _, machine := range append(objs[1:], aMachine("m")) {
		machine.SetOwnerReferences([]metav1.OwnerReference{{Kind: "KubeadmControlPlane", Controller: new(true)}})
		put(t, from, machine)
	}
	for _, name := range []string{"m", "plane", "w0", "w1", "w2"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + name, Annotations: map[string]string{
			clusterv1.ClusterNamespaceAnnotation: "ns", clusterv1.MachineAnnotation: name,
		}}}
		put(t, over, node)
	}
	put(t, from, objs...)
	runs(t, from)
	for _, edit := range edits {
		edit(from)
	}
	return from
}

func machinesOf(t *testing.T, w *Snapshot) (machines, nodes []string) {
	t.Helper()
	list := &clusterv1.MachineList{}
	must.Do(t, w.List(t.Context(), list, client.InNamespace("ns")))
	for i := range list.Items {
		if list.Items[i].Spec.ClusterName == "c1" {
			machines = append(machines, list.Items[i].Name)
		}
	}
	for _, node := range w.Nodes(key("c1")) {
		nodes = append(nodes, node.Name)
	}
	return machines, nodes
}

func changed(t *testing.T, change func(*clusterv1.MachineHealthCheck)) func(*Snapshot) {
	return func(w *Snapshot) {
		check := &clusterv1.MachineHealthCheck{}
		must.Do(t, w.Get(t.Context(), key("workers"), check))
		change(check)
		put(t, w, check)
	}
}

// unmanaged removes the lease of the manager.
func unmanaged(w *Snapshot) {
	w.Remove(leaseGVK, client.ObjectKey{Namespace: "kubemend-system", Name: managerlease.LeaseName})
}

func checkedNodes(w *Snapshot) {
	_ = w.Add(&nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}}) // fails only for an unknown type
}

func TestOfOneMachineTheOthersAreNotRead(t *testing.T) {
	one, all := []string{"w1"}, []string{"m", "plane", "w0", "w1", "w2"}
	for name, tc := range map[string]struct {
		scope Scope
		edits []func(*Snapshot)
		want  []string
	}{
		"the machine alone is, and not its node": {Scope{Machine: "w1"}, nil, one},
		"all are where that is asked for":        {Scope{Machine: "w1", AllMachines: true}, nil, all},
		"and where they are to be judged":        {Scope{Machine: "w1", Judge: true}, nil, all},
		"all are where the machine is not there": {Scope{Machine: "w9"}, nil, all},
		"all are where the status is old": {Scope{Machine: "w1"}, []func(*Snapshot){
			changed(t, func(c *clusterv1.MachineHealthCheck) { c.Generation++ }),
		}, all},
		"all are where the check is paused": {Scope{Machine: "w1"}, []func(*Snapshot){
			changed(t, func(c *clusterv1.MachineHealthCheck) { c.Annotations[clusterv1.PausedAnnotation] = "" }),
		}, all},
		"all are where no manager runs that writes the status": {Scope{Machine: "w1"}, []func(*Snapshot){unmanaged}, all},
		"and where it is Cluster API core that writes it": {Scope{Machine: "w1"}, []func(*Snapshot){
			changed(t, func(c *clusterv1.MachineHealthCheck) { c.Annotations = nil }),
		}, all},
		"but not for a check of other machines": {Scope{Machine: "w1"}, []func(*Snapshot){func(w *Snapshot) {
			other := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}}
			other.Spec.ClusterName, other.Spec.Selector.MatchLabels = "c1", map[string]string{"pool": "b"}
			put(t, w, other)
		}}, one},
		"all are where there is a check of nodes": {Scope{Machine: "w1"}, []func(*Snapshot){checkedNodes}, all},
		"all are for a node":                      {Scope{Node: "node-of-w1"}, nil, all},
	} {
		t.Run(name, func(t *testing.T) {
			tc.scope.Namespace, tc.scope.Cluster = "ns", "c1"
			w := readAll(t, aLargeCluster(t, tc.edits...), tc.scope)
			machines, nodes := machinesOf(t, w)
			_, counted := w.Counted(key("c1"))
			alone := len(tc.want) == 1
			if !slices.Equal(machines, tc.want) || alone && len(nodes) > 0 || counted != alone {
				t.Errorf("machines %v and nodes %v were read, one: %t; want machines %v", machines, nodes, counted, tc.want)
			}
			if missing := w.Missing(); len(missing) > 0 {
				t.Errorf("missing are %v", missing)
			}
		})
	}
}

// Only the host of the machine is read, because there may be thousands of others. A second Metal3Machine that names the host is found.
func TestOfOneMachineItsHostIsReadAlone(t *testing.T) {
	other := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}}
	twin := bare(metal3MachineGVK)
	twin.Namespace, twin.Name, twin.Annotations = "ns", "twin", map[string]string{infrav1.HostAnnotation: "ns/host"}
	consumed := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host"}}
	consumed.Spec.ConsumerRef = &corev1.ObjectReference{
		APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3Machine", Namespace: "ns", Name: "m3",
	}
	on := aMachine("m", func(m *clusterv1.Machine) {
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: "m3",
		}
	})
	from := aLargeCluster(t, func(w *Snapshot) { put(t, w, on, consumed, other, twin) })
	w := readAll(t, from, Scope{Namespace: "ns", Cluster: "c1", Machine: "m"})
	machine := &clusterv1.Machine{}
	must.Do(t, w.Get(t.Context(), key("m"), machine))
	hosts := &host.Hosts{Client: w, Live: w}
	if found, err := hosts.Of(t.Context(), machine); err != nil || !strings.Contains(found.Why, "both name") {
		t.Errorf("of a host that two Metal3Machines name it is said: %s (%v)", found.Why, err)
	}
	if read := All[bmov1alpha1.BareMetalHost](w, "ns"); len(read) != 1 {
		t.Errorf("%d hosts were read", len(read))
	}
}

// runs adds a running manager, whose announcement is edited by says.
func runs(t testing.TB, w *Snapshot, says ...func(*managerlease.Announcement)) {
	t.Helper()
	said := managerlease.Announcement{Version: "v1", Unclaimed: "observe", Started: metav1.NewTime(noon.Add(-time.Hour))}
	for _, say := range says {
		say(&said)
	}
	content, err := json.Marshal(said)
	must.Do(t, err)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kubemend-system", Name: managerlease.LeaseName, Annotations: map[string]string{mendv1.ManagerAnnotation: string(content)},
	}}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("kubemend-0"), ptr.To[int32](60)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: noon.Add(-time.Second)}
	put(t, w, lease)
}

// calm adds a running manager, and a status of the check by which all machines are healthy.
func calm(t *testing.T, says ...func(*managerlease.Announcement)) func(*Snapshot) {
	return func(w *Snapshot) {
		changed(t, func(c *clusterv1.MachineHealthCheck) {
			c.Status.ExpectedMachines, c.Status.CurrentHealthy = ptr.To[int32](4), ptr.To[int32](4)
			c.Status.Conditions = []metav1.Condition{
				{Type: clusterv1.MachineHealthCheckRemediationAllowedCondition, Status: metav1.ConditionTrue},
				{Type: mendv1.WorkloadClusterReachable, Status: metav1.ConditionTrue},
			}
		})(w)
		w.Remove(machineCheckGVK, key("check"))
		runs(t, w, says...)
	}
}

// coreSays adds a condition to the Cluster.
func coreSays(t *testing.T, kind string, status metav1.ConditionStatus) func(*Snapshot) {
	return func(w *Snapshot) {
		cluster := One[clusterv1.Cluster](w, key("c1")).DeepCopy()
		cluster.Status.Conditions = append(cluster.Status.Conditions, metav1.Condition{
			Type: kind, Status: status,
		})
		put(t, w, cluster)
	}
}

func TestOfClustersWhereAllIsWellNothingIsReadAndWhereAManagerWritesNoNodes(t *testing.T) {
	const nothing, theMachines, theNodes = "", "machines", "machines and nodes"
	for name, tc := range map[string]struct {
		full  bool
		edits []func(*Snapshot)
		read  string
	}{
		"the manager says that all are healthy": {false, nil, nothing},
		"all are read on demand":                {true, nil, theNodes},
		"one is not healthy": {false, []func(*Snapshot){changed(t, func(c *clusterv1.MachineHealthCheck) {
			c.Status.CurrentHealthy = ptr.To[int32](3)
		})}, theMachines},
		"the manager cannot see the cluster": {false, []func(*Snapshot){changed(t, func(c *clusterv1.MachineHealthCheck) {
			c.Status.Conditions[1].Status = metav1.ConditionFalse
		})}, theMachines},
		"nothing may be remediated": {false, []func(*Snapshot){changed(t, func(c *clusterv1.MachineHealthCheck) {
			c.Status.Conditions[0].Status = metav1.ConditionFalse
		})}, theMachines},
		"some wait": {false, []func(*Snapshot){changed(t, func(c *clusterv1.MachineHealthCheck) {
			c.Status.Conditions[0].Message = "2 remediations wait"
		})}, theMachines},
		"the check is not claimed": {false, []func(*Snapshot){changed(t, func(c *clusterv1.MachineHealthCheck) {
			c.Annotations = nil
			c.Status.Conditions = c.Status.Conditions[:1] // as Cluster API writes the status, without kubemend's conditions
		})}, theNodes},
		"no manager runs": {false, []func(*Snapshot){unmanaged}, theNodes},
		"the check is not claimed any more, and its status is of then": {false, []func(*Snapshot){
			changed(t, func(c *clusterv1.MachineHealthCheck) { c.Annotations = nil }),
		}, theNodes},
		"it is one of those that the manager acts on without a claim": {false, []func(*Snapshot){
			calm(t, func(said *managerlease.Announcement) { said.Unclaimed = "act" }),
			changed(t, func(c *clusterv1.MachineHealthCheck) { c.Annotations = nil }),
		}, nothing},
		"the manager has only just started": {false, []func(*Snapshot){
			calm(t, func(said *managerlease.Announcement) { said.Started = metav1.NewTime(noon.Add(-time.Minute)) }),
		}, theNodes},
		"the manager does not serve the kind": {false, []func(*Snapshot){calm(t, func(said *managerlease.Announcement) {
			said.Kinds = []managerlease.Kind{{CRD: crdgate.MachineCheckCRD, Reason: crdgate.ForbiddenReason, Because: "it cannot be read"}}
		})}, theNodes},
		"a machine that is healthy is still remediated": {false, []func(*Snapshot){func(w *Snapshot) {
			owner := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "w1", UID: "uid-of-w1"}
			request := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "w1", OwnerReferences: []metav1.OwnerReference{owner},
				Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"},
			}}
			put(t, w, request)
		}}, theMachines},
		"there is a request that may be of any machine of the namespace": {false, []func(*Snapshot){func(w *Snapshot) {
			put(t, w, &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w1"}})
		}}, theMachines},
		"a machine has no owner whose change would tell that it is not Ready": {false, []func(*Snapshot){func(w *Snapshot) {
			put(t, w, aMachine("w1"))
		}}, theMachines},
		"Cluster API says that all workers are Ready": {false, []func(*Snapshot){
			coreSays(t, clusterv1.ClusterWorkerMachinesReadyCondition, metav1.ConditionTrue),
		}, nothing},
		"Cluster API says that a worker is not": {false, []func(*Snapshot){
			coreSays(t, clusterv1.ClusterWorkerMachinesReadyCondition, metav1.ConditionFalse),
		}, theMachines},
		"Cluster API does not know it of the control plane": {false, []func(*Snapshot){
			coreSays(t, clusterv1.ClusterControlPlaneMachinesReadyCondition, metav1.ConditionUnknown),
		}, theMachines},
		"there is a check of nodes": {false, []func(*Snapshot){checkedNodes}, theMachines},
	} {
		t.Run(name, func(t *testing.T) {
			from := aLargeCluster(t, append([]func(*Snapshot){calm(t)}, tc.edits...)...)
			w := readAll(t, from, Scope{Namespace: "ns", Restless: true, Judge: tc.full})
			machines, nodes := machinesOf(t, w)
			read := nothing
			switch {
			case len(nodes) > 0:
				read = theNodes
			case len(machines) > 0:
				read = theMachines
			}
			unselected, counted := w.Counted(key("c1"))
			if read != tc.read || counted != (read == nothing) || counted && unselected != 1 {
				t.Errorf("machines %v and nodes %v were read, counted: %t; want %s", machines, nodes, counted, tc.read)
			}
		})
	}
}

func TestARecordHasTheNodesOfChecksThatAManagerHasWritten(t *testing.T) {
	if _, nodes := machinesOf(t, readAll(t, aLargeCluster(t, calm(t)), Scope{Everything: true})); len(nodes) != 5 {
		t.Errorf("recorded are %v", nodes)
	}
}

// If the cluster ns2/c1 needs to be read, the cluster ns/c1 of the same name must not be read as well.
func TestMachinesAreNotReadWithoutTheirNodes(t *testing.T) {
	from := aLargeCluster(t, calm(t), func(w *Snapshot) {
		cluster, check := aCluster("c1"), &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns2", Name: "c1"}}
		cluster.Namespace, cluster.Status.Conditions, check.Spec.ClusterName = "ns2", nil, "c1"
		put(t, w, cluster, check)
	})
	w := readAll(t, from, Scope{Restless: true})
	_, counted := w.Counted(key("c1"))
	if machines, nodes := machinesOf(t, w); !counted || len(nodes) > 0 || slices.Contains(machines, "w1") {
		t.Errorf("of a cluster whose machines are healthy machines %v and nodes %v were read", machines, nodes)
	}
}

// failsOnce fails the first list of the Machines of one cluster.
type failsOnce struct {
	client.Client

	failed bool
}

func (c *failsOnce) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	if _, ofMachines := list.(*clusterv1.MachineList); ofMachines && !c.failed && o.Namespace == "ns2" {
		c.failed = true
		return errors.New("it has failed")
	}
	return c.Client.List(ctx, list, options...)
}

// Where other clusters are quiet, the machines of a cluster that could not be listed must not count as none.
func TestMachinesThatCouldNotBeListedAreListedAgain(t *testing.T) {
	from := aLargeCluster(t, calm(t), func(w *Snapshot) {
		cluster := aCluster("c1")
		cluster.Namespace, cluster.Status.Conditions = "ns2", nil
		put(t, w, cluster, aMachine("lost", func(m *clusterv1.Machine) { m.Namespace = "ns2" }))
	})
	r := sourceOf(from, clocktesting.NewFakePassiveClock(noon), Scope{Restless: true})
	failing := &failsOnce{Client: from}
	r.client = failing
	w, err := r.read(t.Context())
	must.Do(t, err)
	_, counted := w.Counted(key("c1"))
	if err := w.List(t.Context(), &corev1.NodeList{}); err == nil { // without a NodeHealthCheck they are not read, and not missed
		t.Error("the nodes of the management cluster were read")
	}
	lost := One[clusterv1.Machine](w, client.ObjectKey{Namespace: "ns2", Name: "lost"})
	if !failing.failed || !counted || lost == nil || len(w.Missing()) > 0 {
		t.Errorf("counted %t, read %v, missing %v", counted, lost, w.Missing())
	}
}

// To find the replacement of a machine, a page lists the machines of its owner.
func TestOfAMachineThatGoesWhatReplacesItIsRead(t *testing.T) {
	labelled := func(m *clusterv1.Machine) { m.Labels[clusterv1.MachineDeploymentNameLabel] = "md" }
	owners := func(w *Snapshot) {
		inCluster := map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineDeploymentNameLabel: "md"}
		going := aMachine("w1", labelled, func(m *clusterv1.Machine) {
			m.DeletionTimestamp, m.Finalizers = ptr.To(metav1.NewTime(noon)), []string{"example.com/hold"}
		})
		put(t, w, going, aMachine("w2", labelled),
			&clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "md-a", Labels: inCluster}},
			&clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "md", Labels: inCluster}})
	}
	w := readAll(t, aLargeCluster(t, owners), Scope{Namespace: "ns", Cluster: "c1", Machine: "w1"})
	siblings, sets := &clusterv1.MachineList{}, &clusterv1.MachineSetList{}
	err := errors.Join(
		w.List(t.Context(), siblings, client.InNamespace("ns"), client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: "md"}),
		w.List(t.Context(), sets, client.InNamespace("ns")),
	)
	if machines, _ := machinesOf(t, w); err != nil || len(siblings.Items) != 2 || len(sets.Items) != 1 || len(machines) != 2 {
		t.Errorf("%d machines of the owner, %d sets and the machines %v: %v", len(siblings.Items), len(sets.Items), machines, err)
	}
}

func TestRecordsAreReadWhereTheyAre(t *testing.T) {
	record := func(machine, namespace string, marks map[string]string) *mendv1.RemediationRecord {
		r := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machine, Labels: marks}}
		r.Spec.Target.Machine = &mendv1.RecordRef{Kind: "Machine", Namespace: namespace, Name: machine}
		return r
	}
	open := map[string]string{mendv1.RecordOpenLabel: "true"}
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}}
	check.Spec.RemediationTemplate = &corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "RebootTemplate", Namespace: "templates", Name: "reboot"}
	from := New()
	put(t, from, record("a", "metal", open), record("b", "metal", map[string]string{clusterv1.ClusterNameLabel: "test"}),
		record("c", "templates", open), record("d", "other", open), check)
	for name, tc := range map[string]struct {
		scope Scope
		want  string
	}{
		"all":                                   {Scope{Records: true}, "a b c d"},
		"those of one cluster":                  {Scope{Records: true, Cluster: "test"}, "b"},
		"those of all namespaces that are open": {Scope{Restless: true}, "a c d"},
		"those of a namespace, and of the checks of nodes": {Scope{Restless: true, Namespace: "metal"}, "a c"},
		"those of a namespace":                             {Scope{Namespace: "other"}, "c d"},
	} {
		t.Run(name, func(t *testing.T) {
			w := readAll(t, from, tc.scope)
			for _, namespace := range []string{tc.scope.Namespace, "templates"} { // templates: the namespace of the NodeHealthCheck's requests
				must.Do(t, w.List(t.Context(), &mendv1.RemediationRecordList{}, client.InNamespace(namespace)))
			}
			var names []string
			for _, r := range All[mendv1.RemediationRecord](w, "") {
				names = append(names, r.Name)
			}
			slices.Sort(names)
			must.Is(t, tc.want, strings.Join(names, " "), "it has")
		})
	}
}
