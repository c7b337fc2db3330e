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

// assumptions are those about the managers, and about what they see.
func (s *engine) assumptions(ctx context.Context) ([]string, error) {
	all := []string{s.played.whose}
	ofMachines, err := s.unplayedMachineChecks(ctx)
	if err != nil {
		return nil, err
	}
	ofNodes, err := s.unplayedNodes(ctx)
	if err != nil {
		return nil, err
	}
	unread, err := s.unreadRemedies(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.Concat(all, ofMachines, ofNodes, unread)
	for _, cluster := range s.world.Workloads() {
		if why, _, unseen := s.world.Unseen(cluster); unseen {
			all = append(all, fmt.Sprintf("The nodes of cluster %s are out of sight, and stay so: %s", cluster, why))
		}
	}
	return all, nil
}

// unplayedMachineChecks says which MachineHealthChecks are not played.
func (s *engine) unplayedMachineChecks(ctx context.Context) ([]string, error) {
	checks := &clusterv1.MachineHealthCheckList{}
	if err := s.client.List(ctx, checks, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return nil, fmt.Errorf("list MachineHealthChecks: %w", err)
	}
	var all, unwatched []string
	elsewhere := false
	for i := range checks.Items {
		switch check := &checks.Items[i]; {
		case !s.question.plays(check):
			elsewhere = true
		case s.managerOf(check) == nil:
			unwatched = append(unwatched, client.ObjectKeyFromObject(check).String())
		}
	}
	if len(unwatched) > 0 {
		more := ""
		if n := len(unwatched) - mostNames; n > 0 {
			unwatched, more = unwatched[:mostNames], fmt.Sprintf(" and %d more", n)
		}
		all = append(all, fmt.Sprintf("No manager looks at these MachineHealthChecks, which are not played: %s%s", strings.Join(unwatched, ", "), more))
	}
	if elsewhere {
		all = append(all, "MachineHealthChecks of other namespaces are not played (-A)")
	}
	return all, nil
}

// unreadRemedies says which remediations are not played since their templates, or the requests that there are, could not be read.
func (s *engine) unreadRemedies(ctx context.Context) ([]string, error) {
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
				all = append(all, fmt.Sprintf("%ss and their templates are not made and not played, since they could not be read: %v", kind.Kind, err))
				break
			}
		}
	}
	return all, nil
}

// unplayedNodes says which NodeHealthChecks, and which nodes of those that they select, are not played.
func (s *engine) unplayedNodes(ctx context.Context) ([]string, error) {
	checks, nodes := &nhcv1.NodeHealthCheckList{}, &corev1.NodeList{}
	for kind, list := range map[string]client.ObjectList{"NodeHealthChecks": checks, "nodes": nodes} {
		if err := s.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
			return nil, fmt.Errorf("list %s: %w", kind, err)
		}
	}
	if len(checks.Items) == 0 {
		return nil, nil
	}
	if because := s.played.unserved(crdgate.NodeCheckCRD); because != "" {
		return []string{"kubemend does not act on NodeHealthChecks, which are not played: " + because}, nil
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
