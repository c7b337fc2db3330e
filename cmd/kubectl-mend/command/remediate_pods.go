package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const namedPods = 10

// hardPowerOff says what a power cycle of a machine's host does to the pods on its node: no drain comes before it, and no
// PodDisruptionBudget is asked.
func (b *byHand) hardPowerOff(ctx context.Context, machine *clusterv1.Machine) string {
	const says = "The power-off is hard: no pod is drained before it, and no PodDisruptionBudget is asked"
	node := machine.Status.NodeRef.Name
	if node == "" {
		return says
	}
	pods, unlisted, err := b.podsOn(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}, node)
	switch {
	case err != nil:
		return fmt.Sprintf("%s. Which pods are on node %s is not known: %s", says, node, err)
	case len(pods) == 0:
		return fmt.Sprintf("%s. Node %s has no pods but those of DaemonSets", says, node)
	case len(pods) > namedPods:
		pods = append(pods[:namedPods:namedPods], fmt.Sprintf("and %d more", len(pods)-namedPods))
	}
	return fmt.Sprintf("%s. Pods on node %s: %s%s", says, node, strings.Join(pods, ", "), unlisted)
}

// podsOn are the pods that a drain would evict from a node, by name, each with the PodDisruptionBudgets that select it; unlisted says that
// these may not be listed, as by kubemend's own account in a workload cluster (docs/reference/rights.md).
func (b *byHand) podsOn(ctx context.Context, cluster client.ObjectKey, node string) (names []string, unlisted string, err error) {
	reader, err := b.workload(ctx, cluster)
	if err != nil {
		return nil, "", err
	}
	pods, budgets := &corev1.PodList{}, &policyv1.PodDisruptionBudgetList{}
	if err := reader.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, "", fmt.Errorf("list pods: %w", err)
	}
	if err := reader.List(ctx, budgets); apierrors.IsForbidden(err) {
		unlisted = "; their PodDisruptionBudgets may not be listed"
	} else if err != nil {
		return nil, "", fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	names = make([]string, 0, len(pods.Items))
	for i := range pods.Items {
		pod := &pods.Items[i]
		_, static := pod.Annotations[corev1.MirrorPodAnnotationKey]
		owner := metav1.GetControllerOf(pod)
		finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !static && !finished && (owner == nil || owner.Kind != "DaemonSet") {
			names = append(names, pod.Namespace+"/"+pod.Name+budgetsOf(pod, budgets.Items))
		}
	}
	slices.Sort(names)
	return names, unlisted, nil
}

// budgetsOf says in parentheses which PodDisruptionBudgets select a pod; empty if none does.
func budgetsOf(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) string {
	var says strings.Builder
	for i := range budgets {
		budget := &budgets[i]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && budget.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			fmt.Fprintf(&says, " (PodDisruptionBudget %s allows %d)", budget.Name, budget.Status.DisruptionsAllowed)
		}
	}
	return says.String()
}
