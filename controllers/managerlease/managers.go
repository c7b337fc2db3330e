package managerlease

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

const (
	// UsualNamespace is the namespace of the manager in kubemend's manifests.
	UsualNamespace = "kubemend-system"
	// ServiceAccount is the name of the manager's ServiceAccount. An installation may append a dash and a suffix. (config/rbac)
	ServiceAccount = "kubemend-manager"
	// ClusterRole is the role of the ServiceAccount.
	ClusterRole = "kubemend-manager-role"
)

// BindingLabels are the labels of the bindings that kubemend's packages install. They prove nothing, but with them a reader need not list
// all bindings of a cluster.
var BindingLabels = client.MatchingLabels{"app.kubernetes.io/name": "kubemend"}

// Manager is a manager that runs or ran, as its lease describes it.
type Manager struct {
	// Namespace is the namespace of the lease: of the manager's pod, or the value of --leader-elect-namespace.
	Namespace string
	// Holder is the replica that acts or acted last; empty if it has released the lease.
	Holder string
	// Unverified is why it is not known whether the lease belongs to a manager, or what the manager watches; empty if both are known.
	Unverified string
	// Within are the namespaces in which the manager has its rights; empty for all namespaces.
	Within []string
	// Alive says that the lease is held and has not expired.
	Alive bool
	// Renewed is when the lease was last renewed.
	Renewed time.Time
	// Gone is when the manager released its lease, or the lease expired; zero while the manager is alive.
	Gone time.Time
	// Announcement is the content of the lease; nil if it cannot be parsed.
	Announcement *Announcement
}

// Of returns the managers that have a lease, sorted by namespace. If the user may not list leases in all namespaces, it returns an error
// and the manager of the usual namespace; there may be others.
//
// The ClusterRole edit is enough to write a manager lease, and a lease does not prove who wrote it. So a lease counts only in a namespace
// in which a ServiceAccount of the manager is bound to the manager's role: only a user with the rights of a role may bind it.
// (docs/security.md)
func Of(ctx context.Context, reader client.Reader, now time.Time) ([]Manager, error) {
	list := &coordinationv1.LeaseList{}
	unlisted := reader.List(ctx, list, client.MatchingFields{"metadata.name": LeaseName})
	if unlisted != nil {
		unlisted = fmt.Errorf("list the leases %s: %w", LeaseName, unlisted)
		usual := coordinationv1.Lease{}
		if reader.Get(ctx, client.ObjectKey{Namespace: UsualNamespace, Name: LeaseName}, &usual) == nil {
			list.Items = append(list.Items, usual)
		}
	}
	slices.SortFunc(list.Items, func(a, b coordinationv1.Lease) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return verified(ctx, reader, list.Items, now), unlisted
}

// verified returns the managers of the leases, without those in a namespace without a binding. In the usual namespace a manager without a
// binding may run outside of the cluster with the rights of a user, and a lease counts there if bindings cannot be read.
func verified(ctx context.Context, reader client.Reader, leases []coordinationv1.Lease, now time.Time) []Manager {
	bound, unread := bindings(ctx, reader)
	managers := make([]Manager, 0, len(leases))
	for i := range leases {
		manager := managerOf(&leases[i], now)
		usual := manager.Namespace == UsualNamespace
		switch within := bound[manager.Namespace]; {
		case slices.Contains(within, metav1.NamespaceAll), unread != "" && usual:
		case len(within) > 0:
			manager.Within = slices.Sorted(slices.Values(within))
		case unread != "":
			manager.Unverified = unread
		case usual:
			manager.Unverified = fmt.Sprintf(
				"no binding with the label app.kubernetes.io/name=%s binds a ServiceAccount %s of that namespace to the ClusterRole %s",
				BindingLabels["app.kubernetes.io/name"], ServiceAccount, ClusterRole)
		default:
			continue
		}
		managers = append(managers, manager)
	}
	return managers
}

// bindings returns for each namespace where the manager's ServiceAccounts in it have the manager's role; metav1.NamespaceAll stands for all
// namespaces. unread is why bindings may be missing from the result; empty if none are.
func bindings(ctx context.Context, reader client.Reader) (bound map[string][]string, unread string) {
	bound = map[string][]string{}
	var failures []string
	everywhere, within := &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}
	if err := reader.List(ctx, everywhere, BindingLabels); err != nil {
		failures = append(failures, fmt.Sprintf("list ClusterRoleBindings: %s", err))
	}
	if err := reader.List(ctx, within, BindingLabels); err != nil {
		failures = append(failures, fmt.Sprintf("list RoleBindings: %s", err))
	}
	for i := range everywhere.Items { // as a RoleBinding without a namespace
		binding := &everywhere.Items[i]
		within.Items = append(within.Items, rbacv1.RoleBinding{RoleRef: binding.RoleRef, Subjects: binding.Subjects})
	}
	for i := range within.Items {
		binding := &within.Items[i]
		if binding.RoleRef.Kind != "ClusterRole" || binding.RoleRef.Name != ClusterRole {
			continue
		}
		for _, subject := range binding.Subjects {
			account := subject.Name == ServiceAccount || strings.HasPrefix(subject.Name, ServiceAccount+"-")
			if account && subject.Kind == rbacv1.ServiceAccountKind {
				bound[subject.Namespace] = append(bound[subject.Namespace], binding.Namespace)
			}
		}
	}
	return bound, strings.Join(failures, "; ")
}

// managerOf returns the manager that a lease describes. If the lease has no holder, it was released at its last renewal.
func managerOf(lease *coordinationv1.Lease, now time.Time) Manager {
	manager := Manager{Namespace: lease.Namespace, Holder: ptr.Deref(lease.Spec.HolderIdentity, ""), Renewed: renewed(lease)}
	announcement := &Announcement{}
	if err := json.Unmarshal([]byte(lease.Annotations[mendv1.ManagerAnnotation]), announcement); err != nil {
		announcement = nil
		manager.Unverified = fmt.Sprintf("read the annotation %s of lease %s/%s: %s",
			mendv1.ManagerAnnotation, lease.Namespace, lease.Name, err)
	}
	manager.Announcement = announcement
	end := manager.Renewed
	if manager.Holder != "" {
		end = ends(lease)
	}
	if manager.Alive = manager.Holder != "" && now.Before(end); !manager.Alive {
		manager.Gone = end
	}
	return manager
}

// renewed returns when a lease was last renewed.
func renewed(lease *coordinationv1.Lease) time.Time {
	return ptr.Deref(lease.Spec.RenewTime, metav1.NewMicroTime(lease.CreationTimestamp.Time)).Time
}

// ends returns when a lease expires unless it is renewed.
func ends(lease *coordinationv1.Lease) time.Time {
	return renewed(lease).Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
}
