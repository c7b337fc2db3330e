package api

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// forgets are the specs of docs/uninstall.md, step by step. The Deployment has pods that run nowhere; the manager that leaves
// is a process that believes to be in one of them.
func forgets(management *cluster) {
	It("has nothing of it after a teardown and the deletion of what kubectl applied", func(ctx SpecContext) {
		Expect(management.mentions(ctx)()).To(BeEmpty(), "what was installed before was removed")
		shipped := management.install(ctx, read(released(this, "kubemend-standalone.yaml")))
		writing := management.start(ctx, "claiming")
		for _, o := range suite.Manifest(filepath.Join("testdata", "objects.yaml")) {
			if o.GetKind() == "HostRemediation" {
				o.SetFinalizers([]string{mendv1.HostRemediationFinalizer})
			}
			management.apply(ctx, o, author)
		}
		check := claimedCheck()
		management.apply(ctx, check, author)
		writing.Kill()

		pod, manager := management.teardown(ctx)
		is, err := management.current(ctx, check)
		Expect(err).NotTo(HaveOccurred())
		Expect(is.GetAnnotations()).NotTo(HaveKey(clusterv1.PausedAnnotation))
		Eventually(management.told(ctx, check)).Should(ContainElement(mendv1.EventCheckReleased))

		management.delete(ctx, shipped)
		management.ends(ctx, pod, manager)
		for _, o := range shipped {
			management.gone(ctx, o)
		}
		Eventually(management.mentions(ctx)).Should(BeEmpty())
		unchanged(ctx, management, is)
	}, SpecTimeout(specPatience))
}

// claimedCheck is one that kubemend acts on, with no template: its Machines are deleted.
func claimedCheck() *unstructured.Unstructured {
	check := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"clusterName": "fleet",
		"selector":    map[string]any{"matchLabels": map[string]any{"role": "worker"}},
	}}}
	check.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineHealthCheck"))
	check.SetNamespace(metav1.NamespaceDefault)
	check.SetName("workers")
	check.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: mendv1.Claim})
	return check
}

var leavePatch = regexp.MustCompile(`patch deployment kubemend-controller-manager --type=json \\\n +-p '(.+)'`)

// teardown patches the Deployment as docs/uninstall.md says, runs what one of the new pods would, and returns when it is
// ready: everything is released.
func (c *cluster) teardown(ctx context.Context) (*corev1.Pod, *rig.Kubemend) {
	GinkgoHelper()
	patch := leavePatch.FindSubmatch(read(filepath.Join(root, "docs", "uninstall.md")))
	Expect(patch).To(HaveLen(2))
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: "kubemend-controller-manager"}}
	Expect(c.Patch(ctx, deployment, client.RawPatch(types.JSONPatchType, patch[1]))).To(Succeed())
	pod := &corev1.Pod{}
	Eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(c.List(ctx, pods, client.InNamespace(rig.Namespace))).To(Succeed())
		leaving := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return slices.Contains(p.Spec.Containers[0].Args, "--teardown") })
		g.Expect(leaving).NotTo(Equal(-1))
		pod = &pods.Items[leaving]
	}).Should(Succeed())
	pod.Finalizers = []string{held} // until the manager has ended that stands for its container, as it would stay for a kubelet
	Expect(c.Update(ctx, pod)).To(Succeed())

	for name, value := range map[string]string{"POD_NAMESPACE": pod.Namespace, "POD_NAME": pod.Name, "POD_UID": string(pod.UID)} {
		GinkgoT().Setenv(name, value)
	}
	manager, err := c.plane.Leaving(ctx, "leaving", c.account(), append(c.plane.WebhookFlags(), "--leader-elect")...)
	Expect(err).NotTo(HaveOccurred())
	reportLog(manager)
	Eventually(func() error { return manager.Ready(ctx) }).Should(Succeed())
	return pod, manager
}

// ends waits until the manager's pod is to go, and does then what its kubelet would.
func (c *cluster) ends(ctx context.Context, pod *corev1.Pod, manager *rig.Kubemend) {
	GinkgoHelper()
	Eventually(func() (*metav1.Time, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.DeletionTimestamp, err
	}).ShouldNot(BeNil())
	manager.Kill()
	Expect(c.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
}

// told are the reasons of the events about an object.
func (c *cluster) told(ctx context.Context, about *unstructured.Unstructured) func() ([]string, error) {
	return func() ([]string, error) {
		list := &eventsv1.EventList{}
		if err := c.List(ctx, list, client.InNamespace(about.GetNamespace())); err != nil {
			return nil, err
		}
		var reasons []string
		for i := range list.Items {
			if list.Items[i].Regarding.UID == about.GetUID() {
				reasons = append(reasons, list.Items[i].Reason)
			}
		}
		return reasons, nil
	}
}

// mentions are the objects of all kinds that the API server has in which our name is, anywhere but in who wrote a field.
// Events are gone after an hour.
func (c *cluster) mentions(ctx context.Context) func() ([]string, error) {
	api, err := discovery.NewDiscoveryClientForConfig(c.plane.Config())
	Expect(err).NotTo(HaveOccurred())
	return func() ([]string, error) {
		kinds, err := api.ServerPreferredResources()
		if err != nil {
			return nil, err
		}
		var found []string
		listed := 0
		for _, group := range kinds {
			version, err := schema.ParseGroupVersion(group.GroupVersion)
			if err != nil {
				return nil, err
			}
			for i := range group.APIResources {
				kind := &group.APIResources[i]
				if !slices.Contains(kind.Verbs, "list") || kind.Kind == "Event" {
					continue
				}
				listed++
				those, err := c.mentioning(ctx, version.WithKind(kind.Kind))
				if err != nil {
					return nil, err
				}
				found = append(found, those...)
			}
		}
		if listed < 40 {
			return nil, fmt.Errorf("list all kinds: there are only %d", listed)
		}
		return found, nil
	}
}

// mentioning are those of one kind.
func (c *cluster) mentioning(ctx context.Context, kind schema.GroupVersionKind) ([]string, error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(kind)
	if err := c.List(ctx, all); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind, err)
	}
	var found []string
	for i := range all.Items {
		o := &all.Items[i]
		o.SetManagedFields(nil)
		content, err := o.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encode %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if strings.Contains(string(content), "kubemend") {
			found = append(found, o.GetKind()+" "+strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/"))
		}
	}
	return found, nil
}
