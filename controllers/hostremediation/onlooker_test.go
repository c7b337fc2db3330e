package hostremediation

import (
	"context"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/workload"
)

// answering are workload clusters that have these nodes, or of which nothing can be asked.
type answering struct {
	nodes []*corev1.Node
	err   error
}

func (a answering) View(context.Context, client.ObjectKey, time.Time, ...clustercache.Watcher) (workload.View, error) {
	return workload.Seen(workload.Up, a), a.err
}

// GetByKey makes it what nodes are kept in.
func (a answering) GetByKey(name string) (any, bool, error) {
	for _, n := range a.nodes {
		if n.Name == name {
			return n, true, nil
		}
	}
	return nil, false, nil
}

// List makes it what nodes are kept in.
func (a answering) List() []any {
	var all []any
	for _, n := range a.nodes {
		all = append(all, n)
	}
	return all
}

// unasked are nodes that cannot be read from here.
type unasked struct{}

func (unasked) Look(context.Context, client.ObjectKey, string, fence.Owner) (fence.Seen, error) {
	return fence.Seen{Cause: ErrUnasked}, nil
}

// readable is a client that reads: to write by it panics.
type readable struct {
	client.Client
	of client.Client
}

func (r readable) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	return r.of.Get(ctx, key, into, opts...)
}

func (r readable) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return r.of.List(ctx, into, opts...)
}

// onlooker sees the fixture as its reconciler does, without a manager.
func (k *fixture) onlooker() *Reconciler {
	reader := readable{of: k.client}
	return &Reconciler{
		Kind: k.r.Kind, Installed: k.r.Installed, Client: reader, Live: reader, Hosts: k.hosts, Clusters: k.r.Clusters,
		Nodes: k.nodes, WatchFilterValue: k.r.WatchFilterValue, Teardown: k.r.Teardown,
	}
}

// looks returns what is seen, and fails the test if anything is not as it was before.
func (k *fixture) looks(r *Reconciler) *explain.Remediation {
	k.t.Helper()
	before := k.everything()
	is, err := r.Explain(k.t.Context(), k.key, k.clock.Now())
	if err != nil {
		k.t.Fatal(err)
	}
	if diff := cmp.Diff(before, k.everything()); diff != "" {
		k.t.Errorf("Explain has changed something:\n%s", diff)
	}
	return is
}

// everything is all that there is to change.
func (k *fixture) everything() map[string]any {
	k.t.Helper()
	rems, machines := &mendv1.HostRemediationList{}, &clusterv1.MachineList{}
	for _, list := range []client.ObjectList{rems, machines} {
		if err := k.client.List(k.t.Context(), list); err != nil {
			k.t.Fatal(err)
		}
	}
	counted := map[string]string{}
	for key, is := range k.r.kept.Range {
		counted[key.(client.ObjectKey).String()] = string(is.(kept).progress.state)
	}
	return map[string]any{
		"remediations": rems.Items, "machines": machines.Items, "host": k.host.DeepCopy(), "counted": counted,
		"did": slices.Clone(k.did),
	}
}
