package api

import (
	"context"
	"encoding/json"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubemend/kubemend/test/suite"
)

const (
	metal3Kind     = "metal3remediations.infrastructure.cluster.x-k8s.io"
	metal3Template = "metal3remediationtemplates.infrastructure.cluster.x-k8s.io"
)

// CAPM3 before v1.13 stored v1beta1. A cluster that has come from there has objects of both versions, and a CRD that says so.
func migratesWhatIsOurs(ctx context.Context, management *cluster) {
	GinkgoHelper()
	shipped := read(released(this, "kubemend-standalone.yaml"))
	all := management.install(ctx, shipped)
	manager := management.start(ctx, "writing-old")
	management.belongsTo(ctx, all, "v1beta1")
	written := suite.Manifest(filepath.Join("testdata", "objects.yaml"))
	for _, o := range written {
		management.apply(ctx, o, author)
	}
	Expect(management.storedAs(ctx, "metal3remediations", "old")()).To(Equal("infrastructure.cluster.x-k8s.io/v1beta1"))
	manager.Kill()

	By("leaving alone what is CAPM3's")
	management.belongsTo(ctx, all, "v1beta2")
	both := ConsistOf("v1beta1", "v1beta2")
	Expect(management.storedVersions(ctx, metal3Kind)()).To(both)
	manager = management.start(ctx, "migrating")
	Eventually(management.migrated(ctx, "hostremediations.kubemend.io")).Should(BeTrue(), "it has begun")
	Eventually(management.migrated(ctx, "nodehealthchecks.remediation.medik8s.io")).Should(BeTrue())
	for _, name := range []string{metal3Kind, metal3Template} {
		crd, err := management.crd(ctx, name)
		Expect(err).NotTo(HaveOccurred())
		Expect(crd.Status.StoredVersions).To(both)
		Expect(seen(crd)).To(BeFalse())
	}
	Expect(management.storedAs(ctx, "metal3remediations", "old")()).To(Equal("infrastructure.cluster.x-k8s.io/v1beta1"))

	By("migrating it when kubemend's manifests are applied")
	management.install(ctx, shipped)
	for _, name := range []string{metal3Kind, metal3Template} {
		Eventually(management.storedVersions(ctx, name)).Should(ConsistOf("v1beta2"), name)
	}
	for _, resource := range []string{"metal3remediations", "metal3remediationtemplates"} {
		Expect(management.storedAs(ctx, resource, "old")()).To(Equal("infrastructure.cluster.x-k8s.io/v1beta2"), resource)
	}
	for _, o := range written {
		unchanged(ctx, management, o)
	}
	management.remove(ctx, all)
	manager.Kill()
}

// belongsTo makes the kinds of Metal3 CAPM3's, with objects stored in that version.
func (c *cluster) belongsTo(ctx context.Context, all []*unstructured.Unstructured, version string) {
	GinkgoHelper()
	for _, o := range all {
		if o.GetName() != metal3Kind && o.GetName() != metal3Template {
			continue
		}
		theirs := again(o)
		labels := theirs.GetLabels()
		labels["cluster.x-k8s.io/provider"] = "infrastructure-metal3"
		theirs.SetLabels(labels)
		versions, _, err := unstructured.NestedSlice(theirs.Object, "spec", "versions")
		Expect(err).NotTo(HaveOccurred())
		for i := range versions {
			one := versions[i].(map[string]any)
			one["storage"] = one["name"] == version
		}
		Expect(unstructured.SetNestedSlice(theirs.Object, versions, "spec", "versions")).To(Succeed())
		c.apply(ctx, theirs, installer)
		Eventually(func() (string, error) {
			crd, err := c.crd(ctx, o.GetName())
			if err != nil {
				return "", err
			}
			return storage(crd), nil
		}).Should(Equal(version))
	}
}

// storedAs is the version in which etcd holds an object of CAPM3's group.
func (c *cluster) storedAs(ctx context.Context, resource, name string) func() (string, error) {
	return func() (string, error) {
		content, err := c.plane.Stored(ctx, "/registry/infrastructure.cluster.x-k8s.io/"+resource+"/default/"+name)
		if err != nil {
			return "", err
		}
		var o metav1.TypeMeta
		err = json.Unmarshal(content, &o)
		return o.APIVersion, err
	}
}
