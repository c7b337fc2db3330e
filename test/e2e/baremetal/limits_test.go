package baremetal

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// The policy is printed in docs/limits.md: one of the four hosts of a rack may be unavailable, whichever cluster the host belongs to.
var _ = Describe("A policy for racks that two clusters share", func() {
	It("starts no remediation in a failing rack, and does not block other racks", func(ctx SpecContext) {
		sites := []*environment{tenant(ctx, "red"), tenant(ctx, "blue")}
		for _, object := range suite.Printed(filepath.Join("..", "..", "..", "docs", "limits.md")) {
			Expect(here.Create(ctx, object, client.FieldValidation("Strict"))).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, object)).To(Succeed()) })
		}
		for _, site := range sites {
			site.AllWell(ctx)
			site.racked(ctx)
			check := builders.MachineHealthCheck(site.Cluster, site.Name, builders.Patience(2*time.Second), // which the policy claims
				builders.RemediatedBy(ours.apiVersion, ours.name+"Template", site.Name))
			Expect(builders.Apply(ctx, here, ours.template(site.Namespace, site.Name, twoAttempts), check)).To(Succeed())
		}
		Eventually(func(g Gomega) {
			policies := &mendv1.RemediationPolicyList{}
			g.Expect(here.List(ctx, policies)).To(Succeed())
			g.Expect(policies.Items).To(ConsistOf(HaveField("Status.Selected.Targets", BeEquivalentTo(16))))
		}).Should(Succeed())

		By("losing two machines of one rack, in two clusters, and then one of another rack")
		red, blue, other := sites[0].inRack(ctx, "b01"), sites[1].inRack(ctx, "b01"), sites[1].inRack(ctx, "b02")
		began, hold := time.Now(), &mendv1.RemediationOverride{ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: "b01"}}
		hold.Spec = mendv1.RemediationOverrideSpec{
			TargetRef: mendv1.OverrideTarget{Kind: "FailureDomain", Name: "b01"}, Action: mendv1.OverrideHold, Reason: "until both are lost",
			Until: metav1.NewTime(began.Add(time.Hour)),
		}
		Expect(here.Create(ctx, hold)).To(Succeed())
		blocked := func(reason string) {
			Eventually(sites[0].blockedBy(ctx, red)).Should(Equal(reason))
			Eventually(sites[1].blockedBy(ctx, blue)).Should(Equal(reason))
		}
		sites[0].Host(red).Kubelet().Stop()
		sites[1].Host(blue).Kubelet().Stop()
		blocked(place.HeldByOverride)
		Expect(here.Delete(ctx, hold)).To(Succeed())
		blocked(place.GroupUnavailable)
		sites[1].Host(other).Kubelet().Stop()
		Eventually(func() int { return len(sites[1].Host(other).History().Since(began)) }).Should(Equal(2), "off and on")

		By("letting one machine recover by itself")
		sites[0].Host(red).Kubelet().Start()
		Eventually(func() int { return len(sites[1].Host(blue).History().Since(began)) }).Should(Equal(2), "off and on")
		for _, site := range sites {
			site.AllWell(ctx)
		}
		Expect(sites[0].Host(red).History().Since(began)).To(BeEmpty())
	}, SpecTimeout(specPatience))
})

// tenant creates a cluster with the label tier: prod in its own namespace, until the spec ends.
func tenant(ctx context.Context, name string) *environment {
	GinkgoHelper()
	env := &environment{suite.Site{Namespace: name, Name: name, ControlPlanes: 1, Workers: 8, Plane: fixture.Plane}}
	env.Build(ctx, here, provider, inPool)
	DeferCleanup(env.nodesAreDeleted)
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(here.Delete(ctx, env.Cluster))).To(Succeed()) })
	before := env.Cluster.DeepCopy()
	env.Cluster.Labels = map[string]string{"tier": "prod"}
	Expect(here.Patch(ctx, env.Cluster, client.MergeFrom(before))).To(Succeed())
	return env
}

// racked puts the workers' hosts into four racks, two hosts each, with CAPM3's label for failure domains.
func (env *environment) racked(ctx context.Context) {
	GinkgoHelper()
	for i, name := range env.WorkerNames(ctx) {
		bmh := &bmov1alpha1.BareMetalHost{}
		Expect(here.Get(ctx, env.Host(name).Key(), bmh)).To(Succeed())
		before := bmh.DeepCopy()
		bmh.Labels = map[string]string{place.FailureDomainLabel: fmt.Sprintf("b%02d", i%4+1)}
		Expect(here.Patch(ctx, bmh, client.MergeFrom(before))).To(Succeed())
	}
}

// inRack returns a worker whose host is in a rack.
func (env *environment) inRack(ctx context.Context, rack string) string {
	GinkgoHelper()
	names := env.WorkerNames(ctx)
	return names[slices.IndexFunc(names, func(name string) bool {
		bmh := &bmov1alpha1.BareMetalHost{}
		Expect(here.Get(ctx, env.Host(name).Key(), bmh)).To(Succeed())
		return bmh.Labels[place.FailureDomainLabel] == rack
	})]
}

// blockedBy returns the reason of a machine's condition Remediation.
func (env *environment) blockedBy(ctx context.Context, name string) func(Gomega) string {
	return func(g Gomega) string {
		m := &clusterv1.Machine{}
		g.Expect(here.Get(ctx, client.ObjectKey{Namespace: env.Namespace, Name: name}, m)).To(Succeed())
		return conditions.GetReason(m, mendv1.Remediation)
	}
}
