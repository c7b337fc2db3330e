// Package inspect explains the objects of a management cluster, by the controllers' own functions and as the manager there would. It
// decides nothing.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// Asker explains the objects of one snapshot at one moment.
type Asker struct {
	Snapshot *snapshot.Snapshot
	Now      time.Time
	Managers Managers

	reader   client.Client
	machines *machinehealthcheck.Reconciler
	nodes    *nodehealthcheck.Reconciler
}

// New returns an Asker for w at now.
func New(ctx context.Context, w *snapshot.Snapshot, now time.Time) (*Asker, error) {
	if err := errors.Join(machinehealthcheck.AddIndexes(ctx, w), remediationrecord.AddIndex(ctx, w)); err != nil {
		return nil, err
	}
	a := &Asker{Snapshot: w, Now: now, Managers: ManagersOf(ctx, w, now), reader: w.ReadOnly()}
	a.machines, a.nodes = a.controllers(a.reader, clock.RealClock{})
	return a, nil
}

// Acting are the controllers that a explains, as they act through c.
func (a *Asker) Acting(c client.Client, now clock.PassiveClock) (*machinehealthcheck.Reconciler, *nodehealthcheck.Reconciler) {
	machines, nodes := a.controllers(c, now)
	machines.Unclaimed = machinehealthcheck.Act
	machines.Recorder, nodes.Recorder, nodes.Gate = &events.FakeRecorder{}, &events.FakeRecorder{}, &begin.Gate{Clock: now}
	return machines, nodes
}

func (a *Asker) controllers(c client.Client, now clock.PassiveClock) (*machinehealthcheck.Reconciler, *nodehealthcheck.Reconciler) {
	w, requests := a.Snapshot, &remediationrequest.Requests{Client: c, Live: c}
	machines := &machinehealthcheck.Reconciler{
		Client: c, Clusters: a.clusters(), Requests: requests, Clock: now, Metal: &host.Hosts{Client: c, Live: c},
		Kinds: snapshot.NewKinds[*remediationrequest.Metadata](w, w.Namespace()), Hosts: snapshot.NewKinds[*bmov1alpha1.BareMetalHost](w, w.Namespace()),
	}
	return machines, &nodehealthcheck.Reconciler{
		Client: c, Management: c, Live: c, Mapper: w.RESTMapper(), Requests: requests, Installed: w.Installed, Clock: now,
		Kinds:          snapshot.NewKinds[*unstructured.Unstructured](w, ""),
		LeaseNamespace: a.Managers.leaseNamespace(), Contact: &nodehealthcheck.Contact{Announced: a.Managers.clockAhead()},
	}
}

// Reader reads the snapshot.
func (a *Asker) Reader() client.Reader { return a.reader }

// MachineChecks explains the MachineHealthChecks that are wanted, in the order of their names. The error is Forbidden if they could not be
// read: there may be some then.
func (a *Asker) MachineChecks(ctx context.Context, wanted func(*clusterv1.MachineHealthCheck) bool) ([]explain.Check, error) {
	list := &clusterv1.MachineHealthCheckList{}
	if err := a.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list MachineHealthChecks: %w", err)
	}
	var checks []explain.Check
	for i := range list.Items {
		if !wanted(&list.Items[i]) {
			continue
		}
		check, err := a.machineCheck(ctx, &list.Items[i])
		if err == nil && check != nil && shares(check) {
			check, err = a.besideOthers(ctx, &list.Items[i], list.Items)
		}
		switch {
		case err != nil:
			ref := explain.Ref{Kind: "MachineHealthCheck", Namespace: list.Items[i].Namespace, Name: list.Items[i].Name}
			checks = append(checks, explain.Unexplained(ref, err))
		case check != nil:
			checks = append(checks, *check)
		}
	}
	return checks, nil
}

// shares reports whether other checks select Machines of a check: the message of its condition names them.
func shares(check *explain.Check) bool {
	exclusive := meta.FindStatusCondition(check.Conditions, mendv1.TargetsExclusive)
	return exclusive != nil && exclusive.Message != ""
}

// besideOthers explains a check that selects Machines which others select too, after these have said which of them they remediate.
func (a *Asker) besideOthers(ctx context.Context, check *clusterv1.MachineHealthCheck, among []clusterv1.MachineHealthCheck) (*explain.Check, error) {
	for i := range among {
		other := &among[i]
		if other.Namespace == check.Namespace && other.Spec.ClusterName == check.Spec.ClusterName && other.Name != check.Name {
			_, _ = a.machineCheck(ctx, other) // one that cannot be explained says nothing
		}
	}
	return a.machineCheck(ctx, check)
}

// machineCheck explains check with the flags of the manager that reconciles it; nil if it is gone.
func (a *Asker) machineCheck(ctx context.Context, check *clusterv1.MachineHealthCheck) (*explain.Check, error) {
	key := client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName}
	cluster := a.cluster(key)
	a.machines.Unclaimed = unclaimed(a.Managers.of(check, cluster))
	a.machines.CountByStatus = a.Snapshot.Counted(key)
	explained, err := a.machines.Explain(ctx, client.ObjectKeyFromObject(check), a.Now)
	if err != nil || explained == nil {
		return nil, err
	}
	a.blind(explained, check, cluster)
	a.Managers.Attend(explained, check, cluster)
	return explained, nil
}

// NodeChecks explains the NodeHealthChecks that are wanted, sorted by name. There are none where the kind is not installed. The error is
// Forbidden if they could not be read: there may be some then.
func (a *Asker) NodeChecks(ctx context.Context, wanted func(*nhcv1.NodeHealthCheck) bool) ([]explain.Check, error) {
	list := &nhcv1.NodeHealthCheckList{}
	if err := a.reader.List(ctx, list, client.UnsafeDisableDeepCopy); meta.IsNoMatchError(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list NodeHealthChecks: %w", err)
	}
	var checks []explain.Check
	for i := range list.Items {
		if !wanted(&list.Items[i]) {
			continue
		}
		check, err := a.nodes.Explain(ctx, list.Items[i].Name, a.Now)
		switch {
		case err != nil:
			checks = append(checks, explain.Unexplained(explain.Ref{Kind: "NodeHealthCheck", Name: list.Items[i].Name}, err))
		case check != nil:
			unreadByYou(check)
			a.Managers.Serve(check, crdgate.NodeCheckCRD)
			checks = append(checks, *check)
		}
	}
	return checks, nil
}

// cluster is the Cluster of a name; an empty one if there is none.
func (a *Asker) cluster(key client.ObjectKey) *clusterv1.Cluster {
	return cmp.Or(snapshot.One[clusterv1.Cluster](a.Snapshot, key), &clusterv1.Cluster{})
}

// asTheManager are the workload clusters as the manager reaches them: one that it reports as unreachable is unreachable, although the user
// may reach it. By the clock of the manager, if that is wrong, nothing is judged here either.
type asTheManager struct {
	*snapshot.Clusters
	asker *Asker
}

func (a *Asker) clusters() asTheManager { return asTheManager{a.Snapshot.Clusters(), a} }

// View implements machinehealthcheck.Clusters.
func (c asTheManager) View(ctx context.Context, key client.ObjectKey, now time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	list := &clusterv1.MachineHealthCheckList{}
	if err := c.asker.reader.List(ctx, list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return workload.View{}, fmt.Errorf("list the MachineHealthChecks in %s: %w", key.Namespace, err)
	}
	cluster := c.asker.cluster(key)
	for i := range list.Items {
		if check := &list.Items[i]; check.Spec.ClusterName == key.Name && c.asker.Managers.sayUnseen(check, cluster) {
			view := workload.Seen(workload.Down, nil)
			view.Reported = true
			return view, nil
		}
	}
	view, err := c.Clusters.View(ctx, key, now)
	view.ClockAhead = c.asker.Managers.clockAhead()
	return view, err
}

// sayUnseen reports whether the manager reports, in a check that it acts on, that it cannot reach the workload cluster. The
// condition of another check may be old.
func (m Managers) sayUnseen(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) bool {
	by, annotated := check.Annotations[clusterv1.PausedAnnotation]
	acts := by == mendv1.Claim || !annotated && unclaimed(m.of(check, cluster)) == machinehealthcheck.Act
	return acts && check.DeletionTimestamp.IsZero() && conditions.IsFalse(check, mendv1.WorkloadClusterReachable)
}
