package hostremediation

import (
	"context"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/controllers/workload"
)

// deadlines are those of what is read from a workload cluster that does not answer.
type deadlines struct {
	Nodes
	all []time.Time
}

func (d *deadlines) note(ctx context.Context) {
	at, _ := ctx.Deadline()
	d.all = append(d.all, at)
}

func (d *deadlines) View(ctx context.Context, _ client.ObjectKey, _ time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	d.note(ctx)
	return workload.View{Link: workload.Down}, nil
}

func (d *deadlines) Look(ctx context.Context, cluster client.ObjectKey, node string, by fence.Owner) (fence.Seen, error) {
	d.note(ctx)
	return d.Nodes.Look(ctx, cluster, node, by)
}

func (d *deadlines) Watch(ctx context.Context, _ client.ObjectKey, _ string) error {
	d.note(ctx)
	return nil
}

func TestAllThatAReconcileReadsFromAClusterHasOneDeadline(t *testing.T) {
	k := fixtureOf(t)
	there := &deadlines{Nodes: k.nodes}
	k.r.Nodes, k.r.Clusters = there, there
	k.expects(powersOff, fences)
	most := 0
	for i := range 8 {
		if there.all = nil; i == 4 {
			k.power(false)
		}
		before := clock.RealClock{}.Now()
		k.reconciles()
		for _, at := range there.all {
			if !at.Equal(there.all[0]) {
				t.Fatalf("the deadlines are %v", there.all)
			}
			if in := at.Sub(before); in < 0 || in > workload.AnswerWithin+time.Second {
				t.Errorf("the deadline is in %s", in)
			}
		}
		most = max(most, len(there.all))
	}
	if most < 3 {
		t.Errorf("the cluster is asked %d times at most, want its nodes, the node and the watch of what leaves it", most)
	}
}
