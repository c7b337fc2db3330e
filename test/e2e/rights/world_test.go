package rights

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

const (
	namespace     = "metal"
	controlPlanes = 1
	workers       = 4
	// template is the name of a remediation template of either kind.
	template = "reboot"
	// agentTemplate is that of the remediator that brings its rights along.
	agentTemplate = "self-node-remediation-automatic-strategy-template"
)

var cluster *clusterv1.Cluster

// strategy is as short as the API allows.
var strategy = infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 100}

// build makes the cluster, whose kubeconfig points to the very API server that it is an object of.
func build(ctx context.Context) {
	GinkgoHelper()
	there, err := plane.GrantWorkloadUser(ctx)
	Expect(err).NotTo(HaveOccurred())
	cluster = builders.Cluster(namespace, "itself")
	key := client.ObjectKeyFromObject(cluster)
	Expect(provider.Serve(key, plane.Config())).To(Succeed())
	objects := []client.Object{builders.Namespace(namespace), rig.SharedKubeconfigSecret(key, plane, there), builders.Metal3Cluster(cluster), cluster}
	objects = append(objects, builders.BareMetalHosts(namespace, "host", controlPlanes+workers+1)...)
	objects = append(objects, builders.ControlPlane(cluster, controlPlanes)...)
	Expect(builders.Apply(ctx, here, append(objects, builders.Workers(cluster, "workers", workers)...)...)).To(Succeed())
	allWell(ctx)
}

// allWell waits until every machine runs and every node of them is ready.
func allWell(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &clusterv1.MachineList{}
		g.Expect(here.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(controlPlanes + workers))
		for i := range list.Items {
			g.Expect(list.Items[i].Status.Phase).To(Equal(string(clusterv1.MachinePhaseRunning)), list.Items[i].Name)
			g.Expect(ready(ctx, list.Items[i].Name)()).To(Equal(corev1.ConditionTrue), list.Items[i].Name)
		}
	}).Should(Succeed())
}

func workerNames(ctx context.Context) []string {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(here.List(ctx, list, client.InNamespace(namespace), client.HasLabels{clusterv1.MachineDeploymentNameLabel})).To(Succeed())
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// ready is the status of a node's condition Ready; empty if there is no such node.
func ready(ctx context.Context, name string) func() corev1.ConditionStatus {
	return func() corev1.ConditionStatus {
		node := &corev1.Node{}
		if err := here.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			Expect(client.IgnoreNotFound(err)).To(Succeed())
			return ""
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status
			}
		}
		return ""
	}
}

// silence hangs the kubelet of a machine.
func silence(name string) {
	GinkgoHelper()
	kubelet := provider.Kubelet(client.ObjectKey{Namespace: namespace, Name: name})
	Expect(kubelet).NotTo(BeNil(), name)
	kubelet.Stop()
}

// checked makes a check of machines, for as long as the spec runs.
func checked(ctx context.Context, name string, edits ...func(*clusterv1.MachineHealthCheck)) *clusterv1.MachineHealthCheck {
	GinkgoHelper()
	check := builders.MachineHealthCheck(cluster, name, append([]func(*clusterv1.MachineHealthCheck){
		builders.Claimed, builders.Patience(2 * time.Second),
	}, edits...)...)
	Expect(builders.Apply(ctx, here, check)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, check))).To(Succeed()) })
	return check
}

// ours and theirs are the two kinds of remediations that kubemend carries out.
func ours() client.Object {
	t := &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: template}}
	t.Spec.Template.Spec.Strategy = &strategy
	return t
}

func theirs() client.Object {
	t := &infrav1.Metal3RemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: template}}
	t.Spec.Template.Spec.Strategy = &strategy
	return t
}

// requested waits for a request.
func requested(ctx context.Context, request client.Object, where, name string) {
	GinkgoHelper()
	Eventually(func() error { return here.Get(ctx, client.ObjectKey{Namespace: where, Name: name}, request) }).Should(Succeed())
}

// gone waits until there is no such object.
func gone(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Eventually(func() bool {
		err := here.Get(ctx, client.ObjectKeyFromObject(object), object)
		return err != nil && client.IgnoreNotFound(err) == nil
	}).Should(BeTrue())
}

// stray starts a node that no machine has, for as long as the spec runs.
func stray(ctx context.Context, name string, labels, annotations map[string]string) *simulator.Kubelet {
	GinkgoHelper()
	kubelet := simulator.NewKubelet(here, simulator.KubeletOptions{Node: name, Labels: labels})
	kubelet.Start()
	Eventually(ready(ctx, name)).Should(Equal(corev1.ConditionTrue))
	for key, value := range annotations {
		annotate(ctx, name, key, value)
	}
	DeferCleanup(func(ctx SpecContext) {
		kubelet.Stop()
		Expect(here.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	})
	return kubelet
}

func annotate(ctx context.Context, node, key, value string) {
	GinkgoHelper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	Expect(here.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// watched makes a check of the nodes with a label. While one of them is being remediated it cannot be deleted.
func watched(ctx context.Context, name string, selector map[string]string) *nhcv1.NodeHealthCheck {
	GinkgoHelper()
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	check.Spec.Selector.MatchLabels = selector
	check.Spec.UnhealthyConditions = []nhcv1.UnhealthyCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Duration: metav1.Duration{Duration: 2 * time.Second},
	}}
	check.Spec.RemediationTemplate = &corev1.ObjectReference{
		APIVersion: agent.GroupVersion().String(), Kind: agent.Kind + "Template", Namespace: metav1.NamespaceDefault, Name: agentTemplate,
	}
	Eventually(func() error { return here.Create(ctx, check) }).Should(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Eventually(func() error { return client.IgnoreNotFound(here.Delete(ctx, check)) }).Should(Succeed())
	})
	return check
}
