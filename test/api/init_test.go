package api

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// clusterctl installs into an API server that was empty, from repositories on this disk: the releases of kubemend, Cluster API's core
// provider from its Go module, and only the CRDs of cert-manager. No pod of the Deployments runs, so clusterctl is not asked to wait for
// them.
var _ = Describe("A management cluster under clusterctl", Ordered, func() {
	var (
		management *cluster
		kubeconfig string
		kept       *unstructured.Unstructured
		checks     []*unstructured.Unstructured // what a NodeHealthCheck needs besides
	)

	BeforeAll(func(ctx SpecContext) {
		writeOtherProviders(ctx)
		plane := suite.Must(suite.Rig(ctx).Workload(ctx, "fresh", rig.WorkloadOptions{
			Controllers: slices.Concat(rig.OwnerControllers(), rig.PodControllers()),
		}))
		management, kubeconfig = reach(plane), "--kubeconfig="+plane.KubeconfigFile()
	}, NodeTimeout(specPatience))

	It("has kubemend beside Cluster API after clusterctl init", func(ctx SpecContext) {
		Expect(management.initialise(ctx, first, core())).To(Succeed())
		Expect(management.providers(ctx)).To(Equal(map[string]string{"cluster-api": coreVersion(), "addon-kubemend": first}))
		Expect(management.image(ctx)).To(Equal("ghcr.io/kubemend/kubemend:" + first))

		kept = suite.Manifest(filepath.Join("testdata", "objects.yaml"))[1]
		Expect(kept.GetKind()).To(Equal("HostRemediation"))
		management.apply(ctx, kept, author)
	}, SpecTimeout(specPatience))

	It("lists the releases that kubemend can be upgraded to", func(ctx SpecContext) {
		plan := clusterctl(ctx, settings(nil), "upgrade", "plan", kubeconfig)
		GinkgoWriter.Println(plan)
		Expect(plan).To(MatchRegexp(`addon-kubemend +kubemend-system +AddonProvider +` + first + ` +` + this))
	}, SpecTimeout(specPatience))

	It("keeps its objects in an upgrade, and gets kubemend of this release", func(ctx SpecContext) {
		checks = management.install(ctx, read(released(this, "kubemend-node-health-checks.yaml")))
		clusterctl(ctx, settings(map[string]string{"KUBEMEND_LOG_LEVEL": "2"}), "upgrade", "apply", kubeconfig, "--addon=kubemend:"+this)
		Expect(management.providers(ctx)).To(Equal(map[string]string{"cluster-api": coreVersion(), "addon-kubemend": this}))
		Expect(management.image(ctx)).To(Equal("ghcr.io/kubemend/kubemend:" + this))
		unchanged(ctx, management, kept)
		Expect(management.ours(ctx, &admissionv1.ValidatingWebhookConfiguration{})).
			To(HaveLen(1), "clusterctl has not installed it and does not delete it")
	}, SpecTimeout(specPatience))

	It("can go back to the earlier release", func(ctx SpecContext) {
		clusterctl(ctx, settings(nil), "upgrade", "apply", kubeconfig, "--addon=kubemend:"+first)
		Expect(management.providers(ctx)).To(HaveKeyWithValue("addon-kubemend", first))
		Expect(management.image(ctx)).To(Equal("ghcr.io/kubemend/kubemend:" + first))
		unchanged(ctx, management, kept)
	}, SpecTimeout(specPatience))

	It("keeps its objects when kubemend is deleted, and nothing that blocks their deletion", func(ctx SpecContext) {
		clusterctl(ctx, settings(nil), "delete", kubeconfig, "--addon=kubemend")
		Expect(management.providers(ctx)).To(Equal(map[string]string{"cluster-api": coreVersion()}))
		unchanged(ctx, management, kept)
		Expect(management.Get(ctx, client.ObjectKey{Name: "kubemend-system"}, &corev1.Namespace{})).To(Succeed())
		for _, gone := range []client.Object{&appsv1.Deployment{}, &corev1.ServiceAccount{}, &admissionv1.MutatingWebhookConfiguration{}} {
			Expect(management.ours(ctx, gone)).To(BeEmpty())
		}
		Expect(management.ours(ctx, &admissionv1.ValidatingWebhookConfiguration{})).
			To(HaveLen(1), "docs/uninstall.md says what to do about it")
		// clusterctl leaves cluster-scoped objects whose names do not begin with the provider's name. docs/install.md says so.
		Expect(management.ours(ctx, &rbacv1.ClusterRole{})).NotTo(BeEmpty())
		Expect(management.Delete(ctx, kept.DeepCopy())).To(Succeed())
		management.gone(ctx, kept)
		management.remove(ctx, checks)
	}, SpecTimeout(specPatience))

	It("has nothing of kubemend after a teardown, clusterctl delete, and the deletion of what clusterctl leaves", func(ctx SpecContext) {
		Expect(management.initialise(ctx, this)).To(Succeed())
		request := suite.Manifest(filepath.Join("testdata", "objects.yaml"))[1]
		Expect(request.GetKind()).To(Equal("HostRemediation"))
		request.SetFinalizers([]string{mendv1.HostRemediationFinalizer})
		management.apply(ctx, request, author)

		pod, manager := management.teardown(ctx)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: "leader.kubemend.io"}}
		Expect(management.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
		Expect(lease.OwnerReferences).To(ConsistOf(HaveField("UID", pod.UID)))

		uninstall := []string{"delete", kubeconfig, "--addon=kubemend"}
		_, err := rig.Clusterctl(ctx, settings(nil), append(slices.Clone(uninstall), "--include-namespace", "--include-crd")...)
		Expect(err).To(MatchError(ContainSubstring("found existing objects")), "the HostRemediation that its author has not deleted")
		Expect(management.image(ctx)).NotTo(BeEmpty(), "the refused command has deleted nothing")

		clusterctl(ctx, settings(nil), uninstall...)
		management.ends(ctx, pod, manager)
		Eventually(func() bool {
			return apierrors.IsNotFound(management.Get(ctx, client.ObjectKeyFromObject(lease), lease))
		}).Should(BeTrue(), "the lease is deleted with the pod, while the namespace still exists")
		Eventually(management.mentions(ctx)).Should(ConsistOf(
			"ClusterRole kubemend-aggregate-to-cluster-api", "ClusterRole kubemend-cluster-wide", "ClusterRole kubemend-ext-remediation",
			"ClusterRole kubemend-hosts", "ClusterRole kubemend-manager-role", "ClusterRole kubemend-view-records",
			"ClusterRoleBinding kubemend-ext-remediation", "ClusterRoleBinding kubemend-hosts", "ClusterRoleBinding kubemend-manager",
			"CustomResourceDefinition hostremediations.kubemend.io", "CustomResourceDefinition hostremediationtemplates.kubemend.io",
			"CustomResourceDefinition remediationoverrides.kubemend.io",
			"CustomResourceDefinition remediationpolicies.kubemend.io",
			"CustomResourceDefinition remediationrecords.kubemend.io",
			"APIService v1alpha1.kubemend.io", // exists as long as these CRDs
			"HostRemediation default/own", "Namespace kubemend-system",
		))

		byLabel := client.MatchingLabels{"cluster.x-k8s.io/provider": "addon-kubemend"}
		for _, kind := range []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{},
			&apiextensionsv1.CustomResourceDefinition{}} {
			Expect(management.DeleteAllOf(ctx, kind, byLabel)).To(Succeed())
		}
		Expect(management.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: rig.Namespace}})).To(Succeed())
		Eventually(management.mentions(ctx)).Should(BeEmpty())
	}, SpecTimeout(specPatience))
})

// core returns the argument of clusterctl init for Cluster API's core provider.
func core() string { return "--core=cluster-api:" + coreVersion() }

// initialise runs clusterctl init for a release of kubemend, and with the arguments in more.
func (c *cluster) initialise(ctx context.Context, version string, more ...string) error {
	_, err := rig.Clusterctl(ctx, settings(nil), append([]string{
		"init", "--kubeconfig=" + c.plane.KubeconfigFile(), "--bootstrap=-", "--control-plane=-", "--addon=kubemend:" + version,
	}, more...)...)
	return err
}

// writeOtherProviders adds the other providers that clusterctl init installs to the repository.
func writeOtherProviders(ctx context.Context) {
	GinkgoHelper()
	module := suite.Must(rig.ClusterAPI())
	write(filepath.Join("cluster-api", coreVersion()), "core-components.yaml",
		kustomized(ctx, filepath.Join(module, "core", "config", "default")))
	write(filepath.Join("cluster-api", coreVersion()), "metadata.yaml", read(filepath.Join(module, "metadata.yaml")))
	kinds := suite.Must(rig.CertManager())
	namespace := []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: cert-manager}\n")
	write(filepath.Join("cert-manager", certManagerVersion), "cert-manager.yaml", slices.Concat(namespace, read(kinds[0]), read(kinds[1])))
}

func write(folder, file string, content []byte) {
	GinkgoHelper()
	folder = filepath.Join(repository, folder)
	Expect(os.MkdirAll(folder, 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(folder, file), content, 0o600)).To(Succeed())
}

// providers returns the versions of the providers in clusterctl's inventory, by name.
func (c *cluster) providers(ctx context.Context) (map[string]string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("clusterctl.cluster.x-k8s.io/v1alpha3")
	list.SetKind("ProviderList")
	if err := c.List(ctx, list); err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for i := range list.Items {
		version, _, err := unstructured.NestedString(list.Items[i].Object, "version")
		if err != nil {
			return nil, err
		}
		versions[list.Items[i].GetName()] = version
	}
	return versions, nil
}

func (c *cluster) image(ctx context.Context) (string, error) {
	d := &appsv1.Deployment{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "kubemend-system", Name: "kubemend-controller-manager"}, d); err != nil {
		return "", err
	}
	return d.Spec.Template.Spec.Containers[0].Image, nil
}

// ours returns the names of the objects of a kind that have kubemend's provider label.
func (c *cluster) ours(ctx context.Context, of client.Object) ([]string, error) {
	kind, err := c.GroupVersionKindFor(of)
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := c.List(ctx, list, client.MatchingLabels{"cluster.x-k8s.io/provider": "addon-kubemend"}); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

const held = "example.org/held"

// stored is the storage version of Metal3's kinds.
var stored = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}

// obeysWithoutManager has the specs of a cluster where all webhooks are registered but no manager answers.
func obeysWithoutManager(management *cluster) {
	var installed, written []*unstructured.Unstructured

	BeforeAll(func(ctx SpecContext) {
		installed = management.install(ctx, read(released(this, "kubemend-standalone.yaml")))
		manager := management.start(ctx, "writing")
		written = suite.Manifest(filepath.Join("testdata", "objects.yaml"))
		for _, o := range written {
			o.SetFinalizers([]string{held})
			management.apply(ctx, o, author)
		}
		manager.Kill()
	}, NodeTimeout(specPatience))

	AfterAll(func(ctx SpecContext) { management.remove(ctx, installed) }, NodeTimeout(specPatience))

	It("requests that need the answer of a webhook are refused", func(ctx SpecContext) {
		for _, o := range written {
			old, template := o.GroupVersionKind().Version == "v1beta1",
				o.GetKind() != "HostRemediation" && o.GetKind() != "Metal3Remediation"
			if old || template {
				Expect(management.try(ctx, o, author)).
					To(MatchError(ContainSubstring("connection refused")), "%s %s", o.GetKind(), o.GetName())
			}
		}
	}, SpecTimeout(specPatience))

	It("remediations are made, and their status is written", func(ctx SpecContext) {
		for _, o := range written {
			if o.GetKind() != "HostRemediation" && o.GetKind() != "Metal3Remediation" {
				continue
			}
			o = asStored(o)
			Expect(management.Status().Patch(ctx, o, client.RawPatch(client.Merge.Type(), []byte(`{"status":{"message":"by hand"}}`)))).
				To(Succeed())
			Expect(o.Object["status"]).To(HaveKeyWithValue("message", "by hand"), "%s %s", o.GetKind(), o.GetName())
			// An object applied in v1beta1 cannot be converted while no webhook answers, so the API server cannot compare its managed
			// fields. It writes the object and drops the managed fields.
			noted := Not(BeEmpty())
			if o.GetName() == "old" {
				noted = BeEmpty()
			}
			Expect(o.GetManagedFields()).To(noted, "%s %s", o.GetKind(), o.GetName())
		}
		another := again(written[1])
		another.SetName("another")
		another.SetFinalizers(nil)
		management.apply(ctx, another, author)
		Expect(management.Delete(ctx, another)).To(Succeed())
	}, SpecTimeout(specPatience))

	It("every object can be deleted, whatever version it was written in", func(ctx SpecContext) {
		for _, o := range written {
			name := o.GetKind() + " " + o.GetName()
			o = asStored(o)
			Expect(management.Delete(ctx, o)).To(Succeed(), name)
			is := suite.Must(management.current(ctx, o))
			Expect(is.GetDeletionTimestamp()).NotTo(BeNil(), name)
			Expect(management.Patch(ctx, o, client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"finalizers":null}}`)))).
				To(Succeed(), name)
			management.gone(ctx, o)
		}
	}, SpecTimeout(specPatience))
}

// asStored returns a copy of an object of Metal3's group in its storage version; other objects are copied as they are.
func asStored(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	if o.GroupVersionKind().Group == stored.Group {
		o.SetAPIVersion(stored.String())
	}
	return o
}

func (c *cluster) gone(ctx context.Context, o *unstructured.Unstructured) {
	GinkgoHelper()
	Eventually(func() bool {
		_, err := c.current(ctx, o)
		return apierrors.IsNotFound(err)
	}).Should(BeTrue(), "%s %s", o.GetKind(), o.GetName())
}
