package baremetal

import (
	"context"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

var _ = Describe("A remediation that CAPM3 has under way", Ordered, func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("is continued by kubemend: the host stays off until the workload has moved, and no annotation or taint stays", func(ctx SpecContext) {
		By("saying that the kind is CAPM3's")
		belongsToCAPM3(ctx, true)
		DeferCleanup(func(ctx SpecContext) { belongsToCAPM3(ctx, false) })

		By("losing a node with a volume that is not detached")
		app := "taken-over"
		Expect(builders.Apply(ctx, fixture.There, append(builders.Volume("default", app), builders.Deployment("default", app, 1, builders.WithVolume(app)))...)).To(Succeed())
		name := fixture.nodeOf(ctx, app)
		host, began := fixture.Host(name), time.Now()
		attacher.Stick(true)
		DeferCleanup(func() { attacher.Stick(false) })
		fixture.watched(ctx, theirs)
		patience := []byte(`{"spec":{"template":{"spec":{"strategy":{"timeoutSeconds":900}}}}}`) // no deadline comes in between
		Expect(here.Patch(ctx, theirs.template(fixture.Namespace, "metal3remediation", twoAttempts), client.RawPatch("application/merge-patch+json", patience))).To(Succeed())
		host.Kubelet().Stop()
		request := &infrav1.Metal3Remediation{}
		Eventually(func() error {
			return here.Get(ctx, client.ObjectKey{Namespace: fixture.Namespace, Name: name}, request)
		}).Should(Succeed())

		By("doing what CAPM3's controller does, up to its taint, which it does not sign")
		asCAPM3(ctx, request, host)
		Eventually(powered(host)).Should(BeFalse())
		fixture.edit(ctx, name, func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
				Key: infrav1.OutOfServiceTaintKey, Value: infrav1.OutOfServiceTaintValue, Effect: infrav1.OutOfServiceTaintEffect,
			})
		})

		By("saying that it is not CAPM3's any more")
		belongsToCAPM3(ctx, false)
		Eventually(func(g Gomega) {
			now := &infrav1.Metal3Remediation{}
			g.Expect(here.Get(ctx, client.ObjectKeyFromObject(request), now)).To(Succeed())
			g.Expect(now.Annotations["kubemend.io/power-cycle"]).To(ContainSubstring("MovingWorkload"))
		}).Should(Succeed())
		Expect(powered(host)()).To(BeFalse())
		Expect(changes(host.History().Since(began))).To(Equal([]simulator.Power{simulator.Off}), "it was never let on while its node was fenced")

		By("detaching the volume")
		attacher.Stick(false)
		Eventually(powered(host)).Should(BeTrue())
		Eventually(func() bool { return fixture.gone(ctx, theirs, name) }).Should(BeTrue())
		Expect(changes(host.History().Since(began))).To(Equal([]simulator.Power{simulator.Off, simulator.On}))
		fixture.nothingIsLeft(ctx, host, name)
	}, SpecTimeout(specPatience))
})

// belongsToCAPM3 says, by the label of their CRD, whether Metal3Remediations are CAPM3's to act on.
func belongsToCAPM3(ctx context.Context, do bool) {
	GinkgoHelper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	Expect(here.Get(ctx, client.ObjectKey{Name: "metal3remediations.infrastructure.cluster.x-k8s.io"}, crd)).To(Succeed())
	before := crd.DeepCopy()
	delete(crd.Labels, clusterv1.ProviderNameLabel)
	if do {
		crd.Labels[clusterv1.ProviderNameLabel] = "infrastructure-metal3"
	}
	Expect(here.Patch(ctx, crd, client.MergeFrom(before))).To(Succeed())
}

// asCAPM3 asks for a host to be powered off as CAPM3's controller does: its finalizer first, then its annotation on the host.
func asCAPM3(ctx context.Context, request *infrav1.Metal3Remediation, host *simulator.Host) {
	GinkgoHelper()
	before := request.DeepCopy()
	controllerutil.AddFinalizer(request, infrav1.RemediationFinalizer)
	Expect(here.Patch(ctx, request, client.MergeFrom(before))).To(Succeed())
	bmh := &bmov1alpha1.BareMetalHost{}
	bmh.Namespace, bmh.Name = host.Key().Namespace, host.Key().Name
	suite.Annotate(ctx, here, bmh, infrav1.PowerOffAnnotationPrefix+string(request.UID), new(infrav1.PowerOffAnnotationValue))
}
