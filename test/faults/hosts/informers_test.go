package hosts

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/workload"
)

// informers are the caches of a program. They show every change at once, unless they lag.
type informers struct {
	scheme  *runtime.Scheme
	has     map[place]client.Object
	lag     bool
	pending []news
}

type news struct {
	at place
	is client.Object // nil if it is gone
}

func (i *informers) hear(at place, is client.Object) {
	i.pending = append(i.pending, news{at, slim(is)})
	if !i.lag {
		i.catchUp()
	}
}

// slim is what the caches of the manager keep of an object.
func slim(is client.Object) client.Object {
	var slimmed any = is
	switch is.(type) {
	case *bmov1alpha1.BareMetalHost:
		slimmed, _ = host.SlimHost(is)
	case *corev1.Node:
		slimmed, _ = workload.SlimNode(is)
	case *clusterv1.Machine:
		slimmed, _ = machinehealthcheck.SlimMachine(is)
	case nil:
		return nil
	}
	return slimmed.(client.Object)
}

// catchUp makes the caches show all that has happened.
func (i *informers) catchUp() {
	for _, n := range i.pending {
		if i.has[n.at] = n.is; n.is == nil {
			delete(i.has, n.at)
		}
	}
	i.pending = nil
}

// GetByKey makes the informers the store of nodes that package workload reads.
func (i *informers) GetByKey(name string) (any, bool, error) {
	node, has := i.has[place{nodeKind, client.ObjectKey{Name: name}}]
	return node, has, nil
}

// List makes the informers the store of nodes that package workload reads.
func (i *informers) List() []any {
	var all []any
	for at, obj := range i.has {
		if at.kind == nodeKind {
			all = append(all, obj)
		}
	}
	return all
}

// cached is the way of a program to an API server behind whose caches it reads.
type cached struct {
	client.WithWatch // which writes, and reads past the caches
	cache            *informers
	crashed          func() error
}

// Get reads from the cache.
func (c cached) Get(_ context.Context, at client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if err := c.crashed(); err != nil {
		return err
	}
	kind := placeOf(c.cache.scheme, into).kind
	return give(c.cache.has[place{kind, at}], kind, at, into)
}

// List reads from the cache.
func (c cached) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if err := c.crashed(); err != nil {
		return err
	}
	return list(c.cache.scheme, c.cache.has, into, opts)
}
