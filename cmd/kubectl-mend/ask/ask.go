// Package ask asks the controllers' own functions what they think of a world in memory. It decides nothing.
package ask

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/look"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/request"
	"github.com/kubemend/kubemend/controllers/workload"
)

// Asker asks about one world at one moment.
type Asker struct {
	World    *snapshot.World
	Now      time.Time
	Managers Managers

	reader   client.Client
	machines *machinehealthcheck.Reconciler
}

// New returns one who asks about w at now, as the managers there would.
func New(ctx context.Context, w *snapshot.World, now time.Time) (*Asker, error) {
	if err := machinehealthcheck.AddIndexes(ctx, w); err != nil {
		return nil, err
	}
	reader := w.ReadOnly()
	a := &Asker{World: w, Now: now, Managers: ManagersOf(ctx, w, now), reader: reader}
	a.machines = &machinehealthcheck.Reconciler{
		Client: reader, Clusters: asTheManager{w.Clusters(), reader}, Requests: &request.Requests{Client: reader, Live: reader},
		Kinds: snapshot.NewKinds[*request.Metadata](w), Clock: clock.RealClock{},
	}
	return a, nil
}

// Reader reads the world.
func (a *Asker) Reader() client.Reader { return a.reader }

// MachineChecks are looks at the MachineHealthChecks that are wanted, in the order of their names.
func (a *Asker) MachineChecks(ctx context.Context, wanted func(*clusterv1.MachineHealthCheck) bool) ([]look.Check, error) {
	list := &clusterv1.MachineHealthCheckList{}
	if err := a.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list MachineHealthChecks: %w", err)
	}
	var checks []look.Check
	for i := range list.Items {
		if !wanted(&list.Items[i]) {
			continue
		}
		check, err := a.machineCheck(ctx, &list.Items[i])
		if err != nil {
			return nil, err
		}
		if check != nil {
			checks = append(checks, *check)
		}
	}
	slices.SortFunc(checks, func(a, b look.Check) int { return strings.Compare(a.String(), b.String()) })
	return checks, nil
}

// machineCheck is a look at check as the manager has it that looks at it.
func (a *Asker) machineCheck(ctx context.Context, check *clusterv1.MachineHealthCheck) (*look.Check, error) {
	manager := a.Managers.of(check)
	a.machines.Unclaimed = unclaimed(manager)
	is, err := a.machines.Look(ctx, client.ObjectKeyFromObject(check), a.Now)
	if err != nil || is == nil {
		return nil, err
	}
	if is.Stance == look.Acting && manager == nil && a.Managers.Unknown == "" {
		a.Managers.unattended(is)
	}
	return is, nil
}

// asTheManager are the workload clusters as the manager sees them: one that it says it cannot see is out of sight, although its user may see
// it. What the manager cannot see it does not act on.
type asTheManager struct {
	*snapshot.Clusters
	checks client.Reader
}

// View implements machinehealthcheck.Clusters.
func (c asTheManager) View(ctx context.Context, cluster client.ObjectKey, now time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	list := &clusterv1.MachineHealthCheckList{}
	if err := c.checks.List(ctx, list, client.InNamespace(cluster.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return workload.View{}, fmt.Errorf("list the MachineHealthChecks in %s: %w", cluster.Namespace, err)
	}
	for i := range list.Items {
		if check := &list.Items[i]; check.Spec.ClusterName == cluster.Name && saysUnseen(check) {
			return workload.Seen(workload.Down, nil), nil
		}
	}
	return c.Clusters.View(ctx, cluster, now)
}

// saysUnseen reports whether the manager says in a check that it acts on that it cannot see the workload cluster.
func saysUnseen(check *clusterv1.MachineHealthCheck) bool {
	c := conditions.Get(check, mendv1.WorkloadClusterReachable)
	return c != nil && c.Status == metav1.ConditionFalse && check.Annotations[clusterv1.PausedAnnotation] == mendv1.Claim
}
