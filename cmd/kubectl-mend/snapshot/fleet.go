package snapshot

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// mostNamed is how many clusters a list of machines names; more of them are read with all others.
const mostNamed = 100

// firstLook is how long a manager that was started may take to connect to all clusters and to judge all checks. Until then a status stands as it was.
const firstLook = 2 * time.Minute

// restless leaves out the machines and nodes of clusters of which nothing is to be said but that all are healthy. In a fleet these are nearly all, and
// their machines and nodes nearly all of what there is to read. It returns what is still to be read, and of which clusters the nodes are.
func (r *reading) restless(ctx context.Context, everything []query) ([]query, func(*clusterv1.Cluster) bool) {
	wanted := r.restlessClusters(ctx)
	if len(wanted) == 0 { // of hosts, those that are out of service
		marked := func(o client.Object) bool { return host.Unhealthy(o) }
		everything = []query{{gvk: hostGVK, namespace: r.Namespace, bare: true, keep: marked}}
	} else if len(wanted) < len(r.snapshot.Objects(clusterGVK, "")) {
		everything[0] = r.machinesIn(wanted)
	}
	return everything, func(c *clusterv1.Cluster) bool { return slices.Contains(wanted, client.ObjectKeyFromObject(c)) }
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
	everywhere := len(r.snapshot.Objects(nodeCheckGVK, "")) > 0 || r.AllMachines // a NodeHealthCheck judges the machines of all nodes
	var wanted []client.ObjectKey
	for _, cluster := range All[clusterv1.Cluster](r.snapshot, "") {
		judged := func(check *clusterv1.MachineHealthCheck) bool {
			return check.Spec.ClusterName == cluster.Name && !(acted(check, cluster) && machinehealthcheck.Calm(check, cluster))
		}
		key := client.ObjectKeyFromObject(cluster)
		if everywhere || remediated(key) || !machinesReady(cluster) ||
			slices.ContainsFunc(All[clusterv1.MachineHealthCheck](r.snapshot, cluster.Namespace), judged) {
			wanted = append(wanted, key)
			continue
		}
		r.snapshot.SetCounted(key)
		r.snapshot.SetNodes(key, nil)
	}
	return wanted
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

// actsOn reports whether a manager keeps the status of a check that it reconciles up to date. It does not if the check is unclaimed, unless its mode for
// these is act, nor before it has connected to all clusters: then Cluster API core wrote the status, or a manager long before.
func (r *reading) actsOn(check *clusterv1.MachineHealthCheck, m managerlease.Manager) bool {
	claimed := check.Annotations[clusterv1.PausedAnnotation] == mendv1.Claim
	return !m.Announcement.Teardown && m.Unserved(crdgate.MachineCheckCRD) == nil && r.snapshot.Taken.Sub(m.Announcement.Started.Time) >= firstLook &&
		(claimed || machinehealthcheck.Unclaimed(m.Announcement.Unclaimed) == machinehealthcheck.Act)
}

// remediated tells the clusters with a remediation: that of a machine which is healthy again has an end of its own, and may wait for a person. One that does
// not say of which cluster it is may be of any in its namespace.
func (r *reading) remediated() func(cluster client.ObjectKey) bool {
	clusters := map[client.ObjectKey]bool{}
	r.snapshot.mu.RLock()
	defer r.snapshot.mu.RUnlock()
	for gk, k := range r.snapshot.kinds {
		if !r.requested(gk) {
			continue
		}
		for _, req := range k.in("") {
			clusters[client.ObjectKey{Namespace: req.GetNamespace(), Name: req.GetLabels()[clusterv1.ClusterNameLabel]}] = true
		}
	}
	return func(cluster client.ObjectKey) bool {
		return clusters[cluster] || clusters[client.ObjectKey{Namespace: cluster.Namespace}]
	}
}

// requested reports whether objects of a kind are made from templates and ask for a remediation. Of the others that are made
// from templates, only Metal3Machines are read.
func (r *reading) requested(gk schema.GroupKind) bool {
	_, templated := r.served[schema.GroupKind{Group: gk.Group, Kind: gk.Kind + remediationrequest.TemplateSuffix}]
	own := gk.Group == infrav1.GroupVersion.Group && gk.Kind == "Metal3Remediation" || gk.Group == mendv1.GroupVersion.Group && gk.Kind == "HostRemediation"
	return own || templated && gk != metal3MachineGVK.GroupKind()
}

// machinesIn are the machines of some clusters in scope. Of the others none is kept: without their nodes they would look as if these were gone.
func (r *reading) machinesIn(clusters []client.ObjectKey) query {
	q := r.machines()[0]
	q.keep = func(obj client.Object) bool {
		machine, whole := obj.(*clusterv1.Machine)
		return !whole || !r.snapshot.Counted(client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName})
	}
	if r.Cluster != "" || len(clusters) > mostNamed {
		return q
	}
	names := make([]string, 0, len(clusters))
	for _, cluster := range clusters {
		names = append(names, cluster.Name)
	}
	if named, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.In, names); err == nil {
		q.options = []client.ListOption{client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*named)}}
	}
	return q
}
