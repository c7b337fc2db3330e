// Package snapshot reads a management cluster and its workload clusters, and remembers each answer.
//
// A Snapshot is a client whose objects are in memory. Of a live cluster it lists a kind when somebody first asks for it, with the rights of
// the user; a record, and what tests and simulations add, has all its objects from the start. It decides nothing.
package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
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
	// Taken is when it was read.
	Taken time.Time
	// Clock is that of the cluster: it says how old what was read is by now.
	Clock clock.PassiveClock

	scheme *runtime.Scheme
	source *reading // where more can be read; nil for a record

	mu        sync.RWMutex
	kinds     map[schema.GroupKind]*kind
	version   int64 // the last resourceVersion that was given
	workloads map[client.ObjectKey]*workloadCluster
	// counted are the clusters of which not all Machines were read, and how many of these no MachineHealthCheck selects.
	counted map[client.ObjectKey]int
	missing []Missing
}

// New returns a snapshot with nothing in it but the kinds that every management cluster of Cluster API has.
func New() *Snapshot {
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), clusterv1.AddToScheme(scheme),
		controlplanev1.AddToScheme(scheme), infrav1.AddToScheme(scheme), infrav1beta1.AddToScheme(scheme), nhcv1.AddToScheme(scheme),
		mendv1.AddToScheme(scheme), bmov1alpha1.AddToScheme(scheme))
	if err != nil {
		panic(err) // two packages register the same kind, whatever the input
	}
	w := empty(scheme)
	for _, gvk := range []schema.GroupVersionKind{namespaceGVK, nodeGVK, definitionGVK} {
		w.Install(gvk, guessPlural(gvk), false)
	}
	for _, gvk := range []schema.GroupVersionKind{leaseGVK, clusterGVK, machineGVK, machineCheckGVK} {
		w.Install(gvk, guessPlural(gvk), true)
	}
	return w
}

// empty has no kinds.
func empty(scheme *runtime.Scheme) *Snapshot {
	return &Snapshot{
		Clock: clock.RealClock{}, scheme: scheme, kinds: map[schema.GroupKind]*kind{},
		workloads: map[client.ObjectKey]*workloadCluster{}, counted: map[client.ObjectKey]int{},
	}
}

// Scheme is that of all kinds that are known by their types.
func (w *Snapshot) Scheme() *runtime.Scheme { return w.scheme }

// Missing is what could not be read, sorted.
func (w *Snapshot) Missing() []Missing {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.Clone(w.missing)
}

// Lacks notes that something could not be read.
func (w *Snapshot) Lacks(what, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := (Missing{what, why}); !slices.Contains(w.missing, m) {
		w.missing = append(w.missing, m)
		slices.SortFunc(w.missing, func(a, b Missing) int { return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Why, b.Why)) })
	}
}

// Counted reports whether not all machines of a cluster were read, since the status of its checks counts them.
func (w *Snapshot) Counted(cluster client.ObjectKey) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	_, counted := w.counted[cluster]
	return counted
}

// SetCounted says that not all machines of a cluster were read, and how many there are that no MachineHealthCheck selects.
func (w *Snapshot) SetCounted(cluster client.ObjectKey, unselected int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counted[cluster] = unselected
}

// Unselected is how many machines no MachineHealthCheck selects of a cluster whose machines were not read.
func (w *Snapshot) Unselected(cluster client.ObjectKey) int {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.counted[cluster]
}

// Install makes a kind known of which there need not be an object. A kind that is not known is not installed.
func (w *Snapshot) Install(gvk schema.GroupVersionKind, plural string, namespaced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kindFor(gvk, plural, namespaced)
}

// Forbid makes a kind one that may not be read, in one namespace or, if that is empty, in all others. The error is what
// a read of it returns.
func (w *Snapshot) Forbid(gvk schema.GroupVersionKind, plural string, namespaced bool, namespace string, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kindFor(gvk, plural, namespaced).scopes[namespace] = why
}

// Add puts objects into the snapshot as they are, and what they replace out of it. Their kinds count as installed, and as read in all
// namespaces. An object without a UID is given one, and one without a version as well.
func (w *Snapshot) Add(objs ...client.Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, obj := range objs {
		gvk, err := apiutil.GVKForObject(obj, w.scheme)
		if err != nil {
			return fmt.Errorf("add %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
		}
		k := w.kindFor(gvk, guessPlural(gvk), obj.GetNamespace() != "")
		if _, read := k.scopes[obj.GetNamespace()]; !read && w.source == nil {
			k.scopes[""] = nil
		}
		if err := w.keep(k, gvk, obj.DeepCopyObject().(client.Object)); err != nil {
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
func (w *Snapshot) keep(k *kind, gvk schema.GroupVersionKind, own client.Object) error {
	if known := w.scheme.Recognizes(gvk); isMetadata(own) || isTree(own) && known {
		converted, err := w.convert(own, gvk, !known)
		if err != nil {
			return err
		}
		own = converted
	}
	own.GetObjectKind().SetGroupVersionKind(gvk)
	slimManagedFields(own)
	if annotations := own.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		own.SetAnnotations(annotations)
	}
	if given, err := strconv.ParseInt(own.GetResourceVersion(), 10, 64); err == nil {
		w.version = max(w.version, given)
	} else {
		w.version++
		own.SetResourceVersion(strconv.FormatInt(w.version, 10))
	}
	if own.GetUID() == "" { // it depends on what was added before, so that two runs can be compared
		name := fmt.Appendf(nil, "%s/%s/%s/%d", k.Group, k.Kind, client.ObjectKeyFromObject(own), w.version)
		own.SetUID(types.UID(uuid.NewSHA1(uuid.Nil, name).String()))
	}
	k.objects[client.ObjectKeyFromObject(own)] = own
	return nil
}

// Remove takes an object out of the snapshot, if it is there.
func (w *Snapshot) Remove(kind schema.GroupVersionKind, key client.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.kinds[kind.GroupKind()]; k != nil {
		delete(k.objects, key)
	}
}
