package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	ctrlsource "sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

var (
	hostGVK               = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")
	metal3MachineGVK      = infrav1.GroupVersion.WithKind("Metal3Machine")
	namespaceGVK          = corev1.SchemeGroupVersion.WithKind("Namespace")
	nodeGVK               = corev1.SchemeGroupVersion.WithKind("Node")
	podGVK                = corev1.SchemeGroupVersion.WithKind("Pod")
	budgetGVK             = policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")
	eventGVK              = eventsv1.SchemeGroupVersion.WithKind("Event")
	clusterGVK            = clusterv1.GroupVersion.WithKind("Cluster")
	policyGVK             = mendv1.GroupVersion.WithKind("RemediationPolicy")
	overrideGVK           = mendv1.GroupVersion.WithKind("RemediationOverride")
	recordGVK             = mendv1.GroupVersion.WithKind("RemediationRecord")
	machineGVK            = clusterv1.GroupVersion.WithKind("Machine")
	machineCheckGVK       = clusterv1.GroupVersion.WithKind("MachineHealthCheck")
	machineSetGVK         = clusterv1.GroupVersion.WithKind("MachineSet")
	machineDeploymentGVK  = clusterv1.GroupVersion.WithKind("MachineDeployment")
	controlPlaneGVK       = controlplanev1.GroupVersion.WithKind("KubeadmControlPlane")
	nodeCheckGVK          = nhcv1.GroupVersion.WithKind("NodeHealthCheck")
	definitionGVK         = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	leaseGVK              = coordinationv1.SchemeGroupVersion.WithKind("Lease")
	roleBindingGVK        = rbacv1.SchemeGroupVersion.WithKind("RoleBinding")
	clusterRoleBindingGVK = rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding")
)

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

// find returns the kind, or a NoKindMatchError if the kind or the version is not installed. The caller holds the lock.
func (s *Snapshot) find(gvk schema.GroupVersionKind) (*kind, error) {
	k := s.kinds[gvk.GroupKind()]
	if k == nil || !slices.Contains(k.Versions, gvk.Version) {
		return nil, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	return k, nil
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
		found.Why = &metav1.Status{Message: err.Error()}
	}
	k.Answers = append(slices.DeleteFunc(k.Answers, func(a answer) bool { return a.question == q }), found)
	slices.SortFunc(k.Answers, func(a, b answer) int { return a.compare(b.question) })
}

// covered reports whether anything was listed in a namespace or, if not, in all namespaces. It returns an error if every such list failed.
func (k *kind) covered(namespace string) (asked bool, why error) {
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
	switch {
	case namespace != "":
		return unreadError{fmt.Errorf("%s in namespace %s were not read, only those in %s", k.Plural, namespace, strings.Join(read, ", "))}
	case len(read) > 0:
		return nil
	}
	_, why := k.covered(k.Answers[0].Namespace)
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

// IndexField lets client.MatchingFields select objects of a kind by a field. An object that cannot be converted to the type of obj has no
// values.
func (s *Snapshot) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	gvk, err := apiutil.GVKForObject(obj, Scheme)
	if err != nil {
		return fmt.Errorf("index %T by %s: %w", obj, field, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexed(gvk.GroupKind()).indexes[field] = func(stored client.Object) []string {
		typed, err := as(stored, gvk, obj)
		if err != nil {
			return nil
		}
		return values(typed)
	}
	return nil
}

func (s *Snapshot) installed() []*kind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	kinds := slices.DeleteFunc(slices.Collect(maps.Values(s.kinds)), func(k *kind) bool { return len(k.Versions) == 0 })
	slices.SortFunc(kinds, func(a, b *kind) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind)) })
	return kinds
}

// RESTMapper returns a mapper of the kinds that are installed now.
func (s *Snapshot) RESTMapper() meta.RESTMapper {
	kinds := s.installed()
	var preferred []schema.GroupVersion
	for _, k := range kinds {
		for _, version := range k.Versions {
			preferred = append(preferred, schema.GroupVersion{Group: k.Group, Version: version})
		}
	}
	mapper := meta.NewDefaultRESTMapper(preferred)
	for _, k := range kinds {
		scope := meta.RESTScopeRoot
		if k.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		for _, version := range k.Versions {
			gv := schema.GroupVersion{Group: k.Group, Version: version}
			mapper.AddSpecific(gv.WithKind(k.Kind), gv.WithResource(k.Plural), gv.WithResource(strings.ToLower(k.Kind)), scope)
		}
	}
	return mapper
}

// Installed reports whether a CustomResourceDefinition is installed, by the served kinds: the user need not have the right to read it.
func (s *Snapshot) Installed(_ context.Context, crd string) (bool, error) {
	return slices.ContainsFunc(s.installed(), func(k *kind) bool { return k.Plural+"."+k.Group == crd }), nil
}

// Kinds gives the controllers the kinds of templates and requests of a snapshot, in place of remediationrequest.Kinds. It reads a kind when
// a controller asks for it, and watches and polls nothing.
type Kinds[T client.Object] struct {
	*Snapshot

	// In is the namespace to read, for MachineHealthChecks. It is empty for NodeHealthChecks, which need all namespaces.
	In string
}

// Namespace returns the namespace of the scope; empty for all.
func (s *Snapshot) Namespace() string {
	if s.source == nil {
		return ""
	}
	return s.source.Namespace
}

// Source returns nil.
func (k *Kinds[T]) Source(handler.TypedEventHandler[T, reconcile.Request]) ctrlsource.Source {
	return nil
}

// Unread returns nil.
func (k *Kinds[T]) Unread() []schema.GroupVersionKind { return nil }

// Polled returns false.
func (k *Kinds[T]) Polled(schema.GroupVersionKind) bool { return false }

// Ready returns true if the kind was read. The error satisfies remediationrequest.Missing if the kind is not installed, and
// apierrors.IsForbidden if the user may not list it.
func (k *Kinds[T]) Ready(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	if err := k.load(ctx, gvk, question{Namespace: k.In}); err != nil {
		return false, err
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	found, err := k.find(gvk)
	if err == nil {
		err = found.unread(k.In)
	}
	if err != nil {
		return false, fmt.Errorf("list %s: %w", gvk, err)
	}
	return true, nil
}

// Readable is the same as Ready, because no kind is watched.
func (k *Kinds[T]) Readable(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	return k.Ready(ctx, gvk)
}

// InUse returns the kinds of requests that were read, or that no API server has to be asked for, each in its preferred version, sorted.
func (k *Kinds[T]) InUse() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, installed := range k.installed() {
		k.mu.RLock()
		asked, why := installed.covered(k.In)
		k.mu.RUnlock()
		gvk := installed.WithVersion(installed.Versions[0])
		if why == nil && (asked || !installed.live) && k.templated(installed) && !slices.Contains(scoped, gvk) {
			kinds = append(kinds, gvk)
		}
	}
	return kinds
}
