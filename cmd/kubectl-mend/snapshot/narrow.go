package snapshot

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// recordsKept is for how long a machine is asked for which other it was made. Of one that is older only the records about itself are read:
// there are many others.
const recordsKept = 7 * 24 * time.Hour

// mostNamed is how many clusters a list of machines names; more of them are read with all others.
const mostNamed = 100

// firstLook is how long a manager that was started may take to connect to all clusters and to judge all checks. Until then a status stands
// as it was.
const firstLook = 2 * time.Minute

// oneMachine reads one machine, or the machine of one node. The status of the check counts all other machines, so only this one is read,
// and those of the control plane, whose hosts are power-cycled one at a time. Where that does not do, everything is read. It returns of
// which clusters the nodes are.
func (r *reading) oneMachine(ctx context.Context) func(*clusterv1.Cluster) bool {
	r.machineOfNode(ctx)
	if r.one = r.Machine != ""; r.one {
		members, _ := labels.NewRequirement(clusterv1.MachineControlPlaneLabel, selection.Exists, nil) // the label is valid
		ofCluster := labels.SelectorFromSet(labels.Set{clusterv1.ClusterNameLabel: r.Cluster}).Add(*members)
		r.each(ctx, []query{
			{gvk: machineGVK, namespace: r.Namespace, name: r.Machine}, {gvk: machineGVK, namespace: r.Namespace, labels: ofCluster.String()},
		})
		r.siblings.Store(false)
	}
	machine := One[clusterv1.Machine](r.snapshot, client.ObjectKey{Namespace: r.Namespace, Name: r.Machine})
	if r.one = machine != nil && r.sufficient(ctx, machine); r.one {
		r.snapshot.SetCounted(client.ObjectKey{Namespace: r.Namespace, Name: r.Cluster})
		if r.snapshot.Taken.Sub(machine.CreationTimestamp.Time) > recordsKept {
			r.target = string(machine.UID)
		}
	} else {
		r.Machine = ""
		r.each(ctx, []query{{gvk: machineGVK, namespace: r.Namespace}})
	}
	return r.concerned()
}

// machineOfNode finds the machine of the node in question, if there is one cluster whose node it can be: its node names the machine.
// Several clusters may have nodes of one name, and only all of their machines tell which.
func (r *reading) machineOfNode(ctx context.Context) {
	clusters := All[clusterv1.Cluster](r.snapshot, "")
	if r.Node == "" || r.Namespace == "" || r.AllMachines || len(clusters) != 1 {
		return
	}
	key := client.ObjectKeyFromObject(clusters[0])
	reader, err := r.snapshot.WorkloadReader(ctx, r.client, key)
	if err != nil {
		return // the cluster is read later, and says why it cannot be
	}
	node := &corev1.Node{}
	err = reader.Get(ctx, client.ObjectKey{Name: r.Node}, node)
	if err == nil && node.Annotations[clusterv1.ClusterNamespaceAnnotation] == key.Namespace {
		r.Cluster, r.Machine = key.Name, node.Annotations[clusterv1.MachineAnnotation]
	}
}

// sufficient reports whether the machines that were read suffice: the machine is that of the node, and the status of its checks counts the
// others. They do not where no manager writes the status of a claimed check.
func (r *reading) sufficient(ctx context.Context, machine *clusterv1.Machine) bool {
	if r.AllMachines || machine.Spec.ClusterName != r.Cluster || r.Node != "" && machine.Status.NodeRef.Name != r.Node {
		return false
	}
	managers, err := managerlease.Of(ctx, r.snapshot.ReadOnly(), r.snapshot.Taken)
	cluster := cmp.Or(One[clusterv1.Cluster](r.snapshot, client.ObjectKey{Namespace: r.Namespace, Name: r.Cluster}), &clusterv1.Cluster{})
	reconciled := func(check *clusterv1.MachineHealthCheck) bool {
		return err != nil || slices.ContainsFunc(managers, func(m managerlease.Manager) bool {
			off := m.StandsOff(check, cluster)
			return off.Reason == "" || off.Unknown()
		})
	}
	return !slices.ContainsFunc(All[clusterv1.MachineHealthCheck](r.snapshot, ""), func(check *clusterv1.MachineHealthCheck) bool {
		return machinehealthcheck.Unselected(check, machine) == "" &&
			(machinehealthcheck.Counted(check, cluster) == nil || claimed(check) && !reconciled(check))
	})
}

func claimed(check *clusterv1.MachineHealthCheck) bool {
	return check.Annotations[clusterv1.PausedAnnotation] == mendv1.Claim
}

// concerned tells the clusters whose nodes are read: with a machine that is, or that has the node.
func (r *reading) concerned() func(*clusterv1.Cluster) bool {
	clusters := map[client.ObjectKey]bool{}
	for _, m := range All[clusterv1.Machine](r.snapshot, "") {
		if r.Machine != "" || m.Status.NodeRef.Name == r.Node {
			clusters[client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}] = true
		}
	}
	return func(c *clusterv1.Cluster) bool {
		return clusters[client.ObjectKeyFromObject(c)] || r.Node == "" && r.reads(client.ObjectKeyFromObject(c))
	}
}

// restless leaves out the machines and nodes of clusters of which nothing is to be said but that all are healthy. In a fleet these are
// nearly all, and their machines and nodes nearly all of what there is to read. It returns of which clusters the nodes are.
func (r *reading) restless(ctx context.Context) func(*clusterv1.Cluster) bool {
	wanted := r.restlessClusters(ctx)
	if len(wanted) < len(r.snapshot.Objects(clusterGVK, "")) {
		r.calm = true
		machines := query{gvk: machineGVK, namespace: r.Namespace, labels: r.labelled().String()}
		names := make([]string, 0, len(wanted))
		for _, cluster := range wanted {
			names = append(names, cluster.Name)
		}
		named, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.In, names)
		if err == nil && r.Cluster == "" && len(names) <= mostNamed {
			machines.labels = named.String()
		}
		if len(wanted) > 0 {
			r.say(machines, r.read(ctx, machines, r.served[machineGVK.GroupKind()]))
		}
	}
	return func(c *clusterv1.Cluster) bool { return slices.Contains(wanted, client.ObjectKeyFromObject(c)) }
}

// restlessClusters are those with something to judge. Of the others it is noted that the status of their checks counts the machines.
func (r *reading) restlessClusters(ctx context.Context) []client.ObjectKey {
	managers, err := managerlease.Of(ctx, r.snapshot.ReadOnly(), r.snapshot.Taken)
	acted := func(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) bool {
		return err == nil && slices.ContainsFunc(managers, func(m managerlease.Manager) bool {
			return m.Announcement != nil && m.StandsOff(check, cluster).Reason == "" && r.actsOn(check, m)
		})
	}
	remediated := r.remediated()
	unreported, unlisted := r.metadataOfMachines(ctx)
	var wanted []client.ObjectKey
	for _, cluster := range All[clusterv1.Cluster](r.snapshot, "") {
		judged := func(check *clusterv1.MachineHealthCheck) bool {
			return check.Spec.ClusterName == cluster.Name && !(acted(check, cluster) && machinehealthcheck.Calm(check, cluster))
		}
		key := client.ObjectKeyFromObject(cluster)
		if remediated[key] || remediated[client.ObjectKey{Namespace: key.Namespace}] || !machinesReady(cluster) ||
			unlisted != nil || unreported[key] || slices.ContainsFunc(All[clusterv1.MachineHealthCheck](r.snapshot, cluster.Namespace), judged) {
			wanted = append(wanted, key)
			continue
		}
		r.snapshot.SetCounted(key)
		r.snapshot.SetNodes(key, nil)
	}
	return wanted
}

// metadataOfMachines counts the machines that no MachineHealthCheck selects, and tells of which Clusters Cluster API does not say soon that a
// machine is not Ready: it does when the owner of the machine changes, which a machine without an owner, or of a MachineSet alone, has not.
func (r *reading) metadataOfMachines(ctx context.Context) (unreported map[client.ObjectKey]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	selector := client.MatchingLabelsSelector{Selector: r.labelled().AsSelector()}
	if err := r.client.List(ctx, list, client.InNamespace(r.Namespace), selector, fromMemory()); err != nil {
		return nil, err
	}
	unreported = map[client.ObjectKey]bool{}
	for i := range list.Items {
		machine := &clusterv1.Machine{ObjectMeta: list.Items[i].ObjectMeta}
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		machine.Spec.ClusterName = machine.Labels[clusterv1.ClusterNameLabel]
		key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
		owner := metav1.GetControllerOf(machine)
		if owner == nil || owner.Kind == "MachineSet" && machine.Labels[clusterv1.MachineDeploymentNameLabel] == "" {
			unreported[key] = true
		}
		if !slices.ContainsFunc(All[clusterv1.MachineHealthCheck](r.snapshot, machine.Namespace), func(check *clusterv1.MachineHealthCheck) bool {
			return machinehealthcheck.Unselected(check, machine) == ""
		}) {
			r.snapshot.addUnselected(key)
		}
	}
	return unreported, nil
}

// machinesReady reports whether Cluster API says of no machine of a Cluster that it is not Ready: also of those that no check selects.
func machinesReady(cluster *clusterv1.Cluster) bool {
	for _, kind := range []string{clusterv1.ClusterControlPlaneMachinesReadyCondition, clusterv1.ClusterWorkerMachinesReadyCondition} {
		if c := meta.FindStatusCondition(cluster.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
			return false
		}
	}
	return true
}

// actsOn reports whether a manager keeps the status of a check that it reconciles up to date. It does not if the check is unclaimed, unless
// its mode for these is act, nor before it has connected to all clusters: then Cluster API core wrote the status, or a manager long before.
func (r *reading) actsOn(check *clusterv1.MachineHealthCheck, m managerlease.Manager) bool {
	connected := r.snapshot.Taken.Sub(m.Announcement.Started.Time) >= firstLook
	return connected && !m.Announcement.Teardown && m.Unserved(crdgate.MachineCheckCRD) == nil &&
		(claimed(check) || machinehealthcheck.Unclaimed(m.Announcement.Unclaimed) == machinehealthcheck.Act)
}

// remediated are the clusters with a remediation: that of a machine which is healthy again has an end of its own, and may wait for a
// person. One that does not say of which cluster it is may be of any in its namespace, whose name is empty.
func (r *reading) remediated() map[client.ObjectKey]bool {
	clusters := map[client.ObjectKey]bool{}
	for gk, res := range r.served {
		_, templated := r.served[schema.GroupKind{Group: gk.Group, Kind: gk.Kind + remediationrequest.TemplateSuffix}]
		own := gk == metal3RemediationGVK.GroupKind() || gk == hostRemediationGVK.GroupKind()
		if !own && (!templated || gk == metal3MachineGVK.GroupKind()) { // of what is made from templates only Metal3Machines are read beside requests
			continue
		}
		for _, req := range r.snapshot.Objects(gk.WithVersion(res.versions[0]), "") {
			clusters[client.ObjectKey{Namespace: req.GetNamespace(), Name: req.GetLabels()[clusterv1.ClusterNameLabel]}] = true
		}
	}
	return clusters
}
