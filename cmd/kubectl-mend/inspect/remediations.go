package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
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
func (a *Asker) RemediationsOf(ctx context.Context, machine *clusterv1.Machine) []explain.Remediation {
	existing, _ := a.existing(ctx, machine.Namespace)
	return a.explained(ctx, existing.Of(machine))
}

// RemediationsHolding explains the remediations that act on the power of a host, and returns the UIDs of those that act on it and do not
// exist: of none where some could not be read, as it may be one of those.
func (a *Asker) RemediationsHolding(ctx context.Context, on *bmov1alpha1.BareMetalHost) ([]explain.Remediation, []types.UID) {
	existing, whole := a.existing(ctx, on.Namespace)
	known, unknown := existing.OnHost(on)
	if !whole {
		unknown = nil
	}
	return a.explained(ctx, known), unknown
}

// Remediation explains the one of that kind and name; nil if there is none, or if it is in a version of which no more is known than
// metadata: it is CAPM3's.
func (a *Asker) Remediation(ctx context.Context, kind string, key client.ObjectKey) (*explain.Remediation, error) {
	for _, k := range a.kinds() {
		if k.Kind == kind && k.New != nil {
			return a.remediation(ctx, k, key)
		}
	}
	return nil, nil
}

// kinds are those of remediations that are installed.
func (a *Asker) kinds() []remediation.Kind {
	kinds, _ := remediation.InstalledKinds(a.Snapshot.RESTMapper()) // a snapshot knows which kinds it has
	return kinds
}

// existing are the remediations of a namespace, of the kinds that could be read; whole reports that all could. The snapshot reports the
// others.
func (a *Asker) existing(ctx context.Context, namespace string) (existing remediation.Existing, whole bool) {
	readable := slices.DeleteFunc(a.kinds(), func(kind remediation.Kind) bool {
		return a.reader.List(ctx, kind.List(), client.InNamespace(namespace)) != nil
	})
	existing, _ = remediation.List(ctx, a.reader, readable, namespace)
	return existing, len(readable) == len(a.kinds())
}

// explained are those of remediations, which were read, that are known whole.
func (a *Asker) explained(ctx context.Context, remediations []remediation.OfKind) []explain.Remediation {
	var explained []explain.Remediation
	for _, rem := range remediations {
		if explanation, _ := a.Remediation(ctx, rem.Kind.Kind, client.ObjectKeyFromObject(rem)); explanation != nil {
			explained = append(explained, *explanation)
		}
	}
	return explained
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
	for _, manager := range a.Managers.All {
		says := ptr.Deref(manager.Announcement, managerlease.Announcement{}) // without one it may reconcile everything
		here := manager.Alive && manager.Unserved(crdOf(kind)) == nil && (says.Namespace == "" || says.Namespace == key.Namespace)
		if here && hostremediation.Acts(kind, rem, cluster, says.WatchFilter, says.Teardown) {
			explained.Acts = true // what it has begun it ends, whatever it would begin
			return explained, nil
		}
	}
	switch served, unserved := a.Managers.serves(crdOf(kind)); {
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

// clusterOf is the Cluster of the Machine that owns a remediation, whose label counts as well as its own; an empty one if there is none.
func (a *Asker) clusterOf(rem remediation.Object) *clusterv1.Cluster {
	key := client.ObjectKey{Namespace: rem.GetNamespace(), Name: ptr.Deref(remediation.OwnerOf(rem), metav1.OwnerReference{}).Name}
	machine := cmp.Or(snapshot.One[clusterv1.Machine](a.Snapshot, key), &clusterv1.Machine{})
	return a.cluster(client.ObjectKey{Namespace: key.Namespace, Name: machine.Spec.ClusterName})
}

// crdOf is the name of the CustomResourceDefinition of a kind.
func crdOf(kind remediation.Kind) string {
	if kind.Kind == remediation.Metal3.Kind {
		return crdgate.Metal3CRD
	}
	return crdgate.OwnCRD
}
