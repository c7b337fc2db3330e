package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/workload"
)

// Hosts reads the bare-metal hosts of the snapshot.
func (a *Asker) Hosts() *host.Hosts { return &host.Hosts{Client: a.reader, Live: a.reader} }

// RemediationsOf explains the remediations that a machine owns, of both kinds.
func (a *Asker) RemediationsOf(ctx context.Context, m *clusterv1.Machine) ([]explain.Remediation, error) {
	existing, err := remediation.Installed(func() ([]remediation.Kind, error) { return a.readable(ctx, m.Namespace) }).In(ctx, a.reader, m.Namespace)
	if err != nil {
		return nil, err
	}
	return a.explained(ctx, named(existing.Of(m)))
}

// RemediationsHolding explains the remediations that act on the power of a host, and returns the UIDs of those that act on it and do not exist.
func (a *Asker) RemediationsHolding(ctx context.Context, h *bmov1alpha1.BareMetalHost) ([]explain.Remediation, []types.UID, error) {
	existing, err := remediation.Installed(func() ([]remediation.Kind, error) { return a.readable(ctx, h.Namespace) }).In(ctx, a.reader, h.Namespace)
	if err != nil {
		return nil, nil, err
	}
	known, unknown := existing.OnHost(h)
	all, err := a.explained(ctx, named(known))
	return all, unknown, err
}

// hostRemediation is a remediation by its kind and its name.
type hostRemediation struct {
	Kind remediation.Kind
	Key  client.ObjectKey
}

func named(all []remediation.OfKind) []hostRemediation {
	names := make([]hostRemediation, 0, len(all))
	for _, rem := range all {
		names = append(names, hostRemediation{rem.Kind, client.ObjectKeyFromObject(rem)})
	}
	return names
}

// Remediations explains those of that name, of one kind or, if that is empty, of both. There may be none.
func (a *Asker) Remediations(ctx context.Context, kind string, key client.ObjectKey) ([]explain.Remediation, error) {
	kinds, err := remediation.InstalledKinds(a.Snapshot.RESTMapper())
	if err != nil {
		return nil, err
	}
	var named []hostRemediation
	for _, k := range kinds {
		if kind == "" || kind == k.Kind {
			named = append(named, hostRemediation{k, key})
		}
	}
	return a.explained(ctx, named)
}

// readable are the kinds of remediations that are installed and were read in a namespace. The snapshot reports the others.
func (a *Asker) readable(ctx context.Context, namespace string) ([]remediation.Kind, error) {
	kinds, err := remediation.InstalledKinds(a.Snapshot.RESTMapper())
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(kinds, func(k remediation.Kind) bool {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
		return a.reader.List(ctx, list, client.InNamespace(namespace)) != nil
	}), nil
}

func (a *Asker) explained(ctx context.Context, named []hostRemediation) ([]explain.Remediation, error) {
	var all []explain.Remediation
	for _, n := range named {
		if n.Kind.New == nil { // in a version of which no more is known than metadata: it is CAPM3's
			continue
		}
		is, err := a.remediation(ctx, n)
		if err != nil {
			return nil, err
		}
		if is != nil {
			all = append(all, *is)
		}
	}
	return all, nil
}

// remediation explains one with the flags of the manager that acts on it, or with none; nil if it does not exist or asks for nothing.
func (a *Asker) remediation(ctx context.Context, n hostRemediation) (*explain.Remediation, error) {
	if served, not := a.Managers.serves(crdOf(n.Kind)); !served && not != nil {
		is, err := a.remediations(n.Kind, managerlease.Announcement{}).Explain(ctx, n.Key, a.Now)
		if is != nil {
			otherActs(is, not)
		}
		return is, err
	}
	for _, by := range a.Managers.serving(crdOf(n.Kind), n.Key.Namespace) {
		if is, err := a.remediations(n.Kind, by).Explain(ctx, n.Key, a.Now); is != nil || err != nil {
			return is, err // what it has begun it ends, whatever it would begin
		}
	}
	is, err := a.remediations(n.Kind, managerlease.Announcement{}).Explain(ctx, n.Key, a.Now)
	if is == nil || err != nil || a.Managers.Unknown != "" {
		return is, err
	}
	offs, err := a.offsOf(ctx, n)
	if err != nil {
		return nil, err
	}
	because, person := explain.NoManagerActs(a.Managers.All, offs)
	is.Acts, is.Reason, is.Message, is.Deadline = false, explain.NoManager, because, nil
	is.Next = step(person, "nothing, as long as no manager reconciles it")
	return is, nil
}

// serving are the announcements of the managers that run, serve a kind and reconcile a namespace.
func (m Managers) serving(crd, namespace string) []managerlease.Announcement {
	var all []managerlease.Announcement
	for _, is := range m.All {
		switch {
		case !is.Alive || is.Unserved(crd) != nil:
		case is.Announcement == nil:
			all = append(all, managerlease.Announcement{}) // it may reconcile everything
		case is.Announcement.Namespace == "" || is.Announcement.Namespace == namespace:
			all = append(all, *is.Announcement)
		}
	}
	return all
}

// offsOf are why managers do not act on a remediation, whose own label counts as well as its Cluster's.
func (a *Asker) offsOf(ctx context.Context, n hostRemediation) ([]managerlease.Off, error) {
	rem := n.Kind.New().Unwrapped()
	if err := a.reader.Get(ctx, n.Key, rem); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", n.Kind.Kind, n.Key, err)
	}
	owned := &clusterv1.Cluster{} // without a label, if there is none
	for _, owner := range rem.GetOwnerReferences() {
		m := &clusterv1.Machine{}
		if owner.Kind == "Machine" && a.reader.Get(ctx, client.ObjectKey{Namespace: n.Key.Namespace, Name: owner.Name}, m) == nil {
			err := a.reader.Get(ctx, client.ObjectKey{Namespace: n.Key.Namespace, Name: m.Spec.ClusterName}, owned)
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("read Cluster %s: %w", m.Spec.ClusterName, err)
			}
		}
	}
	return a.Managers.offs(rem, owned), nil
}

// remediations is the reconciler of a kind, with the flags that a manager has announced.
func (a *Asker) remediations(kind remediation.Kind, by managerlease.Announcement) *hostremediation.Reconciler {
	return &hostremediation.Reconciler{
		WatchFilterValue: by.WatchFilter, Teardown: by.Teardown,
		Kind: kind, Client: a.reader, Live: a.reader, Hosts: a.Hosts(), Clusters: asked{a.clusters, a.Snapshot.Unseen},
		Installed: func() ([]remediation.Kind, error) { return remediation.InstalledKinds(a.Snapshot.RESTMapper()) },
		Nodes:     fence.Reader{Reader: a.live}, Reader: a.live,
		Clock: clock.RealClock{},
	}
}

// live reads a workload cluster itself, if the user can.
func (a *Asker) live(_ context.Context, cluster client.ObjectKey) (client.Reader, error) {
	reader, err := a.Snapshot.Live(cluster)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", hostremediation.ErrUnasked, err)
	}
	return reader, nil
}

// asked are workload clusters of which one that the user cannot read is not taken for one that the manager cannot reach.
type asked struct {
	asTheManager
	unseen func(cluster client.ObjectKey) (why string, since time.Time, unseen bool)
}

// View implements hostremediation.Clusters.
func (c asked) View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (workload.View, error) {
	if why, _, unseen := c.unseen(cluster); unseen {
		return workload.View{}, fmt.Errorf("%w: %s", hostremediation.ErrUnasked, why)
	}
	view, err := c.asTheManager.View(ctx, cluster, now, watches...)
	if err != nil { // the user may not read whether the manager reaches it
		return workload.View{}, fmt.Errorf("%w: %w", hostremediation.ErrUnasked, err)
	}
	return view, nil
}

// crdOf is the name of the CustomResourceDefinition of a kind.
func crdOf(kind remediation.Kind) string {
	if kind.Kind == remediation.Metal3.Kind {
		return crdgate.Metal3CRD
	}
	return crdgate.OwnCRD
}

// otherActs replaces the step of is, since kubemend does not act on its kind.
func otherActs(is *explain.Remediation, not *managerlease.Kind) {
	_, next := otherwise(not)
	is.Acts, is.Reason, is.Message = false, explain.NotServed, explain.KindNotServed(not.Because)
	is.Blockers, is.Evidence, is.Next = nil, nil, next
}
