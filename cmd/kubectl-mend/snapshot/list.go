package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

var (
	hostGVK               = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")
	metal3MachineGVK      = infrav1.GroupVersion.WithKind("Metal3Machine")
	namespaceGVK          = corev1.SchemeGroupVersion.WithKind("Namespace")
	nodeGVK               = corev1.SchemeGroupVersion.WithKind("Node")
	podGVK                = corev1.SchemeGroupVersion.WithKind("Pod")
	budgetGVK             = policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")
	attachmentGVK         = storagev1.SchemeGroupVersion.WithKind("VolumeAttachment")
	eventGVK              = eventsv1.SchemeGroupVersion.WithKind("Event")
	clusterGVK            = clusterv1.GroupVersion.WithKind("Cluster")
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

var (
	// selectedKinds have many objects, so load lists only those with the name or labels that a caller asks for.
	selectedKinds = []schema.GroupKind{
		leaseGVK.GroupKind(), namespaceGVK.GroupKind(), definitionGVK.GroupKind(), roleBindingGVK.GroupKind(),
		clusterRoleBindingGVK.GroupKind(),
	}
	// machineKinds have about as many objects as there are Machines.
	machineKinds = []schema.GroupKind{machineGVK.GroupKind(), metal3MachineGVK.GroupKind(), hostGVK.GroupKind()}
)

// load lists the objects of a question, unless they were listed before. A record has no source, and nothing more to list. load returns an
// error only if the context ended; the snapshot remembers all other errors.
func (r *source) load(ctx context.Context, gvk schema.GroupVersionKind, q question) error {
	if r == nil {
		return nil
	}
	k := r.snapshot.served(gvk.GroupKind())
	if k == nil {
		return nil
	}
	switch {
	case !k.Namespaced:
		q.Namespace = ""
	case q.Namespace == "" && slices.Contains(scoped, gvk):
		q.Namespace = r.Namespace
	}
	if r.Namespace == "" && q.Namespace != "" && custom(gvk.Group) { // one list of all namespaces is faster than a list for each
		everywhere := q
		everywhere.Namespace = ""
		if err := r.load(ctx, gvk, everywhere); err != nil {
			return err
		}
	}
	q, wanted := r.widened(k, q)
	if !wanted || r.snapshot.answered(k, q) {
		return nil
	}
	err := r.ask(ctx, gvk, k, q)
	if ctx.Err() != nil {
		return unreadError{fmt.Errorf("list %s: %w", plural(k.Kind), errors.Join(ctx.Err(), err))}
	}
	return nil
}

// served returns a kind that the API server can list, or nil.
func (s *Snapshot) served(gk schema.GroupKind) *kind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if k := s.kinds[gk]; k != nil && k.live {
		return k
	}
	return nil
}

// widened returns what to list for a question: all objects of the kind in the namespace or, for kinds with many objects, only those of the
// name or labels. It returns false if nothing more is read of the kind.
func (r *source) widened(k *kind, q question) (question, bool) {
	selected := q.Name != "" || q.Labels != ""
	switch gk := k.GroupKind; {
	case gk == nodeGVK.GroupKind() && len(r.snapshot.Objects(nodeCheckGVK, "")) == 0:
		r.snapshot.remember(k, question{}, errNoNodeCheck)
		return q, false
	case gk == machineGVK.GroupKind() && r.one && !selected:
		return q, false
	case gk == namespaceGVK.GroupKind() && r.Everything && q.Labels != "": // policies of a file may select others than those of the cluster
		return question{}, true
	case slices.Contains(selectedKinds, gk), r.one && selected && slices.Contains(machineKinds, gk):
		return q, true
	}
	return question{Namespace: q.Namespace, Labels: r.selection(k.GroupKind).String()}, true
}

// selection returns the labels by which a kind is listed.
func (r *source) selection(gk schema.GroupKind) labels.Set {
	switch {
	case gk == machineGVK.GroupKind():
		return r.labelled()
	case gk != recordGVK.GroupKind():
	case r.Restless:
		return labels.Set{mendv1.RecordOpenLabel: "true"}
	case r.Cluster != "":
		return labels.Set{clusterv1.ClusterNameLabel: r.Cluster}
	}
	return nil
}

// labelled returns the label of the cluster in scope. It returns nil if all clusters are in scope, or if there is a NodeHealthCheck, which
// depends on the Machines of all clusters.
func (r *source) labelled() labels.Set {
	if r.Cluster == "" || len(r.snapshot.Objects(nodeCheckGVK, "")) > 0 {
		return nil
	}
	return labels.Set{clusterv1.ClusterNameLabel: r.Cluster}
}

// answered reports whether q was listed, or a wider question without an error. A failed list of all namespaces does not answer q, because
// the user may have the right to list one namespace.
func (s *Snapshot) answered(k *kind, q question) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return k.listed(q) || slices.ContainsFunc(k.Answers, func(a answer) bool { return a.question == q })
}

func (s *Snapshot) remember(k *kind, q question, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.remember(q, err)
}

// ask lists the objects of a question, and remembers success or the error, unless the context ended.
func (r *source) ask(ctx context.Context, gvk schema.GroupVersionKind, k *kind, q question) error {
	err := r.list(ctx, gvk, k, q)
	if ctx.Err() != nil {
		return err
	}
	r.snapshot.remember(k, q, err)
	return err
}

// fromMemory makes a list read the API server's watch cache (resourceVersion 0), which is as new as a controller's and cheaper than etcd.
func fromMemory() client.ListOption {
	return &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}} // new each time: the client writes selectors into Raw
}

// list lists the objects of a question into the snapshot. It does not replace objects there, because a caller may have changed them.
func (r *source) list(ctx context.Context, gvk schema.GroupVersionKind, k *kind, q question) error {
	if !slices.Contains(k.Versions, gvk.Version) {
		return fmt.Errorf("they are served in %s, and version %s is needed", strings.Join(k.Versions, ", "), gvk.Version)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var list client.ObjectList = &unstructured.UnstructuredList{}
	listGVK := gvk.GroupVersion().WithKind(gvk.Kind + "List")
	if typed, err := Scheme.New(listGVK); err == nil {
		list = typed.(client.ObjectList)
	}
	list.GetObjectKind().SetGroupVersionKind(listGVK)
	selector, err := labels.Parse(q.Labels)
	if err != nil {
		return err
	}
	options := []client.ListOption{client.InNamespace(q.Namespace), client.MatchingLabelsSelector{Selector: selector}, fromMemory()}
	if q.Name != "" {
		options = append(options, client.MatchingFields{metav1.ObjectNameField: q.Name})
	}
	if err := r.client.List(ctx, list, options...); err != nil {
		return err
	}
	cluster := r.labelled()[clusterv1.ClusterNameLabel]
	r.snapshot.mu.Lock()
	defer r.snapshot.mu.Unlock()
	return meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(client.Object)
		if !ok || !inCluster(obj, cluster) || k.objects[client.ObjectKeyFromObject(obj)] != nil {
			return nil
		}
		return r.snapshot.keep(k, gvk, obj)
	})
}

// inCluster reports whether an object belongs to the cluster in scope; all do if cluster is empty. It filters only Clusters and
// MachineHealthChecks, which have no label to select them by.
func inCluster(obj client.Object, cluster string) bool {
	switch obj := obj.(type) {
	case *clusterv1.Cluster:
		return cluster == "" || obj.Name == cluster
	case *clusterv1.MachineHealthCheck:
		return cluster == "" || obj.Spec.ClusterName == cluster
	}
	return true
}

// Missing returns what could not be read, and why, sorted: "BareMetalHosts in all namespaces: forbidden: ...".
func (s *Snapshot) Missing() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var missing []string
	for _, k := range s.kinds {
		for _, a := range k.Answers {
			if a.Why != nil && a.Why.Message != errNoNodeCheck.Error() && !k.listed(a.question) {
				missing = append(missing, a.what(k)+": "+why(&apierrors.StatusError{ErrStatus: *a.Why}))
			}
		}
	}
	for key, cluster := range s.workloads {
		if !slices.Contains([]string{"", explain.NodesNotAsked, explain.ControlPlaneNotInitialized}, cluster.Unseen) {
			missing = append(missing, "Nodes of cluster "+key.String()+": "+cluster.Unseen)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

var errNoNodeCheck = errors.New("the nodes of the management cluster were not read, since there is no NodeHealthCheck")

// what names the objects that a question asks for, for Missing.
func (q question) what(k *kind) string {
	called := plural(k.Kind)
	switch {
	case k.GroupKind == nodeGVK.GroupKind():
		return called + " of the management cluster"
	case !k.Namespaced:
		return called
	case q.Namespace == "":
		return called + " in all namespaces"
	default:
		return called + " in namespace " + q.Namespace
	}
}

func plural(kind string) string {
	if begin, found := strings.CutSuffix(kind, "y"); found {
		return begin + "ies"
	}
	return kind + "s"
}

// Silent reports whether a read failed because an API server does not answer. A later read may succeed. A remembered error has the text of
// why already, which callers may have put their own words before.
func Silent(err error) bool {
	said := apierrors.APIStatus(nil)
	return explain.Silent(why(err)) || errors.As(err, &said) && explain.Silent(said.Status().Message)
}

// why returns the text of a read error for users. It is the same each time, so that Missing has it once.
func why(err error) string {
	timeout := net.Error(nil)
	switch {
	case apierrors.IsForbidden(err):
		said := err.Error()
		if _, after, found := strings.Cut(said, "forbidden: "); found {
			said = after
		}
		return "forbidden: " + said
	case apierrors.IsUnauthorized(err):
		return "not logged in: " + err.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout(), apierrors.IsTimeout(err):
		return explain.NoAnswer
	case errors.As(err, new(*url.Error)), apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err): // as from load balancers
		return explain.NoConnection + err.Error()
	default:
		return err.Error()
	}
}
