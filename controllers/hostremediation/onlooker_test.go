package hostremediation

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
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

// unasked are nodes that cannot be read from here.
type unasked struct{}

func (unasked) Look(context.Context, client.ObjectKey, string, fence.Owner) (fence.Seen, error) {
	return fence.Seen{Cause: ErrUnasked}, nil
}

// shown are hosts that must not be written to.
type shown struct {
	Hosts
	t *testing.T
}

func (s shown) wrote() error {
	s.t.Error("Explain wrote to a host")
	return nil
}

func (s shown) KeepOff(context.Context, *bmov1alpha1.BareMetalHost, host.Remediation) error {
	return s.wrote()
}
func (s shown) Reboot(context.Context, *bmov1alpha1.BareMetalHost, host.Remediation, int) error {
	return s.wrote()
}
func (s shown) Release(context.Context, *bmov1alpha1.BareMetalHost, host.Remediation) error {
	return s.wrote()
}
func (s shown) MarkUnhealthy(context.Context, *bmov1alpha1.BareMetalHost, types.UID) error {
	return s.wrote()
}
func (s shown) MarkHealthy(context.Context, *bmov1alpha1.BareMetalHost, types.UID) error {
	return s.wrote()
}

// onlooker sees the fixture as its reconciler does, without a manager, and fails the test if it writes anything.
func (k *fixture) onlooker() *Reconciler {
	k.t.Helper()
	refuse := func(what string) error {
		k.t.Errorf("Explain tried to %s", what)
		return nil
	}
	reader := interceptor.NewClient(k.client.(client.WithWatch), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return refuse("create")
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return refuse("update")
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return refuse("delete")
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return refuse("patch")
		},
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return refuse("patch a status")
		},
	})
	return &Reconciler{
		Kind: k.r.Kind, Installed: k.r.Installed, Client: reader, Live: reader, Hosts: shown{k.hosts, k.t}, Clusters: k.r.Clusters,
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
	k.r.Claims.mu.Lock()
	defer k.r.Claims.mu.Unlock()
	claimed := map[string]types.UID{}
	for queue, by := range k.r.Claims.by {
		claimed[queue] = by.uid
	}
	k.r.UnderWay.mu.Lock()
	defer k.r.UnderWay.mu.Unlock()
	counted := map[string]string{}
	for key, is := range maps.All(k.r.UnderWay.all) {
		counted[key.kind+" "+key.String()] = string(is.state)
	}
	return map[string]any{
		"remediations": rems.Items, "machines": machines.Items, "host": k.host.DeepCopy(), "claimed": claimed, "counted": counted,
	}
}
