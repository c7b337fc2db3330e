package inspect

import (
	"context"
	"fmt"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/managerlease"
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

// remediation explains one by what the manager that acts on it wrote, and says if none does; nil if it does not exist.
func (a *Asker) remediation(ctx context.Context, kind remediation.Kind, key client.ObjectKey) (*explain.Remediation, error) {
	rem := kind.New()
	if err := a.reader.Get(ctx, key, rem.Unwrapped()); err != nil {
		if err = client.IgnoreNotFound(err); err != nil {
			err = fmt.Errorf("read %s %s: %w", kind.Kind, key, err)
		}
		return nil, err
	}
	explained, cluster := hostremediation.Explain(kind, rem), a.clusterOf(rem)
	served, unserved := a.Managers.serves(crdOf(kind))
	if served || unserved == nil {
		for _, manager := range a.Managers.serving(crdOf(kind), key.Namespace) {
			if hostremediation.Acts(kind, rem, cluster, manager.WatchFilter, manager.Teardown) {
				explained.Acts = true // what it has begun it ends, whatever it would begin
				return explained, nil
			}
		}
	}
	switch {
	case !served && unserved != nil:
		_, explained.Next = otherwise(unserved)
		explained.Reason, explained.Message = explain.NotServed, explain.KindNotServed(unserved.Because)
		explained.Blockers, explained.Evidence = nil, nil
		return explained, nil
	case a.Managers.Unknown != "":
		return explained, nil
	}
	because, person := explain.NoManagerActs(a.Managers.All, a.Managers.offs(func(is *managerlease.Manager) managerlease.Off {
		return is.StandsOff(rem.Unwrapped(), cluster)
	}))
	explained.Reason, explained.Message, explained.Deadline = explain.NoManager, because, nil
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

// clusterOf is the Cluster of the Machine that owns a remediation, whose label counts as well as its own; an empty one if there is none.
func (a *Asker) clusterOf(rem remediation.Object) *clusterv1.Cluster {
	owner := remediation.OwnerOf(rem)
	if owner == nil {
		return &clusterv1.Cluster{}
	}
	machine := snapshot.One[clusterv1.Machine](a.Snapshot, client.ObjectKey{Namespace: rem.GetNamespace(), Name: owner.Name})
	if machine == nil {
		return &clusterv1.Cluster{}
	}
	return a.cluster(client.ObjectKey{Namespace: rem.GetNamespace(), Name: machine.Spec.ClusterName})
}

// crdOf is the name of the CustomResourceDefinition of a kind.
func crdOf(kind remediation.Kind) string {
	if kind.Kind == remediation.Metal3.Kind {
		return crdgate.Metal3CRD
	}
	return crdgate.OwnCRD
}
