package api

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/test/suite"
)

// keepsObjects has the specs of two upgrades. The upgrade from the first release starts from manifests in testdata, which never change. The
// upgrade from the previous commit covers changes since the first release.
//
// No old manager runs: the present one defaults and converts the objects that are written before the upgrade. Only the stored objects,
// their schemas and the installed manifests are old.
func keepsObjects(management *cluster) {
	DescribeTable("keeps the objects of all kinds, in each version", func(ctx SpecContext, old func(context.Context) []byte) {
		before := management.install(ctx, old(ctx))
		manager := management.start(ctx, "before")
		written := suite.Manifest(filepath.Join("testdata", "objects.yaml"))
		for _, o := range written {
			management.apply(ctx, o, author)
		}
		manager.Kill()

		installed := management.install(ctx, read(released(this, "kubemend-standalone.yaml")))
		manager = management.start(ctx, "after")
		for _, o := range installed {
			// a kind with one version needs no migration
			if versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions"); len(versions) > 1 {
				Eventually(management.migrated(ctx, o.GetName())).Should(BeTrue(), o.GetName())
			}
		}
		for _, o := range written {
			unchanged(ctx, management, o)
		}
		management.remove(ctx, slices.Concat(installed, before))
		manager.Kill()
	},
		Entry("since the first release", SpecTimeout(specPatience), func(context.Context) []byte {
			return read(filepath.Join("testdata", first, "kubemend-standalone.yaml"))
		}),
		Entry("since the commit before this one", SpecTimeout(specPatience), commitBefore))

	It("leaves objects in an old stored version alone while CAPM3 owns the CRD, and migrates them once kubemend owns it",
		func(ctx SpecContext) { migratesWhatIsOurs(ctx, management) }, SpecTimeout(specPatience))
}

// commitBefore returns the manifests of the previous commit. In a copy without history it skips the spec.
func commitBefore(ctx context.Context) []byte {
	GinkgoHelper()
	if err := exec.CommandContext(ctx, "git", "-C", root, "rev-parse", "--verify", "--quiet", "HEAD^:config/standalone").Run(); err != nil {
		Skip("this copy has no commit before this one: " + err.Error())
	}
	folder := GinkgoT().TempDir()
	archive := filepath.Join(folder, "config.tar")
	run(ctx, root, "git", "archive", "--output="+archive, "HEAD^", "config")
	run(ctx, folder, "tar", "-xf", archive)
	return kustomized(ctx, filepath.Join(folder, "config", "standalone"))
}

// unchanged expects that an object still exists and that all fields of its author have kept their values.
func unchanged(ctx context.Context, c *cluster, written *unstructured.Unstructured) {
	GinkgoHelper()
	is := suite.Must(c.current(ctx, written))
	name := written.GetAPIVersion() + " " + written.GetKind() + " " + written.GetName()
	Expect(is.GetUID()).To(Equal(written.GetUID()), name)
	Expect(is.GetDeletionTimestamp()).To(BeNil(), name)
	Expect(is.Object["spec"]).To(Equal(written.Object["spec"]), name)
	for key, value := range written.GetLabels() {
		Expect(is.GetLabels()).To(HaveKeyWithValue(key, value), name)
	}
	for key, value := range written.GetAnnotations() {
		Expect(is.GetAnnotations()).To(HaveKeyWithValue(key, value), name)
	}
}

// migrated reports whether the manager has finished the migration of a kind and the CRD lists a single stored version.
func (c *cluster) migrated(ctx context.Context, name string) func() (bool, error) {
	return func() (bool, error) {
		crd, err := c.crd(ctx, name)
		if err != nil {
			return false, err
		}
		return seen(crd) && len(crd.Status.StoredVersions) == 1 && crd.Status.StoredVersions[0] == storage(crd), nil
	}
}

// seen reports whether a migrator has handled the present generation of a CRD.
func seen(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return crd.Annotations[clusterv1.CRDMigrationObservedGenerationAnnotation] == strconv.FormatInt(crd.Generation, 10)
}

const (
	metal3Kind     = "metal3remediations.infrastructure.cluster.x-k8s.io"
	metal3Template = "metal3remediationtemplates.infrastructure.cluster.x-k8s.io"
)

// CAPM3 before v1.13 stored v1beta1. An upgraded cluster still has objects in both versions, and its CRD lists both as stored.
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

	By("leaving CAPM3's objects alone")
	management.belongsTo(ctx, all, "v1beta2")
	both := ConsistOf("v1beta1", "v1beta2")
	Expect(management.storedVersions(ctx, metal3Kind)()).To(both)
	manager = management.start(ctx, "migrating")
	Eventually(management.migrated(ctx, "hostremediations.kubemend.io")).Should(BeTrue(), "it has begun")
	Eventually(management.migrated(ctx, "nodehealthchecks.remediation.medik8s.io")).Should(BeTrue())
	for _, name := range []string{metal3Kind, metal3Template} {
		crd := suite.Must(management.crd(ctx, name))
		Expect(crd.Status.StoredVersions).To(both)
		Expect(seen(crd)).To(BeFalse())
	}
	Expect(management.storedAs(ctx, "metal3remediations", "old")()).To(Equal("infrastructure.cluster.x-k8s.io/v1beta1"))

	By("migrating them when kubemend's manifests are applied")
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

// belongsTo labels the CRDs of Metal3 as CAPM3's, and makes them store objects in that version.
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

// storedAs returns the version in which etcd holds an object of CAPM3's group.
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
