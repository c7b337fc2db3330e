package remediationrecord

import (
	"context"
	"fmt"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/controllers/explain"
)

// readable are the kinds that the roles of the manager let it read of what a Machine consists of. What others are in, such as the objects of an infrastructure
// provider, only a user may read: the manager does not ask in vain, minute by minute.
var readable = []schema.GroupKind{
	{Group: clusterv1.GroupVersion.Group, Kind: "Cluster"}, {Group: clusterv1.GroupVersion.Group, Kind: "Machine"},
	{Group: clusterv1.GroupVersion.Group, Kind: machineSetKind}, {Group: clusterv1.GroupVersion.Group, Kind: "MachineDeployment"},
	{Group: clusterv1.GroupVersion.Group, Kind: "MachineHealthCheck"}, {Group: controlplanev1.GroupVersion.Group, Kind: "KubeadmControlPlane"},
	{Group: infrav1.GroupVersion.Group, Kind: "Metal3Machine"}, {Group: bmov1alpha1.GroupVersion.Group, Kind: "BareMetalHost"},
	{Group: corev1.GroupName, Kind: "Namespace"},
}

// NewReader returns a reader that reads through live what the manager may read, and nothing else.
func NewReader(live client.Reader, c client.Client) client.Reader { return reader{live, c} }

type reader struct {
	client.Reader
	of client.Client
}

// Get implements client.Reader.
func (r reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := r.mayRead(obj); err != nil {
		return err
	}
	return r.Reader.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (r reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := r.mayRead(list); err != nil {
		return err
	}
	return r.Reader.List(ctx, list, opts...)
}

// mayRead is explain.ErrUnread for an object, or a list, of a kind that is not to be read.
func (r reader) mayRead(obj runtime.Object) error {
	kind, err := apiutil.GVKForObject(obj, r.of.Scheme())
	if err != nil {
		return fmt.Errorf("find the kind of a %T: %w", obj, err)
	}
	if !slices.Contains(readable, schema.GroupKind{Group: kind.Group, Kind: strings.TrimSuffix(kind.Kind, "List")}) {
		return explain.ErrUnread
	}
	return nil
}
