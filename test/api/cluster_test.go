package api

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// installer is who applies manifests, author who writes objects.
const (
	installer = client.FieldOwner("installer")
	author    = client.FieldOwner("author")
)

// cluster is a management cluster that ends with the spec, or the container of specs, that has started it.
type cluster struct {
	client.Client
	plane *rig.ControlPlane
}

// newCluster starts one with the kinds of cert-manager, in addition to what the options say.
func newCluster(ctx context.Context, o rig.ManagementOptions) *cluster {
	GinkgoHelper()
	certManager, err := rig.CertManager()
	Expect(err).NotTo(HaveOccurred())
	o.CRDs = append(o.CRDs, certManager...)
	plane, err := suite.Rig(ctx).Management(ctx, o)
	Expect(err).NotTo(HaveOccurred())
	return reach(plane)
}

func reach(plane *rig.ControlPlane) *cluster {
	GinkgoHelper()
	return &cluster{Client: suite.Client(plane.Config(), apiextensionsv1.AddToScheme), plane: plane}
}

// install applies a manifest as `kubectl apply --server-side` does: a field that the API server does not know is refused.
// What webhooks there are lead to the manager that is started with start, as if by cert-manager and by a Service.
func (c *cluster) install(ctx context.Context, manifest []byte) []*unstructured.Unstructured {
	GinkgoHelper()
	all := suite.Objects(manifest)
	for _, o := range all {
		Expect(c.plane.Trust(o)).To(Succeed())
		c.apply(ctx, o, installer, client.ForceOwnership)
	}
	c.serves(ctx, all)
	return all
}

// apply applies one object, tried without consequences first. It leaves the object as it was given, but for what the API server adds.
func (c *cluster) apply(ctx context.Context, o *unstructured.Unstructured, opts ...client.ApplyOption) {
	GinkgoHelper()
	Expect(c.try(ctx, o, opts...)).To(Succeed(), "%s %s", o.GetKind(), o.GetName())
	Expect(c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), opts...)).To(Succeed(), "%s %s", o.GetKind(), o.GetName())
}

// try has the API server check an object as it would if it were applied.
func (c *cluster) try(ctx context.Context, o *unstructured.Unstructured, opts ...client.ApplyOption) error {
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(again(o)), append(opts, client.DryRunAll)...)
}

// remove deletes what was installed, in the order of kubectl delete: that of the manifest, the namespace first and the
// webhooks last. It returns when all of it is gone, and with the kinds their objects.
func (c *cluster) remove(ctx context.Context, all []*unstructured.Unstructured) {
	GinkgoHelper()
	c.delete(ctx, all)
	for _, o := range all {
		c.gone(ctx, o)
	}
}

func (c *cluster) delete(ctx context.Context, all []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, o := range all {
		Expect(client.IgnoreNotFound(c.Delete(ctx, o.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground)))).To(Succeed())
	}
}

// isWebhook reports whether an object makes the API server ask the manager.
func isWebhook(o *unstructured.Unstructured) bool {
	return o.GetKind() == "MutatingWebhookConfiguration" || o.GetKind() == "ValidatingWebhookConfiguration"
}

// again is an object that can be applied once more, without what the API server has added.
func again(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	o.SetUID("")
	unstructured.RemoveNestedField(o.Object, "status")
	return o
}

// serves waits until the kinds among objects are served.
func (c *cluster) serves(ctx context.Context, all []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, o := range all {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, crd)).To(Succeed())
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(crd.Spec.Group + "/" + storage(crd))
		list.SetKind(crd.Spec.Names.ListKind)
		Eventually(func() error { return c.List(ctx, list) }).Should(Succeed(), crd.Name)
	}
}

// start starts the manager with the rights of the ServiceAccount that ships, and nothing but them. It ends with the cluster, at the latest.
func (c *cluster) start(ctx context.Context, name string, more ...string) *rig.Kubemend {
	GinkgoHelper()
	manager, err := c.plane.Kubemend(ctx, name, c.account(), append(c.plane.WebhookFlags(), more...)...)
	Expect(err).NotTo(HaveOccurred())
	reportLog(manager)
	return manager
}

// account is the kubeconfig of the ServiceAccount that ships.
func (c *cluster) account() []byte {
	GinkgoHelper()
	_, kubeconfig, err := c.plane.User(rig.Account, "system:serviceaccounts", "system:serviceaccounts:"+rig.Namespace)
	Expect(err).NotTo(HaveOccurred())
	return kubeconfig
}

// reportLog shows the end of a manager's log if the spec fails.
func reportLog(manager *rig.Kubemend) {
	DeferCleanup(func() { suite.LogOf("the manager", manager, CurrentSpecReport()) })
}

// crd is a CustomResourceDefinition as it is.
func (c *cluster) crd(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition %s: %w", name, err)
	}
	return crd, nil
}

// storedVersions are those in which there may be objects of a kind.
func (c *cluster) storedVersions(ctx context.Context, name string) func() ([]string, error) {
	return func() ([]string, error) {
		crd, err := c.crd(ctx, name)
		if err != nil {
			return nil, err
		}
		return crd.Status.StoredVersions, nil
	}
}

// storage is the version that objects are written in.
func storage(crd *apiextensionsv1.CustomResourceDefinition) string {
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Storage {
			return crd.Spec.Versions[i].Name
		}
	}
	return ""
}

// current is an object as it is, in the version that it was written in.
func (c *cluster) current(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(o.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), found); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return found, nil
}
