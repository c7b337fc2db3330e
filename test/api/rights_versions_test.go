package api

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// kindsOfOurs are the CRDs that ship, and that are migrated.
// Records are left out: they have one version, and those that have ended go after a while.
func kindsOfOurs(ctx context.Context) []apiextensionsv1.CustomResourceDefinition {
	GinkgoHelper()
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	Expect(here.List(ctx, list)).To(Succeed())
	return slices.DeleteFunc(list.Items, func(crd apiextensionsv1.CustomResourceDefinition) bool {
		_, err := os.Stat(filepath.Join(ownKinds, crd.Spec.Group+"_"+crd.Spec.Names.Plural+".yaml"))
		return err != nil || crd.Name == records.CRD
	})
}

// ofFormerRelease gives a kind another version, if it has no other. The label is what tells that the kind was installed with kubemend.
func ofFormerRelease(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	before := crd.DeepCopy()
	metav1.SetMetaDataLabel(&crd.ObjectMeta, clusterv1.ProviderNameLabel, "addon-kubemend")
	if len(crd.Spec.Versions) == 1 {
		former := *crd.Spec.Versions[0].DeepCopy()
		former.Name, former.Storage = "v1alpha0", false
		crd.Spec.Versions = append(crd.Spec.Versions, former)
	}
	Expect(here.Patch(ctx, crd, client.MergeFrom(before))).To(Succeed())
}

// touched writes to an object at a version of its kind.
func touched(ctx context.Context, version string, object client.Object) {
	GinkgoHelper()
	kind, err := here.GroupVersionKindFor(object)
	Expect(err).NotTo(HaveOccurred())
	at := &unstructured.Unstructured{}
	at.SetGroupVersionKind(kind.GroupKind().WithVersion(version))
	at.SetNamespace(object.GetNamespace())
	at.SetName(object.GetName())
	Eventually(func() error {
		return here.Patch(ctx, at, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"written-at":"`+version+`"}}}`)))
	}).Should(Succeed())
}

// ofThisRelease makes a kind serve no version but that in which it is stored now, and says that it was stored in all of them.
func ofThisRelease(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	Expect(here.Get(ctx, client.ObjectKeyFromObject(crd), crd)).To(Succeed())
	before := crd.DeepCopy()
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Served = crd.Spec.Versions[i].Storage
	}
	Expect(here.Patch(ctx, crd, client.MergeFrom(before))).To(Succeed())
	before = crd.DeepCopy()
	crd.Status.StoredVersions = nil
	for _, version := range crd.Spec.Versions {
		crd.Status.StoredVersions = append(crd.Status.StoredVersions, version.Name)
	}
	Expect(here.Status().Patch(ctx, crd, client.MergeFrom(before))).To(Succeed())
}
