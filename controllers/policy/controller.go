package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// +kubebuilder:rbac:groups=kubemend.io,resources=remediationpolicies;remediationoverrides,verbs=list;watch
// +kubebuilder:rbac:groups=kubemend.io,resources=remediationpolicies/status;remediationoverrides/status,verbs=patch
// +kubebuilder:rbac:groups=kubemend.io,resources=remediationoverrides,verbs=delete
// +kubebuilder:rbac:groups=core,resources=namespaces,verbs=list

const (
	// statusEvery is how often the status of a policy is written at most.
	statusEvery = 10 * time.Second
	// mostGroups is how many groups a status lists.
	mostGroups = 64
	// namespacesEvery is how often the Namespaces that policies select are listed.
	namespacesEvery = time.Minute
)

// Reconciler passes RemediationPolicies and RemediationOverrides to the ledger, and writes the ledger's counts into their status. It
// deletes overrides that ended long ago.
type Reconciler struct {
	Client client.Client
	Ledger *Ledger
	// Everywhere is the namespace whose policies apply to all namespaces.
	Everywhere string
	// Ahead returns how far the clock of the manager is ahead of the API server's.
	Ahead func() time.Duration
	// Live reads Namespaces from the API server, since few managers have a policy that selects them.
	Live client.Reader
}

type queue = workqueue.TypedRateLimitingInterface[rule.Ref]

// SetupWithManager adds r to mgr.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	of := func(kind string) handler.TypedEventHandler[client.Object, rule.Ref] {
		return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []rule.Ref {
			return []rule.Ref{{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}}
		})
	}
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	err := builder.TypedControllerManagedBy[rule.Ref](mgr).
		Named("remediationpolicy").
		Watches(&mendv1.RemediationPolicy{}, of("RemediationPolicy"), changed).
		Watches(&mendv1.RemediationOverride{}, of("RemediationOverride"), changed).
		WatchesRawSource(source.TypedFunc[rule.Ref](func(_ context.Context, q queue) error {
			q.Add(rule.Ref{}) // so that the ledger learns it if there are no policies
			r.Ledger.mu.Lock()
			defer r.Ledger.mu.Unlock()
			r.Ledger.changed = func(policy rule.Ref) { q.AddAfter(policy, statusEvery) }
			return nil
		})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller of RemediationPolicies: %w", err)
	}
	return nil
}

// Reconcile reads all policies and overrides, passes them to the ledger if they differ, and writes the status of ref.
func (r *Reconciler) Reconcile(ctx context.Context, ref rule.Ref) (ctrl.Result, error) {
	list, overrides := &mendv1.RemediationPolicyList{}, &mendv1.RemediationOverrideList{}
	if err := errors.Join(r.Client.List(ctx, list), r.Client.List(ctx, overrides)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list RemediationPolicies and RemediationOverrides: %w", err)
	}
	now := r.Ledger.Clock.Now().Add(-max(r.Ahead(), 0)) // an override ends by the clock of the API server
	var policies []*Policy
	var named client.Object
	var next time.Time
	for i := range list.Items {
		policies = append(policies, Read(&list.Items[i], r.Everywhere))
		if policies[i].Ref == ref {
			named = &list.Items[i]
		}
	}
	for i := range overrides.Items {
		object := &overrides.Items[i]
		p, active := ReadOverride(object, r.Everywhere, now)
		if active.Status == metav1.ConditionTrue {
			policies = append(policies, p)
		}
		if p.Ref == ref {
			named, next = object, object.Spec.Until.Time
			if !now.Before(next) {
				next = next.Add(overrideKept)
			}
			meta.SetStatusCondition(&object.Status.Conditions, active)
		}
	}
	again, errs := ctrl.Result{}, []error{}
	if !next.IsZero() {
		again.RequeueAfter = max(next.Sub(now), 0)
	}
	for _, p := range policies {
		if p.selects[0] != nil {
			again.RequeueAfter = min(cmp.Or(again.RequeueAfter, namespacesEvery), namespacesEvery)
			errs = append(errs, r.findNamespaces(ctx, p))
		}
	}
	if r.Ledger.differs(policies) {
		r.Ledger.Set(policies)
	}
	return again, errors.Join(append(errs, r.tell(ctx, named, now))...)
}

// tell writes the status of a policy or an override, or deletes an override that ended long ago; named is nil if the object is gone.
func (r *Reconciler) tell(ctx context.Context, named client.Object, now time.Time) error {
	var err error
	switch object := named.(type) {
	case *mendv1.RemediationPolicy:
		if before := object.DeepCopy(); r.Ledger.describe(object) && !equality.Semantic.DeepEqual(before.Status, object.Status) {
			err = r.Client.Status().Patch(ctx, object, client.MergeFrom(before))
		}
	case *mendv1.RemediationOverride:
		if now.Sub(object.Spec.Until.Time) >= overrideKept {
			err = r.Client.Delete(ctx, object, client.Preconditions{UID: &object.UID})
			break
		}
		before := &mendv1.RemediationOverride{}
		if err = r.Client.Get(ctx, client.ObjectKeyFromObject(object), before); err != nil {
			break
		}
		object.Status.Targets, object.Status.Blocked = r.Ledger.about(object)
		if !equality.Semantic.DeepEqual(before.Status, object.Status) {
			err = r.Client.Status().Patch(ctx, object, client.MergeFrom(before))
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of %T %s: %w", named, client.ObjectKeyFromObject(named), err)
	}
	return nil
}

// findNamespaces finds the namespaces that p selects by labels. If they cannot be listed, p keeps the namespaces that it had. A new policy
// is invalid until then and selects all namespaces, because it must not start without its limits.
func (r *Reconciler) findNamespaces(ctx context.Context, p *Policy) error {
	err := p.FindNamespaces(ctx, r.Live)
	if apierrors.IsForbidden(err) {
		p.Invalid, p.selectsNothing = "spec.selector.namespaces: the manager may not list Namespaces", true
		return nil
	}
	if err != nil {
		if p.namespaces = r.Ledger.namespacesOf(p); p.namespaces == nil {
			p.Invalid, p.selects[0] = "spec.selector.namespaces: Namespaces could not be listed yet", nil
		}
	}
	return err
}

// FindNamespaces lists the Namespaces that p selects by labels. Until then such a policy selects none.
func (p *Policy) FindNamespaces(ctx context.Context, c client.Reader) error {
	if p.selects[0] == nil {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := c.List(ctx, list, client.MatchingLabelsSelector{Selector: p.selects[0]}); err != nil {
		return fmt.Errorf("list Namespaces: %w", err)
	}
	p.namespaces = make(map[string]bool, len(list.Items))
	for i := range list.Items {
		p.namespaces[list.Items[i].Name] = true
	}
	return nil
}

// namespacesOf returns the namespaces that p selected when they were last found; nil if that was never, or in another generation of p.
func (l *Ledger) namespacesOf(p *Policy) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.policies[p.Ref]; known != nil && known.generation == p.generation {
		return known.namespaces
	}
	return nil
}

// differs reports whether the policies of the ledger differ in number, generation, validity or selected namespaces.
func (l *Ledger) differs(policies []*Policy) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.read || len(policies) != len(l.policies) || slices.ContainsFunc(policies, func(p *Policy) bool {
		known := l.policies[p.Ref]
		return known == nil || known.generation != p.generation || known.Invalid != p.Invalid || !maps.Equal(known.namespaces, p.namespaces)
	})
}

// describe sets the status of policy; false if the ledger does not have the policy.
func (l *Ledger) describe(policy *mendv1.RemediationPolicy) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.policies[rule.Ref{Kind: "RemediationPolicy", Namespace: policy.Namespace, Name: policy.Name}]
	if p == nil {
		return false
	}
	status := &policy.Status
	status.ObservedGeneration, status.Groups = p.generation, nil
	ungrouped := l.countSelected(p, status)
	now := l.Clock.Now()
	for _, g := range l.groups {
		if n := l.numbers(g, now); g.policy == p && n.unavailable+n.inFlight+n.waiting > 0 {
			of := mendv1.PolicyGroup{
				Limit: g.limit.Name, Group: g.Group, Targets: int32(n.targets), Unavailable: int32(n.unavailable),
				InFlight: int32(n.inFlight), Waiting: int32(n.waiting),
			}
			if n.waiting > 0 {
				of.Reason = g.reachedBy(n, now).reason
			}
			status.Groups = append(status.Groups, of)
		}
	}
	slices.SortFunc(status.Groups, func(a, b mendv1.PolicyGroup) int {
		return cmp.Or(-cmp.Compare(a.Waiting, b.Waiting), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Group, b.Group))
	})
	status.Groups = status.Groups[:min(len(status.Groups), mostGroups)]
	valid := metav1.Condition{Type: mendv1.PolicyValid, Status: metav1.ConditionTrue, Reason: mendv1.PolicyReadReason}
	switch {
	case p.selectsNothing:
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, mendv1.InvalidPolicyTargets,
			p.Invalid+". The policy selects nothing"
	case p.Invalid != "":
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, mendv1.InvalidPolicyReason,
			p.Invalid+". Until that is corrected, nothing that the policy selects is remediated"
	}
	grouped := metav1.Condition{Type: mendv1.PolicyGrouped, Status: metav1.ConditionTrue, Reason: mendv1.AllGroupedReason}
	if grouped.Message = ungrouped; ungrouped != "" {
		grouped.Status, grouped.Reason = metav1.ConditionFalse, mendv1.TargetsWithoutGroupReason
	}
	for _, cond := range []metav1.Condition{valid, grouped} {
		cond.ObservedGeneration, cond.LastTransitionTime = p.generation, metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, cond)
	}
	return true
}

// about returns how many targets an override is about, and how many remediations of these it blocks.
func (l *Ledger) about(override *mendv1.RemediationOverride) (targets, blocked int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.policies[rule.Ref{Kind: "RemediationOverride", Namespace: override.Namespace, Name: override.Name}]
	if p == nil {
		return 0, 0
	}
	var status mendv1.RemediationPolicyStatus
	l.countSelected(p, &status)
	if p.override.Action == mendv1.OverrideAllow {
		status.Waiting = 0
	}
	return status.Selected.Targets, status.Waiting
}

// countSelected counts what p selects, and returns a sentence about targets that a limit does not group; empty if there are none.
func (l *Ledger) countSelected(p *Policy, status *mendv1.RemediationPolicyStatus) string {
	status.Selected, status.InFlight, status.Waiting = mendv1.PolicySelected{}, 0, 0
	now, ungrouped := l.Clock.Now(), map[string]bool{}
	targets, flying, waiting := map[types.UID]bool{}, map[types.UID]bool{}, map[types.UID]bool{}
	count := func(e *entry) bool {
		if !slices.Contains(e.by, p) {
			return false
		}
		flying[e.UID] = flying[e.UID] || e.occupies(now) && !l.asksItself(e)
		return true
	}
	for check, entries := range l.checks {
		selects := false
		for _, e := range entries {
			if !count(e) {
				continue
			}
			selects, targets[e.UID] = isCheck(check.Kind), true
			waiting[e.UID] = waiting[e.UID] || e.waits
			in := 0
			for _, g := range e.groups {
				if g.policy == p {
					in++
				}
			}
			if in < len(p.limits) {
				ungrouped[strings.TrimPrefix(e.Namespace+"/"+e.Name, "/")] = true
			}
		}
		if selects {
			status.Selected.Checks++
		}
	}
	for _, e := range l.records {
		count(e)
	}
	is := func(_ types.UID, is bool) bool { return !is }
	maps.DeleteFunc(flying, is)
	maps.DeleteFunc(waiting, is)
	status.Selected.Targets, status.Selected.Ungrouped = int32(len(targets)), int32(len(ungrouped))
	status.InFlight, status.Waiting = int32(len(flying)), int32(len(waiting))
	if len(ungrouped) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(ungrouped))
	text := fmt.Sprintf("%d targets lack the label or field that a limit groups by, so the limit does not apply to them: ", len(names))
	return text + strings.Join(names[:min(len(names), 5)], ", ")
}
