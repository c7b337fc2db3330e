package capacity

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

// The kinds without which less is known of the pods that a drain waits for.
const (
	drainRules = "MachineDrainRules"
	budgets    = "PodDisruptionBudgets"
	nodes      = "Nodes"
)

// draining is what decides which pods of a node a drain waits for, besides the pods themselves.
type draining struct {
	budgets []policyv1.PodDisruptionBudget
	// rules are those that apply to the machine, in the order in which they are asked; namespaces are the labels of the namespaces that they select by.
	rules      []clusterv1.MachineDrainRule
	namespaces map[string]labels.Set
	// unreachable reports that the kubelet of the node does not answer: no pod that is being deleted is waited for since past then.
	unreachable bool
	past        time.Time
}

// skippedAfter is how long a pod of an unreachable node is waited for after its grace period. (Cluster API, core/reconcilers/machine, drainNode; it counts
// whole seconds.)
const skippedAfter = 2 * time.Second

// readPods reads the pods that the drain waits for. Without budgets or rules they are shown all the same, and what is missing is noted.
func (r *reading) readPods(ctx context.Context, reader client.Reader) error {
	pods, d, err := r.draining(ctx, reader)
	if err != nil {
		return err
	}
	all := &policyv1.PodDisruptionBudgetList{}
	if err := reader.List(ctx, all); err != nil {
		r.facts.Unread = append(r.facts.Unread, budgets)
	}
	d.budgets = all.Items
	r.facts.Old.Deletion.Pods, r.facts.Old.Deletion.PodsRead = d.podsOf(pods), true
	return nil
}

// draining reads all pods of the node, and what decides which of them a drain skips.
func (r *reading) draining(ctx context.Context, reader client.Reader) ([]corev1.Pod, *draining, error) {
	pods, node, d := &corev1.PodList{}, &corev1.Node{}, &draining{past: r.facts.Now.Add(-skippedAfter)}
	if err := reader.List(ctx, pods, client.MatchingFields{"spec.nodeName": r.facts.Old.Node}); err != nil {
		return nil, nil, err
	}
	if err := client.IgnoreNotFound(reader.Get(ctx, client.ObjectKey{Name: r.facts.Old.Node}, node)); err != nil {
		r.facts.Unread = append(r.facts.Unread, nodes)
	}
	d.unreachable = slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
	return pods.Items, d, r.readDrainRules(ctx, reader, d)
}

// readDrainRules reads the rules that apply to the machine, and the namespaces that they select pods by. Where namespaces
// cannot be read that a rule selects by, no rule is known.
func (r *reading) readDrainRules(ctx context.Context, reader client.Reader, d *draining) error {
	list := &clusterv1.MachineDrainRuleList{}
	err := r.Management.List(ctx, list, client.InNamespace(r.Namespace))
	switch {
	case meta.IsNoMatchError(err): // a Cluster API without them
		return nil
	case err != nil:
		return r.unread(drainRules, err)
	}
	d.rules = slices.DeleteFunc(list.Items, func(rule clusterv1.MachineDrainRule) bool { return !r.ruleApplies(&rule) })
	slices.SortFunc(d.rules, func(a, b clusterv1.MachineDrainRule) int { return strings.Compare(a.Name, b.Name) })
	if !slices.ContainsFunc(d.rules, selectsNamespaces) {
		return nil
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := reader.List(ctx, all); err != nil {
		r.facts.Unread, d.rules = append(r.facts.Unread, drainRules), nil
		return nil //nolint:nilerr // it is in Unread
	}
	d.namespaces = map[string]labels.Set{}
	for i := range all.Items {
		d.namespaces[all.Items[i].Name] = all.Items[i].Labels
	}
	return nil
}

// ruleApplies reports whether a rule is about the machine. (Cluster API, core/reconcilers/machine/drain/drain.go, machineDrainRuleAppliesToMachine.)
func (r *reading) ruleApplies(rule *clusterv1.MachineDrainRule) bool {
	cluster := labels.Set{}
	if r.cluster != nil {
		cluster = r.cluster.Labels
	}
	return len(rule.Spec.Machines) == 0 || slices.ContainsFunc(rule.Spec.Machines, func(s clusterv1.MachineDrainRuleMachineSelector) bool {
		return selects(s.Selector, r.old.Labels) && selects(s.ClusterSelector, cluster)
	})
}

func selectsNamespaces(rule clusterv1.MachineDrainRule) bool {
	return slices.ContainsFunc(rule.Spec.Pods, func(s clusterv1.MachineDrainRulePodSelector) bool { return s.NamespaceSelector != nil })
}

// selects reports whether s selects what has these labels. One that is not there, or empty, selects all.
func selects(s *metav1.LabelSelector, has map[string]string) bool {
	if s == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && (selector.Empty() || selector.Matches(labels.Set(has)))
}

// podsOf are those of all pods of a node that the drain waits for: not those of a DaemonSet or of the kubelet, nor those that a label or a rule skips.
// (Cluster API, core/reconcilers/machine/drain/filters.go.) Those that nothing but a person frees come first, those that are evicted after others last.
func (d *draining) podsOf(pods []corev1.Pod) []capacity.Pod {
	var all []capacity.Pod
	var orders []int32
	first := int32(math.MaxInt32)
	for i := range pods {
		p := &pods[i]
		behaviour, order := d.behaviourOf(p)
		if behaviour == clusterv1.MachineDrainRuleDrainBehaviorSkip {
			continue
		}
		is := capacity.Pod{Namespace: p.Namespace, Name: p.Name, Deleting: moment(p.DeletionTimestamp), Finalizers: p.Finalizers}
		is.Completes = behaviour == clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted && !complete(p)
		is.Budget = blocking(d.budgets, p)
		is.Grace = is.Deleting // the API server sets it to the end of the grace period
		all, orders, first = append(all, is), append(orders, order), min(first, order)
	}
	for i := range all {
		all[i].Later = orders[i] > first
	}
	slices.SortFunc(all, func(a, b capacity.Pod) int {
		return cmp.Or(cmp.Compare(turn(a), turn(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// claimsOfSkipped are the claims of those pods that the drain leaves on the node.
func (d *draining) claimsOfSkipped(pods []corev1.Pod) map[client.ObjectKey]bool {
	claims := map[client.ObjectKey]bool{}
	for i := range pods {
		if behaviour, _ := d.behaviourOf(&pods[i]); behaviour != clusterv1.MachineDrainRuleDrainBehaviorSkip {
			continue
		}
		for _, v := range pods[i].Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				claims[client.ObjectKey{Namespace: pods[i].Namespace, Name: v.PersistentVolumeClaim.ClaimName}] = true
			}
		}
	}
	return claims
}

// turn is the place of a pod among those that are named.
func turn(p capacity.Pod) int {
	switch {
	case p.Later:
		return 2
	case p.Blocked():
		return 0
	}
	return 1
}

// behaviourOf is what the drain does with p, and when: lower orders come first. The label of a pod counts before the rules, and
// of these the first that applies.
func (d *draining) behaviourOf(p *corev1.Pod) (behaviour clusterv1.MachineDrainRuleDrainBehavior, order int32) {
	switch label := p.Labels[clusterv1.PodDrainLabel]; {
	case !drained(p), d.unreachable && p.DeletionTimestamp != nil && !p.DeletionTimestamp.After(d.past):
		return clusterv1.MachineDrainRuleDrainBehaviorSkip, 0
	case strings.EqualFold(label, string(clusterv1.MachineDrainRuleDrainBehaviorSkip)):
		return clusterv1.MachineDrainRuleDrainBehaviorSkip, 0
	case strings.EqualFold(strings.Replace(label, "-", "", 1), string(clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted)):
		return clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted, 0
	}
	for i := range d.rules {
		rule := &d.rules[i].Spec
		applies := len(rule.Pods) == 0 || slices.ContainsFunc(rule.Pods, func(s clusterv1.MachineDrainRulePodSelector) bool {
			return selects(s.Selector, p.Labels) && selects(s.NamespaceSelector, d.namespaces[p.Namespace])
		})
		if applies && rule.Drain.Behavior == clusterv1.MachineDrainRuleDrainBehaviorDrain {
			return rule.Drain.Behavior, ptr.Deref(rule.Drain.Order, 0)
		}
		if applies {
			return rule.Drain.Behavior, 0
		}
	}
	return clusterv1.MachineDrainRuleDrainBehaviorDrain, 0
}

// drained reports whether a drain waits for p. One that is complete is evicted like others, and stays as long as it has a finalizer.
func drained(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirror && (complete(p) || owner == nil || owner.Kind != "DaemonSet")
}

func complete(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// blocking is the budget that allows no disruption of p; empty if none forbids that. Of pods that do not run yet, or not any more, none is asked.
func blocking(all []policyv1.PodDisruptionBudget, p *corev1.Pod) string {
	if complete(p) || p.Status.Phase == corev1.PodPending {
		return ""
	}
	for i := range all {
		b := &all[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && b.Namespace == p.Namespace && selector.Matches(labels.Set(p.Labels)) && !allows(b, p) {
			return b.Name
		}
	}
	return ""
}

// allows reports whether b allows the eviction of p. One that is not ready may go while enough others are, or always. (Kubernetes,
// pkg/registry/core/pod/storage, eviction.go.)
func allows(b *policyv1.PodDisruptionBudget, p *corev1.Pod) bool {
	is := &b.Status
	ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	always := ptr.Deref(b.Spec.UnhealthyPodEvictionPolicy, policyv1.IfHealthyBudget) == policyv1.AlwaysAllow
	return is.DisruptionsAllowed > 0 || !ready && (always || is.CurrentHealthy >= is.DesiredHealthy && is.DesiredHealthy > 0)
}
