package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// assumptions are what is assumed of the managers and of everybody else, each with its flag, and what is not simulated.
func (o *environment) assumptions(ctx context.Context) []string {
	all := slices.Concat([]string{o.managers.whose}, o.leftOutMachineChecks(), o.leftOutNodes(ctx), o.unreadRemediations(ctx))
	for _, cluster := range o.snapshot.Workloads() {
		if why, _, unseen := o.snapshot.Unseen(cluster); unseen {
			all = append(all, fmt.Sprintf("The nodes of cluster %s are unknown, and stay so: %s", cluster.String(), why))
		}
	}
	return slices.Concat(all, o.faultsAndOwners(), o.remediations())
}

// leftOutMachineChecks says which MachineHealthChecks are not simulated.
func (s *engine) leftOutMachineChecks() []string {
	var all, unmanaged []string
	elsewhere := false
	for _, check := range snapshot.All[clusterv1.MachineHealthCheck](s.snapshot, "") {
		switch {
		case !s.question.simulates(check):
			elsewhere = true
		case s.managerOf(check) == nil:
			unmanaged = append(unmanaged, client.ObjectKeyFromObject(check).String())
		}
	}
	if len(unmanaged) > 0 {
		all = append(all, "No manager reconciles these MachineHealthChecks, which are not simulated: "+explain.FirstOf(unmanaged))
	}
	if elsewhere {
		all = append(all, "MachineHealthChecks of other namespaces are not simulated (-A)")
	}
	return all
}

// leftOutNodes says which NodeHealthChecks, and which nodes of those that they select, are not simulated.
func (s *engine) leftOutNodes(ctx context.Context) []string {
	if len(snapshot.All[nhcv1.NodeHealthCheck](s.snapshot, "")) == 0 {
		return nil
	}
	if because := s.managers.unserved(crdgate.NodeCheckCRD); because != "" {
		return []string{"kubemend does not act on NodeHealthChecks, which are not simulated: " + because}
	}
	var all []string
	for _, node := range snapshot.All[corev1.Node](s.snapshot, "") {
		namespace := node.Annotations[clusterv1.ClusterNamespaceAnnotation]
		if namespace == "" {
			continue
		}
		if err := s.unread(ctx, machineKind, namespace); err != nil {
			all = append(all,
				fmt.Sprintf("Nodes whose Machines are in namespace %s are left alone, since these could not be read: %v", namespace, err))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// unread is why the objects of a kind were not read; nil if they were.
func (s *engine) unread(ctx context.Context, kind schema.GroupVersionKind, namespace string) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := s.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); errors.Is(err, explain.ErrUnread) {
		return err
	}
	return nil
}

// unreadRemediations says which remediations are not simulated since their templates, or the requests that there are, could not be read.
func (o *environment) unreadRemediations(ctx context.Context) []string {
	var all []string
	for _, kind := range o.kinds {
		template := kind.GroupVersion().WithKind(kind.Kind + remediationrequest.TemplateSuffix)
		for _, of := range []schema.GroupVersionKind{template, kind.GroupVersionKind} {
			if err := o.unread(ctx, of, ""); err != nil {
				all = append(all, fmt.Sprintf("%ss are neither requested nor simulated, since they or their templates "+
					"could not be read: %v", kind.Kind, err))
				break
			}
		}
	}
	return all
}

// faultsAndOwners says what is assumed of the nodes that fail and of the owners of machines.
func (o *environment) faultsAndOwners() []string {
	var all []string
	if o.Fail != "" {
		all = append(all, explain.FaultAssumed(o.Fail, o.FailCondition.String(), o.FailAt, o.For))
		if !o.hasRuleFor(o.FailCondition) {
			all = append(all, "No rule of a check matches "+o.FailCondition.String()+
				", so no check notices it: name with --fail-condition what a rule matches")
		}
	}
	return append(all, fmt.Sprintf("An owner that is asked to remediate a machine deletes it, which takes %s (--deletion-takes), and "+
		"makes a new one at once, whose node is Ready %s later (--replacement-takes); a control plane waits until the old one is gone, "+
		"and replaces one after the other", explain.Brief(o.DeletionTakes), explain.Brief(o.ReplacementTakes)))
}

// hasRuleFor reports whether a rule of any check matches a condition of a node.
func (o *environment) hasRuleFor(is NodeCondition) bool {
	for _, check := range snapshot.All[clusterv1.MachineHealthCheck](o.snapshot, "") {
		for _, rule := range check.Spec.Checks.UnhealthyNodeConditions {
			if (NodeCondition{rule.Type, rule.Status}) == is {
				return true
			}
		}
	}
	for _, check := range snapshot.All[nhcv1.NodeHealthCheck](o.snapshot, "") {
		for _, rule := range check.Spec.UnhealthyConditions {
			if (NodeCondition{rule.Type, rule.Status}) == is {
				return true
			}
		}
	}
	return false
}

// remediations says what is assumed of hosts and of remediators.
func (o *environment) remediations() []string {
	var all, others []string
	if len(o.kindsOnMetal()) > 0 {
		all = append(all, explain.HostsAssumed(switchingOff, switchingOn, o.BootTakes, o.Hard),
			"Nodes have no pods: they are drained at once")
	}
	for _, k := range o.kinds {
		if because := o.managers.unserved(crdOf(k.GroupVersionKind)); because != "" {
			all = append(all, fmt.Sprintf("kubemend does not carry out requests of the kind %s: %s", k.Kind, because))
		}
		if !k.ours {
			others = append(others, k.Kind)
		}
	}
	if len(others) > 0 {
		all = append(all, explain.RemediatorsAssumed(others, o.RemediationTakes))
	}
	return all
}
