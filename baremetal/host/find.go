// Package host is the bare-metal host below a machine: which one it is, what its power is, and what we ask of it.
//
// It decides nothing. It reads BareMetalHosts from a cache that is kept small, and writes nothing to them but annotations of ours.
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

// metal3Machine is the kind between a Machine and its host. Only its metadata is read.
var metal3Machine = schema.GroupKind{Group: infrav1.GroupVersion.Group, Kind: "Metal3Machine"}

// Hosts are the bare-metal hosts of the management cluster.
type Hosts struct {
	// Client reads from caches and writes.
	Client client.Client
	// Live reads past the caches. What a cache does not have is called missing only when the API server says so too.
	Live client.Reader

	written consistency.Writes
}

// Found is what there is of a machine's host.
type Found struct {
	// Host is the host that is named, also if it is not the machine's; nil if there is none. It is shared: read only.
	Host *Host
	// Is says what it is to the machine. Why is what does not match, or what is missing, as a clause for users.
	Is  powercycle.Host
	Why string
	// Named says that the host has a name, so that it may come back where it does not exist. Unchosen says that its Metal3Machine names
	// none.
	Named, Unchosen bool
	// Paused says that its Metal3Machine is.
	Paused bool
}

// Unnamed reports whether there is no host that could come back: nothing names one, and none did before, or its Metal3Machine is gone.
func (f Found) Unnamed(before string) bool {
	return f.Is == powercycle.HostGone && !f.Named && (before == "" || !f.Unchosen)
}

// RBAC for hosts and for what leads to them.
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch;patch

// +kubebuilder:rbac:groups=metal3.io,resources=hostclaims,verbs=get

// Of finds the host of m, and verifies it: the annotation metal3.io/BareMetalHost of its Metal3Machine names the host, as CAPM3
// has it, and so may the provider ID of m; the host's spec.consumerRef has to name that Metal3Machine, or a HostClaim of it. All
// that there is has to agree, and no other Metal3Machine may name the host: each can be edited, and CAPM3 may take a host that
// another machine runs on (cluster-api-provider-metal3#3516). The namespace within the annotation is not used: a Metal3Machine and
// its host share theirs. The error satisfies meta.IsNoMatchError if Metal3Machines are not served: that says nothing of the host.
func (h *Hosts) Of(ctx context.Context, m *clusterv1.Machine) (Found, error) {
	ref := m.Spec.InfrastructureRef
	if ref.Kind != metal3Machine.Kind || ref.APIGroup != metal3Machine.Group {
		why := fmt.Sprintf("the machine's infrastructure is a %s.%s, not a %s", ref.Kind, ref.APIGroup, metal3Machine)
		return Found{Is: powercycle.HostGone, Why: why}, nil
	}
	key := client.ObjectKey{Namespace: m.Namespace, Name: ref.Name}
	between, err := h.metal3Machine(ctx, key)
	if err != nil {
		return Found{}, err
	}
	if between == nil {
		return Found{Is: powercycle.HostGone, Why: fmt.Sprintf("Metal3Machine %s does not exist", key)}, nil
	}
	found, err := h.namedBy(ctx, m, between)
	found.Paused = annotations.HasPaused(between)
	return found, err
}

// namedBy finds the host of m that its Metal3Machine and m name.
func (h *Hosts) namedBy(ctx context.Context, m *clusterv1.Machine, between *metav1.PartialObjectMetadata) (Found, error) {
	key, id, of := client.ObjectKeyFromObject(between), m.Spec.ProviderID, "Machine"
	if id == "" { // Cluster API has not copied it yet, or never will
		own, err := h.ownProviderID(ctx, between.GroupVersionKind(), key)
		if err != nil {
			return Found{}, err
		}
		id, of = own, "Metal3Machine"
	}
	provided := ProvidedBy(id)
	name := cmp.Or(annotatedHost(between), provided)
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
		why, err = h.namedTwice(ctx, between, hostKey)
	}
	switch {
	case err != nil:
		return Found{}, err
	case why != "":
		return Found{Host: found, Is: powercycle.HostForeign, Why: why}, nil
	}
	return Found{Host: found, Is: powercycle.HostOurs}, nil
}

// providerIDPrefix is what CAPM3's provider IDs begin with. An older form, metal3://uid, names no host by its name.
const providerIDPrefix = "metal3://"

// providerIDOf is what the provider IDs of a host begin with; the name of its Metal3Machine follows.
func providerIDOf(host client.ObjectKey) string { return providerIDPrefix + host.String() + "/" }

// ProvidedBy is the name of the host in a provider ID, whose parts are namespace, host and Metal3Machine; empty if it names none.
func ProvidedBy(providerID string) string {
	rest, ofMetal3 := strings.CutPrefix(providerID, providerIDPrefix)
	if id := strings.Split(rest, "/"); ofMetal3 && len(id) == 3 {
		return id[1]
	}
	return ""
}

// annotatedHost is the name of the host that a Metal3Machine names; empty if it names none.
func annotatedHost(m *metav1.PartialObjectMetadata) string {
	value := m.Annotations[infrav1.HostAnnotation]
	return value[strings.LastIndex(value, "/")+1:]
}

// namedTwice says which other Metal3Machine may run on the host of between; empty if none may. Its annotation names the host, or the
// provider ID of its Machine does, or its own.
func (h *Hosts) namedTwice(ctx context.Context, between *metav1.PartialObjectMetadata, host client.ObjectKey) (string, error) {
	list, machines := &metav1.PartialObjectMetadataList{}, &clusterv1.MachineList{}
	list.SetGroupVersionKind(between.GroupVersionKind().GroupVersion().WithKind(between.Kind + "List"))
	if err := h.Client.List(ctx, list, client.InNamespace(between.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list the Metal3Machines in %s: %w", between.Namespace, err)
	}
	if err := h.Client.List(ctx, machines, client.InNamespace(between.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list the machines in %s: %w", between.Namespace, err)
	}
	ids := map[string]string{} // provider IDs of Machines, by the names of their Metal3Machines
	for i := range machines.Items {
		if ref := machines.Items[i].Spec.InfrastructureRef; ref.Kind == metal3Machine.Kind && ref.APIGroup == metal3Machine.Group {
			ids[ref.Name] = machines.Items[i].Spec.ProviderID
		}
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == between.Name {
			continue
		}
		id := ids[other.Name]
		if id == "" {
			var err error
			if id, err = h.ownProviderID(ctx, between.GroupVersionKind(), client.ObjectKeyFromObject(other)); err != nil {
				return "", err
			}
		}
		if annotatedHost(other) == host.Name || strings.HasPrefix(id, providerIDOf(host)) {
			return fmt.Sprintf("Metal3Machines %s and %s both name BareMetalHost %s: either may run on it",
				client.ObjectKeyFromObject(between), client.ObjectKeyFromObject(other), host), nil
		}
	}
	return "", nil
}

// ownProviderID is spec.providerID of a Metal3Machine. It is read past the cache, which has metadata alone, and only of one whose Machine
// is not there or has none: Cluster API copies it to the Machine. An item of a list of metadata does not say its kind.
func (h *Hosts) ownProviderID(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (string, error) {
	whole := &unstructured.Unstructured{}
	whole.SetGroupVersionKind(kind)
	if err := client.IgnoreNotFound(h.Live.Get(ctx, key, whole)); err != nil {
		return "", fmt.Errorf("read Metal3Machine %s: %w", key, err)
	}
	id, _, _ := unstructured.NestedString(whole.Object, "spec", "providerID")
	return id, nil
}

// missing is a host that is named and does not exist.
func missing(key client.ObjectKey) Found {
	return Found{Is: powercycle.HostGone, Named: true, Why: fmt.Sprintf("BareMetalHost %s does not exist", key)}
}

// deleting is a host that is being deleted.
func deleting(host *Host) Found {
	why := fmt.Sprintf("BareMetalHost %s/%s is being deleted", host.Namespace, host.Name)
	return Found{Host: host, Is: powercycle.HostGone, Named: true, Why: why}
}

// Named returns the host of that name, or nil if there is none. It may belong to another machine, or to none.
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

// Metal3MachineKind returns an object of the version of Metal3Machine that is served, of which only metadata is known. The error
// satisfies meta.IsNoMatchError if there is none.
func Metal3MachineKind(mapper meta.RESTMapper) (*metav1.PartialObjectMetadata, error) {
	mapping, err := mapper.RESTMapping(metal3Machine)
	if err != nil {
		return nil, fmt.Errorf("look up the kind %s: %w", metal3Machine, err)
	}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(mapping.GroupVersionKind)
	return obj, nil
}

// metal3Machine returns the metadata of a Metal3Machine, or nil if it does not exist.
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

// consumer is what host belongs to by its spec.consumerRef, with its namespace; nil if nothing is named. Since the Bare Metal Operator
// 0.14 a HostClaim may stand between a host and its Metal3Machine; few do, so that none is cached.
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

// Refresh reads the host that was found once more, past the cache, and finds out again whose it is not any more.
func (h *Hosts) Refresh(ctx context.Context, found *Found) error {
	live, key := &bmov1alpha1.BareMetalHost{}, client.ObjectKey{Namespace: found.Host.Namespace, Name: found.Host.Name}
	err := h.Live.Get(ctx, key, live)
	if err == nil {
		h.written.Note(live) // an older version in the cache afterwards would show the host off again that is on
	}
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("read BareMetalHost %s: %w", key, err)
	case err != nil || live.UID != found.Host.UID:
		*found = missing(key)
	case !live.DeletionTimestamp.IsZero():
		*found = deleting(From(live))
	case found.Is == powercycle.HostOurs && !sameConsumer(found.Host.Consumer, live.Spec.ConsumerRef):
		*found = Found{Host: From(live), Is: powercycle.HostForeign, Why: fmt.Sprintf("spec.consumerRef of BareMetalHost %s has changed", key)}
	default:
		found.Host = From(live)
	}
	return nil
}
