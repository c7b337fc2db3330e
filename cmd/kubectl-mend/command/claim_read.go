package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
	"github.com/kubemend/kubemend/controllers/claims"
	decide "github.com/kubemend/kubemend/controllers/decide/claims"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// selection says which checks are meant: those of the names, or all that the rest selects. No namespace means all.
type selection struct {
	namespace string
	names     []string
	cluster   string
	labels    labels.Selector
	// label is the object whose label is written or removed, in place of the annotations of checks; nil if it is those.
	label *labelOwner
}

// errNoneSelected is the beginning of the error when there are no such checks.
var errNoneSelected = errors.New("no MachineHealthCheck")

// observeClaim reads all that the plan needs. What may not be read is said in it, but for the checks themselves.
func observeClaim(ctx context.Context, c client.Reader, s selection, now time.Time) (claimFacts, error) {
	checks, err := selected(ctx, c, s)
	if err != nil {
		return claimFacts{}, err
	}
	f := claimFacts{}
	f.managers, f.unlisted = managersSeen(ctx, c, now)
	f.core = coreSeen(ctx, c, now)
	for i := range checks {
		f.checks = append(f.checks, checkSeen(ctx, c, &checks[i]))
	}
	return f, nil
}

// selected are the checks that are meant.
func selected(ctx context.Context, c client.Reader, s selection) ([]clusterv1.MachineHealthCheck, error) {
	if len(s.names) > 0 {
		return called(ctx, c, s)
	}
	list := &clusterv1.MachineHealthCheckList{}
	if err := c.List(ctx, list, client.InNamespace(s.namespace), client.MatchingLabelsSelector{Selector: s.labels}); err != nil {
		return nil, fmt.Errorf("list MachineHealthChecks: %w", err)
	}
	found := slices.DeleteFunc(list.Items, func(check clusterv1.MachineHealthCheck) bool {
		return s.cluster != "" && check.Spec.ClusterName != s.cluster
	})
	if len(found) == 0 {
		where := "in any namespace"
		if s.namespace != "" {
			where = "in namespace " + s.namespace
		}
		return nil, fmt.Errorf("%w %s is selected", errNoneSelected, where)
	}
	return found, nil
}

// called are the checks of the names. If one does not exist none is returned: a typing error is not to hand half of them over.
func called(ctx context.Context, c client.Reader, s selection) ([]clusterv1.MachineHealthCheck, error) {
	var found []clusterv1.MachineHealthCheck
	var missing []string
	for _, name := range s.names {
		check := clusterv1.MachineHealthCheck{}
		err := c.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, &check)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil:
			return nil, fmt.Errorf("read MachineHealthCheck %s/%s: %w", s.namespace, name, err)
		case s.cluster != "" && check.Spec.ClusterName != s.cluster:
			return nil, fmt.Errorf("MachineHealthCheck %s/%s is of Cluster %s, not of %s", s.namespace, name, check.Spec.ClusterName, s.cluster)
		default:
			found = append(found, check)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("there is no MachineHealthCheck %s in namespace %s", strings.Join(missing, ", "), s.namespace)
	}
	return found, nil
}

// managersSeen are the managers of kubemend, and why there may be others.
func managersSeen(ctx context.Context, c client.Reader, now time.Time) ([]managerlease.Manager, explain.Unlisted) {
	found, err := managerlease.Of(ctx, c, now)
	if err == nil {
		return found, explain.Unlisted{}
	}
	if one, narrow := managerlease.In(ctx, c, managerlease.UsualNamespace, now); narrow == nil && one != nil {
		return []managerlease.Manager{*one}, explain.Unlisted{Err: err, Usual: true}
	}
	return nil, explain.Unlisted{Err: err}
}

// coreSeen is what its lease says of Cluster API core.
func coreSeen(ctx context.Context, c client.Reader, now time.Time) explain.CoreLease {
	list := &coordinationv1.LeaseList{}
	if err := c.List(ctx, list, client.MatchingFields{"metadata.name": managerlease.CoreLeaseName}); err != nil {
		one := coordinationv1.Lease{}
		if c.Get(ctx, client.ObjectKey{Namespace: managerlease.CoreNamespace, Name: managerlease.CoreLeaseName}, &one) != nil {
			return explain.CoreLease{Err: err}
		}
		list.Items = []coordinationv1.Lease{one}
	}
	bindings := managerlease.OfCore.Bindings(ctx, c)
	core := explain.CoreLease{NoLease: len(list.Items) == 0}
	for i := range list.Items {
		spec, lease := list.Items[i].Spec, managerlease.Off{Manager: managerlease.Manager{Namespace: list.Items[i].Namespace}}
		bound, _, unknown := bindings.Bound(lease.Manager.Namespace)
		switch {
		case !bound:
			lease.Reason = managerlease.Unbound
		case unknown != "":
			lease.Reason, lease.Manager.Unverified = managerlease.Unverified, unknown
		}
		if lease.Reason != "" {
			core.Leases = append(core.Leases, lease)
			continue
		}
		if spec.RenewTime == nil {
			continue
		}
		end := spec.RenewTime.Add(time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second)
		if ptr.Deref(spec.HolderIdentity, "") == "" {
			end = spec.RenewTime.Time // given back
		}
		core.Alive = core.Alive || now.Before(end)
		if end.After(core.Gone) {
			core.Gone = end
		}
	}
	if core.Alive {
		return explain.CoreLease{Alive: true}
	}
	return core
}

// checkSeen is what is known of one check.
func checkSeen(ctx context.Context, c client.Reader, check *clusterv1.MachineHealthCheck) explain.ClaimedCheck {
	f := explain.ClaimedCheck{Check: check, Underway: map[explain.Remediator][]string{}, Unread: map[explain.ClaimPart]error{}}
	f.Writer, f.Written = history.PausedBy(check)
	cluster := &clusterv1.Cluster{}
	err := c.Get(ctx, client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName}, cluster)
	switch {
	case err == nil:
		f.Cluster = cluster
	case !apierrors.IsNotFound(err):
		f.Cluster, f.Unread[explain.ItsCluster] = &clusterv1.Cluster{}, err // it may well be there
	}
	f.Labels = labelsSeen(ctx, c, check, f.Cluster, err)
	machines, err := machinesOf(ctx, c, check)
	if err != nil {
		f.Unread[explain.ItsMachines] = err
		return f
	}
	requests, err := requestsOf(ctx, c, check)
	if err != nil {
		f.Unread[explain.ItsRequests] = err
	}
	for i := range machines {
		if by, is := remediatorOf(check, &machines[i], requests[machines[i].Name]); is {
			f.Underway[by] = append(f.Underway[by], machines[i].Name)
		}
	}
	return f
}

// labelsSeen is what the labels of the Cluster and of the Namespace say of a check. A Cluster that does not exist has none; unread is why it was not read.
func labelsSeen(ctx context.Context, c client.Reader, check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster, unread error) decide.Facts {
	if unread != nil {
		cluster = nil
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	known := c.Get(ctx, client.ObjectKey{Name: check.Namespace}, namespace) == nil // else that counts only if the claim is one by its label, and is said then
	f := claims.FactsOf(check, cluster, namespace.Labels, known)
	if apierrors.IsNotFound(unread) {
		f.Cluster = decide.Absent
	}
	return f
}

// machinesOf are the machines that the check selects. An empty selector selects nothing. (Cluster API.)
func machinesOf(ctx context.Context, c client.Reader, check *clusterv1.MachineHealthCheck) ([]clusterv1.Machine, error) {
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read spec.selector: %w", err)
	}
	list := &clusterv1.MachineList{}
	if selector.Empty() {
		return nil, nil
	}
	if err := c.List(ctx, list, client.InNamespace(check.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list Machines in %s: %w", check.Namespace, err)
	}
	return slices.DeleteFunc(list.Items, func(m clusterv1.Machine) bool { return m.Spec.ClusterName != check.Spec.ClusterName }), nil
}

// requestsOf are the requests of the kind that the check makes, by name, which is that of their machine; none if it makes none.
func requestsOf(ctx context.Context, c client.Reader, check *clusterv1.MachineHealthCheck) (map[string]*remediationrequest.Metadata, error) {
	ref := check.Spec.Remediation.TemplateRef
	if !ref.IsDefined() {
		return nil, nil
	}
	kind := remediationrequest.KindOf(remediationrequest.TemplateKind(ref))
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.List(ctx, list, client.InNamespace(check.Namespace)); err != nil {
		return nil, fmt.Errorf("list %s in %s: %w", kind.Kind, check.Namespace, err)
	}
	byName := map[string]*remediationrequest.Metadata{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName, nil
}

// remediatorOf is who remediates a machine, and whether anybody does.
func remediatorOf(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine, req *remediationrequest.Metadata) (explain.Remediator, bool) {
	if req == nil {
		return explain.ByOwner, machinehealthcheck.OwnerAsked(m)
	}
	switch machinehealthcheck.OwnershipOf(check, m, req) {
	case machinehealthcheck.Own:
		return explain.ByCheck, true
	case machinehealthcheck.Adoptable:
		return explain.ByCore, true
	default:
		return explain.ByAnother, true
	}
}
