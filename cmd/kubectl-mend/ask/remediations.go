package ask

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
	"github.com/kubemend/kubemend/controllers/hostremediation"
	"github.com/kubemend/kubemend/controllers/look"
	"github.com/kubemend/kubemend/controllers/serving"
	"github.com/kubemend/kubemend/controllers/workload"
)

// Hosts reads the bare-metal hosts of the world.
func (a *Asker) Hosts() *host.Hosts { return &host.Hosts{Client: a.reader, Live: a.reader} }

// RemediationsOf are looks at the remediations that a machine owns, of both kinds.
func (a *Asker) RemediationsOf(ctx context.Context, m *clusterv1.Machine) ([]look.Remediation, error) {
	kinds, err := a.readable(ctx, m.Namespace)
	if err != nil {
		return nil, err
	}
	named, err := hostremediation.Of(ctx, a.reader, kinds, m)
	if err != nil {
		return nil, err
	}
	return a.looks(ctx, named)
}

// RemediationsHolding are looks at the remediations that act on the power of a host, and the UIDs of those that act on it and are not known.
func (a *Asker) RemediationsHolding(ctx context.Context, h *bmov1alpha1.BareMetalHost) ([]look.Remediation, []types.UID, error) {
	kinds, err := a.readable(ctx, h.Namespace)
	if err != nil {
		return nil, nil, err
	}
	named, unknown, err := hostremediation.Holding(ctx, a.reader, kinds, h)
	if err != nil {
		return nil, nil, err
	}
	looks, err := a.looks(ctx, named)
	return looks, unknown, err
}

// Remediations are looks at those of that name, of the kind called so or, if that is empty, of both. There may be none.
func (a *Asker) Remediations(ctx context.Context, kind string, key client.ObjectKey) ([]look.Remediation, error) {
	kinds, err := hostremediation.InstalledKinds(a.World.RESTMapper())
	if err != nil {
		return nil, err
	}
	var named []hostremediation.Named
	for _, k := range kinds {
		if kind == "" || kind == k.Kind {
			named = append(named, hostremediation.Named{Kind: k, Key: key})
		}
	}
	return a.looks(ctx, named)
}

// readable are the kinds of remediations that are installed and were read in a namespace. Of the others the world says that it lacks them.
func (a *Asker) readable(ctx context.Context, namespace string) ([]hostremediation.Kind, error) {
	kinds, err := hostremediation.InstalledKinds(a.World.RESTMapper())
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(kinds, func(k hostremediation.Kind) bool {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
		return a.reader.List(ctx, list, client.InNamespace(namespace)) != nil
	}), nil
}

func (a *Asker) looks(ctx context.Context, named []hostremediation.Named) ([]look.Remediation, error) {
	var all []look.Remediation
	for _, n := range named {
		if n.Kind.New == nil { // in a version of which no more is known than metadata: it is CAPM3's
			continue
		}
		is, err := a.remediations(n.Kind).Look(ctx, n.Key, a.Now)
		if err != nil {
			return nil, err
		}
		if is != nil {
			a.Managers.serveRemediation(is, n.Kind)
			all = append(all, *is)
		}
	}
	return all, nil
}

// remediations are those of a kind, to be looked at.
func (a *Asker) remediations(kind hostremediation.Kind) *hostremediation.Reconciler {
	return &hostremediation.Reconciler{
		Kind: kind, Client: a.reader, Live: a.reader, Hosts: a.Hosts(), Clusters: asked{a.clusters, a.World.Unseen},
		Installed: func() ([]hostremediation.Kind, error) { return hostremediation.InstalledKinds(a.World.RESTMapper()) },
		Nodes: hostremediation.Sighted(fence.Onlooker{Reader: func(_ context.Context, cluster client.ObjectKey) (client.Reader, error) {
			reader, err := a.World.Live(cluster)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", hostremediation.ErrUnasked, err)
			}
			return reader, nil
		}}),
		Turns: &hostremediation.Turns{}, Wakeups: &hostremediation.Wakeups{}, Clock: clock.RealClock{},
	}
}

// asked are workload clusters of which one that the user cannot see is not one that the manager cannot see.
type asked struct {
	asTheManager
	unseen func(cluster client.ObjectKey) (why string, since time.Time, unseen bool)
}

// View implements hostremediation.Clusters.
func (c asked) View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (workload.View, error) {
	if why, _, unseen := c.unseen(cluster); unseen {
		return workload.View{}, fmt.Errorf("%w: %s", hostremediation.ErrUnasked, why)
	}
	return c.asTheManager.View(ctx, cluster, now, watches...)
}

// serveRemediation says in is if no manager acts on it.
func (m Managers) serveRemediation(is *look.Remediation, kind hostremediation.Kind) {
	crd := serving.OwnCRD
	if kind.Kind == hostremediation.Metal3.Kind {
		crd = serving.Metal3CRD
	}
	because, served := m.serves(crd)
	switch {
	case served:
		return
	case because == "":
		hold := m.nobody()
		is.Acts, is.Next, is.Holds = false, look.Step{Text: hold.Person, Person: true}, append([]look.Hold{hold}, is.Holds...)
		return
	}
	is.Acts, is.Reason, is.Text = false, NotServed, because
	is.Holds, is.Evidence, is.Next = nil, nil, look.Step{Text: "Whoever else serves the kind acts on it"}
}
