// Package snapshot reads a management cluster and its workload clusters, and remembers each answer.
//
// A Snapshot is a client whose objects are in memory. Of a live cluster it lists a kind when a caller first asks for it, with the rights of
// the user; a record, and what tests and simulations add, has all its objects from the start. It decides nothing.
package snapshot

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	infrav1beta1 "github.com/kubemend/kubemend/api/infrastructure/v1beta1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Snapshot is a management cluster at one moment, and what was seen of its workload clusters. It is safe for concurrent use, but for its
// fields.
type Snapshot struct {
	client.Client // of which nothing is called but what is implemented here: nothing can be written to a snapshot

	// Taken is when it was read.
	Taken time.Time
	// Clock is that of the cluster: it says how old what was read is by now.
	Clock clock.PassiveClock

	source *source // the cluster that more can be read from; nil for a record

	mu        sync.RWMutex
	kinds     map[schema.GroupKind]*kind
	version   int64 // the last resourceVersion that was given
	workloads map[client.ObjectKey]*workloadCluster
	// counted are the clusters of which not all Machines were read, and how many of these no MachineHealthCheck selects.
	counted map[client.ObjectKey]int
	missing []Missing
}

// Scheme has the kinds that are known by their types.
var Scheme = func() *runtime.Scheme {
	known := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(known), apiextensionsv1.AddToScheme(known), clusterv1.AddToScheme(known),
		controlplanev1.AddToScheme(known), infrav1.AddToScheme(known), infrav1beta1.AddToScheme(known), nhcv1.AddToScheme(known),
		mendv1.AddToScheme(known), bmov1alpha1.AddToScheme(known))
	if err != nil {
		panic(err) // two packages register the same kind, whatever the input
	}
	return known
}()

// New returns a snapshot with nothing in it but the kinds that every management cluster of Cluster API has.
func New() *Snapshot {
	s := empty()
	s.Install(namespaceGVK, nodeGVK, definitionGVK, leaseGVK, clusterGVK, machineGVK, machineCheckGVK)
	return s
}

func empty() *Snapshot {
	return &Snapshot{
		Clock: clock.RealClock{}, kinds: map[schema.GroupKind]*kind{},
		workloads: map[client.ObjectKey]*workloadCluster{}, counted: map[client.ObjectKey]int{},
	}
}

// Counted reports whether not all machines of a cluster were read, since the status of its checks counts them, and how many of them no
// MachineHealthCheck selects.
func (s *Snapshot) Counted(cluster client.ObjectKey) (unselected int, counted bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	unselected, counted = s.counted[cluster]
	return unselected, counted
}

// SetCounted says that not all machines of a cluster were read, and how many there are that no MachineHealthCheck selects.
func (s *Snapshot) SetCounted(cluster client.ObjectKey, unselected int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted[cluster] = unselected
}

// Install makes kinds known of which there need not be an object. A kind that is not known is not installed.
func (s *Snapshot) Install(kinds ...schema.GroupVersionKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, gvk := range kinds {
		s.kindFor(gvk, guessPlural(gvk), gvk != namespaceGVK && gvk != nodeGVK && gvk != definitionGVK)
	}
}

// Forbid makes a kind one that may not be read, in one namespace or, if that is empty, in all others. The error is what a read of it
// returns.
func (s *Snapshot) Forbid(gvk schema.GroupVersionKind, plural string, namespaced bool, namespace string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kindFor(gvk, plural, namespaced).remember(question{Namespace: namespace}, why)
}

// Add puts objects into the snapshot as they are, and what they replace out of it. Their kinds count as installed, and as read in all
// namespaces. An object without a UID is given one, and one without a version as well.
func (s *Snapshot) Add(objs ...client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, obj := range objs {
		gvk, err := apiutil.GVKForObject(obj, Scheme)
		if err != nil {
			return fmt.Errorf("add %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
		}
		k := s.kindFor(gvk, guessPlural(gvk), obj.GetNamespace() != "")
		if asked, _ := k.covered(obj.GetNamespace()); !asked && s.source == nil {
			k.remember(question{}, nil)
		}
		if err := s.keep(k, gvk, obj.DeepCopyObject().(client.Object)); err != nil {
			return fmt.Errorf("add %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
		}
	}
	return nil
}

func guessPlural(gvk schema.GroupVersionKind) string {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural.Resource
}

// keep stores own itself, which belongs to the snapshot from then on, as its type if that is known. The lock is held.
func (s *Snapshot) keep(k *kind, gvk schema.GroupVersionKind, own client.Object) error {
	if known := Scheme.Recognizes(gvk); isMetadata(own) || isTree(own) && known {
		converted, err := convert(own, gvk, !known)
		if err != nil {
			return err
		}
		own = converted
	}
	own.GetObjectKind().SetGroupVersionKind(gvk)
	own.SetManagedFields(nil) // half of an object
	if annotations := own.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		own.SetAnnotations(annotations)
	}
	if given, err := strconv.ParseInt(own.GetResourceVersion(), 10, 64); err == nil {
		s.version = max(s.version, given)
	} else {
		s.version++
		own.SetResourceVersion(strconv.FormatInt(s.version, 10))
	}
	if own.GetUID() == "" { // it depends on what was added before, so that two runs can be compared
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%d", k.Group, k.Kind, client.ObjectKeyFromObject(own), s.version))
		own.SetUID(types.UID(hex.EncodeToString(sum[:16])))
	}
	k.objects[client.ObjectKeyFromObject(own)] = own
	return nil
}

// Remove takes an object out of the snapshot, if it is there.
func (s *Snapshot) Remove(gvk schema.GroupVersionKind, key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.kinds[gvk.GroupKind()]; k != nil {
		delete(k.objects, key)
	}
}

// All are the objects of a type in a namespace, or in all if that is empty, by name. There are none of a kind that is not installed or was
// not read. They are shared: read only.
func All[T any, P interface {
	*T
	client.Object
}](s *Snapshot, namespace string) []P {
	gvk, _ := apiutil.GVKForObject(P(new(T)), Scheme) // an unknown type has no objects
	var objs []P
	for _, obj := range s.Objects(gvk, namespace) {
		if typed, ok := obj.(P); ok {
			objs = append(objs, typed)
		}
	}
	return objs
}

// One is the object of a type and name; nil if it is not known. It is shared: read only.
func One[T any, P interface {
	*T
	client.Object
}](s *Snapshot, key client.ObjectKey) P {
	gvk, _ := apiutil.GVKForObject(P(new(T)), Scheme) // an unknown type has no objects
	obj, _ := s.stored(gvk, key)
	typed, _ := obj.(P)
	return typed
}

// Objects are all that are known of a kind, as they are kept, by name. They are shared: read only.
func (s *Snapshot) Objects(gvk schema.GroupVersionKind, namespace string) []client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k := s.kinds[gvk.GroupKind()]
	if k == nil {
		return nil
	}
	objs := make([]client.Object, 0, len(k.objects))
	for key, obj := range k.objects {
		if namespace == "" || key.Namespace == namespace {
			objs = append(objs, obj)
		}
	}
	slices.SortFunc(objs, func(a, b client.Object) int {
		return compareKeys(client.ObjectKeyFromObject(a), client.ObjectKeyFromObject(b))
	})
	return objs
}

func compareKeys(a, b client.ObjectKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
