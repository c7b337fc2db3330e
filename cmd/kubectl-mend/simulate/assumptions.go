package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// assumptions are those about the managers, and about what they can read.
func (s *engine) assumptions(ctx context.Context) ([]string, error) {
	all := []string{s.managers.whose}
	ofMachines, err := s.leftOutMachineChecks(ctx)
	if err != nil {
		return nil, err
	}
	ofNodes, err := s.leftOutNodes(ctx)
	if err != nil {
		return nil, err
	}
	unread, err := s.unreadRemediations(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.Concat(all, ofMachines, ofNodes, unread)
	for _, cluster := range s.snapshot.Workloads() {
		if why, _, unseen := s.snapshot.Unseen(cluster); unseen {
			all = append(all, fmt.Sprintf("The nodes of cluster %s are unknown, and stay so: %s", cluster, why))
		}
	}
	return all, nil
}

// leftOutMachineChecks says which MachineHealthChecks are not simulated.
func (s *engine) leftOutMachineChecks(ctx context.Context) ([]string, error) {
	checks := &clusterv1.MachineHealthCheckList{}
	if err := s.client.List(ctx, checks, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return nil, fmt.Errorf("list MachineHealthChecks: %w", err)
	}
	var all, unmanaged []string
	elsewhere := false
	for i := range checks.Items {
		switch check := &checks.Items[i]; {
		case !s.question.simulates(check):
			elsewhere = true
		case s.managerOf(check) == nil:
			unmanaged = append(unmanaged, client.ObjectKeyFromObject(check).String())
		}
	}
	if len(unmanaged) > 0 {
		more := ""
		if n := len(unmanaged) - mostNames; n > 0 {
			unmanaged, more = unmanaged[:mostNames], fmt.Sprintf(" and %d more", n)
		}
		all = append(all, fmt.Sprintf("No manager reconciles these MachineHealthChecks, which are not simulated: %s%s", strings.Join(unmanaged, ", "), more))
	}
	if elsewhere {
		all = append(all, "MachineHealthChecks of other namespaces are not simulated (-A)")
	}
	return all, nil
}

// unreadRemediations says which remediations are not simulated since their templates, or the requests that there are, could not be read.
func (s *engine) unreadRemediations(ctx context.Context) ([]string, error) {
	kinds, err := s.requestKinds(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, kind := range kinds {
		for _, name := range []string{kind.Kind + remediationrequest.TemplateSuffix, kind.Kind} {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(name + "List"))
			if err := s.client.List(ctx, list, client.UnsafeDisableDeepCopy); errors.Is(err, explain.ErrUnread) {
				all = append(all, fmt.Sprintf("%ss are neither requested nor simulated, since they or their templates could not be read: %v", kind.Kind, err))
				break
			}
		}
	}
	return all, nil
}

// leftOutNodes says which NodeHealthChecks, and which nodes of those that they select, are not simulated.
func (s *engine) leftOutNodes(ctx context.Context) ([]string, error) {
	checks, nodes := &nhcv1.NodeHealthCheckList{}, &corev1.NodeList{}
	for kind, list := range map[string]client.ObjectList{"NodeHealthChecks": checks, "nodes": nodes} {
		if err := s.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
			return nil, fmt.Errorf("list %s: %w", kind, err)
		}
	}
	if len(checks.Items) == 0 {
		return nil, nil
	}
	if because := s.managers.unserved(crdgate.NodeCheckCRD); because != "" {
		return []string{"kubemend does not act on NodeHealthChecks, which are not simulated: " + because}, nil
	}
	var all []string
	for i := range nodes.Items {
		namespace := nodes.Items[i].Annotations[clusterv1.ClusterNamespaceAnnotation]
		if namespace == "" {
			continue
		}
		err := s.client.List(ctx, &clusterv1.MachineList{}, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
		if !errors.Is(err, explain.ErrUnread) {
			continue
		}
		why := fmt.Sprintf("Nodes whose Machines are in namespace %s are left alone, since these could not be read: %v", namespace, err)
		if !slices.Contains(all, why) {
			all = append(all, why)
		}
	}
	return all, nil
}
