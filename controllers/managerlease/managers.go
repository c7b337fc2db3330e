// Package managerlease writes and reads the manager lease, a Lease that says that a manager runs, its settings, and which kinds it serves.
// The manager lease is only for reports: the leader lease decides which replica acts.
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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capi"
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

func renewed(lease *coordinationv1.Lease) time.Time {
	return ptr.Deref(lease.Spec.RenewTime, metav1.NewMicroTime(lease.CreationTimestamp.Time)).Time
}

func ends(lease *coordinationv1.Lease) time.Time {
	return renewed(lease).Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
}

const (
	// LeaseName is the name of the manager lease. It is in the namespace of the leader lease.
	LeaseName = "manager.kubemend.io"
	// LeaderLeaseName is the name of the leader lease.
	LeaderLeaseName = "leader.kubemend.io"
)

// Announcement has the settings of a manager and the kinds that it serves. It is JSON in the annotation kubemend.io/manager of the lease. A
// reader ignores fields that its release does not know.
type Announcement struct {
	// Version is the release of the manager.
	Version string `json:"version"`
	// Started is when the process started, in whole seconds.
	Started metav1.Time `json:"started"`
	// Unclaimed is the flag --unclaimed-machine-health-checks: observe, act or ignore.
	Unclaimed string `json:"unclaimed"`
	// Namespace is the only namespace whose Cluster API objects the manager watches; empty for all.
	Namespace string `json:"namespace,omitempty"`
	// WatchFilter is the value of --watch-filter; empty if the manager watches objects with any label.
	WatchFilter string `json:"watchFilter,omitempty"`
	// NodeLeaseNamespace is the namespace of the leases on nodes.
	NodeLeaseNamespace string `json:"nodeLeaseNamespace"`
	// PolicyNamespace is the namespace whose RemediationPolicies apply to all namespaces.
	PolicyNamespace string `json:"policyNamespace,omitempty"`
	// Outside says that the manager does not run in a pod of the cluster, and has the rights of a user.
	Outside bool `json:"outside,omitempty"`
	// Teardown says that the manager runs with --teardown: it removes what kubemend wrote, and starts no remediation.
	Teardown bool `json:"teardown,omitempty"`
	// ClockAheadSeconds is by how many seconds the clock of the manager is ahead of the clock of the API server: negative if it is behind,
	// 0 if the error is at most 30 s.
	ClockAheadSeconds int64 `json:"clockAheadSeconds,omitempty"`
	// Kinds are the kinds that the manager can serve, without those that it has not reconciled yet.
	Kinds []Kind `json:"kinds,omitempty"`
}

// ClockAhead returns ClockAheadSeconds as a duration.
func (a *Announcement) ClockAhead() time.Duration {
	return time.Duration(a.ClockAheadSeconds) * time.Second
}

// Kind says whether the manager serves a kind, and if not, why.
type Kind struct {
	// CRD is the name of the CustomResourceDefinition.
	CRD string `json:"crd"`
	// Reason is why the kind is not served, as in the metric kubemend_kind_served; empty if it is served.
	Reason string `json:"reason,omitempty"`
	// Because explains Reason in a clause without a full stop.
	Because string `json:"because,omitempty"`
}

// Unserved returns why the manager does not serve the kind of a CustomResourceDefinition; nil if the manager serves it, or the lease does
// not mention it.
func (m Manager) Unserved(crd string) *Kind {
	if m.Announcement == nil {
		return nil
	}
	i := slices.IndexFunc(m.Announcement.Kinds, func(k Kind) bool { return k.CRD == crd && k.Reason != "" })
	if i < 0 {
		return nil
	}
	return &m.Announcement.Kinds[i]
}

// Off is why a manager does not act on an object.
type Off struct {
	// Reason is empty if the manager acts on the object.
	Reason string
	// Because explains Reason in a clause.
	Because string
	// Fix is what a user can change so that the manager acts; empty if only another manager would help.
	Fix string
}

// unverified is the Reason if it is not known whether the lease belongs to a manager, or what the manager watches.
const unverified = "Unverified"

// Unknown reports whether the manager may act on the object nevertheless.
func (o Off) Unknown() bool { return o.Reason == unverified }

// StandsOff returns why the manager does not act on an object, by the manager's namespace, watch filter and rights. On an object without a
// namespace it acts only if it has its rights in all namespaces. cluster is the Cluster of the object, for capi.Covers; nil if there is
// none, or if its label does not count.
func (m Manager) StandsOff(obj client.Object, cluster *clusterv1.Cluster) Off {
	startAnother := "start a manager for namespace " + obj.GetNamespace()
	switch a := m.Announcement; {
	case !m.Alive:
		return Off{Reason: "NotRunning", Because: fmt.Sprintf("the one in %s is gone since %s",
			m.Namespace, m.Gone.UTC().Format(time.RFC3339))}
	case m.Unverified != "":
		return Off{Reason: unverified,
			Because: fmt.Sprintf("it is not known whether the lease in %s belongs to a manager (%s)", m.Namespace, m.Unverified)}
	case len(m.Within) > 0 && !slices.Contains(m.Within, obj.GetNamespace()):
		return Off{Reason: "OtherRights", Fix: startAnother,
			Because: fmt.Sprintf("the one in %s has rights in namespace %s alone", m.Namespace, strings.Join(m.Within, ", "))}
	case a.Namespace != "" && a.Namespace != obj.GetNamespace():
		return Off{Reason: "OtherNamespace", Fix: startAnother,
			Because: fmt.Sprintf("the one in %s watches namespace %s alone", m.Namespace, a.Namespace)}
	case !capi.Covers(a.WatchFilter, obj, cluster):
		return m.otherLabel(obj, cluster)
	case a.Teardown:
		return m.InTeardown()
	}
	return Off{}
}

// otherLabel says that the manager watches only objects with another label.
func (m Manager) otherLabel(obj client.Object, cluster *clusterv1.Cluster) Off {
	label, object := clusterv1.WatchLabel+": "+m.Announcement.WatchFilter, "it"
	if _, labelled := obj.GetLabels()[clusterv1.WatchLabel]; cluster != nil && !labelled {
		object = "it, or its Cluster,"
	}
	return Off{Reason: "OtherLabel", Because: fmt.Sprintf("the one in %s watches only objects with the label %s", m.Namespace, label),
		Fix: fmt.Sprintf("give %s the label %s", object, label)}
}

// InTeardown says that the manager is in teardown and starts no remediation.
func (m Manager) InTeardown() Off {
	return Off{Reason: "InTeardown", Because: fmt.Sprintf("the one in %s is in teardown, and starts nothing", m.Namespace)}
}
