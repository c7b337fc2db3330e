// Package snapshot reads a management cluster and its workload clusters, and remembers each answer. It decides nothing.
//
// A Snapshot is a client whose objects are in memory. It lists a kind of a live cluster when a caller first reads it, with the user's
// rights. A Snapshot that is loaded from a record, or filled by a test, has all its objects from the start.
package snapshot

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// Snapshot is a management cluster at one moment, with the nodes of its workload clusters. Its methods are safe for concurrent use.
type Snapshot struct {
	client.Client // nil: calling a method that Snapshot does not implement, such as a write, panics

	// Namespace is that of the scope; empty for all, and for a record.
	Namespace string
	// Taken is when the snapshot was read.
	Taken time.Time
	// Clock is the clock of the cluster. Commands compute the age of conditions with it.
	Clock clock.PassiveClock

	source *source // the cluster that is read on demand; nil for a record

	mu        sync.RWMutex
	kinds     map[schema.GroupKind]*kind
	version   int64 // the highest resourceVersion so far
	workloads map[client.ObjectKey]*workloadCluster
}

// Scheme has the kinds that are stored as Go types. All other kinds are stored as unstructured objects.
var Scheme = func() *runtime.Scheme {
	known := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(known), apiextensionsv1.AddToScheme(known), clusterv1.AddToScheme(known),
		controlplanev1.AddToScheme(known), infrav1.AddToScheme(known), infrav1beta1.AddToScheme(known), nhcv1.AddToScheme(known),
		mendv1.AddToScheme(known), bmov1alpha1.AddToScheme(known))
	if err != nil {
		panic(err) // a programming error: two packages register the same kind
	}
	return known
}()

// New returns a snapshot without objects, with the kinds that every management cluster of Cluster API has.
func New() *Snapshot {
	s := empty()
	s.Install(namespaceGVK, nodeGVK, definitionGVK, leaseGVK, clusterGVK, machineGVK, machineCheckGVK)
	return s
}

func empty() *Snapshot {
	return &Snapshot{
		Clock: clock.RealClock{}, kinds: map[schema.GroupKind]*kind{}, workloads: map[client.ObjectKey]*workloadCluster{},
	}
}

// Install makes kinds known that need not have objects. Reading a kind that is not known returns a NoKindMatchError.
func (s *Snapshot) Install(kinds ...schema.GroupVersionKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, gvk := range kinds {
		s.install(gvk)
	}
}

func (s *Snapshot) install(gvk schema.GroupVersionKind) *kind {
	return s.kindFor(gvk, guessPlural(gvk), gvk != namespaceGVK && gvk != nodeGVK && gvk != definitionGVK && gvk != nodeCheckGVK)
}

// Forbid makes reads of a kind fail with the error why, in one namespace or, if namespace is empty, in all namespaces without their own
// answer.
func (s *Snapshot) Forbid(gvk schema.GroupVersionKind, namespace string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.install(gvk).remember(question{Namespace: namespace}, why)
}

// Add adds or replaces objects. Their kinds then count as installed and as read in all namespaces. Add sets a UID and a resourceVersion if
// an object has none.
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

// keep stores own, without a copy, as its Go type if Scheme has that. The caller holds the lock.
func (s *Snapshot) keep(k *kind, gvk schema.GroupVersionKind, own client.Object) error {
	if known := Scheme.Recognizes(gvk); isMetadata(own) || isTree(own) && known {
		converted, err := convert(own, gvk, !known)
		if err != nil {
			return err
		}
		own = converted
	}
	own.GetObjectKind().SetGroupVersionKind(gvk)
	own.SetManagedFields(nil) // no command reads them, and they are half of an object
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
	if own.GetUID() == "" { // not random, so that the output of two runs can be compared
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%d", k.Group, k.Kind, client.ObjectKeyFromObject(own), s.version))
		own.SetUID(types.UID(hex.EncodeToString(sum[:16])))
	}
	k.objects[client.ObjectKeyFromObject(own)] = own
	return nil
}

// Remove removes an object, if it is there.
func (s *Snapshot) Remove(gvk schema.GroupVersionKind, key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.kinds[gvk.GroupKind()]; k != nil {
		delete(k.objects, key)
	}
}

// All returns the objects of a type in a namespace, or in all if that is empty, sorted by name; none if the kind is not installed or was
// not read. Callers must not change the objects.
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

// One returns the object of a type and name, or nil if it is not known. Callers must not change the object.
func One[T any, P interface {
	*T
	client.Object
}](s *Snapshot, key client.ObjectKey) P {
	gvk, _ := apiutil.GVKForObject(P(new(T)), Scheme) // an unknown type has no objects
	typed, _ := s.stored(gvk, key).(P)
	return typed
}

// stored returns the object of a name as it is stored, or nil if it is not known. Callers must not change it.
func (s *Snapshot) stored(gvk schema.GroupVersionKind, key client.ObjectKey) client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if k := s.kinds[gvk.GroupKind()]; k != nil {
		return k.objects[key]
	}
	return nil
}

// Objects returns the objects of a kind that were read so far, as they are stored, sorted by name. Callers must not change them.
func (s *Snapshot) Objects(gvk schema.GroupVersionKind, namespace string) []client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k := s.kinds[gvk.GroupKind()]
	if k == nil {
		return nil
	}
	objs := make([]client.Object, 0, len(k.objects))
	for key, obj := range k.objects {
		if namespace == "" || !k.Namespaced || key.Namespace == namespace {
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

// question selects objects of a kind: in a namespace or, if that is empty, in all; with a name or labels, if these are not empty.
type question struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Labels    string `json:"labels,omitempty"`
}

func (q question) compare(other question) int {
	return cmp.Or(cmp.Compare(q.Namespace, other.Namespace), cmp.Compare(q.Name, other.Name), cmp.Compare(q.Labels, other.Labels))
}

// answer is the result of listing a question. Why is the error of the API server; nil if the list succeeded.
type answer struct {
	question `json:",inline"`

	Why *metav1.Status `json:"why,omitempty"`
}

// kind is a kind and the objects that were read of it.
type kind struct {
	schema.GroupKind `json:"-"`
	Plural           string `json:"plural"`
	Namespaced       bool   `json:"namespaced,omitempty"`
	// Versions are the served versions, the preferred one first. A kind that is not installed, and only indexed, has none.
	Versions []string `json:"versions"`
	// Answers are the results of all lists, sorted by question.
	Answers []answer `json:"answers,omitempty"`

	// live is true if the API server can list the kind.
	live bool
	// objects are shared by all readers. To change one, replace it.
	objects map[client.ObjectKey]client.Object
	// indexes return the values of a field selector, by field.
	indexes map[string]client.IndexerFunc
}

// kindFor returns the kind, and installs the kind and the version if needed. The caller holds the lock.
func (s *Snapshot) kindFor(gvk schema.GroupVersionKind, plural string, namespaced bool) *kind {
	k := s.indexed(gvk.GroupKind())
	if len(k.Versions) == 0 {
		k.Plural, k.Namespaced = plural, namespaced
	}
	if !slices.Contains(k.Versions, gvk.Version) {
		k.Versions = append(k.Versions, gvk.Version)
	}
	return k
}

// indexed returns the kind, and adds it without a version, which means not installed, if needed. The caller holds the lock.
func (s *Snapshot) indexed(gk schema.GroupKind) *kind {
	if s.kinds[gk] == nil {
		s.kinds[gk] = &kind{
			GroupKind: gk, objects: map[client.ObjectKey]client.Object{},
			indexes: map[string]client.IndexerFunc{
				metav1.ObjectNameField: func(obj client.Object) []string { return []string{obj.GetName()} },
			},
		}
	}
	return s.kinds[gk]
}

// unreadError makes an error explain.ErrUnread for errors.Is.
type unreadError struct{ error }

// Is makes errors.Is report that the error is explain.ErrUnread.
func (unreadError) Is(target error) bool { return target == explain.ErrUnread }

// Unwrap returns the wrapped error.
func (e unreadError) Unwrap() error { return e.error }

// remember stores the answer to a question. The caller holds the lock.
func (k *kind) remember(q question, err error) {
	found := answer{question: q}
	if said := apierrors.APIStatus(nil); errors.As(err, &said) {
		found.Why = new(said.Status())
	} else if err != nil {
		found.Why = &metav1.Status{Message: why(err)}
	}
	k.Answers = append(slices.DeleteFunc(k.Answers, func(a answer) bool { return a.question == q }), found)
	slices.SortFunc(k.Answers, func(a, b answer) int { return a.compare(b.question) })
}

// listed reports whether the objects of q were listed, perhaps among others.
func (k *kind) listed(q question) bool {
	with := []question{q, {Namespace: q.Namespace}, {Name: q.Name, Labels: q.Labels}, {}}
	return slices.ContainsFunc(k.Answers, func(a answer) bool { return a.Why == nil && slices.Contains(with, a.question) })
}

// covered reports whether anything was listed in a namespace or, if not, in all namespaces. It returns an error if every such list failed:
// that leases of one name may be listed everywhere does not make a lease that may not be read one that is not there.
func (k *kind) covered(namespace string) (asked bool, why error) {
	if k.listed(question{Namespace: namespace}) {
		return true, nil
	}
	for _, about := range []string{namespace, metav1.NamespaceAll} {
		for i := range k.Answers {
			switch a := &k.Answers[i]; {
			case a.Namespace != about:
			case a.Why == nil:
				return true, nil
			case !asked:
				asked, why = true, unreadError{&apierrors.StatusError{ErrStatus: *a.Why}}
			}
		}
		if asked {
			break
		}
	}
	return asked, why
}

// unread returns why the kind was not read in a namespace or, if namespace is empty, why it was read in none; nil if it was read. The error
// is explain.ErrUnread.
func (k *kind) unread(namespace string) error {
	if asked, why := k.covered(namespace); asked || len(k.Answers) == 0 {
		return why
	}
	var read []string
	for i := range k.Answers {
		if k.Answers[i].Why == nil {
			read = append(read, k.Answers[i].Namespace)
		}
	}
	if namespace != "" {
		return unreadError{fmt.Errorf("%s in namespace %s were not read, only those in %s", k.Plural, namespace, strings.Join(read, ", "))}
	}
	_, why := k.covered(append(read, k.Answers[0].Namespace)[0])
	return why
}

// custom reports whether a group is of CustomResourceDefinitions: its name has a dot, and does not end with .k8s.io, which Kubernetes keeps
// for groups that its API reviewers approve.
func custom(group string) bool {
	return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
}

// templated reports whether a kind of a CustomResourceDefinition has a template kind, named like it with the suffix Template.
func (s *Snapshot) templated(k *kind) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return custom(k.Group) && s.kinds[schema.GroupKind{Group: k.Group, Kind: k.Kind + remediationrequest.TemplateSuffix}] != nil
}

func (s *Snapshot) installed() []*kind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	kinds := slices.DeleteFunc(slices.Collect(maps.Values(s.kinds)), func(k *kind) bool { return len(k.Versions) == 0 })
	slices.SortFunc(kinds, func(a, b *kind) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind)) })
	return kinds
}
