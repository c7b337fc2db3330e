package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
			all = append(all, fmt.Sprintf("The nodes of cluster %s are unknown, and stay so: %s", cluster, why))
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
		all = append(all, "No manager reconciles these MachineHealthChecks, which are not simulated: "+firstOf(unmanaged))
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
			all = append(all, fmt.Sprintf("Nodes whose Machines are in namespace %s are left alone, since these could not be read: %v", namespace, err))
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
				all = append(all, fmt.Sprintf("%ss are neither requested nor simulated, since they or their templates could not be read: %v", kind.Kind, err))
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
		back := "do not come back by themselves (--for)"
		if o.For > 0 {
			back = fmt.Sprintf("come back after %s (--for)", brief(o.For))
		}
		all = append(all, fmt.Sprintf("What --fail %s selects turns Ready=Unknown %s after the beginning (--fail-at), and its nodes %s",
			o.Fail, brief(o.FailAt), back))
	}
	return append(all, fmt.Sprintf("An owner that is asked to remediate a machine deletes it, which takes %s (--deletion-takes), and makes a new one "+
		"at once, whose node is Ready %s later (--replacement-takes); a control plane waits until the old one is gone, and replaces one after the other",
		brief(o.DeletionTakes), brief(o.ReplacementTakes)))
}

// remediations says what is assumed of hosts and of remediators.
func (o *environment) remediations() []string {
	var all, others []string
	if len(o.kindsOnMetal()) > 0 {
		boots := fmt.Sprintf("its node is Ready %s later (--boot-takes)", brief(o.BootTakes))
		if o.Hard {
			boots = "its node does not come back from that if it has failed (--hard)"
		}
		all = append(all, fmt.Sprintf("A BareMetalHost is off %s after it is asked to power off, and on again %s after it is released; %s",
			brief(switchingOff), brief(switchingOn), boots),
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
		effect := "never bring a node back"
		if o.RemediationTakes > 0 {
			effect = "bring the node back within " + brief(o.RemediationTakes)
		}
		all = append(all, fmt.Sprintf("The remediators of %s %s (--remediation-takes)", strings.Join(others, ", "), effect))
	}
	return all
}

// mostNames is how many names stand in one sentence; the JSON has all.
const mostNames = 20

// firstOf are the first names, and how many more there are.
func firstOf(names []string) string {
	if more := len(names) - mostNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

// brief is a duration as people write it: 10m, not 10m0s.
func brief(d time.Duration) string {
	s := d.String()
	for _, zero := range []struct{ after, is string }{{"m", "0s"}, {"h", "0m"}} {
		if strings.HasSuffix(s, zero.after+zero.is) {
			s = strings.TrimSuffix(s, zero.is)
		}
	}
	return s
}
