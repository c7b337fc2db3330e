// Package host finds the bare-metal host of a machine, reads its power, and asks BMO for changes.
//
// It decides nothing. It reads BareMetalHosts from a cache of small copies, and writes nothing but annotations.
package host

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/consistency"
)

// metal3Machine is the kind that links a Machine to its host. Only its metadata is cached.
var metal3Machine = schema.GroupKind{Group: infrav1.GroupVersion.Group, Kind: "Metal3Machine"}

// Hosts are the bare-metal hosts of the management cluster.
type Hosts struct {
	Client client.Client
	// Live reads past the caches. An object that a cache lacks counts as missing only if the API server lacks it too.
	Live client.Reader

	written consistency.Writes
}

// Found is the result of the search for a machine's host.
type Found struct {
	// Host is the host that is named, even if it is not the machine's; nil if there is none. It is shared: read only.
	Host *Host
	// Is says whether the host is the machine's.
	Is powercycle.Host
	// Why says, as a clause for users, what does not match or is missing.
	Why string
	// Named says that a host is named, so that it may come back if it does not exist.
	Named bool
	// Unchosen says that neither the Metal3Machine nor a provider ID names a host.
	Unchosen bool
	// Paused says that the Metal3Machine is paused.
	Paused bool
}

// Unnamed reports whether no host could come back: none is named, and none was before, or the Metal3Machine is gone.
func (f Found) Unnamed(before string) bool {
	return f.Is == powercycle.HostGone && !f.Named && (before == "" || !f.Unchosen)
}

// RBAC for hosts and the objects that lead to them.
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch;patch

// +kubebuilder:rbac:groups=metal3.io,resources=hostclaims,verbs=get

// Of finds the host of m, and verifies it. The annotation metal3.io/BareMetalHost of the Metal3Machine names the host, or else the provider
// ID does; if there are both, they must agree. spec.consumerRef of the host must name the Metal3Machine, or a HostClaim of it. No other
// Metal3Machine may name the host. All this is checked because users can edit each of these fields, and because CAPM3 may take a host that
// another machine runs on (cluster-api-provider-metal3#3516). The namespace in the annotation is ignored: both are in one namespace.
// If no Metal3Machine CRD is installed, the error satisfies meta.IsNoMatchError, and says nothing about the host.
func (h *Hosts) Of(ctx context.Context, m *clusterv1.Machine) (Found, error) {
	ref := m.Spec.InfrastructureRef
	if ref.Kind != metal3Machine.Kind || ref.APIGroup != metal3Machine.Group {
		why := fmt.Sprintf("the machine's infrastructure is a %s.%s, not a %s", ref.Kind, ref.APIGroup, metal3Machine)
		return Found{Is: powercycle.HostGone, Why: why}, nil
	}
	key := client.ObjectKey{Namespace: m.Namespace, Name: ref.Name}
	m3m, err := h.metal3Machine(ctx, key)
	if err != nil {
		return Found{}, err
	}
	if m3m == nil {
		return Found{Is: powercycle.HostGone, Why: fmt.Sprintf("Metal3Machine %s does not exist", key)}, nil
	}
	found, err := h.namedBy(ctx, m, m3m)
	found.Paused = annotations.HasPaused(m3m)
	return found, err
}

// namedBy finds the host that m and its Metal3Machine (m3m) name.
func (h *Hosts) namedBy(ctx context.Context, m *clusterv1.Machine, m3m *metav1.PartialObjectMetadata) (Found, error) {
	key, id, of := client.ObjectKeyFromObject(m3m), m.Spec.ProviderID, "Machine"
	if id == "" { // Cluster API has not copied it yet, or never will
		own, err := h.ownProviderID(ctx, m3m.GroupVersionKind(), key)
		if err != nil {
			return Found{}, err
		}
		id, of = own, "Metal3Machine"
	}
	provided := ProvidedBy(id)
	name := cmp.Or(annotatedHost(m3m), provided)
	if name == "" {
		why := fmt.Sprintf("Metal3Machine %s names no host in its annotation %s", key, infrav1.HostAnnotation)
		return Found{Is: powercycle.HostGone, Why: why, Unchosen: true}, nil
	}
	hostKey := client.ObjectKey{Namespace: m.Namespace, Name: name}
	found, err := h.Named(ctx, hostKey)
	if err != nil {
		return Found{}, err
	}
	switch {
	case provided != "" && id != providerIDOf(hostKey)+key.Name:
		why := fmt.Sprintf("Metal3Machine %s names BareMetalHost %s in its annotation %s, and spec.providerID of the %s is %s",
			key, hostKey, infrav1.HostAnnotation, of, id)
		return Found{Host: found, Is: powercycle.HostForeign, Why: why}, nil
	case found == nil:
		return missing(hostKey), nil
	case !found.DeletionTimestamp.IsZero():
		return deleting(found), nil
	}
	why, err := h.mismatch(ctx, found, key)
	if err == nil && why == "" {
		why, err = h.namedTwice(ctx, m3m, hostKey)
	}
	switch {
	case err != nil:
		return Found{}, err
	case why != "":
		return Found{Host: found, Is: powercycle.HostForeign, Why: why}, nil
	}
	return Found{Host: found, Is: powercycle.HostOurs}, nil
}

// providerIDPrefix is the prefix of CAPM3's provider IDs. An older form, metal3://uid, does not name the host.
const providerIDPrefix = "metal3://"

// providerIDOf returns the prefix of a host's provider IDs; the name of the Metal3Machine follows.
func providerIDOf(host client.ObjectKey) string { return providerIDPrefix + host.String() + "/" }

// ProvidedBy returns the host's name in a provider ID of the form metal3://namespace/host/metal3machine; else an empty name.
func ProvidedBy(providerID string) string {
	rest, ofMetal3 := strings.CutPrefix(providerID, providerIDPrefix)
	if id := strings.Split(rest, "/"); ofMetal3 && len(id) == 3 {
		return id[1]
	}
	return ""
}

// annotatedHost returns the name of the host in a Metal3Machine's annotation; empty if there is none.
func annotatedHost(m *metav1.PartialObjectMetadata) string {
	value := m.Annotations[infrav1.HostAnnotation]
	return value[strings.LastIndex(value, "/")+1:]
}

// namedTwice says which other Metal3Machine may run on the host of m3m; empty if none may. It compares annotations and provider IDs.
func (h *Hosts) namedTwice(ctx context.Context, m3m *metav1.PartialObjectMetadata, host client.ObjectKey) (string, error) {
	list, machines := &metav1.PartialObjectMetadataList{}, &clusterv1.MachineList{}
	list.SetGroupVersionKind(m3m.GroupVersionKind().GroupVersion().WithKind(m3m.Kind + "List"))
	if err := h.Client.List(ctx, list, client.InNamespace(m3m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list the Metal3Machines in %s: %w", m3m.Namespace, err)
	}
	if err := h.Client.List(ctx, machines, client.InNamespace(m3m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list the machines in %s: %w", m3m.Namespace, err)
	}
	ids := map[string]string{} // provider IDs of Machines, by the names of their Metal3Machines
	for i := range machines.Items {
		if ref := machines.Items[i].Spec.InfrastructureRef; ref.Kind == metal3Machine.Kind && ref.APIGroup == metal3Machine.Group {
			ids[ref.Name] = machines.Items[i].Spec.ProviderID
		}
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == m3m.Name {
			continue
		}
		id := ids[other.Name]
		if id == "" {
			var err error
			if id, err = h.ownProviderID(ctx, m3m.GroupVersionKind(), client.ObjectKeyFromObject(other)); err != nil {
				return "", err
			}
		}
		if annotatedHost(other) == host.Name || strings.HasPrefix(id, providerIDOf(host)) {
			return fmt.Sprintf("Metal3Machines %s and %s both name BareMetalHost %s: either may run on it",
				client.ObjectKeyFromObject(m3m), client.ObjectKeyFromObject(other), host), nil
		}
	}
	return "", nil
}

// ownProviderID returns spec.providerID of a Metal3Machine. It is read past the cache, which has only metadata, and only if the Machine
// does not have its copy. kind is a parameter because the items of a metadata list do not have their kind.
func (h *Hosts) ownProviderID(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (string, error) {
	whole := &unstructured.Unstructured{}
	whole.SetGroupVersionKind(kind)
	if err := client.IgnoreNotFound(h.Live.Get(ctx, key, whole)); err != nil {
		return "", fmt.Errorf("read Metal3Machine %s: %w", key, err)
	}
	id, _, _ := unstructured.NestedString(whole.Object, "spec", "providerID")
	return id, nil
}

// missing is the result for a host that is named and does not exist.
func missing(key client.ObjectKey) Found {
	return Found{Is: powercycle.HostGone, Named: true, Why: fmt.Sprintf("BareMetalHost %s does not exist", key)}
}

// deleting is the result for a host that is being deleted.
func deleting(host *Host) Found {
	why := fmt.Sprintf("BareMetalHost %s/%s is being deleted", host.Namespace, host.Name)
	return Found{Host: host, Is: powercycle.HostGone, Named: true, Why: why}
}

// Named returns the host with that name, whomever it belongs to; nil if there is none.
func (h *Hosts) Named(ctx context.Context, key client.ObjectKey) (*Host, error) {
	found := &bmov1alpha1.BareMetalHost{}
	exists, err := consistency.Read(ctx, h.Client, h.Live, key, found, client.UnsafeDisableDeepCopy)
	if exists && h.written.Stale(found) {
		err = consistency.ErrStale
	}
	if err != nil {
		return nil, fmt.Errorf("read BareMetalHost %s: %w", key, err)
	}
	if !exists {
		return nil, nil
	}
	return From(found), nil
}

// Metal3MachineKind returns a metadata object of the served version of Metal3Machine. The error satisfies meta.IsNoMatchError if none is
// served.
func Metal3MachineKind(mapper meta.RESTMapper) (*metav1.PartialObjectMetadata, error) {
	mapping, err := mapper.RESTMapping(metal3Machine)
	if err != nil {
		return nil, fmt.Errorf("look up the kind %s: %w", metal3Machine, err)
	}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(mapping.GroupVersionKind)
	return obj, nil
}

// metal3Machine returns the metadata of a Metal3Machine; nil if it does not exist.
func (h *Hosts) metal3Machine(ctx context.Context, key client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
	found, err := Metal3MachineKind(h.Client.RESTMapper())
	if err != nil {
		return nil, err
	}
	exists, err := consistency.Read(ctx, h.Client, h.Live, key, found, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("read Metal3Machine %s: %w", key, err)
	}
	if !exists {
		return nil, nil
	}
	return found, nil
}

// consumer returns spec.consumerRef of host with its namespace; nil if there is none. Since BMO 0.14 a HostClaim may stand between a host
// and its Metal3Machine. Few clusters have HostClaims, so they are not cached.
func (h *Hosts) consumer(ctx context.Context, host *Host) (*corev1.ObjectReference, error) {
	ref, namespace := host.Consumer, host.Namespace
	if ref != nil && ref.Kind == "HostClaim" && ref.GroupVersionKind().Group == bmov1alpha1.GroupVersion.Group {
		claim, key := &bmov1alpha1.HostClaim{}, client.ObjectKey{Namespace: cmp.Or(ref.Namespace, namespace), Name: ref.Name}
		if err := h.Live.Get(ctx, key, claim); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("read HostClaim %s: %w", key, err)
		}
		ref, namespace = claim.Spec.ConsumerRef, key.Namespace
	}
	if ref == nil {
		return nil, nil
	}
	ref = ref.DeepCopy()
	ref.Namespace = cmp.Or(ref.Namespace, namespace)
	return ref, nil
}

// mismatch says why host does not belong to the Metal3Machine called key; empty if it does.
func (h *Hosts) mismatch(ctx context.Context, host *Host, key client.ObjectKey) (string, error) {
	ref, err := h.consumer(ctx, host)
	switch {
	case err != nil:
		return "", err
	case ref == nil:
		return fmt.Sprintf("BareMetalHost %s/%s has no spec.consumerRef, expected Metal3Machine %s", host.Namespace, host.Name, key), nil
	case spare.IsMetal3Machine(ref) && ref.Name == key.Name && ref.Namespace == key.Namespace:
		return "", nil
	}
	return fmt.Sprintf("spec.consumerRef of BareMetalHost %s/%s names %s %s/%s, expected Metal3Machine %s",
		host.Namespace, host.Name, ref.Kind, ref.Namespace, ref.Name, key), nil
}

// Refresh reads the host of found again, past the cache, and changes found if the host is gone or is not the machine's any more.
func (h *Hosts) Refresh(ctx context.Context, found *Found) error {
	live, key := &bmov1alpha1.BareMetalHost{}, client.ObjectKey{Namespace: found.Host.Namespace, Name: found.Host.Name}
	err := h.Live.Get(ctx, key, live)
	if err == nil {
		h.written.Note(live) // so that an older version in the cache does not count
	}
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("read BareMetalHost %s: %w", key, err)
	case err != nil || live.UID != found.Host.UID:
		*found = missing(key)
	case !live.DeletionTimestamp.IsZero():
		*found = deleting(From(live))
	case found.Is == powercycle.HostOurs && !sameConsumer(found.Host.Consumer, live.Spec.ConsumerRef):
		*found = Found{Host: From(live), Is: powercycle.HostForeign,
			Why: fmt.Sprintf("spec.consumerRef of BareMetalHost %s has changed", key)}
	default:
		found.Host = From(live)
	}
	return nil
}
