package release

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// Nothing runs the Deployments: clusterctl is not told to wait for them. All else is done for real, by an API server that had nothing at all,
// from repositories on this disk: kubemend's releases, Cluster API's core provider as its module has it, and of cert-manager the kinds.
var _ = Describe("A management cluster under clusterctl", Ordered, func() {
	var (
		management *cluster
		kubeconfig string
		kept       *unstructured.Unstructured
	)

	BeforeAll(func(ctx SpecContext) {
		writeOtherProviders(ctx)
		plane, err := suite.Rig(ctx).Workload(ctx, "fresh", rig.WorkloadOptions{Controllers: rig.OwnerControllers()})
		Expect(err).NotTo(HaveOccurred())
		management, kubeconfig = reach(plane), "--kubeconfig="+plane.KubeconfigFile()
	}, NodeTimeout(specPatience))

	DescribeTable("gets no release that breaks the contract", func(ctx SpecContext, file, was, is, said string) {
		const broken = "v0.1.98"
		folder := released(broken, "")
		Expect(os.CopyFS(folder, os.DirFS(released(this, "")))).To(Succeed())
		DeferCleanup(os.RemoveAll, folder)
		content := read(filepath.Join(folder, file))
		Expect(content).To(ContainSubstring(was))
		Expect(os.WriteFile(filepath.Join(folder, file), bytes.ReplaceAll(content, []byte(was), []byte(is)), 0o600)).To(Succeed())
		Expect(management.initialise(ctx, settings(nil), broken)).To(MatchError(ContainSubstring(said)))
	},
		Entry("a name that Cluster API would not look for", SpecTimeout(specPatience), "addon-components.yaml",
			"name: hostremediations.kubemend.io", "name: hostremediation.kubemend.io", `CRD name "hostremediation.kubemend.io" is invalid`),
		Entry("a contract that core does not keep", SpecTimeout(specPatience), "metadata.yaml",
			"contract: v1beta2", "contract: v1alpha4", "detected contract version v1alpha4"),
		Entry("a version of no series", SpecTimeout(specPatience), "metadata.yaml",
			"minor: 1", "minor: 7", "does not match any release series"),
		Entry("an image without a host", SpecTimeout(specPatience), "addon-components.yaml",
			"image: docker.io/kubemend/kubemend", "image: kubemend/kubemend", "repository name must be canonical"))

	It("has kubemend beside Cluster API after clusterctl init", func(ctx SpecContext) {
		Expect(management.initialise(ctx, settings(nil), first)).To(Succeed())
		Expect(management.providers(ctx)).To(Equal(map[string]string{"cluster-api": coreVersion(), "addon-kubemend": first}))
		Expect(management.image(ctx)).To(Equal("docker.io/kubemend/kubemend:" + first))

		kept = suite.Manifest(filepath.Join("testdata", "objects.yaml"))[1]
		Expect(kept.GetKind()).To(Equal("HostRemediation"))
		management.apply(ctx, kept, author)
	}, SpecTimeout(specPatience))

	It("lists what kubemend can be upgraded to", func(ctx SpecContext) {
		plan := clusterctl(ctx, settings(nil), "upgrade", "plan", kubeconfig)
		GinkgoWriter.Println(plan)
		Expect(plan).To(MatchRegexp(`addon-kubemend +kubemend-system +AddonProvider +` + first + ` +` + this))
	}, SpecTimeout(specPatience))

	It("keeps its objects in an upgrade, and gets kubemend of this release", func(ctx SpecContext) {
		management.install(ctx, read(released(this, "kubemend-node-health-checks.yaml")))
		clusterctl(ctx, settings(map[string]string{"KUBEMEND_LOG_LEVEL": "2"}), "upgrade", "apply", kubeconfig, "--addon=kubemend:"+this)
		Expect(management.providers(ctx)).To(Equal(map[string]string{"cluster-api": coreVersion(), "addon-kubemend": this}))
		Expect(management.image(ctx)).To(Equal("docker.io/kubemend/kubemend:" + this))
		unchanged(ctx, management, kept)
		Expect(management.ours(ctx, &admissionv1.ValidatingWebhookConfiguration{})).To(HaveLen(1), "clusterctl has not installed it, and does not take it away")
	}, SpecTimeout(specPatience))

	It("can go back", func(ctx SpecContext) {
		clusterctl(ctx, settings(nil), "upgrade", "apply", kubeconfig, "--addon=kubemend:"+first)
		Expect(management.providers(ctx)).To(HaveKeyWithValue("addon-kubemend", first))
		Expect(management.image(ctx)).To(Equal("docker.io/kubemend/kubemend:" + first))
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
		Expect(management.ours(ctx, &admissionv1.ValidatingWebhookConfiguration{})).To(HaveLen(1), "docs/uninstall.md says what to do about it")
		// clusterctl leaves what has no namespace and no name that begins with the provider's, here and with every provider. docs/install.md says so.
		Expect(management.ours(ctx, &rbacv1.ClusterRole{})).NotTo(BeEmpty())
		Expect(management.Delete(ctx, kept.DeepCopy())).To(Succeed())
		management.gone(ctx, kept)
	}, SpecTimeout(specPatience))
})

// initialise installs a release, and Cluster API's core provider, as clusterctl init does.
func (c *cluster) initialise(ctx context.Context, settings, version string) error {
	_, err := rig.Clusterctl(ctx, settings, "init", "--kubeconfig="+c.plane.KubeconfigFile(),
		"--core=cluster-api:"+coreVersion(), "--bootstrap=-", "--control-plane=-", "--addon=kubemend:"+version)
	return err
}

// writeOtherProviders adds to the repository what clusterctl init installs besides.
func writeOtherProviders(ctx context.Context) {
	GinkgoHelper()
	module, err := rig.ClusterAPI()
	Expect(err).NotTo(HaveOccurred())
	write(filepath.Join("cluster-api", coreVersion()), "core-components.yaml", kustomized(ctx, filepath.Join(module, "core", "config", "default")))
	write(filepath.Join("cluster-api", coreVersion()), "metadata.yaml", read(filepath.Join(module, "metadata.yaml")))
	kinds, err := rig.CertManager()
	Expect(err).NotTo(HaveOccurred())
	namespace := []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: cert-manager}\n")
	write(filepath.Join("cert-manager", certManagerVersion), "cert-manager.yaml", slices.Concat(namespace, read(kinds)))
}

func write(folder, file string, content []byte) {
	GinkgoHelper()
	folder = filepath.Join(repository, folder)
	Expect(os.MkdirAll(folder, 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(folder, file), content, 0o600)).To(Succeed())
}

// providers are those that clusterctl has noted, with their versions.
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

// image is that of the manager that is installed.
func (c *cluster) image(ctx context.Context) (string, error) {
	d := &appsv1.Deployment{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "kubemend-system", Name: "kubemend-controller-manager"}, d); err != nil {
		return "", err
	}
	return d.Spec.Template.Spec.Containers[0].Image, nil
}

// ours are the names of the objects of a kind that kubemend has installed.
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
