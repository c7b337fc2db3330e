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
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/workload"
)

// Hosts reads the bare-metal hosts of the snapshot.
func (a *Asker) Hosts() *host.Hosts { return &host.Hosts{Client: a.reader, Live: a.reader} }

// RemediationsOf explains the remediations that a machine owns, of both kinds.
func (a *Asker) RemediationsOf(ctx context.Context, machine *clusterv1.Machine) ([]explain.Remediation, error) {
	existing, _, err := a.existing(ctx, machine.Namespace)
	if err != nil {
		return nil, err
	}
	return a.explained(ctx, existing.Of(machine))
}

// RemediationsHolding explains the remediations that act on the power of a host, and returns the UIDs of those that act on it and do not
// exist: of none where some could not be read, as it may be one of those.
func (a *Asker) RemediationsHolding(ctx context.Context, on *bmov1alpha1.BareMetalHost) ([]explain.Remediation, []types.UID, error) {
	existing, whole, err := a.existing(ctx, on.Namespace)
	if err != nil {
		return nil, nil, err
	}
	known, unknown := existing.OnHost(on)
	if !whole {
		unknown = nil
	}
	explained, err := a.explained(ctx, known)
	return explained, unknown, err
}

// Remediations explains those of that kind and name. There may be none.
func (a *Asker) Remediations(ctx context.Context, kind string, key client.ObjectKey) ([]explain.Remediation, error) {
	kinds, err := remediation.InstalledKinds(a.Snapshot.RESTMapper())
	if err != nil {
		return nil, err
	}
	var named []remediation.OfKind
	for _, k := range kinds {
		if kind == k.Kind {
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			named = append(named, remediation.OfKind{Kind: k, Object: object})
		}
	}
	return a.explained(ctx, named)
}

// existing are the remediations of a namespace, of the kinds that could be read; whole reports that all could. The snapshot reports the
// others.
func (a *Asker) existing(ctx context.Context, namespace string) (existing remediation.Existing, whole bool, err error) {
	kinds, err := remediation.InstalledKinds(a.Snapshot.RESTMapper())
	if err != nil {
		return remediation.Existing{}, false, err
	}
	installed := len(kinds)
	kinds = slices.DeleteFunc(kinds, func(kind remediation.Kind) bool {
		return a.reader.List(ctx, kind.List(), client.InNamespace(namespace)) != nil
	})
	existing, err = remediation.List(ctx, a.reader, kinds, namespace)
	return existing, len(kinds) == installed, err
}

func (a *Asker) explained(ctx context.Context, remediations []remediation.OfKind) ([]explain.Remediation, error) {
	var explained []explain.Remediation
	for _, rem := range remediations {
		if rem.Kind.New == nil { // in a version of which no more is known than metadata: it is CAPM3's
			continue
		}
		explanation, err := a.remediation(ctx, rem.Kind, client.ObjectKeyFromObject(rem))
		if err != nil {
			return nil, err
		}
		if explanation != nil {
			explained = append(explained, *explanation)
		}
	}
	return explained, nil
}

// remediation explains one with the flags of the manager that acts on it, or with none; nil if it does not exist or asks for nothing.
func (a *Asker) remediation(ctx context.Context, kind remediation.Kind, key client.ObjectKey) (*explain.Remediation, error) {
	served, unserved := a.Managers.serves(crdOf(kind))
	if served || unserved == nil {
		for _, manager := range a.Managers.serving(crdOf(kind), key.Namespace) {
			if explained, err := a.remediations(kind, manager).Explain(ctx, key, a.Now); explained != nil || err != nil {
				return explained, err // what it has begun it ends, whatever it would begin
			}
		}
	}
	explained, err := a.remediations(kind, managerlease.Announcement{}).Explain(ctx, key, a.Now)
	switch {
	case explained == nil || err != nil:
		return explained, err
	case !served && unserved != nil:
		_, explained.Next = otherwise(unserved)
		explained.Acts, explained.Reason, explained.Message = false, explain.NotServed, explain.KindNotServed(unserved.Because)
		explained.Blockers, explained.Evidence = nil, nil
		return explained, nil
	case a.Managers.Unknown != "":
		return explained, nil
	}
	offs, err := a.offsOf(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	because, person := explain.NoManagerActs(a.Managers.All, offs)
	explained.Acts, explained.Reason, explained.Message, explained.Deadline = false, explain.NoManager, because, nil
	explained.Next = step(person, "nothing, as long as no manager reconciles it")
	return explained, nil
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
func (a *Asker) offsOf(ctx context.Context, kind remediation.Kind, key client.ObjectKey) ([]managerlease.Off, error) {
	rem := kind.New().Unwrapped()
	if err := a.reader.Get(ctx, key, rem); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind.Kind, key, err)
	}
	cluster := &clusterv1.Cluster{} // without a label, if there is none
	for _, owner := range rem.GetOwnerReferences() {
		machine := snapshot.One[clusterv1.Machine](a.Snapshot, client.ObjectKey{Namespace: key.Namespace, Name: owner.Name})
		if owner.Kind == "Machine" && machine != nil {
			cluster = a.cluster(client.ObjectKey{Namespace: key.Namespace, Name: machine.Spec.ClusterName})
		}
	}
	return a.Managers.offs(rem, cluster), nil
}

// remediations is the reconciler of a kind, with the flags that a manager has announced.
func (a *Asker) remediations(kind remediation.Kind, by managerlease.Announcement) *hostremediation.Reconciler {
	return &hostremediation.Reconciler{
		WatchFilterValue: by.WatchFilter, Teardown: by.Teardown,
		Kind: kind, Client: a.reader, Live: a.reader, Hosts: a.Hosts(), Clusters: asked{a.clusters()},
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
type asked struct{ asTheManager }

// View implements hostremediation.Clusters.
func (c asked) View(ctx context.Context, cluster client.ObjectKey, now time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	if why, _, unseen := c.asker.Snapshot.Unseen(cluster); unseen {
		return workload.View{}, fmt.Errorf("%w: %s", hostremediation.ErrUnasked, why)
	}
	view, err := c.asTheManager.View(ctx, cluster, now)
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
