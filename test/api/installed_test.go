package api

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/discovery"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/seeds"
	"github.com/kubemend/kubemend/test/suite"
)

// These containers install releases with kubectl apply. They share one control plane, so each of them removes what it has installed.
var _ = Describe("A cluster with Cluster API", Ordered, func() {
	management := &cluster{}

	BeforeAll(func(ctx SpecContext) {
		*management = *newCluster(ctx, rig.ManagementOptions{Name: "installed", Core: true, Controllers: rig.PodControllers()})
	}, NodeTimeout(specPatience))

	Context("on which a release is installed", func() { takesManifests(management) })
	Context("has kinds of kubemend that", func() { answersRequests(management) })
	Context("while no manager runs", func() { obeysWithoutManager(management) })
	Context("which is upgraded", func() { keepsObjects(management) })
	Context("which kubemend leaves", func() { forgets(management) })
})

// takesManifests has the specs of manifests that users apply. The API server checks each field, and the webhooks of Cluster API and of the
// manager check their own kinds.
func takesManifests(management *cluster) {
	var (
		installed []*unstructured.Unstructured
		answering *rig.Kubemend
	)

	AfterAll(func(ctx SpecContext) {
		management.remove(ctx, installed)
		answering.Kill()
	}, NodeTimeout(specPatience))

	It("accepts every field of the manifests that clusterctl renders", func(ctx SpecContext) {
		all := management.install(ctx, []byte(clusterctl(ctx, settings(nil), "generate", "provider", providerOfThis())))
		installed = append(installed, all...)
		kinds := map[string]int{}
		for _, o := range all {
			kinds[o.GetKind()]++
		}
		Expect(kinds).To(HaveKeyWithValue("CustomResourceDefinition", 5))
		Expect(kinds).To(SatisfyAll(HaveKey("Certificate"), HaveKey("Issuer"), HaveKey("Deployment"),
			HaveKey("MutatingWebhookConfiguration")))

		wrong := all[0].DeepCopy()
		Expect(unstructured.SetNestedField(wrong.Object, "x", "spec", "nobodyKnowsThis")).To(Succeed())
		Expect(management.try(ctx, wrong, installer)).To(MatchError(ContainSubstring("nobodyKnowsThis")), "an unknown field is refused")
	}, SpecTimeout(specPatience))

	It("has no NodeHealthChecks until the file with their kind is applied", func(ctx SpecContext) {
		check := suite.Seed("000/nodehealthcheck.yaml")[0]
		Expect(management.try(ctx, check, author)).To(MatchError(ContainSubstring("no matches for kind")))

		manager := management.start(ctx, "with NodeHealthChecks")
		served := func(value string) gomegatypes.GomegaMatcher {
			return MatchRegexp(`(?m)^kubemend_kind_served\{[^}]*kind="nodehealthchecks\.remediation\.medik8s\.io"[^}]*\} ` + value + "$")
		}
		Eventually(manager.Scrape).WithArguments(ctx).Should(served("0"))
		installed = append(installed, management.install(ctx, read(released(this, "kubemend-node-health-checks.yaml")))...)
		Eventually(manager.Scrape).WithArguments(ctx).Should(served("1"))
		Expect(management.try(ctx, check, author)).To(Succeed())
		expression := map[string]any{"key": "a", "operator": "In"} // but no values
		Expect(unstructured.SetNestedSlice(check.Object, []any{expression}, "spec", "selector", "matchExpressions")).To(Succeed())
		Expect(management.try(ctx, check, author)).To(MatchError(ContainSubstring("Invalid selector")), "the webhook answers")
		manager.Kill()
	}, SpecTimeout(specPatience))

	// This is what Cluster API's controllers read. For clusterctl see "A management cluster under clusterctl".
	It("has kinds that Cluster API finds by its contract", func(ctx SpecContext) {
		installed = append(installed, management.install(ctx, read(released(this, "kubemend-standalone.yaml")))...)
		answering = management.start(ctx, "standalone")
		for _, o := range suite.Manifest(filepath.Join("testdata", "objects.yaml")) {
			if o.GroupVersionKind().Group == "remediation.medik8s.io" {
				continue // it refers to Cluster API; Cluster API never refers to a NodeHealthCheck
			}
			management.apply(ctx, o, author)
			kind := o.GroupVersionKind()
			Expect(management.crd(ctx, contract.CalculateCRDName(kind.Group, kind.Kind))).NotTo(BeNil())
			found := suite.Must(external.GetObjectFromContractVersionedRef(ctx, management, clusterv1.ContractVersionedObjectReference{
				APIGroup: kind.Group, Kind: kind.Kind, Name: o.GetName(),
			}, metav1.NamespaceDefault))
			Expect(found.GetUID()).To(Equal(o.GetUID()))
		}
	}, SpecTimeout(specPatience))

	// These are manifests that users have. docs/differences.md lists those that are refused.
	It("answers the manifests of the documentation, as they are printed, as package seeds says", func(ctx SpecContext) {
		for _, namespace := range []string{"metal3", "openshift-operators"} {
			Expect(management.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		}
		for _, printed := range seeds.All {
			objects, err := seeds.Objects(printed.File)
			for _, o := range objects {
				if o.GetNamespace() == "" && o.GetKind() != "NodeHealthCheck" {
					o.SetNamespace(metav1.NamespaceDefault) // as kubectl does
				}
				err = errors.Join(err, management.Create(ctx, o, client.DryRunAll, client.FieldValidation("Strict")))
			}
			if printed.Refused == "" {
				Expect(err).NotTo(HaveOccurred(), printed.File)
			} else {
				Expect(err).To(MatchError(ContainSubstring(printed.Refused)), printed.File)
			}
		}
	}, SpecTimeout(specPatience))

	It("accepts every example, except objects of a kind whose CRD is an example", func(ctx SpecContext) {
		files := suite.Must(filepath.Glob(filepath.Join(root, "docs", "examples", "*.yaml")))
		Expect(files).NotTo(BeEmpty())
		for _, file := range files {
			for _, o := range suite.Manifest(file) {
				if o.GetKind() != "RebootRemediationTemplate" {
					err := management.Create(ctx, o, client.DryRunAll, client.FieldValidation("Strict"))
					Expect(err).NotTo(HaveOccurred(), "%s %s in %s", o.GetKind(), o.GetName(), file)
				}
			}
		}
	}, SpecTimeout(specPatience))

	It("accepts every template that clusterctl renders for a named cluster", func(ctx SpecContext) {
		files := suite.Must(filepath.Glob(filepath.Join(root, "templates", "*.yaml")))
		Expect(files).NotTo(BeEmpty())
		named := settings(map[string]string{"CLUSTER_NAME": "fleet"})
		for _, file := range files {
			shipped := released(this, filepath.Base(file))
			Expect(shipped).To(BeAnExistingFile(), "it is part of a release")
			rendered := suite.Objects([]byte(clusterctl(ctx, named, "generate", "yaml", "--from", shipped)))
			Expect(rendered).To(HaveLen(1), shipped)
			if rendered[0].GetNamespace() == "" && rendered[0].GetKind() != "NodeHealthCheck" {
				rendered[0].SetNamespace(metav1.NamespaceDefault) // as kubectl does
			}
			Expect(management.try(ctx, rendered[0], author)).To(Succeed(), shipped)

			wrong := rendered[0].DeepCopy()
			Expect(unstructured.SetNestedField(wrong.Object, "x", "spec", "nobodyKnowsThis")).To(Succeed())
			Expect(management.try(ctx, wrong, author)).
				To(MatchError(ContainSubstring("nobodyKnowsThis")), "an unknown field is refused: %s", shipped)
		}
	}, SpecTimeout(specPatience))

	It("does not create a deleted check again when a claim is applied, since the claim names its UID", func(ctx SpecContext) {
		gone := claimedCheck()
		gone.SetUID(uuid.NewUUID())
		Expect(management.Apply(ctx, client.ApplyConfigurationFromUnstructured(gone), client.FieldOwner(mendv1.ClaimFieldOwner))).
			To(MatchError(ContainSubstring("uid mismatch")))
	}, SpecTimeout(specPatience))
}

// forgets has the specs of docs/uninstall.md, step by step. The pods of the Deployment do not run; a local process with the name and UID of
// such a pod is the manager that tears down.
func forgets(management *cluster) {
	It("has nothing of kubemend after a teardown and the deletion of all that kubectl applied", func(ctx SpecContext) {
		Expect(management.mentions(ctx)()).To(BeEmpty(), "earlier containers have removed what they installed")
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
		is := suite.Must(management.current(ctx, check))
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

// claimedCheck returns a MachineHealthCheck that kubemend has claimed. It has no template, so Machines are deleted.
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

// teardown patches the Deployment as docs/uninstall.md says, runs the manager as one of the new pods would, and returns when the manager is
// ready, which means that it has released everything.
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
	pod.Finalizers = []string{held} // keeps the pod until the manager's process has ended, as a kubelet would
	Expect(c.Update(ctx, pod)).To(Succeed())

	for name, value := range map[string]string{"POD_NAMESPACE": pod.Namespace, "POD_NAME": pod.Name, "POD_UID": string(pod.UID)} {
		GinkgoT().Setenv(name, value)
	}
	manager := suite.Must(c.plane.Leaving(ctx, "leaving", c.account(), append(c.plane.WebhookFlags(), "--leader-elect")...))
	reportLog(manager)
	Eventually(func() error { return manager.Ready(ctx) }).Should(Succeed())
	return pod, manager
}

// ends waits until the manager's pod is being deleted, stops the manager, and removes the pod as its kubelet would.
func (c *cluster) ends(ctx context.Context, pod *corev1.Pod, manager *rig.Kubemend) {
	GinkgoHelper()
	Eventually(func() (*metav1.Time, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.DeletionTimestamp, err
	}).ShouldNot(BeNil())
	manager.Kill()
	Expect(c.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
}

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

// mentions returns the objects of all kinds that contain kubemend's name, managed fields ignored. It skips events, which the API server
// deletes after an hour.
func (c *cluster) mentions(ctx context.Context) func() ([]string, error) {
	api := suite.Must(discovery.NewDiscoveryClientForConfig(c.plane.Config()))
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
				objects, err := c.mentioning(ctx, version.WithKind(kind.Kind))
				if err != nil {
					return nil, err
				}
				found = append(found, objects...)
			}
		}
		if listed < 40 {
			return nil, fmt.Errorf("list all kinds: there are only %d", listed)
		}
		return found, nil
	}
}

// mentioning does so for one kind.
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
