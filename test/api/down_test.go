package api

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/suite"
)

const held = "example.org/held"

// stored is the version of Metal3's kinds that needs no conversion.
var stored = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}

// obeysWithoutManager are the specs of a cluster where all webhooks that ship are registered, and none answers.
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

	It("what needs the answer of a webhook is refused", func(ctx SpecContext) {
		for _, o := range written {
			old, template := o.GroupVersionKind().Version == "v1beta1", o.GetKind() != "HostRemediation" && o.GetKind() != "Metal3Remediation"
			if old || template {
				Expect(management.try(ctx, o, author)).To(MatchError(ContainSubstring("connection refused")), "%s %s", o.GetKind(), o.GetName())
			}
		}
	}, SpecTimeout(specPatience))

	It("an old version is neither read nor deleted as such", func(ctx SpecContext) {
		for _, o := range written {
			if o.GroupVersionKind().Version != "v1beta1" {
				continue
			}
			_, err := management.current(ctx, o)
			Expect(err).To(MatchError(ContainSubstring("connection refused")))
			Expect(management.Delete(ctx, o.DeepCopy())).To(MatchError(ContainSubstring("connection refused")))
		}
	}, SpecTimeout(specPatience))

	It("remediations are made, and their status is written", func(ctx SpecContext) {
		for _, o := range written {
			if o.GetKind() != "HostRemediation" && o.GetKind() != "Metal3Remediation" {
				continue
			}
			o = asStored(o)
			Expect(management.Status().Patch(ctx, o, client.RawPatch(client.Merge.Type(), []byte(`{"status":{"message":"by hand"}}`)))).To(Succeed())
			Expect(o.Object["status"]).To(HaveKeyWithValue("message", "by hand"), "%s %s", o.GetKind(), o.GetName())
			// What was applied in v1beta1 cannot be converted to see whose fields these are. The API server writes, and forgets whose they were.
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

	It("objects without an owner are garbage-collected", func(ctx SpecContext) {
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "machine"}}
		Expect(management.Create(ctx, owner)).To(Succeed())
		owned := again(written[5])
		Expect(owned.GetAPIVersion() + " " + owned.GetKind()).To(Equal(stored.String() + " Metal3Remediation"))
		owned.SetName("owned")
		owned.SetFinalizers(nil)
		owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}})
		management.apply(ctx, owned, author)
		Expect(management.Delete(ctx, owner)).To(Succeed())
		management.gone(ctx, owned)
	}, SpecTimeout(specPatience))

	It("every object can be deleted, whatever version it was written in", func(ctx SpecContext) {
		for _, o := range written {
			name := o.GetKind() + " " + o.GetName()
			o = asStored(o)
			Expect(management.Delete(ctx, o)).To(Succeed(), name)
			is, err := management.current(ctx, o)
			Expect(err).NotTo(HaveOccurred())
			Expect(is.GetDeletionTimestamp()).NotTo(BeNil(), name)
			Expect(management.Patch(ctx, o, client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed(), name)
			management.gone(ctx, o)
		}
	}, SpecTimeout(specPatience))
}

// asStored names an object in the version that it is stored in.
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
