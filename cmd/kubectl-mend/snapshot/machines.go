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

// startup is how long a manager may take after its start to connect to all clusters and to judge all checks. Until then the status of a
// check may be from before.
const startup = 2 * time.Minute

// readMachine reads only the explained machine if the manager has written the verdict on it.
func (r *source) readMachine(ctx context.Context, written func(*clusterv1.MachineHealthCheck) bool) {
	key := client.ObjectKey{Namespace: r.Namespace, Name: r.Machine}
	r.one = true
	r.all(ctx, reads{machineGVK: {{Namespace: key.Namespace, Name: key.Name}}})
	machine := One[clusterv1.Machine](r.snapshot, key)
	r.one = machine != nil && machine.Spec.ClusterName == r.Cluster &&
		!slices.ContainsFunc(All[clusterv1.MachineHealthCheck](r.snapshot, ""), func(check *clusterv1.MachineHealthCheck) bool {
			return machinehealthcheck.Unselected(check, machine) == "" && !written(check)
		})
	if r.one {
		r.snapshot.SetCounted(clusterOf(machine), 0)
	}
}

// ChecksOf returns the MachineHealthChecks of a cluster. Callers must not change them.
func (s *Snapshot) ChecksOf(cluster client.ObjectKey) []*clusterv1.MachineHealthCheck {
	checks := All[clusterv1.MachineHealthCheck](s, cluster.Namespace)
	return slices.DeleteFunc(checks, func(check *clusterv1.MachineHealthCheck) bool { return check.Spec.ClusterName != cluster.Name })
}

func clusterOf(machine *clusterv1.Machine) client.ObjectKey {
	return client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
}

// restless reads only the machines of clusters where something is to be reported. In most clusters of a fleet all machines are healthy, and
// their machines are most of what there is to read.
func (r *source) restless(ctx context.Context, written func(*clusterv1.MachineHealthCheck) bool) {
	unselected, restless, err := r.countUnselected(ctx)
	if err != nil {
		return
	}
	for _, gvk := range r.requestKinds() { // a machine may be healthy again while its request still waits for a user
		for _, req := range r.snapshot.Objects(gvk, "") { // without the label, the request may belong to any cluster of its namespace
			restless[client.ObjectKey{Namespace: req.GetNamespace(), Name: req.GetLabels()[clusterv1.ClusterNameLabel]}] = true
		}
	}
	calm := false
	var machines []question
	for _, cluster := range All[clusterv1.Cluster](r.snapshot, "") {
		key := client.ObjectKeyFromObject(cluster)
		reports := func(check *clusterv1.MachineHealthCheck) bool {
			return !written(check) || !machinehealthcheck.Calm(check, cluster)
		}
		if restless[key] || restless[client.ObjectKey{Namespace: key.Namespace}] || !machinesReady(cluster) ||
			slices.ContainsFunc(r.snapshot.ChecksOf(key), reports) {
			selected := labels.Set{clusterv1.ClusterNameLabel: key.Name}.String()
			machines = append(machines, question{Namespace: key.Namespace, Labels: selected})
			continue
		}
		calm = true
		r.snapshot.SetCounted(key, unselected[key])
	}
	kind := r.snapshot.served(machineGVK.GroupKind())
	if calm && inParallel(machines, func(q question) error { return r.ask(ctx, machineGVK, kind, q) }) == nil {
		r.snapshot.remember(kind, question{Namespace: r.Namespace}, nil) // no others are read
	}
}

// countUnselected counts, for each Cluster, the machines that no MachineHealthCheck selects. restless has the Clusters with machines that
// have neither a MachineDeployment nor a control plane. The conditions of such a Cluster may show late that a machine is not Ready, because
// Cluster API updates them when a MachineDeployment or control plane changes.
func (r *source) countUnselected(
	ctx context.Context,
) (unselected map[client.ObjectKey]int, restless map[client.ObjectKey]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	selector := client.MatchingLabelsSelector{Selector: r.labelled().AsSelector()}
	if err := r.client.List(ctx, list, client.InNamespace(r.Namespace), selector, fromMemory()); err != nil {
		return nil, nil, err
	}
	unselected, restless = map[client.ObjectKey]int{}, map[client.ObjectKey]bool{}
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
			restless[clusterOf(machine)] = true
		}
		if !slices.ContainsFunc(checks[machine.Namespace], func(check *clusterv1.MachineHealthCheck) bool {
			return machinehealthcheck.Unselected(check, machine) == ""
		}) {
			unselected[clusterOf(machine)]++
		}
	}
	return unselected, restless, nil
}

// machinesReady reports whether no condition of a Cluster says that a machine is not Ready. It covers machines that no check selects.
func machinesReady(cluster *clusterv1.Cluster) bool {
	for _, kind := range []string{clusterv1.ClusterControlPlaneMachinesReadyCondition, clusterv1.ClusterWorkerMachinesReadyCondition} {
		if cond := meta.FindStatusCondition(cluster.Status.Conditions, kind); cond != nil && cond.Status != metav1.ConditionTrue {
			return false
		}
	}
	return true
}

// WrittenBy returns a function that reports whether one of the managers acts on a check and has written its status. If the check is not
// claimed and the manager does not act on unclaimed checks, Cluster API core may have written the status. Within `startup` of the
// manager's start an earlier manager may have written it.
func (s *Snapshot) WrittenBy(managers []managerlease.Manager) func(*clusterv1.MachineHealthCheck, *clusterv1.Cluster) bool {
	managers = slices.DeleteFunc(slices.Clone(managers), func(manager managerlease.Manager) bool {
		said := manager.Announcement
		return said == nil || said.Teardown || s.Taken.Sub(said.Started.Time) < startup || manager.Unserved(crdgate.MachineCheckCRD) != nil
	})
	return func(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) bool {
		return machinehealthcheck.Reported(check, cluster) && slices.ContainsFunc(managers, func(manager managerlease.Manager) bool {
			acts := machinehealthcheck.Claimed(check) ||
				machinehealthcheck.Unclaimed(manager.Announcement.Unclaimed) == machinehealthcheck.Act
			return acts && manager.StandsOff(check, cluster).Reason == ""
		})
	}
}
