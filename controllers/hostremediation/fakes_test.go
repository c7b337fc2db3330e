package hostremediation

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/workload"
)

// act is an action on a host or a node.
type act string

const (
	powersOff        act = "keep the host powered off"
	asks             act = "ask for a receipt"
	reboots          act = "reboot the host"
	releases         act = "release the host"
	releasesUnstored act = "release the host of what is not stored"
	marks            act = "mark the host"
	unmarks          act = "remove the mark"
	disproves        act = "note the disproved power-off"
	fences           act = "fence the node"
	unfences         act = "unfence the node"
	disowns          act = "disown the fence"
)

// expects adds to the acts that the test must see, in this order.
func (k *fixture) expects(all ...act) { k.wants = append(k.wants, all...) }

// obeys permits all acts from now on.
func (k *fixture) obeys() { k.obeyed = true }

func (k *fixture) verify() {
	if !k.obeyed && !slices.Equal(k.did, k.wants) {
		k.t.Errorf("what was done to host and node is %q, want %q", k.did, k.wants)
	}
}

// does notes an act, unless it is refused.
func (k *fixture) does(a act) error {
	if before := k.at[a]; before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	k.did = append(k.did, a)
	return nil
}

// finds returns the result of the search for the host.
func (k *fixture) finds() host.Found {
	if k.found != nil {
		return *k.found
	}
	return host.Found{Host: host.From(k.host), Is: powercycle.HostOurs}
}

// fakeHosts is the fixture's host, which obeys.
type fakeHosts struct{ k *fixture }

func (f *fakeHosts) Of(context.Context, *clusterv1.Machine) (host.Found, error) {
	return f.k.finds(), f.k.unread
}

func (f *fakeHosts) Named(context.Context, client.ObjectKey) (*host.Host, error) {
	return host.From(f.k.host), nil
}

func (f *fakeHosts) Refresh(_ context.Context, found *host.Found) error {
	*found = f.k.finds()
	return nil
}

// done does an act, and changes the host's annotations with change.
func (f *fakeHosts) done(a act, change func(annotations map[string]string)) error {
	err := f.k.does(a)
	if err == nil {
		change(f.k.host.Annotations)
	}
	return err
}

func (f *fakeHosts) KeepOff(context.Context, metav1.Object, host.Remediation) error {
	return f.done(powersOff, func(on map[string]string) { on[holdOff+string(fixtureUID)] = infrav1.PowerOffAnnotationValue })
}

func (f *fakeHosts) AskReceipt(context.Context, metav1.Object, host.Remediation, time.Time) error {
	return f.done(asks, func(map[string]string) {})
}

func (f *fakeHosts) Reboot(context.Context, metav1.Object, host.Remediation, int) error {
	return f.done(reboots, func(map[string]string) {})
}

func (f *fakeHosts) Release(context.Context, metav1.Object, host.Remediation) error {
	return f.done(releases, func(on map[string]string) {
		delete(on, holdOff+string(fixtureUID))
		delete(on, mendv1.RebootedForAnnotation)
	})
}

func (f *fakeHosts) ReleaseUnstored(context.Context, metav1.Object, host.Remediation, int) error {
	return f.done(releasesUnstored, func(on map[string]string) {
		clear(on)
		on[mendv1.RebootedForAnnotation] = string(fixtureUID) + "/1"
	})
}

func (f *fakeHosts) MarkUnhealthy(ctx context.Context, _ metav1.Object, m types.UID) error {
	if c := conditions.Get(f.k.machine(ctx), clusterv1.MachineOwnerRemediatedCondition); c != nil && !f.k.obeyed && c.Message != "" {
		f.k.t.Error("the owner of the machine was asked before its host was marked")
	}
	return f.done(marks, func(on map[string]string) {
		on[infrav1.UnhealthyAnnotation], on[infrav1.LegacyUnhealthyAnnotation] = infrav1.UnhealthyAnnotationValue, infrav1.UnhealthyAnnotationValue
		on[mendv1.MarkedForAnnotation] = string(m)
	})
}

func (f *fakeHosts) MarkHealthy(context.Context, metav1.Object, types.UID) error {
	return f.done(unmarks, func(map[string]string) {})
}

func (f *fakeHosts) Disprove(_ context.Context, _ metav1.Object, now time.Time) error {
	return f.done(disproves, func(on map[string]string) { on[mendv1.PowerOffDisprovedAnnotation] = now.String() })
}

// fakeNodes is the fixture's node, which obeys.
type fakeNodes struct{ k *fixture }

func (f *fakeNodes) Look(_ context.Context, _ client.ObjectKey, node string, _ fence.Owner) (fence.Seen, error) {
	f.k.looked = node
	return f.k.seen, f.k.refused
}

// bounded fails the test without a deadline: a workload cluster that does not answer would block a worker.
func (f *fakeNodes) bounded(ctx context.Context) {
	if _, has := ctx.Deadline(); !has {
		f.k.t.Error("a workload cluster is written to without a deadline")
	}
}

func (f *fakeNodes) Fence(ctx context.Context, _ client.ObjectKey, _ *corev1.Node, _ fence.Owner) error {
	f.bounded(ctx)
	if f.k.host.Status.PoweredOn {
		f.k.t.Error("a node was fenced whose host is on")
	}
	err := f.k.does(fences)
	if err == nil {
		f.k.seen.Fenced, f.k.seen.Ours = true, true
	}
	return err
}

func (f *fakeNodes) Unfence(ctx context.Context, _ client.ObjectKey, _ *corev1.Node, _ fence.Owner) error {
	f.bounded(ctx)
	err := f.k.does(unfences)
	if err == nil {
		f.k.seen.Fenced, f.k.seen.Ours, f.k.seen.Drained = false, false, false
	}
	return err
}

func (f *fakeNodes) Disown(context.Context, client.ObjectKey, *corev1.Node, fence.Owner) error {
	return f.k.does(disowns)
}

// answering are workload clusters that have these nodes, or that fail with err.
type answering struct {
	nodes []*corev1.Node
	err   error
}

func (a answering) View(context.Context, client.ObjectKey, time.Time, ...clustercache.Watcher) (workload.View, error) {
	return workload.Seen(workload.Up, a.nodes), a.err
}
