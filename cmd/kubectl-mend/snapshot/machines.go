package snapshot

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// firstLook is how long a manager that was started may take to connect to all clusters and to judge all checks. Until then a status stands
// as it was.
const firstLook = 2 * time.Minute

// aroundMachine reads one machine, and the others of its cluster unless the manager has written how it is. All are read for a node as well.
// It returns of which clusters the nodes are: of those with a machine that was read, or that has the node.
func (r *source) aroundMachine(ctx context.Context, written func(*clusterv1.MachineHealthCheck) bool) func(client.ObjectKey) bool {
	key := client.ObjectKey{Namespace: r.Namespace, Name: r.Machine}
	if r.one = r.Machine != "" && !r.AllMachines && !r.Judge; r.one {
		r.all(ctx, reads{machineGVK: {{Namespace: r.Namespace, Name: r.Machine}}})
		machine := One[clusterv1.Machine](r.snapshot, key)
		r.one = machine != nil && machine.Spec.ClusterName == r.Cluster &&
			!slices.ContainsFunc(All[clusterv1.MachineHealthCheck](r.snapshot, ""), func(check *clusterv1.MachineHealthCheck) bool {
				return machinehealthcheck.Unselected(check, machine) == "" && !written(check)
			})
	}
	if r.one {
		cluster := client.ObjectKey{Namespace: r.Namespace, Name: r.Cluster}
		r.snapshot.SetCounted(cluster, 0)
		return func(client.ObjectKey) bool { return false }
	}
	r.all(ctx, reads{machineGVK: {{Namespace: r.Namespace}}})
	clusters := map[client.ObjectKey]bool{}
	for _, machine := range All[clusterv1.Machine](r.snapshot, "") {
		if machine.Status.NodeRef.Name == r.Node {
			clusters[clusterOf(machine)] = true
		}
	}
	return func(cluster client.ObjectKey) bool { return clusters[cluster] || r.Node == "" && r.reads(cluster) }
}

// written tells of which checks a manager has written how their machines are.
func (r *source) written(ctx context.Context) func(*clusterv1.MachineHealthCheck) bool {
	managers, _ := managerlease.Of(ctx, r.snapshot, r.snapshot.Taken) // one that cannot be read keeps nothing up to date
	writes := r.snapshot.WrittenBy(managers)
	return func(check *clusterv1.MachineHealthCheck) bool {
		cluster := One[clusterv1.Cluster](r.snapshot, client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName})
		return !r.Judge && cluster != nil && writes(check, cluster)
	}
}

// ChecksOf are the MachineHealthChecks of a cluster. They are shared: read only.
func (s *Snapshot) ChecksOf(cluster client.ObjectKey) []*clusterv1.MachineHealthCheck {
	checks := All[clusterv1.MachineHealthCheck](s, cluster.Namespace)
	return slices.DeleteFunc(checks, func(check *clusterv1.MachineHealthCheck) bool { return check.Spec.ClusterName != cluster.Name })
}

func clusterOf(machine *clusterv1.Machine) client.ObjectKey {
	return client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
}

// restless leaves out the machines of clusters of which nothing is to be said but that all are healthy. In a fleet these are nearly all,
// and their machines nearly all of what there is to read.
func (r *source) restless(ctx context.Context, written func(*clusterv1.MachineHealthCheck) bool) {
	unselected, unreported, err := r.metadataOfMachines(ctx)
	if err != nil {
		return
	}
	remediated := r.remediated()
	var machines []question
	for _, cluster := range All[clusterv1.Cluster](r.snapshot, "") {
		key := client.ObjectKeyFromObject(cluster)
		said := func(check *clusterv1.MachineHealthCheck) bool {
			return !written(check) || !machinehealthcheck.Calm(check, cluster)
		}
		if remediated[key] || remediated[client.ObjectKey{Namespace: key.Namespace}] || unreported[key] || !machinesReady(cluster) ||
			slices.ContainsFunc(r.snapshot.ChecksOf(key), said) {
			selected := labels.Set{clusterv1.ClusterNameLabel: key.Name}.String()
			machines = append(machines, question{Namespace: key.Namespace, Labels: selected})
			continue
		}
		r.calm = true
		r.snapshot.SetCounted(key, unselected[key])
		r.snapshot.SetNodes(key, nil)
	}
	if !r.calm {
		return
	}
	kind := r.snapshot.served(machineGVK.GroupKind())
	inParallel(machines, func(q question) { _ = r.ask(ctx, machineGVK, kind, q) }) // the snapshot remembers why one was not read
	if r.Namespace == "" {
		r.snapshot.remember(kind, question{}, nil)
	}
}

// metadataOfMachines counts the machines that no MachineHealthCheck selects, and tells of which Clusters Cluster API does not say soon that
// a machine is not Ready: it does when the owner of the machine changes, which a machine without an owner, or of a MachineSet alone, has
// not.
func (r *source) metadataOfMachines(
	ctx context.Context,
) (unselected map[client.ObjectKey]int, unreported map[client.ObjectKey]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	selector := client.MatchingLabelsSelector{Selector: r.labelled().AsSelector()}
	if err := r.client.List(ctx, list, client.InNamespace(r.Namespace), selector, fromMemory()); err != nil {
		return nil, nil, err
	}
	unselected, unreported = map[client.ObjectKey]int{}, map[client.ObjectKey]bool{}
	checks := map[string][]*clusterv1.MachineHealthCheck{}
	for _, check := range All[clusterv1.MachineHealthCheck](r.snapshot, "") {
		checks[check.Namespace] = append(checks[check.Namespace], check)
	}
	for i := range list.Items {
		machine := &clusterv1.Machine{ObjectMeta: list.Items[i].ObjectMeta}
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		machine.Spec.ClusterName = machine.Labels[clusterv1.ClusterNameLabel]
		owner := metav1.GetControllerOf(machine)
		if owner == nil || owner.Kind == "MachineSet" && machine.Labels[clusterv1.MachineDeploymentNameLabel] == "" {
			unreported[clusterOf(machine)] = true
		}
		if !slices.ContainsFunc(checks[machine.Namespace], func(check *clusterv1.MachineHealthCheck) bool {
			return machinehealthcheck.Unselected(check, machine) == ""
		}) {
			unselected[clusterOf(machine)]++
		}
	}
	return unselected, unreported, nil
}

// machinesReady reports whether Cluster API says of no machine of a Cluster that it is not Ready: also of those that no check selects.
func machinesReady(cluster *clusterv1.Cluster) bool {
	for _, kind := range []string{clusterv1.ClusterControlPlaneMachinesReadyCondition, clusterv1.ClusterWorkerMachinesReadyCondition} {
		if cond := meta.FindStatusCondition(cluster.Status.Conditions, kind); cond != nil && cond.Status != metav1.ConditionTrue {
			return false
		}
	}
	return true
}

// WrittenBy tells whether one of managers acts on a check and has written how its machines are. It does not act if the check is unclaimed,
// unless its mode for these is act, and not before it has connected to all clusters: then Cluster API core wrote the status, or a manager
// long before.
func (s *Snapshot) WrittenBy(managers []managerlease.Manager) func(*clusterv1.MachineHealthCheck, *clusterv1.Cluster) bool {
	managers = slices.DeleteFunc(slices.Clone(managers), func(manager managerlease.Manager) bool {
		said := manager.Announcement
		return said == nil || said.Teardown || s.Taken.Sub(said.Started.Time) < firstLook || manager.Unserved(crdgate.MachineCheckCRD) != nil
	})
	return func(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) bool {
		return machinehealthcheck.Reported(check, cluster) && slices.ContainsFunc(managers, func(manager managerlease.Manager) bool {
			acts := machinehealthcheck.Claimed(check) || machinehealthcheck.Unclaimed(manager.Announcement.Unclaimed) == machinehealthcheck.Act
			return acts && manager.StandsOff(check, cluster).Reason == ""
		})
	}
}

// remediated are the clusters with a remediation: that of a machine which is healthy again has an end of its own, and may wait for a
// person. One that does not say of which cluster it is may be of any in its namespace, whose name is empty.
func (r *source) remediated() map[client.ObjectKey]bool {
	clusters := map[client.ObjectKey]bool{}
	for _, gvk := range r.requestKinds() {
		for _, req := range r.snapshot.Objects(gvk, "") {
			clusters[client.ObjectKey{Namespace: req.GetNamespace(), Name: req.GetLabels()[clusterv1.ClusterNameLabel]}] = true
		}
	}
	return clusters
}
